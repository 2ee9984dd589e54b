//! An error and its causes as one line of text.

use std::error::Error;

/// Formats the message of `error`, followed by the message of each cause, separated by `: `.
///
/// An error of this workspace does not repeat its cause in its own message, so a log line or a list needs the whole
/// chain.
///
/// ```
/// use plimsoll_core::error_chain;
///
/// let cause = std::io::Error::other("disk full");
/// assert_eq!(error_chain(&cause), "disk full");
/// ```
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read a.wav")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_follow_the_message() {
        let error = Outer(std::io::Error::other("disk full"));
        assert_eq!(error_chain(&error), "cannot read a.wav: disk full");
    }
}
