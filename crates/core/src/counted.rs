//! Counts with their noun, for messages.

use std::fmt::Display;

/// Formats `count` with `noun`, which is in the singular: "1 step", "2 steps", "3 batches". The first word of several gets
/// the ending: "2 checkpoints to average".
///
/// ```
/// use plimsoll_core::counted;
/// assert_eq!(counted(1, "block"), "1 block");
/// assert_eq!(counted(0, "block of width 8"), "0 blocks of width 8");
/// ```
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {noun}");
    }
    let (first, rest) = noun.split_at(noun.find(|char: char| !char.is_alphanumeric()).unwrap_or(noun.len()));
    let ending = if first.ends_with(['s', 'x', 'h']) { "es" } else { "s" };
    format!("{count} {first}{ending}{rest}")
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
            (11, "voice", "11 voices"),
            (21, "file: WAV", "21 files: WAV"),
            (1, "record in the cache", "1 record in the cache"),
            (5, "record in the cache", "5 records in the cache"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
    }
}
