//! The errors of a recognizer on held-out utterances: intervals, speakers, lengths, confused words, worst utterances.

use std::fs;
use std::path::Path;

use plimsoll_core::counted;
use serde::Deserialize;

/// File with the evaluation, in the folder of a run: what `plimsoll eval --json` prints.
const FILE: &str = "evaluation.json";
/// Fewest speakers or utterances whose interval says something.
const DRAWN_MIN: usize = 5;
/// Most worst utterances.
const WORST: usize = 10;

/// Evaluation of a recognizer. Unknown fields are skipped, and missing ones are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Evaluation {
    pub(super) utterances: u64,
    pub(super) search: Search,
    pub(super) details: Details,
    /// Utterances with the highest character error rates, the worst first.
    pub(super) worst: Vec<Worst>,
}

/// A badly recognized utterance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Worst {
    /// Name of the utterance in the manifest.
    pub(super) name: String,
    pub(super) truth: String,
    pub(super) heard: String,
    pub(super) cer: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Search {
    pub(super) kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    pub(super) words: Interval,
    pub(super) characters: Interval,
    /// Whether sets are drawn from `speakers` or from `utterances`.
    pub(super) resampled: String,
    /// Number of these.
    pub(super) drawn: usize,
    pub(super) correct_utterances: u64,
    pub(super) speakers: Vec<Group>,
    pub(super) lengths: Vec<Group>,
    pub(super) confused_words: Vec<Confusion>,
    pub(super) deleted_words: Vec<Ranked>,
    pub(super) inserted_words: Vec<Ranked>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Interval {
    pub(super) rate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) utterances: u64,
    pub(super) words: Counts,
    pub(super) characters: Counts,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) substitutions: u64,
    pub(super) deletions: u64,
    pub(super) insertions: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Confusion {
    pub(super) reference: String,
    pub(super) hypothesis: String,
    pub(super) count: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ranked {
    pub(super) text: String,
    pub(super) count: u64,
    pub(super) occurrences: u64,
}

impl Counts {
    pub(super) fn rate(self) -> f64 {
        let Self { hits, substitutions, deletions, insertions } = self;
        let [wrong, all] = [[substitutions, deletions, insertions], [hits, substitutions, deletions]]
            .map(|counts| counts.into_iter().fold(0u64, u64::saturating_add) as f64);
        wrong / all
    }
}

impl Evaluation {
    /// Reads the evaluation in the folder of a run; `None` if it is missing, damaged or empty.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(FILE)).ok()?;
        let mut found: Self = serde_json::from_str(&text).ok()?;
        found.worst.truncate(WORST);
        (found.utterances > 0).then_some(found)
    }

    /// Says how sure the error rates are; empty where too few were drawn.
    pub(super) fn interval(&self) -> Option<String> {
        let Details { words, characters, resampled, drawn, .. } = &self.details;
        let unit = if resampled == "speakers" { "speaker" } else { "utterance" };
        let rate = |name: &str, interval: &Interval| {
            let [rate, low, high] = [interval.rate, interval.low, interval.high].map(|share| share * 100.0);
            format!("{name} <b>{rate:.1}\u{a0}%</b> ({low:.1} to {high:.1}\u{a0}%)")
        };
        let drawn = (*drawn >= DRAWN_MIN).then(|| counted(*drawn as u64, unit))?;
        let (cer, wer) = (rate("CER", characters), rate("WER", words));
        Some(format!("{cer}, {wer}. In parentheses: 95 % intervals, drawn over {drawn}"))
    }
}
