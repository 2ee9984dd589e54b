//! Rule about a run that ended by an error. It comes before all others: speed does not help a run that fails.

use plimsoll_core::{EndKind, Event};

use crate::advice::finding::Severity;
use crate::advice::measured::Measured;
use crate::advice::outcome::{Outcome, Problem};

/// Largest number of characters of the record's words that a finding repeats. The words may list many utterances.
const WORDS_MAX: usize = 400;
/// Words of the record about a value that is infinite or NaN.
const NOT_FINITE: &[&str] = &[" is NaN", " is inf", " is -inf", "not finite"];
/// Words of the record about memory that is too small.
const NO_MEMORY: &[&str] = &["does not fit into memory", "fits into memory", "out of memory"];
/// Words of the record about a device that can no longer be used.
const DEVICE_FAILED: &[&str] = &["the device failed", "weights are lost"];
/// Words of the record about the other processes of the run.
const REPLICA_FAILED: &[&str] = &["replica"];
/// Words of the record about a panic of the program.
const STOPPED_INSIDE: &[&str] = &["the program stopped in the middle of the run"];

/// Cause of the end, as far as the record's words name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    NotFinite,
    NoMemory,
    DeviceFailed,
    ReplicaFailed,
    Panic,
    Other,
}

impl Cause {
    fn from_words(words: &str) -> Self {
        let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
        // A value is a word of its own: `is inf`, not `is information`.
        let is_word = |(at, part): (usize, &str)| !words[at + part.len()..].starts_with(char::is_alphabetic);
        let has_value = NOT_FINITE.iter().any(|part| words.match_indices(part).any(is_word));
        match () {
            () if has(STOPPED_INSIDE) => Self::Panic,
            () if has_value => Self::NotFinite,
            () if has(NO_MEMORY) => Self::NoMemory,
            // The words of another replica hold those of its own failure.
            () if has(REPLICA_FAILED) => Self::ReplicaFailed,
            () if has(DEVICE_FAILED) => Self::DeviceFailed,
            () => Self::Other,
        }
    }

    /// Names the cause, as the end of a sentence.
    fn name(self) -> &'static str {
        match self {
            Self::NotFinite => "a loss or a gradient that is not finite",
            Self::NoMemory => "a step that does not fit into memory",
            Self::DeviceFailed => "a failure of the device",
            Self::ReplicaFailed => "a failure of another replica",
            Self::Panic => "a panic of the program",
            Self::Other => "an error",
        }
    }

    /// Returns the exact next step for a person.
    fn next_step(self, has_debug: bool) -> &'static str {
        match self {
            Self::NotFinite if has_debug => {
                "Next step: the words name the layer where the value began. Train again with a lower \
                 `training.learning_rate`, or with `training.precision = \"fp32\"`."
            }
            Self::NotFinite => {
                "Next step: train again with `training.debug = true` (`--set training.debug=true`). The error then \
                 names the layer where the value began."
            }
            Self::NoMemory => {
                "Next step: `plimsoll memtest` with this configuration shows what fits. `training.does_not_fit = \
                 \"skip\"` leaves out utterances that do not."
            }
            Self::DeviceFailed => {
                "Next step: `plimsoll doctor` checks driver and GPU. The run continues from its last checkpoint."
            }
            Self::ReplicaFailed => "Next step: the output of the replica that failed first names the cause.",
            Self::Panic => {
                "Next step: train again with RUST_BACKTRACE=1. The message before the backtrace names the cause."
            }
            Self::Other => "Next step: the words above name the cause. The run continues from its last checkpoint.",
        }
    }
}

/// The run ended by an error, and was not resumed since.
pub(super) fn failed(run: &Measured<'_>) -> Outcome {
    let Some((step, end, words)) = run.last_end() else { return Outcome::Healthy };
    match end {
        EndKind::Failed => {}
        EndKind::Complete | EndKind::Stale | EndKind::Stopped => return Outcome::Healthy,
        _ => return Outcome::abstained("the record names an end that this program does not know"),
    }
    let cause = Cause::from_words(words);
    let mut problem = Problem::new(0.0, format!("the run ended by {} after step {step}", cause.name()));
    problem.severity = Some(Severity::Serious);
    problem = problem.because(match words {
        "" => "the record holds no words about the error".into(),
        words => format!("its record says: {}", clipped(words)),
    });
    let saved = run.facts.events.iter().filter_map(|event| match event {
        Event::Saved { step: saved, .. } => Some(*saved),
        _ => None,
    });
    problem = problem.because(match saved.filter(|saved| *saved <= step).max() {
        Some(saved) => format!("the last checkpoint is that of step {saved}"),
        None => "the record names no checkpoint".into(),
    });
    problem.hint(cause.next_step(run.has_debug())).found()
}

fn clipped(words: &str) -> String {
    match words.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_record_name_the_cause() {
        let check = |words: &str, expected| assert_eq!(Cause::from_words(words), expected, "{words}");
        for value in ["NaN", "inf", "-inf"] {
            for what in ["loss", "gradient norm"] {
                let step = format!("the {what} of step 7 is {value}, in a micro-batch with `a`");
                check(&step, Cause::NotFinite);
                check(&format!("the run stopped after 3 failed steps in a row: {step}"), Cause::NotFinite);
            }
        }
        check("step 3 does not fit into memory, even with one utterance at a time", Cause::NoMemory);
        check("no utterance of step 3 fits into memory, not even alone (`a`)", Cause::NoMemory);
        check("the device failed in step 9, with `a`: lost", Cause::DeviceFailed);
        check("the update of step 9 failed, and the weights are lost: continue", Cause::DeviceFailed);
        check("replica 1 failed in step 9: the device failed", Cause::ReplicaFailed);
        check("the program stopped in the middle of the run", Cause::Panic);
        check("cannot write a checkpoint: disk full", Cause::Other);
        check("cannot validate: this is information", Cause::Other);
        check("", Cause::Other);
    }

    #[test]
    fn long_words_are_clipped() {
        assert_eq!(clipped("ab"), "ab");
        let long = "ü".repeat(WORDS_MAX + 1);
        assert_eq!(clipped(&long).chars().count(), WORDS_MAX + 1);
        assert!(clipped(&long).ends_with('…'));
    }
}
