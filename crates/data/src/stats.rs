//! What a corpus is like: how long its utterances and texts are, who speaks, in which letters.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Seconds;
use serde::Serialize;

use crate::utterance::Utterance;
use plimsoll_text::{Case, normalise};

/// A corpus in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CorpusStats {
    /// Utterances.
    pub utterances: usize,
    /// How long all of them last together.
    pub total: Seconds,
    /// Voices that have a name.
    pub speakers: usize,
    /// Utterances of each language that is named.
    pub languages: BTreeMap<String, usize>,
    /// Seconds of an utterance.
    pub seconds: Spread,
    /// Characters of a text, once normalised.
    pub characters: Spread,
    /// Characters that are said in a second: texts that do not belong to their audio lie far out.
    pub pace: Spread,
    /// How often each character occurs.
    pub letters: BTreeMap<char, usize>,
}

/// How a number is spread over a corpus.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub least: f64,
    /// One in ten is below.
    pub tenth: f64,
    /// Half are below.
    pub median: f64,
    /// Nine in ten are below.
    pub ninetieth: f64,
    /// The largest.
    pub most: f64,
    /// All together, by their number.
    pub mean: f64,
    /// How many there are from each step to the next.
    pub bins: Vec<Bin>,
}

/// Some of the values, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The smallest that belongs to it.
    pub from: f64,
    /// The smallest that does not any more; the last bin holds all that are larger, too.
    pub to: f64,
    /// How many.
    pub count: usize,
}

impl CorpusStats {
    /// Counts what is in `utterances`.
    pub fn of(utterances: &[Utterance]) -> Self {
        let texts: Vec<String> = utterances.iter().map(|u| normalise(&u.text, Case::Keep)).collect();
        let characters = || texts.iter().map(|text| text.chars().count() as f64);
        let seconds = || utterances.iter().map(|utterance| utterance.duration.0);
        let mut languages = BTreeMap::new();
        for language in utterances.iter().filter_map(|utterance| utterance.language.clone()) {
            *languages.entry(language).or_default() += 1;
        }
        let mut letters = BTreeMap::new();
        for letter in texts.iter().flat_map(|text| text.chars()) {
            *letters.entry(letter).or_default() += 1;
        }
        let speakers: BTreeSet<&str> = utterances.iter().filter_map(|utterance| utterance.speaker.as_deref()).collect();
        Self {
            utterances: utterances.len(),
            total: utterances.iter().map(|utterance| utterance.duration).sum(),
            speakers: speakers.len(),
            languages,
            seconds: Spread::of(seconds().collect()),
            characters: Spread::of(characters().collect()),
            pace: Spread::of(characters().zip(seconds()).map(|(c, s)| c / s.max(0.01)).collect()),
            letters,
        }
    }
}

/// About as many bins as fit under each other on a screen.
const BINS: f64 = 20.0;

impl Spread {
    /// The spread of `values`; of none, all is zero.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else { return Self::default() };
        let quantile = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let (tenth, median, ninetieth) = (quantile(0.1), quantile(0.5), quantile(0.9));
        // One clip of an hour should not squeeze all others into one bin.
        let bins = bins(&values, quantile(0.995));
        Self { least, tenth, median, ninetieth, most, mean, bins }
    }
}

/// Bins of a round width, so that about `BINS` of them reach from the least to `end`.
fn bins(values: &[f64], end: f64) -> Vec<Bin> {
    let least = values[0];
    let width = round_up((end - least).max(1e-9) / BINS);
    let first = (least / width).floor() * width;
    let count = (((end - first) / width).floor() as usize + 1).min(2 * BINS as usize);
    let mut bins: Vec<Bin> = (0..count)
        .map(|n| Bin { from: first + width * n as f64, to: first + width * (n + 1) as f64, count: 0 })
        .collect();
    for value in values {
        let place = ((value - first) / width).floor().max(0.0) as usize;
        bins[place.min(count - 1)].count += 1;
    }
    bins
}

/// The next of 1, 2, 5, 10, 20 and so on, up and down.
fn round_up(width: f64) -> f64 {
    let magnitude = 10f64.powf(width.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| *step >= width * (1.0 - 1e-9)).unwrap_or(10.0 * magnitude)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_corpus_is_counted() {
        let utterance = |text: &str, seconds: f64, speaker: Option<&str>| Utterance {
            id: text.into(),
            audio: "a.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(seconds),
            text: text.into(),
            speaker: speaker.map(Into::into),
            language: speaker.map(|_| "en".into()),
        };
        let stats = CorpusStats::of(&[
            utterance("aab", 1.0, Some("x")),
            utterance("b  b", 3.0, Some("x")),
            utterance("a", 2.0, None),
        ]);
        assert_eq!((stats.utterances, stats.speakers, stats.total), (3, 1, Seconds(6.0)));
        assert_eq!(stats.languages["en"], 2);
        assert_eq!(stats.letters, [(' ', 1), ('a', 3), ('b', 3)].into());
        assert_eq!((stats.seconds.median, stats.pace.least, stats.characters.most), (2.0, 0.5, 3.0));
        assert_eq!(CorpusStats::of(&[]).seconds, Spread::default());
    }

    proptest! {
        #[test]
        fn bins_hold_every_value(values in prop::collection::vec(0.0..1e5f64, 1..200)) {
            let spread = Spread::of(values.clone());
            prop_assert_eq!(spread.bins.iter().map(|bin| bin.count).sum::<usize>(), values.len());
            prop_assert!(spread.bins.len() <= 40);
            prop_assert!(spread.bins[0].from <= spread.least && spread.least <= spread.most);
        }
    }
}
