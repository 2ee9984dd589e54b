//! Batching: divides utterances into batches. The result depends only on lengths, the configuration and the seed.

mod split;

use std::num::NonZeroU32;

use plimsoll_core::{Frames, Grid, Key, SampleId, Seconds};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use split::split_window;

/// Version of the rules that divide utterances into batches. Another version gives other batches for the same seed.
pub const BATCHING_VERSION: u32 = 2;

/// Lengths of a sample, known before its audio is read.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleMeta {
    /// Id of the sample.
    pub id: SampleId,
    /// Number of feature frames, computed from the listed duration, before any change of speed.
    pub frames: Frames,
    /// Number of tokens of the text.
    pub tokens: u32,
    /// Duration of the audio.
    pub seconds: Seconds,
}

/// Size of an effective batch: one optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// A number of utterances.
    Utterances(NonZeroU32),
    /// An amount of audio including padding. An utterance longer than this makes a batch of its own.
    Seconds(Seconds),
}

/// Settings of batching. The device has no influence, so a run keeps its data order on another device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchingConfig {
    /// Size of an effective batch.
    pub size: BatchSize,
    /// Window: the number of batches within which utterances are sorted by length. Default: a seventh of the epoch,
    /// between 16 and 150.
    ///
    /// A larger window means less padding and less randomness: of the pairs of utterances in one batch, 5 to 8 % meet
    /// again in the next epoch with 7 to 11 windows an epoch, and fewer with more windows
    /// (docs/log/data.md, "Padding beside lhotse").
    #[serde(default)]
    pub window: Option<NonZeroU32>,
    /// Number of frames whose multiples batches are padded to, so that there are fewer different shapes. Default: 1.
    #[serde(default = "default_grid")]
    pub frame_grid: NonZeroU32,
    /// Largest number of combinations of a padded number of frames and a padded number of tokens. The padded numbers
    /// are chosen from the lengths of the data. Default: no limit.
    ///
    /// Only full batches are counted. Batches that are not full have fewer utterances and so other tensor shapes: with
    /// them, three to four times as many shapes occur.
    #[serde(default)]
    pub shapes: Option<NonZeroU32>,
}

fn default_grid() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl BatchingConfig {
    /// Returns a configuration for batches of `size`, with the default window and no limit on shapes.
    pub fn new(size: BatchSize) -> Self {
        Self { size, window: None, frame_grid: default_grid(), shapes: None }
    }
}

/// Number of different padded lengths in frames, divided by the number of different padded lengths in tokens, when
/// `BatchingConfig::grid` chooses the lengths for a limited number of shapes. For an equal number of shapes, a ratio of
/// 6 gave less audio padding and more text padding, and 4 the opposite. The padding with 4.5 and with 4 is in
/// docs/log/data.md, "Padding beside lhotse".
const FRAMES_FOR_TOKENS: f64 = 4.5;
/// Largest number of samples, besides the longest sample, whose lengths `BatchingConfig::grid` uses to choose the
/// padded lengths. Of a larger data set, it uses samples at equal distances.
const MAX_LENGTHS: usize = 20_000;

impl BatchingConfig {
    /// Computes the grid of lengths that batches of `samples` are padded to.
    pub fn grid(&self, samples: &[SampleMeta]) -> Grid {
        let Some(shapes) = self.shapes else { return Grid::multiples_of(self.frame_grid) };
        let frames = (FRAMES_FOR_TOKENS * f64::from(shapes.get())).sqrt().round().max(1.0);
        let tokens = (f64::from(shapes.get()) / frames).floor().max(1.0);
        let step = samples.len().div_ceil(MAX_LENGTHS).max(1);
        let mut lengths: Vec<(u32, u32)> = samples.iter().step_by(step).map(|s| (s.frames.0, s.tokens)).collect();
        // The longest sample must fit, even where it was not drawn.
        lengths.extend(samples.iter().max_by_key(|sample| sample.frames).map(|s| (s.frames.0, s.tokens)));
        Grid::from_lengths(&lengths, frames as usize, tokens as usize, self.frame_grid)
    }
}

/// Computes all batches of one epoch, as indices into `samples`. Every sample is in exactly one batch.
///
/// The batches are in the order of an [`Epoch`], window after window.
pub fn epoch_batches(samples: &[SampleMeta], config: &BatchingConfig, seed: Key, epoch: u64) -> Vec<Vec<usize>> {
    let epoch = config.epoch(samples, &config.grid(samples), seed, epoch);
    // On all threads: to deal eight million samples took a third of a start.
    let windows = (0..epoch.windows()).into_par_iter().map(|window| epoch.batches(samples, window));
    windows.collect::<Vec<_>>().into_iter().flatten().collect()
}

