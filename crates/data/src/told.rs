//! An error with its causes, in one line, for logs and lists.

use std::error::Error;

/// What `error` says, then what each cause says.
pub(crate) fn told(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
