//! Which utterances make a batch, decided from their lengths alone.

use std::num::NonZeroU32;

use plimsoll_core::{Frames, Grid, Key, SampleId, Seconds};
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

impl BatchSize {
    /// Utterances of a batch whose longest takes `seconds`.
    fn utterances_of(self, seconds: f64) -> usize {
        match self {
            Self::Utterances(most) => most.get() as usize,
            Self::Seconds(most) => ((most.0 / seconds.max(f64::MIN_POSITIVE)) as usize).max(1),
        }
    }
}

/// How batches are made. The card has no say in it, so a run keeps its data order when it moves to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchingConfig {
    /// The size of an effective batch.
    pub size: BatchSize,
    /// Batches of the shuffled order that are arranged by length together; a seventh of the epoch and at most 150 without it.
    ///
    /// More means less padding and less randomness: two utterances that met once meet again in the next epoch about as
    /// often as an epoch has windows, divided by three.
    #[serde(default)]
    pub window: Option<NonZeroU32>,
    /// Batches are padded to a multiple of so many frames, to keep the number of different shapes small.
    #[serde(default = "default_grid")]
    pub frame_grid: NonZeroU32,
    /// At most so many shapes of frames and tokens, with levels where the lengths are; as many as there are without it.
    ///
    /// Batches that are short bring other numbers of utterances, so that three or four times as many shapes occur with these.
    #[serde(default)]
    pub shapes: Option<NonZeroU32>,
}

fn default_grid() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl BatchingConfig {
    /// Batches of `size`, with the default window and no grid.
    pub fn new(size: BatchSize) -> Self {
        Self { size, window: None, frame_grid: default_grid(), shapes: None }
    }
}

/// Levels of frames for each of tokens. With six there was less padding of audio and more of texts, with four the other way
/// round, for as many shapes (docs/LOG.md, 2026-11-21).
const FRAMES_FOR_TOKENS: f64 = 4.5;
/// Lengths that levels are drawn from, at most.
const LENGTHS: usize = 20_000;

impl BatchingConfig {
    /// What batches of `samples` are padded to.
    pub fn grid(&self, samples: &[SampleMeta]) -> Grid {
        let Some(shapes) = self.shapes else { return Grid::multiples_of(self.frame_grid) };
        let frames = (FRAMES_FOR_TOKENS * f64::from(shapes.get())).sqrt().round().max(1.0);
        let tokens = (f64::from(shapes.get()) / frames).floor().max(1.0);
        let step = samples.len().div_ceil(LENGTHS).max(1);
        let mut lengths: Vec<(u32, u32)> = samples.iter().step_by(step).map(|s| (s.frames.0, s.tokens)).collect();
        // What is longest has a level, too.
        lengths.extend(samples.iter().max_by_key(|sample| sample.frames).map(|s| (s.frames.0, s.tokens)));
        Grid::from_lengths(&lengths, frames as usize, tokens as usize, self.frame_grid)
    }
}

/// The batches of one epoch, as indices into `samples`; every sample is in exactly one.
///
/// It is what an [`Epoch`] deals, window after window.
pub fn epoch_batches(samples: &[SampleMeta], config: &BatchingConfig, seed: Key, epoch: u64) -> Vec<Vec<usize>> {
    let dealt = Epoch::shuffle(samples, config, &config.grid(samples), seed, epoch);
    (0..dealt.windows()).flat_map(|window| dealt.batches(samples, window)).collect()
}

/// One pass over the samples, dealt in windows: whoever wants to go on in the middle deals that window alone.
///
/// The samples are shuffled and cut into windows of equally many. A window is parted, again and again, by frames or by
/// tokens, wherever that leaves less padding, until a part is a batch; then its batches are shuffled. Nothing is dropped: a
/// few batches of a window may be short.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Half as wide as `usize`, because the shuffle of a million is bound by the memory it jumps about in.
    order: Vec<u32>,
    windows: usize,
    size: BatchSize,
    grid: Grid,
    key: Key,
}

impl Epoch {
    /// The epoch's order, without its batches; `grid` is what [`BatchingConfig::grid`] says of all samples.
    ///
    /// # Panics
    /// When there are more than four billion samples.
    pub fn shuffle(samples: &[SampleMeta], config: &BatchingConfig, grid: &Grid, seed: Key, epoch: u64) -> Self {
        let key = seed.with("order").at(epoch);
        let count = u32::try_from(samples.len()).expect("a data set holds at most four billion samples");
        let mut order: Vec<u32> = (0..count).collect();
        key.with("samples").shuffle(&mut order);
        let windows = config.windows(samples).min(order.len());
        Self { order, windows, size: config.size, grid: grid.clone(), key: key.with("batches") }
    }

    /// How many windows there are.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// The batches of a window, as indices into `samples`, which are those of the shuffle; none where there is no such
    /// window.
    pub fn batches(&self, samples: &[SampleMeta], window: usize) -> Vec<Vec<usize>> {
        if window >= self.windows {
            return Vec::new();
        }
        let place = |window: usize| self.order.len() * window / self.windows;
        let order = &self.order[place(window)..place(window + 1)];
        let padded: Vec<Padded> = order.iter().map(|&index| Padded::of(&samples[index as usize], &self.grid)).collect();
        let mut batches = parted(&padded, self.size);
        batches.iter_mut().flatten().for_each(|index| *index = order[*index] as usize);
        self.key.at(window as u64).shuffle(&mut batches);
        batches
    }
}

