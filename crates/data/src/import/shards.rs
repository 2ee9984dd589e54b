//! Finds the shards of a corpus: the files of a folder, or of a pattern such as `train-{000..012}.tar` or
//! `data/train-*.parquet`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::issue::IssueKind;

use super::walk::{Walk, children, folder_of, name};

/// Largest number of files of a pattern. A hundred thousand shards of a gigabyte are more than any corpus of speech.
const MAX_SHARDS: usize = 100_000;

/// Extensions of tar shards.
pub(super) const TAR: &[&str] = &["tar", "tar.gz", "tgz"];
/// Extension of Parquet files.
pub(super) const PARQUET: &[&str] = &["parquet"];
/// Extension of Arrow files.
pub(super) const ARROW: &[&str] = &["arrow"];

/// Returns the shards with one of some extensions at `path`, in order: the path itself where it is a file, the files of a pattern
/// (those that braces name may be missing), or all such files below a folder.
pub(super) fn shards(path: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    if path.is_dir() {
        let files = Walk::new(path).filter_map(Result::ok).filter(|file| has_extension(file, extensions));
        // Of a shard and its compressed copies the shard counts: its name sorts first.
        let mut known = HashSet::new();
        return files.filter(|file| known.insert(without_extension(file))).collect();
    }
    match is_pattern(path) {
        true => {
            let files = path.to_str().map(expanded).unwrap_or_default();
            files.into_iter().flat_map(|file| starred(&file).unwrap_or_else(|| vec![file])).collect()
        }
        false => vec![path.into()],
    }
}

/// Returns the path of a shard without its extensions.
pub(super) fn without_extension(file: &Path) -> PathBuf {
    let bare = file.with_extension("");
    if bare.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar")) {
        bare.with_extension("")
    } else {
        bare
    }
}

/// Whether a file has one of some extensions, which may have a dot inside.
pub(super) fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    let name = name(file).to_ascii_lowercase();
    let has = |extension: &&str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
    extensions.iter().any(has)
}

/// Adds to the issue of a shard an estimate of the utterances that are lost with it. `found` is the number of utterances before
/// the damage, and `whole` has that of each shard without damage.
pub(super) fn with_loss(kind: IssueKind, (shard, found): (&Path, usize), whole: &[usize]) -> IssueKind {
    let usual = (whole.iter().sum::<usize>()).div_ceil(whole.len().max(1));
    match kind {
        IssueKind::DamagedShard { at, problem, .. } => {
            let size = std::fs::metadata(shard).map_or(at, |metadata| metadata.len());
            // Without a whole shard, what is behind the damage is as dense as what is before it.
            let behind = (found as f64 * size.saturating_sub(at) as f64 / at.max(1) as f64).ceil() as usize;
            let lost = if whole.is_empty() { behind } else { usual.saturating_sub(found) };
            IssueKind::DamagedShard { at, lost, problem }
        }
        IssueKind::Unreadable(problem) => IssueKind::UnreadableShard { lost: usual.saturating_sub(found), problem },
        other => other,
    }
}

/// Returns whether a path names several shards by braces or a star, and not a file whose name has them.
pub(super) fn is_pattern(path: &Path) -> bool {
    let is_pattern = path.to_str().is_some_and(|text| first_brace(text).is_some() || name(path).contains('*'));
    is_pattern && [TAR, PARQUET, ARROW].iter().any(|kind| has_extension(path, kind)) && !path.exists()
}

/// Returns the files that a name with a star stands for, in order; `None` for a name without a star.
fn starred(file: &Path) -> Option<Vec<PathBuf>> {
    let pattern = name(file);
    let (before, after) = pattern.split_once('*')?;
    let fits = |child: &PathBuf| {
        let child = name(child);
        child.strip_prefix(before).is_some_and(|rest| rest.ends_with(after))
    };
    let folder = folder_of(file);
    Some(children(folder).unwrap_or_default().into_iter().filter(fits).collect())
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

    #[test]
    fn a_star_stands_for_the_files_that_exist() {
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["train-1.parquet", "train-0.parquet", "test-0.parquet", "train-0.tar", "train.parquet"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let path = folder.path().join(pattern);
            assert!(is_pattern(&path) || !pattern.contains('*'));
            shards(&path, PARQUET).iter().map(|file| name(file)).collect()
        };
        assert_eq!(found("train-*.parquet"), ["train-0.parquet", "train-1.parquet"]);
        assert_eq!(found("{test,train}-*.parquet"), ["test-0.parquet", "train-0.parquet", "train-1.parquet"]);
        assert!(found("dev-*.parquet").is_empty());
        assert_eq!(found("").len(), 4);
    }
}
