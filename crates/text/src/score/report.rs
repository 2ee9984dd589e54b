//! Report about the errors of a recognizer on a test set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::alignment::Alignment;
use super::bootstrap::{Interval, ResampleUnit, Units, interval};
use super::counts::ErrorCounts;
use super::groups::{Confusion, Group, Ranked, Ranking};

/// An utterance of a test set, with what was recognized.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoredUtterance {
    /// Name of the utterance.
    pub id: String,
    /// Text that was said.
    pub reference: String,
    /// Text that was recognized.
    pub hypothesis: String,
    /// Name of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Length in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Settings of an [`ErrorReport`] and of [`compare`](super::compare).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportOptions {
    /// Number of sets that are drawn for a confidence interval.
    pub resamples: usize,
    /// Share of the drawn sets that an interval holds.
    pub level: f64,
    /// Seed of the drawing. The same seed gives the same intervals.
    pub seed: u64,
    /// Longest list of confusions, deletions, insertions and changed utterances.
    pub most: usize,
}

impl Default for ReportOptions {
    fn default() -> Self {
        // 1000 sets, as in Bisani and Ney, Bootstrap estimates for confidence intervals in ASR performance evaluation
        // (2004), leave the third digit of an end of the interval to chance.
        Self { resamples: 1000, level: 0.95, seed: 0, most: 20 }
    }
}

/// Errors of a recognizer on a test set.
///
/// ```
/// use plimsoll_text::score::{ErrorReport, ReportOptions, ScoredUtterance};
///
/// let utterance = |id: &str, reference: &str, hypothesis: &str| ScoredUtterance {
///     id: id.into(), reference: reference.into(), hypothesis: hypothesis.into(), ..Default::default()
/// };
/// let set = [utterance("a", "one two", "one too"), utterance("b", "two three", "too three")];
/// let report = ErrorReport::new(&set, ReportOptions::default());
/// assert_eq!(report.words.rate, 0.5);
/// assert_eq!((report.confused_words[0].reference.as_str(), report.confused_words[0].count), ("two", 2));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorReport {
    /// Number of utterances.
    pub utterances: usize,
    /// Number of utterances without an error in words.
    pub correct_utterances: usize,
    /// Word error rate.
    pub words: Interval,
    /// Character error rate.
    pub characters: Interval,
    /// What was drawn for the intervals.
    pub resampled: ResampleUnit,
    /// Number of these in the set. An interval of a few says little.
    pub drawn: usize,
    /// Errors of each speaker, the most errors in words for their number first. Empty without speakers.
    pub speakers: Vec<Group>,
    /// Errors by length: in seconds if every utterance has them, otherwise in words of the reference.
    pub lengths: Vec<Group>,
    /// Words that were recognized as other words.
    pub confused_words: Vec<Confusion>,
    /// Characters that were recognized as other characters.
    pub confused_characters: Vec<Confusion>,
    /// Words that were left out.
    pub deleted_words: Vec<Ranked>,
    /// Words that were added.
    pub inserted_words: Vec<Ranked>,
    /// Names of the utterances with the most errors in words, with their alignments.
    pub worst: Vec<(String, Alignment)>,
}

impl ErrorReport {
    /// Counts and ranks the errors of a test set.
    pub fn new(set: &[ScoredUtterance], options: ReportOptions) -> Self {
        let (mut words, mut characters) = (Vec::new(), Vec::new());
        let (mut word_ranking, mut character_ranking) = (Ranking::default(), Ranking::default());
        for utterance in set {
            let alignment = Alignment::words(&utterance.reference, &utterance.hypothesis);
            words.push(alignment.counts());
            word_ranking.add(&alignment);
            let alignment = Alignment::characters(&utterance.reference, &utterance.hypothesis);
            characters.push(alignment.counts());
            character_ranking.add(&alignment);
        }
        let units = Units::new(set.iter().map(|utterance| utterance.speaker.as_deref()));
        let rate =
            |counts: &[ErrorCounts]| interval(&units.sums(counts), options.resamples, options.seed, options.level);
        let group = |names: Vec<Option<String>>| groups(&names, &words, &characters);
        let mut speakers = group(set.iter().map(|utterance| utterance.speaker.clone()).collect());
        speakers.sort_by(|a, b| b.words.rate().total_cmp(&a.words.rate()));
        let mut lengths = group(length_names(set));
        lengths.iter_mut().for_each(|group| drop(group.name.drain(..2)));
        Self {
            utterances: set.len(),
            correct_utterances: words.iter().filter(|counts| counts.errors() == 0).count(),
            words: rate(&words),
            characters: rate(&characters),
            resampled: units.unit,
            drawn: units.len(),
            speakers,
            lengths,
            confused_words: word_ranking.confusions(options.most),
            confused_characters: character_ranking.confusions(options.most),
            deleted_words: word_ranking.deletions(options.most),
            inserted_words: word_ranking.insertions(options.most),
            worst: worst(set, &words, options.most),
        }
    }
}

/// Adds the counts of the utterances with the same name, in order of the names. `None` is left out.
fn groups(names: &[Option<String>], words: &[ErrorCounts], characters: &[ErrorCounts]) -> Vec<Group> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for (place, name) in names.iter().enumerate() {
        let Some(name) = name else { continue };
        let empty = || Group {
            name: name.clone(),
            utterances: 0,
            words: ErrorCounts::default(),
            characters: ErrorCounts::default(),
        };
        let group = groups.entry(name).or_insert_with(empty);
        group.utterances += 1;
        group.words = group.words + words[place];
        group.characters = group.characters + characters[place];
    }
    groups.into_values().collect()
}

/// Returns the name of the range of lengths of each utterance, after a digit and a space that put them in order.
fn length_names(set: &[ScoredUtterance]) -> Vec<Option<String>> {
    const SECONDS: [f64; 5] = [2.0, 5.0, 10.0, 20.0, f64::INFINITY];
    const SECONDS_NAMES: [&str; 5] = ["below 2 s", "2 to 5 s", "5 to 10 s", "10 to 20 s", "20 s and more"];
    const WORDS: [usize; 5] = [6, 11, 21, 41, usize::MAX];
    const WORDS_NAMES: [&str; 5] =
        ["up to 5 words", "6 to 10 words", "11 to 20 words", "21 to 40 words", "41 words and more"];
    let by_seconds = set.iter().all(|utterance| utterance.seconds.is_some());
    let name = |utterance: &ScoredUtterance| {
        let (place, names) = if by_seconds {
            let seconds = utterance.seconds.unwrap_or_default();
            (SECONDS.iter().position(|end| seconds < *end), SECONDS_NAMES)
        } else {
            let words = utterance.reference.split_whitespace().count();
            (WORDS.iter().position(|end| words < *end), WORDS_NAMES)
        };
        let place = place.unwrap_or(names.len() - 1);
        Some(format!("{place} {}", names[place]))
    };
    set.iter().map(name).collect()
}

fn worst(set: &[ScoredUtterance], words: &[ErrorCounts], most: usize) -> Vec<(String, Alignment)> {
    let mut places: Vec<usize> = (0..set.len()).filter(|&place| words[place].errors() > 0).collect();
    places.sort_by_key(|&place| std::cmp::Reverse(words[place].errors()));
    let show = |place: usize| (set[place].id.clone(), Alignment::words(&set[place].reference, &set[place].hypothesis));
    places.into_iter().take(most).map(show).collect()
}
