//! Divides a window into batches with little padding of frames and of tokens.
//!
//! The samples of a window are sorted by frames. Consecutive ones form groups of one to a dozen batches, and each group is
//! sorted by tokens before it is cut into batches: large groups have little padding of tokens, small groups little
//! padding of frames. Dynamic programming finds the groups with the least padding of both.

use super::{BatchSize, Padded, cut_into_runs};

/// Weight of frames in the padding that is minimized, where tokens count as one; both in shares of their totals. It grows
/// where audio would be padded more than buckets pad it, because the lengths of texts say little about those of audio.
const FRAME_WEIGHT: f64 = 1.0;

/// Largest weight of frames: then hardly a group has more than one batch.
const MAX_FRAME_WEIGHT: f64 = 24.0;

/// Number of halvings between the two weights, to steps of a fifth.
const WEIGHT_STEPS: usize = 4;

/// Number of buckets by duration that the padding of audio is compared with, as samplers of other toolkits have them.
const BUCKETS: usize = 30;

/// Largest group, in batches.
const MAX_GROUP: usize = 12;

/// Cost of a batch more than the frames need, as a share of the frames of a batch. Without it, groups would be chosen whose
/// last batches are almost empty.
const COST_OF_BATCH: f64 = 0.3;

/// Splits a window into batches, as indices into `window`.
///
/// The split uses padded lengths, so that full batches with equal numbers of frames have equal numbers of utterances.
pub(super) fn split_window(window: &[Padded], size: BatchSize) -> Vec<Vec<usize>> {
    let mut by_frames: Vec<usize> = (0..window.len()).collect();
    by_frames.sort_by_key(|&index| (window[index].frames, window[index].tokens));
    let splitter = Splitter { window, size, runs: cut(window, &by_frames, size), by_frames };
    if splitter.runs.len() < 2 {
        return splitter.runs;
    }
    // A window has more batches that are not full than a whole list, so this is a little less than buckets leave there.
    let most = splitter.padding_of_buckets();
    let split = |weight| Some(splitter.split(weight)).filter(|batches| padding_share(window, batches) <= most);
    if let Some(batches) = split(FRAME_WEIGHT) {
        return batches;
    }
    let (mut low, mut high, mut best) = (FRAME_WEIGHT, MAX_FRAME_WEIGHT, None);
    for _ in 0..WEIGHT_STEPS {
        let weight = f64::sqrt(low * high);
        match split(weight) {
            Some(batches) => (high, best) = (weight, Some(batches)),
            None => low = weight,
        }
    }
    best.unwrap_or(splitter.runs)
}

/// Window that is being split.
struct Splitter<'a> {
    window: &'a [Padded],
    size: BatchSize,
    /// Indices of the samples, sorted by frames.
    by_frames: Vec<usize>,
    /// Batches without any sorting by tokens.
    runs: Vec<Vec<usize>>,
}

impl Splitter<'_> {
    /// Splits the window with the least padding, where frames count `weight` times as much as tokens.
    fn split(&self, weight: f64) -> Vec<Vec<usize>> {
        let total = |length: fn(&Padded) -> u32| self.window.iter().map(|p| f64::from(length(p))).sum::<f64>().max(1.0);
        let weights = (weight / total(|padded| padded.frames), 1.0 / total(|padded| padded.tokens));
        let count = self.runs.len();
        let per_batch = COST_OF_BATCH * weight / count as f64;
        // The least cost of the runs from each on, and the end of the first group in it.
        let (mut costs, mut ends) = (vec![0.0; count + 1], vec![count; count]);
        for first in (0..count).rev() {
            let mut least = f64::INFINITY;
            for (end, after) in (first + 1..=(first + MAX_GROUP).min(count)).zip(&costs[first + 1..]) {
                let batches = self.group(first, end);
                let padding: f64 = batches.iter().map(|batch| padding(self.window, batch, weights)).sum();
                let cost = padding + per_batch * batches.len() as f64 + after;
                if cost < least {
                    (least, ends[first]) = (cost, end);
                }
            }
            costs[first] = least;
        }
        let (mut batches, mut first) = (Vec::new(), 0);
        while first < count {
            batches.extend(self.group(first, ends[first]));
            first = ends[first];
        }
        batches
    }

    /// Makes batches of the group of the runs from `first` to `end`.
    fn group(&self, first: usize, end: usize) -> Vec<Vec<usize>> {
        let mut group = self.runs[first..end].concat();
        if end - first > 1 {
            group.sort_unstable_by_key(|&index| (self.window[index].tokens, self.window[index].frames, index));
        }
        cut(self.window, &group, self.size)
    }

    /// Computes the share of padding that batches of random samples of a bucket would have. All buckets hold equal
    /// amounts of audio.
    fn padding_of_buckets(&self) -> f64 {
        let buckets = BUCKETS.min(self.runs.len() / 2).max(1) as f64;
        let total: f64 = self.window.iter().map(|padded| padded.seconds).sum();
        let (mut before, mut members) = (0.0, vec![Vec::new(); buckets as usize]);
        for &index in &self.by_frames {
            let bucket = (buckets * before / total.max(f64::MIN_POSITIVE)).min(buckets - 1.0) as usize;
            members[bucket].push(index);
            before += self.window[index].seconds;
        }
        // The window itself is in random order.
        members.iter_mut().for_each(|bucket| bucket.sort_unstable());
        let batches: Vec<_> = members.iter().flat_map(|bucket| cut(self.window, bucket, self.size)).collect();
        padding_share(self.window, &batches)
    }
}

fn cut(window: &[Padded], order: &[usize], size: BatchSize) -> Vec<Vec<usize>> {
    cut_into_runs(order, |index| window[index].seconds, |fill| fill.exceeds(size))
}

/// Computes the padding of a batch: that of frames and that of tokens, each with its weight.
fn padding(window: &[Padded], batch: &[usize], weights: (f64, f64)) -> f64 {
    let of = |length: fn(&Padded) -> u32| {
        let longest = batch.iter().map(|&index| length(&window[index])).max().unwrap_or(0);
        batch.iter().map(|&index| f64::from(longest - length(&window[index]))).sum::<f64>()
    };
    weights.0 * of(|padded| padded.frames) + weights.1 * of(|padded| padded.tokens)
}

/// Computes the share of padding in the frames of all batches.
fn padding_share(window: &[Padded], batches: &[Vec<usize>]) -> f64 {
    let padded: f64 = batches.iter().map(|batch| padding(window, batch, (1.0, 0.0))).sum();
    let real: f64 = window.iter().map(|padded| f64::from(padded.frames)).sum();
    padded / (padded + real).max(1.0)
}