/// One pass over the samples, in windows. To resume in the middle, only the current window must be made.
///
/// The samples are shuffled and cut into windows of equal size. Within a window, samples of similar frames and tokens make
/// batches; then its batches are shuffled. No sample is dropped, so a few batches of a window may not be full.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Indices of the samples in shuffled order. `u32` because memory access dominates the shuffle of a million
    /// samples.
    order: Vec<u32>,
    windows: usize,
    size: BatchSize,
    grid: Grid,
    key: Key,
}

impl Epoch {
    /// Returns the number of windows of the epoch.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Computes the batches of window number `window`, as indices into `samples`; empty beyond the last window.
    ///
    /// `samples` must be the samples that the epoch was made from.
    pub fn batches(&self, samples: &[SampleMeta], window: usize) -> Vec<Vec<usize>> {
        if window >= self.windows {
            return Vec::new();
        }
        let start = |window: usize| self.order.len() * window / self.windows;
        let order = &self.order[start(window)..start(window + 1)];
        let padded: Vec<Padded> =
            order.iter().map(|&index| Padded::new(&samples[index as usize], &self.grid)).collect();
        let mut batches = split_window(&padded, self.size);
        batches.iter_mut().flatten().for_each(|index| *index = order[*index] as usize);
        self.key.at(window as u64).shuffle(&mut batches);
        batches
    }
}

/// Largest default window, in batches.
const MAX_WINDOW: f64 = 150.0;
/// Smallest default window, in batches.
const MIN_WINDOW: f64 = 16.0;

impl BatchingConfig {
    /// Shuffles the samples of epoch number `epoch`, without making its batches. `grid` must be the
    /// [`grid`](Self::grid) of `samples`.
    ///
    /// # Panics
    /// With more than four billion samples.
    pub fn epoch(&self, samples: &[SampleMeta], grid: &Grid, seed: Key, epoch: u64) -> Epoch {
        let key = seed.with("order").at(epoch);
        let count = u32::try_from(samples.len()).expect("a data set holds at most four billion samples");
        let mut order: Vec<u32> = (0..count).collect();
        key.with("samples").shuffle(&mut order);
        let windows = self.windows(samples).min(order.len());
        Epoch { order, windows, size: self.size, grid: grid.clone(), key: key.with("batches") }
    }

    /// Computes the number of windows of an epoch.
    fn windows(&self, samples: &[SampleMeta]) -> usize {
        let batches = match self.size {
            BatchSize::Utterances(most) => samples.len() as f64 / f64::from(most.get()),
            BatchSize::Seconds(most) => samples.iter().map(|sample| sample.seconds.0).sum::<f64>() / most.0,
        };
        let chosen = || (batches / 7.0).clamp(MIN_WINDOW, MAX_WINDOW);
        let window = self.window.map_or_else(chosen, |window| f64::from(window.get()));
        (batches / window).round().max(1.0) as usize
    }
}

/// Frames, tokens and duration of a sample after padding to the grid, as if it were the only sample of its batch.
#[derive(Clone, Copy)]
struct Padded {
    frames: u32,
    tokens: u32,
    seconds: f64,
}

impl Padded {
    fn new(sample: &SampleMeta, grid: &Grid) -> Self {
        let frames = grid.frames(sample.frames.0);
        let longer = f64::from(frames) / f64::from(sample.frames.0.max(1));
        Self { frames, tokens: grid.tokens(frames, sample.tokens), seconds: sample.seconds.0 * longer }
    }
}

/// Cuts samples into batches in the given order, as evaluation does.
pub(crate) fn ordered_batches(samples: &[SampleMeta], order: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
    cut_into_runs(order, |index| samples[index].seconds.0, |fill| fill.exceeds(size))
}

/// Number of utterances in a batch that is being filled, and the longest duration in seconds among them. The batch is
/// compared with a `BatchSize` by these numbers.
#[derive(Clone, Copy, Default)]
struct Fill {
    utterances: u64,
    longest: f64,
}

impl Fill {
    fn with(self, seconds: f64) -> Self {
        Self { utterances: self.utterances + 1, longest: self.longest.max(seconds) }
    }

    fn exceeds(&self, size: BatchSize) -> bool {
        match size {
            BatchSize::Utterances(most) => self.utterances > u64::from(most.get()),
            BatchSize::Seconds(most) => self.longest * self.utterances as f64 > most.0,
        }
    }
}

/// Cuts `order` into runs of consecutive samples, each for one batch or one part of a window. `seconds` gives the
/// duration of a sample. A sample with which the current run would be `too_full` starts the next run.
fn cut_into_runs(order: &[usize], seconds: impl Fn(usize) -> f64, too_full: impl Fn(&Fill) -> bool) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut fill = Fill::default();
    for &index in order {
        fill = fill.with(seconds(index));
        match runs.last_mut() {
            Some(run) if !too_full(&fill) => run.push(index),
            _ => {
                fill = Fill::default().with(seconds(index));
                runs.push(vec![index]);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests;
