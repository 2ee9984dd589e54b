//! Confidence intervals by bootstrap: rates of sets that are drawn from the test set with replacement.

use std::collections::BTreeMap;

use serde::Serialize;

use super::counts::ErrorCounts;
use super::random::Random;

/// What is drawn in a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResampleUnit {
    /// Single utterances.
    Utterances,
    /// Speakers with all of their utterances. The interval then holds for speakers who were not heard before.
    Speakers,
}

/// An error rate with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Counts of the whole set.
    pub counts: ErrorCounts,
    /// Rate of the whole set.
    pub rate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Groups of utterances that are drawn together.
pub(super) struct Units {
    pub(super) unit: ResampleUnit,
    groups: Vec<Vec<usize>>,
}

impl Units {
    /// Takes speakers as units if every utterance has one and there are at least two; otherwise utterances.
    pub(super) fn new<'a>(speakers: impl Iterator<Item = Option<&'a str>>) -> Self {
        let speakers: Vec<Option<&str>> = speakers.collect();
        let mut by_speaker: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, speaker) in speakers.iter().enumerate() {
            if let Some(speaker) = speaker {
                by_speaker.entry(speaker).or_default().push(place);
            }
        }
        if by_speaker.len() > 1 && speakers.iter().all(Option::is_some) {
            return Self { unit: ResampleUnit::Speakers, groups: by_speaker.into_values().collect() };
        }
        Self { unit: ResampleUnit::Utterances, groups: (0..speakers.len()).map(|place| vec![place]).collect() }
    }

    /// Returns the number of units.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Adds the counts of each unit.
    pub(super) fn sums(&self, counts: &[ErrorCounts]) -> Vec<ErrorCounts> {
        self.groups.iter().map(|group| group.iter().map(|&place| counts[place]).sum()).collect()
    }
}

/// Draws `resamples` sets and returns `value` of each, sorted. `value` gets the places of the drawn units.
pub(super) fn resample(units: usize, resamples: usize, seed: u64, value: impl Fn(&[usize]) -> f64) -> Vec<f64> {
    if units == 0 {
        return Vec::new();
    }
    let mut random = Random::new(seed);
    let mut drawn = vec![0; units];
    let mut draw = || {
        drawn.iter_mut().for_each(|place| *place = random.below(units));
        value(&drawn)
    };
    let mut values: Vec<f64> = (0..resamples).map(|_| draw()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the ends of the interval that holds the share `level` of sorted values; twice `otherwise` if there are none.
pub(super) fn ends(values: &[f64], level: f64, otherwise: f64) -> (f64, f64) {
    let at = |share: f64| {
        let place = (share.clamp(0.0, 1.0) * values.len().saturating_sub(1) as f64).round() as usize;
        values.get(place).copied().unwrap_or(otherwise)
    };
    (at((1.0 - level) / 2.0), at((1.0 + level) / 2.0))
}

/// Computes the rate of `counts`, one of each unit, with its interval.
pub(super) fn interval(counts: &[ErrorCounts], resamples: usize, seed: u64, level: f64) -> Interval {
    let rate = |places: &[usize]| places.iter().map(|&place| counts[place]).sum::<ErrorCounts>().rate();
    let whole: ErrorCounts = counts.iter().copied().sum();
    let (low, high) = ends(&resample(counts.len(), resamples, seed, rate), level, whole.rate());
    Interval { counts: whole, rate: whole.rate(), low, high }
}
