//! Checks at the start that all ranks train the same thing.

use plimsoll_core::{Collective, CollectiveError};

/// Error of [`require_equal`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EqualError {
    /// A fact differs between the ranks.
    #[error("{}", describe(fact, *ranks, differing, expected, found))]
    Differs {
        /// What differs: `the configuration`.
        fact: String,
        /// Number of ranks.
        ranks: usize,
        /// Ranks that differ from most others. If no value has a majority, those that differ from rank 0.
        differing: Vec<usize>,
        /// The value of the others, if it is short text.
        expected: Option<String>,
        /// The value of the first rank that differs, if it is short text.
        found: Option<String>,
    },
    /// The ranks could not be asked.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Requires that all replicas pass the same `bytes` for the same `fact`, such as `the configuration`. For long content,
/// pass a digest of it.
///
/// ```
/// use plimsoll_core::SingleReplica;
///
/// plimsoll_mpi::require_equal(&SingleReplica, "the version", b"0.1.0")?;
/// # Ok::<(), plimsoll_mpi::EqualError>(())
/// ```
///
/// # Errors
/// If the bytes differ, with the ranks that differ, the same on all ranks; or if a replica does not answer.
pub fn require_equal(collective: &dyn Collective, fact: &str, bytes: &[u8]) -> Result<(), EqualError> {
    let all = collective.gather(bytes.to_vec())?;
    let all: Vec<&[u8]> = all.iter().map(|bytes| &bytes[..]).collect();
    let expected = majority(&all);
    let differing: Vec<usize> = (0..all.len()).filter(|&rank| all[rank] != expected).collect();
    let Some(&first) = differing.first() else { return Ok(()) };
    Err(EqualError::Differs {
        fact: fact.to_owned(),
        ranks: all.len(),
        expected: short_text(expected),
        found: short_text(all[first]),
        differing,
    })
}

/// Returns the value of more than half of the ranks, or that of rank 0.
fn majority<'a>(all: &[&'a [u8]]) -> &'a [u8] {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    // A value of more than half of all stands in the middle.
    let middle = sorted[sorted.len() / 2];
    let count = all.iter().filter(|&&bytes| bytes == middle).count();
    if 2 * count > all.len() { middle } else { all[0] }
}

/// Returns the bytes as text for a message, if they are some.
fn short_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= 80 && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn describe(
    fact: &str,
    ranks: usize,
    differing: &[usize],
    expected: &Option<String>,
    found: &Option<String>,
) -> String {
    let shown: Vec<String> = differing.iter().take(8).map(ToString::to_string).collect();
    let more = if differing.len() > shown.len() { ", ..." } else { "" };
    let list = shown.join(", ") + more;
    let noun = if differing.len() == 1 { "rank" } else { "ranks" };
    let values = match (found, expected) {
        (Some(found), Some(expected)) => format!(": `{found}` and not `{expected}`"),
        _ => String::new(),
    };
    format!("{fact} differs on {noun} {list} of {ranks}{values}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A collective whose gather gives fixed answers.
    struct Answers(Vec<Arc<[u8]>>);

    impl Collective for Answers {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            self.0.len()
        }

        fn gather(&self, _own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
            Ok(self.0.clone())
        }
    }

    fn check(answers: &[&str], expected: Result<(), &str>) {
        let answers = Answers(answers.iter().map(|text| text.as_bytes().into()).collect());
        let found = require_equal(&answers, "the version", &[]).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn the_ranks_that_differ_are_named() {
        check(&["1", "1", "1"], Ok(()));
        check(&["1", "1", "2"], Err("the version differs on rank 2 of 3: `2` and not `1`"));
        check(&["2", "1", "1"], Err("the version differs on rank 0 of 3: `2` and not `1`"));
        check(&["1", "2"], Err("the version differs on rank 1 of 2: `2` and not `1`"));
        check(&["1", "2", "3", "1"], Err("the version differs on ranks 1, 2 of 4: `2` and not `1`"));
        check(&["\0", "1", "\0"], Err("the version differs on rank 1 of 3"));
    }
}
