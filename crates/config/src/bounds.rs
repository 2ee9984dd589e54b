//! Bounds on configuration files and on the messages about them, so that a hostile file takes neither memory nor time.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use plimsoll_core::open_text_file;
use yaml_rust2::parser::{Event, Parser};

/// Largest configuration file, in bytes. The longest shipped file has 8 KB.
pub(super) const MAX_BYTES: u64 = 256 << 10;
/// Largest number of values in a configuration file, counting each value anew for each alias that repeats it. There are
/// about 150 keys.
pub(super) const MAX_VALUES: usize = 5_000;
/// Deepest nesting of lists and sections in a YAML file. Keys need two levels.
const MAX_DEPTH: usize = 32;
/// Largest number of characters that a message quotes of a file.
const MAX_QUOTE: usize = 200;
/// Longest line of a file that a message shows, in bytes.
const MAX_LINE: usize = 500;

/// Reads the file at `path`, without a byte order mark.
///
/// # Errors
/// As for [`std::fs::read_to_string`], and [`io::ErrorKind::FileTooLarge`] if the file has more than [`MAX_BYTES`].
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // Not the size of the metadata: a device has none.
    open_text_file(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Returns `text`, or its beginning if it is too long for a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Returns whether a message can show the lines of `text` around the bytes `at`.
pub(super) fn is_shown(text: &str, at: &Range<usize>) -> bool {
    let before: Vec<&str> = text.get(..at.start).unwrap_or_default().rsplit('\n').take(2).collect();
    let after: Vec<&str> = text.get(at.start..).unwrap_or_default().split('\n').take(2).collect();
    at.len() <= MAX_LINE && before.iter().chain(&after).all(|line| line.len() <= MAX_LINE)
}

/// Mistake in the size of a YAML file: its line and its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooBig {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Checks that a YAML file has at most [`MAX_VALUES`] values and [`MAX_DEPTH`] levels, without building any value. Other
/// mistakes are left to the reader of the file.
pub(super) fn check_yaml(text: &str) -> Result<(), TooBig> {
    let mut parser = Parser::new_from_str(text);
    // Number of values before each open list or section, with the number of its anchor.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut sizes: HashMap<usize, usize> = HashMap::new();
    let mut count: usize = 0;
    while let Ok((event, place)) = parser.next_token() {
        let refuse = |reason: String| Err(TooBig { line: place.line(), reason });
        match event {
            Event::StreamEnd => break,
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, count));
                count = count.saturating_add(1);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = open.pop() {
                    sizes.insert(anchor, count - before);
                }
            }
            Event::Scalar(_, _, anchor, _) => {
                sizes.insert(anchor, 1);
                count = count.saturating_add(1);
            }
            Event::Alias(anchor) => count = count.saturating_add(sizes.get(&anchor).copied().unwrap_or(1)),
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return refuse(format!("it is nested more than {MAX_DEPTH} levels deep"));
        }
        if count > MAX_VALUES {
            return refuse(format!("it has more than {MAX_VALUES} values, with those that aliases repeat"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_count_as_the_values_that_they_repeat() {
        let bomb = |levels: usize| {
            let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
            for level in 1..levels {
                let repeated = vec![format!("*a{}", level - 1); 9].join(", ");
                text += &format!("a{level}: &a{level} [{repeated}]\n");
            }
            text
        };
        assert_eq!(check_yaml(&bomb(2)), Ok(()));
        for levels in [5, 9, 40] {
            let error = check_yaml(&bomb(levels)).unwrap_err();
            assert!(error.line <= 6 && error.reason.contains("aliases"), "{error:?}");
        }
        // An alias inside its own anchor is a mistake that the reader reports.
        assert_eq!(check_yaml("a: &a [*a]\n"), Ok(()));
        assert_eq!(check_yaml("training: &t\n  steps: 1\nother: *t\n"), Ok(()));
    }

    #[test]
    fn deep_nesting_is_refused() {
        // Deeper flow lists are a mistake of the parser itself.
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
            let nested = |depth: usize| format!("{}x{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(check_yaml(&nested(MAX_DEPTH)), Ok(()), "{open}");
            assert!(check_yaml(&nested(100)).unwrap_err().reason.contains("levels"), "{open}");
        }
    }

    #[test]
    fn large_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        std::fs::write(&path, "x".repeat(MAX_BYTES as usize)).unwrap();
        assert_eq!(read_file(&path).unwrap().len() as u64, MAX_BYTES);
        std::fs::write(&path, "x".repeat(MAX_BYTES as usize + 1)).unwrap();
        assert_eq!(read_file(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
