//! Which utterances make a batch, decided from their lengths alone.

use std::num::NonZeroU32;

use plimsoll_core::{Frames, Key, SampleId, Seconds};
use serde::{Deserialize, Serialize};

/// What is known of a sample before it is loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleMeta {
    /// Its id in keys and records.
    pub id: SampleId,
    /// Its frames, as its duration promises, before any change of speed.
    pub frames: Frames,
    /// Its tokens.
    pub tokens: u32,
    /// How long its audio is.
    pub seconds: Seconds,
}

/// How much goes into an effective batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// So many utterances.
    Utterances(NonZeroU32),
    /// So much audio, padding included; an utterance that is longer makes a batch of its own.
    Seconds(Seconds),
}

/// How batches are made. The card has no say in it, so a run keeps its data order when it moves to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchingConfig {
    /// The size of an effective batch.
    pub size: BatchSize,
    /// Batches of the shuffled order that are sorted by length together.
    ///
    /// More means less padding and less randomness. At 32 batches of 16, lengths of 1 to 17 s leave less than 3 %
    /// padding, where no sorting leaves more than 20 %: a test holds us to it.
    #[serde(default = "default_window")]
    pub window: NonZeroU32,
    /// Batches are padded to a multiple of so many frames, to keep the number of different shapes small.
    #[serde(default = "default_grid")]
    pub frame_grid: NonZeroU32,
}

fn default_window() -> NonZeroU32 {
    NonZeroU32::new(32).expect("32 is not zero")
}

fn default_grid() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl BatchingConfig {
    /// Batches of `size`, with the default window and no grid.
    pub fn new(size: BatchSize) -> Self {
        Self { size, window: default_window(), frame_grid: default_grid() }
    }
}

/// The batches of one epoch, as indices into `samples`; every sample is in exactly one.
///
/// The samples are shuffled. Inside each window of batches they are sorted by padded frames, among equals by tokens,
/// and cut; then all batches are shuffled. The last batch of a window may be short: nothing is dropped.
pub fn epoch_batches(samples: &[SampleMeta], config: &BatchingConfig, seed: Key, epoch: u64) -> Vec<Vec<usize>> {
    let key = seed.with("order").at(epoch);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    key.with("samples").shuffle(&mut order);
    let mut batches = Vec::new();
    for mut window in cut(samples, &order, |fill| fill.over_window(config)) {
        let padded = |index: usize| samples[index].frames.0.div_ceil(config.frame_grid.get());
        window.sort_by_key(|&index| (padded(index), samples[index].tokens));
        batches.extend(ordered_batches(samples, &window, config.size));
    }
    key.with("batches").shuffle(&mut batches);
    batches
}

/// Cuts samples into batches in the order given, as evaluation does.
pub(crate) fn ordered_batches(samples: &[SampleMeta], order: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
    cut(samples, order, |fill| fill.over_batch(size))
}

/// How much a run of samples holds.
#[derive(Clone, Copy, Default)]
struct Fill {
    utterances: u64,
    seconds: f64,
    longest: f64,
}

impl Fill {
    fn with(self, sample: &SampleMeta) -> Self {
        let seconds = sample.seconds.0;
        Self { utterances: self.utterances + 1, seconds: self.seconds + seconds, longest: self.longest.max(seconds) }
    }

    fn over_batch(&self, size: BatchSize) -> bool {
        match size {
            BatchSize::Utterances(most) => self.utterances > u64::from(most.get()),
            BatchSize::Seconds(most) => self.longest * self.utterances as f64 > most.0,
        }
    }

    fn over_window(&self, config: &BatchingConfig) -> bool {
        match config.size {
            BatchSize::Utterances(most) => self.utterances > u64::from(most.get()) * u64::from(config.window.get()),
            BatchSize::Seconds(most) => self.seconds > most.0 * f64::from(config.window.get()),
        }
    }
}

