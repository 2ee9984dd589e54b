//! Finds the shards of a corpus: the tar files of a folder, or of a pattern such as `train-{000..012}.tar`.

use std::path::{Path, PathBuf};

use super::walk::{Walk, ending};

/// Largest number of files of a pattern. A hundred thousand shards of a gigabyte are more than any corpus of speech.
const MAX_SHARDS: usize = 100_000;

/// Returns the shards at `path`, in order: the path itself where it is a file, the files of a pattern, which may be
/// missing, or all tar files below a folder.
pub(super) fn shards(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        return Walk::new(path).filter_map(Result::ok).filter(|file| is_shard(file)).collect();
    }
    match is_pattern(path) {
        true => path.to_str().map(expanded).unwrap_or_default(),
        false => vec![path.into()],
    }
}

/// Returns whether a file is a shard, judged by its extension.
pub(super) fn is_shard(file: &Path) -> bool {
    ending(file) == "tar"
}

/// Returns whether a path names several shards by braces, and not a file whose name has braces.
pub(super) fn is_pattern(path: &Path) -> bool {
    let is_pattern = path.to_str().is_some_and(|text| first_brace(text).is_some());
    is_pattern && is_shard(path) && !path.exists()
}

/// Returns all paths of a pattern with braces: `{a,b}` stands for each of its parts, `{08..12}` for each number with as
/// many digits. Empty for a pattern of too many files.
fn expanded(pattern: &str) -> Vec<PathBuf> {
    let mut done = vec![pattern.to_owned()];
    while let Some((_, choices, _)) = done.first().and_then(|text| first_brace(text)) {
        if done.len().saturating_mul(choices.len()) > MAX_SHARDS {
            return Vec::new();
        }
        let each = |text: String| match first_brace(&text) {
            Some((before, choices, after)) => {
                choices.iter().map(|choice| format!("{before}{choice}{after}")).collect::<Vec<_>>()
            }
            None => vec![text],
        };
        done = done.into_iter().flat_map(each).collect();
    }
    done.into_iter().map(PathBuf::from).collect()
}

/// Divides a pattern at its first braces, with what they stand for; `None` without braces.
fn first_brace(pattern: &str) -> Option<(&str, Vec<String>, &str)> {
    let (before, rest) = pattern.split_once('{')?;
    let (within, after) = rest.split_once('}')?;
    if within.contains('{') {
        return None;
    }
    if within.contains(',') {
        return Some((before, within.split(',').map(String::from).collect(), after));
    }
    let (first, last) = within.split_once("..")?;
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let (from, to) = (number(first)?, number(last)?);
    if from > to || (to - from) as usize >= MAX_SHARDS {
        return None;
    }
    // Zeros in front mean that all numbers have as many digits.
    let width = if first.starts_with('0') { first.len() } else { 0 };
    Some((before, (from..=to).map(|number| format!("{number:0width$}")).collect(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_numbers_and_names() {
        let names = |pattern: &str| -> Vec<String> {
            expanded(pattern).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("x-{08..11}.tar"), ["x-08.tar", "x-09.tar", "x-10.tar", "x-11.tar"]);
        assert_eq!(names("{a,b}/{0..1}.tar"), ["a/0.tar", "a/1.tar", "b/0.tar", "b/1.tar"]);
        for same in ["x.tar", "{x}.tar", "{3..1}.tar", "{0..4294967295}.tar", "{a..b}.tar", "}{.tar", "{{0..1}}.tar"] {
            assert_eq!(names(same), [same]);
        }
        assert!(names("{0..999}{0..999}.tar").is_empty());
    }
}
