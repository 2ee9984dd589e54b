//! Statistics of a corpus: lengths of utterances and texts, speakers, languages and characters.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Seconds;
use serde::Serialize;

use crate::utterances::Utterances;
use plimsoll_text::{Case, normalize};

/// Statistics of a corpus. They are serialized for scripts, so the names in JSON do not change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CorpusStats {
    /// Number of utterances in the corpus.
    pub utterances: usize,
    /// Total duration of the utterances.
    pub total: Seconds,
    /// Number of different speakers whose names are listed.
    pub speakers: usize,
    /// Number of utterances for each named language.
    pub languages: BTreeMap<String, usize>,
    /// Durations of the utterances, in seconds.
    pub seconds: Spread,
    /// Lengths of the normalized texts, in characters.
    pub characters: Spread,
    /// Characters per second of audio. Texts that do not belong to their audio are outliers here.
    pub pace: Spread,
    /// Number of occurrences of each character in the normalized texts; `letters` in JSON.
    #[serde(rename = "letters")]
    pub character_counts: BTreeMap<char, usize>,
}

/// Distribution of a number, such as the duration, over the utterances of a corpus.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Smallest of the values; `least` in JSON.
    #[serde(rename = "least")]
    pub min: f64,
    /// 10th percentile of the values; `tenth` in JSON.
    #[serde(rename = "tenth")]
    pub p10: f64,
    /// Median of the values.
    pub median: f64,
    /// 90th percentile of the values; `ninetieth` in JSON.
    #[serde(rename = "ninetieth")]
    pub p90: f64,
    /// Largest of the values; `most` in JSON.
    #[serde(rename = "most")]
    pub max: f64,
    /// Mean of the values.
    pub mean: f64,
    /// Histogram of the values: at most 40 bins of equal width, in order.
    pub bins: Vec<Bin>,
}

/// One bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Lower bound of the bin, included.
    pub from: f64,
    /// Upper bound of the bin, excluded. The last bin also counts every larger value.
    pub to: f64,
    /// Number of values in the bin.
    pub count: usize,
}

impl CorpusStats {
    /// Computes the statistics of `utterances`.
    pub fn new(utterances: &Utterances) -> Self {
        let (mut characters, mut character_counts) = (Vec::with_capacity(utterances.len()), BTreeMap::new());
        for text in utterances.texts() {
            let text = normalize(text, Case::Keep);
            characters.push(text.chars().count() as f64);
            for character in text.chars() {
                *character_counts.entry(character).or_default() += 1;
            }
        }
        let characters = || characters.iter().copied();
        let seconds = || (0..utterances.len()).map(|index| utterances.duration(index).0);
        let mut languages = BTreeMap::new();
        for language in utterances.iter().filter_map(|utterance| utterance.language) {
            match languages.get_mut(language) {
                Some(count) => *count += 1,
                None => drop(languages.insert(language.to_owned(), 1)),
            }
        }
        let speakers: BTreeSet<&str> = utterances.iter().filter_map(|utterance| utterance.speaker).collect();
        Self {
            utterances: utterances.len(),
            total: (0..utterances.len()).map(|index| utterances.duration(index)).sum(),
            speakers: speakers.len(),
            languages,
            seconds: Spread::new(seconds().collect()),
            characters: Spread::new(characters().collect()),
            pace: Spread::new(characters().zip(seconds()).map(|(c, s)| c / s.max(0.01)).collect()),
            character_counts,
        }
    }
}

/// Approximate number of bins of a histogram: as many lines as fit on a screen.
const BINS: f64 = 20.0;

impl Spread {
    /// Computes the distribution of the finite values in `values`; NaN and infinite values are ignored. Without a
    /// finite value, every field is zero.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Self::default() };
        let quantile = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let (p10, median, p90) = (quantile(0.1), quantile(0.5), quantile(0.9));
        // Ends at the 99.5th percentile: a single clip of an hour would otherwise put all others into one bin.
        let bins = bins(&values, quantile(0.995));
        Self { min, p10, median, p90, max, mean, bins }
    }
}

/// Computes bins of a round width, so that about `BINS` of them reach from the smallest value to `end`.
fn bins(values: &[f64], end: f64) -> Vec<Bin> {
    let min = values[0];
    let width = round_up((end - min).max(1e-9) / BINS);
    // Of a single large value, the product may be above it by rounding.
    let first = ((min / width).floor() * width).min(min);
    let count = (((end - first) / width).floor() as usize + 1).min(2 * BINS as usize);
    let mut bins: Vec<Bin> = (0..count)
        .map(|n| Bin { from: first + width * n as f64, to: first + width * (n + 1) as f64, count: 0 })
        .collect();
    for value in values {
        let bin_idx = ((value - first) / width).floor().max(0.0) as usize;
        bins[bin_idx.min(count - 1)].count += 1;
    }
    bins
}

/// Returns the smallest of …, 0.5, 1, 2, 5, 10, 20, … that is not below `width`.
fn round_up(width: f64) -> f64 {
    let magnitude = 10f64.powf(width.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| *step >= width * (1.0 - 1e-9)).unwrap_or(10.0 * magnitude)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::utterance::Utterance;

    #[test]
    fn utterances_speakers_and_characters_are_counted() {
        let utterance = |text: &str, seconds: f64, speaker: Option<&str>| Utterance {
            id: text.into(),
            audio: "a.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(seconds),
            text: text.into(),
            speaker: speaker.map(Into::into),
            language: speaker.map(|_| "en".into()),
        };
        let stats = CorpusStats::new(&Utterances::from(vec![
            utterance("aab", 1.0, Some("x")),
            utterance("b  b", 3.0, Some("x")),
            utterance("a", 2.0, None),
        ]));
        assert_eq!((stats.utterances, stats.speakers, stats.total), (3, 1, Seconds(6.0)));
        assert_eq!(stats.languages["en"], 2);
        assert_eq!(stats.character_counts, [(' ', 1), ('a', 3), ('b', 3)].into());
        assert_eq!((stats.seconds.median, stats.pace.min, stats.characters.max), (2.0, 0.5, 3.0));
        assert_eq!(CorpusStats::new(&Utterances::default()).seconds, Spread::default());
    }

    #[test]
    fn first_bin_holds_a_large_value_alone() {
        let spread = Spread::new(vec![57_714.936_223_483_74]);
        assert!(spread.bins[0].from <= spread.min);
    }

    proptest! {
        #[test]
        fn bins_hold_every_value(values in prop::collection::vec(0.0..1e5f64, 1..200)) {
            let spread = Spread::new(values.clone());
            prop_assert_eq!(spread.bins.iter().map(|bin| bin.count).sum::<usize>(), values.len());
            prop_assert!(spread.bins.len() <= 40);
            prop_assert!(spread.bins[0].from <= spread.min && spread.min <= spread.max);
        }
    }
}