/// Cuts `order` into runs: a run ends before the sample that would make it too full.
fn cut(samples: &[SampleMeta], order: &[usize], too_full: impl Fn(&Fill) -> bool) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut fill = Fill::default();
    for &index in order {
        fill = fill.with(&samples[index]);
        match runs.last_mut() {
            Some(run) if !too_full(&fill) => run.push(index),
            _ => {
                fill = Fill::default().with(&samples[index]);
                runs.push(vec![index]);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples of so many frames each, with a token for every five to ten of them.
    fn samples(frames: &[u32]) -> Vec<SampleMeta> {
        let sample = |(n, &frames): (usize, &u32)| SampleMeta {
            id: SampleId::of(&n.to_string()),
            frames: Frames(frames),
            tokens: frames / (5 + n as u32 % 6),
            seconds: Seconds(f64::from(frames) / 100.0),
        };
        frames.iter().enumerate().map(sample).collect()
    }

    fn utterances(n: u32) -> BatchingConfig {
        BatchingConfig::new(BatchSize::Utterances(NonZeroU32::new(n).unwrap()))
    }

    /// Padded and real frames.
    fn cells(samples: &[SampleMeta], batches: &[Vec<usize>]) -> (u64, u64) {
        let frames = |&index: &usize| u64::from(samples[index].frames.0);
        let padded = batches.iter().map(|b| b.len() as u64 * b.iter().map(frames).max().unwrap_or(0)).sum();
        (padded, batches.iter().flatten().map(frames).sum())
    }

    #[test]
    fn sorting_inside_windows_removes_most_padding() {
        // Lengths from 1 to 17 s, even in their squares: most are long, as in LibriSpeech.
        let key = Key::new(9);
        let frames: Vec<u32> = (0..5_000).map(|n| (1_700.0 * key.at(n).unit().sqrt()) as u32 + 100).collect();
        let samples = samples(&frames);
        let order: Vec<usize> = (0..samples.len()).collect();
        let share = |batches: &[Vec<usize>]| {
            let (padded, real) = cells(&samples, batches);
            1.0 - real as f64 / padded as f64
        };
        let sorted = share(&epoch_batches(&samples, &utterances(16), Key::new(1), 0));
        let unsorted = share(&ordered_batches(&samples, &order, utterances(16).size));
        assert!(sorted < 0.03 && unsorted > 0.2, "{sorted} {unsorted}");
    }

    #[test]
    fn equal_lengths_are_sorted_by_text() {
        let mut samples = samples(&[160; 64]);
        samples.iter_mut().enumerate().for_each(|(n, sample)| {
            sample.tokens = n as u32;
            sample.frames.0 += n as u32 % 40;
        });
        let config = BatchingConfig { frame_grid: NonZeroU32::new(200).unwrap(), ..utterances(8) };
        for batch in epoch_batches(&samples, &config, Key::new(1), 0) {
            assert_eq!(batch.iter().max().unwrap() - batch.iter().min().unwrap(), 7, "{batch:?}");
        }
    }

    #[test]
    fn epochs_differ_and_repeat() {
        let samples = samples(&(0..500).map(|n| n % 97 + 50).collect::<Vec<_>>());
        let batches = |seed, epoch| epoch_batches(&samples, &utterances(8), Key::new(seed), epoch);
        assert_eq!(batches(1, 3), batches(1, 3));
        assert_ne!(batches(1, 3), batches(1, 4));
        assert_ne!(batches(1, 3), batches(2, 3));
        assert!(epoch_batches(&[], &utterances(8), Key::new(1), 0).is_empty());
    }

    #[test]
    fn configurations_are_read_strictly() {
        let read = |json: &str| serde_json::from_str::<BatchingConfig>(json);
        assert_eq!(read(r#"{"size": {"utterances": 8}}"#).unwrap(), utterances(8));
        let seconds = read(r#"{"size": {"seconds": "2min"}, "window": 4, "frame_grid": 16}"#).unwrap();
        assert_eq!((seconds.size, seconds.window.get()), (BatchSize::Seconds(Seconds(120.0)), 4));
        assert!(read(r#"{"size": {"utterances": 0}}"#).is_err() && read(r#"{"window": 4}"#).is_err());
    }

    fn sizes() -> impl Strategy<Value = BatchSize> {
        prop_oneof![
            (1u32..20).prop_map(|n| BatchSize::Utterances(NonZeroU32::new(n).unwrap())),
            (1.0..60.0).prop_map(|s| BatchSize::Seconds(Seconds(s))),
        ]
    }

    proptest! {
        #[test]
        fn an_epoch_loses_and_repeats_no_utterance(
            frames in prop::collection::vec(1u32..3_000, 0..300), size in sizes(), window in 1u32..40, seed in any::<u64>(),
        ) {
            let samples = samples(&frames);
            let config = BatchingConfig { window: NonZeroU32::new(window).unwrap(), ..BatchingConfig::new(size) };
            let batches = epoch_batches(&samples, &config, Key::new(seed), seed % 5);
            for batch in &batches {
                let fill = batch.iter().fold(Fill::default(), |fill, &index| fill.with(&samples[index]));
                prop_assert!(!batch.is_empty() && (batch.len() == 1 || !fill.over_batch(size)));
            }
            let mut seen = batches.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples.len()).collect::<Vec<_>>());
        }

        #[test]
        fn padding_is_never_more_than_without_sorting(
            frames in prop::collection::vec(1u32..3_000, 8..=8 * 20), seed in any::<u64>(),
        ) {
            // Whole batches only: a short last batch may by luck hold the longest utterance.
            let samples = samples(&frames[..frames.len() / 8 * 8]);
            let order: Vec<usize> = (0..samples.len()).collect();
            let sorted = cells(&samples, &epoch_batches(&samples, &utterances(8), Key::new(seed), 0)).0;
            prop_assert!(sorted <= cells(&samples, &ordered_batches(&samples, &order, utterances(8).size)).0);
        }
    }
}
