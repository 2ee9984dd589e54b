//! Counts with their noun, for messages.

use std::fmt::Display;

/// Formats `count` with `noun`, which is in the singular: "1 step", "2 steps", "3 batches".
///
/// ```
/// use plimsoll_core::counted;
/// assert_eq!(counted(1, "block"), "1 block");
/// assert_eq!(counted(0, "held-out utterance"), "0 held-out utterances");
/// ```
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = match count.as_str() {
        "1" => "",
        _ if ["s", "x", "tch"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        for (count, noun, expected) in [
            (0, "step", "0 steps"),
            (1, "step", "1 step"),
            (2, "batch", "2 batches"),
            (1, "batch", "1 batch"),
            (11, "voice", "11 voices"),
            (3, "epoch", "3 epochs"),
            (21, "micro-batch", "21 micro-batches"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
    }
}