/// The most batches of a window that nobody set.
const WIDEST: f64 = 150.0;
/// The fewest.
const NARROWEST: f64 = 16.0;

impl BatchingConfig {
    /// Windows of an epoch.
    fn windows(&self, samples: &[SampleMeta]) -> usize {
        let batches = match self.size {
            BatchSize::Utterances(most) => samples.len() as f64 / f64::from(most.get()),
            BatchSize::Seconds(most) => samples.iter().map(|sample| sample.seconds.0).sum::<f64>() / most.0,
        };
        let chosen = || (batches / 7.0).clamp(NARROWEST, WIDEST);
        let window = self.window.map_or_else(chosen, |window| f64::from(window.get()));
        (batches / window).round().max(1.0) as usize
    }
}

/// More batches than this, for each that frames alone would make, and a part is not parted by tokens: they would be small.
const SMALLER: f64 = 1.2;

/// A sample as it would be padded alone.
#[derive(Clone, Copy)]
struct Padded {
    frames: u32,
    tokens: u32,
    seconds: f64,
}

impl Padded {
    fn of(sample: &SampleMeta, grid: &Grid) -> Self {
        let frames = grid.frames(sample.frames.0);
        let longer = f64::from(frames) / f64::from(sample.frames.0.max(1));
        Self { frames, tokens: grid.tokens(frames, sample.tokens), seconds: sample.seconds.0 * longer }
    }
}

/// Parts a window into batches with little padding on either side, as indices into `window`.
///
/// It goes by what samples are padded to, so that batches of one number of frames have one number of utterances.
fn parted(window: &[Padded], size: BatchSize) -> Vec<Vec<usize>> {
    let mut by_frames: Vec<usize> = (0..window.len()).collect();
    let mut by_tokens = by_frames.clone();
    by_frames.sort_by_key(|&index| (window[index].frames, window[index].tokens));
    by_tokens.sort_by_key(|&index| (window[index].tokens, window[index].frames));
    let total = |length: &dyn Fn(&Padded) -> u32| window.iter().map(|w| f64::from(length(w))).sum::<f64>().max(1.0);
    let (frames, tokens) = (|padded: &Padded| padded.frames, |padded: &Padded| padded.tokens);
    // Padding weighs by its share of all, and on the side of the audio half as much again: more is computed for it.
    let weights = (1.5 / total(&frames), 1.0 / total(&tokens));
    let waste = |part: &[usize]| {
        let padding = |length: &dyn Fn(&Padded) -> u32| {
            let longest = part.iter().map(|&index| length(&window[index])).max().unwrap_or(0);
            part.iter().map(|&index| f64::from(longest - length(&window[index]))).sum::<f64>()
        };
        weights.0 * padding(&frames) + weights.1 * padding(&tokens)
    };
    let mut is_left = vec![false; window.len()];
    let (mut batches, mut parts) = (Vec::new(), vec![(by_frames, by_tokens)]);
    while let Some((by_frames, by_tokens)) = parts.pop() {
        let runs = cut(&by_frames, |index| window[index].seconds, |fill| fill.over_batch(size));
        if runs.len() <= 1 {
            batches.push(by_frames);
            continue;
        }
        let first: usize = runs[..runs.len() / 2].iter().map(Vec::len).sum();
        let mut left = &by_frames[..first];
        // By tokens, a part takes as many whole batches as would hold its longest.
        let each = size.utterances_of(by_frames.iter().map(|&i| window[i].seconds).fold(0.0, f64::max));
        let count = by_tokens.len().div_ceil(each);
        let half = each * (count / 2);
        if count as f64 <= runs.len() as f64 * SMALLER && half > 0 && half < by_tokens.len() {
            let (low, high) = by_tokens.split_at(half);
            if waste(low) + waste(high) < waste(left) + waste(&by_frames[first..]) {
                left = low;
            }
        }
        left.iter().for_each(|&index| is_left[index] = true);
        let goes_left = |list: &[usize], wanted: bool| -> Vec<usize> {
            list.iter().copied().filter(|&index| is_left[index] == wanted).collect()
        };
        let [low, high] = [true, false].map(|side| (goes_left(&by_frames, side), goes_left(&by_tokens, side)));
        by_frames.iter().for_each(|&index| is_left[index] = false);
        parts.extend([high, low]);
    }
    batches
}

/// Cuts samples into batches in the order given, as evaluation does.
pub(crate) fn ordered_batches(samples: &[SampleMeta], order: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
    cut(order, |index| samples[index].seconds.0, |fill| fill.over_batch(size))
}

/// How much a run of samples holds.
#[derive(Clone, Copy, Default)]
struct Fill {
    utterances: u64,
    longest: f64,
}

impl Fill {
    fn with(self, seconds: f64) -> Self {
        Self { utterances: self.utterances + 1, longest: self.longest.max(seconds) }
    }

    fn over_batch(&self, size: BatchSize) -> bool {
        match size {
            BatchSize::Utterances(most) => self.utterances > u64::from(most.get()),
            BatchSize::Seconds(most) => self.longest * self.utterances as f64 > most.0,
        }
    }
}

/// Cuts `order` into runs: a run ends before the sample that would make it too full.
fn cut(order: &[usize], seconds: impl Fn(usize) -> f64, too_full: impl Fn(&Fill) -> bool) -> Vec<Vec<usize>> {
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
