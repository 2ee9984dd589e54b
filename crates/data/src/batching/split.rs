//! Divides a window into batches with little padding of frames and of tokens.
//!
//! The samples of a window are sorted by frames. Consecutive ones form groups of one to a dozen batches, and each group is
//! sorted by tokens before it is cut into batches: large groups have little padding of tokens, small groups little
//! padding of frames. Dynamic programming finds the groups with the least padding of both.

use super::{BatchSize, Fill, Padded, cut_into_runs};

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
    let splitter = Splitter::new(window, size);
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
    /// Padding of each possible group.
    groups: Groups,
}

impl<'a> Splitter<'a> {
    fn new(window: &'a [Padded], size: BatchSize) -> Self {
        let mut by_frames: Vec<usize> = (0..window.len()).collect();
        by_frames.sort_by_key(|&index| (window[index].frames, window[index].tokens));
        let runs = cut(window, &by_frames, size);
        let groups = Groups::new(window, size, &runs);
        Self { window, size, by_frames, runs, groups }
    }

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
                let batches = self.groups.of(first, end);
                let padding: f64 =
                    batches.iter().map(|&(frames, tokens)| weights.0 * frames + weights.1 * tokens).sum();
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
            group.sort_unstable_by_key(|&index| by_tokens(self.window, index));
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

/// Returns the key by which the samples of a group are sorted.
fn by_tokens(window: &[Padded], index: usize) -> (u32, u32, usize) {
    (window[index].tokens, window[index].frames, index)
}

/// Padding in frames and in tokens of each batch of each possible group of runs.
///
/// A window of 150 batches has 1,700 groups. To sort each of them and to make its batches took nine tenths of the time in
/// which an epoch is dealt, so a group is made from the one before it, and only its padding is kept.
struct Groups {
    /// Padding of the batches of all groups, one group after the other.
    batches: Vec<(f64, f64)>,
    /// For each run, where the batches of the groups that begin with it end, by the number of runs in the group.
    ends: Vec<[usize; MAX_GROUP]>,
}

impl Groups {
    fn new(window: &[Padded], size: BatchSize, runs: &[Vec<usize>]) -> Self {
        let mut order: Vec<usize> = (0..window.len()).collect();
        order.sort_unstable_by_key(|&index| by_tokens(window, index));
        let ranked: Vec<Padded> = order.iter().map(|&index| window[index]).collect();
        let mut ranks = vec![0_u32; window.len()];
        // A window has a few thousand samples.
        order.iter().enumerate().for_each(|(rank, &index)| ranks[index] = rank as u32);
        let rank = |run: &Vec<usize>| {
            let mut sorted: Vec<u32> = run.iter().map(|&index| ranks[index]).collect();
            sorted.sort_unstable();
            sorted
        };
        let sorted: Vec<Vec<u32>> = runs.iter().map(rank).collect();
        let mut groups = Self { batches: Vec::new(), ends: Vec::with_capacity(runs.len()) };
        let (mut group, mut merged) = (Vec::new(), Vec::new());
        for first in 0..runs.len() {
            let mut ends = [groups.batches.len(); MAX_GROUP];
            group.clear();
            for (length, run) in sorted[first..].iter().take(MAX_GROUP).enumerate() {
                merge(&group, run, &mut merged);
                std::mem::swap(&mut group, &mut merged);
                match length {
                    // A run alone is a batch, in whatever order.
                    0 => groups.batches.push(padding(window, &runs[first])),
                    _ => groups.add(&ranked, &group, size),
                }
                ends[length..].fill(groups.batches.len());
            }
            groups.ends.push(ends);
        }
        groups
    }

    /// Adds the padding of the batches into which the samples of a group are cut.
    fn add(&mut self, ranked: &[Padded], group: &[u32], size: BatchSize) {
        let (mut fill, mut batch) = (Fill::default(), Sums::default());
        for &rank in group {
            let sample = &ranked[rank as usize];
            fill = fill.with(sample.seconds);
            if batch.count > 0 && fill.exceeds(size) {
                self.batches.push(std::mem::take(&mut batch).padding());
                fill = Fill::default().with(sample.seconds);
            }
            batch.add(sample);
        }
        self.batches.push(batch.padding());
    }

    /// Returns the padding of each batch of the group of the runs from `first` to `end`.
    fn of(&self, first: usize, end: usize) -> &[(f64, f64)] {
        let start = match (end - first, first) {
            (1, 0) => 0,
            (1, first) => self.ends[first - 1][MAX_GROUP - 1],
            (length, first) => self.ends[first][length - 2],
        };
        &self.batches[start..self.ends[first][end - first - 1]]
    }
}

/// Merges two sorted lists into a third.
fn merge(left: &[u32], right: &[u32], merged: &mut Vec<u32>) {
    merged.clear();
    let (mut l, mut r) = (0, 0);
    while let (Some(&a), Some(&b)) = (left.get(l), right.get(r)) {
        merged.push(a.min(b));
        l += usize::from(a < b);
        r += usize::from(a >= b);
    }
    merged.extend_from_slice(&left[l..]);
    merged.extend_from_slice(&right[r..]);
}

/// Lengths of the samples of a batch.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    /// Longest and sum, of frames and of tokens.
    frames: (u32, u64),
    tokens: (u32, u64),
}

impl Sums {
    fn add(&mut self, sample: &Padded) {
        let add = |(longest, sum): (u32, u64), length: u32| (longest.max(length), sum + u64::from(length));
        self.count += 1;
        (self.frames, self.tokens) = (add(self.frames, sample.frames), add(self.tokens, sample.tokens));
    }

    /// Returns the padding of frames and that of tokens.
    fn padding(self) -> (f64, f64) {
        let of = |(longest, sum): (u32, u64)| (u64::from(longest) * self.count - sum) as f64;
        (of(self.frames), of(self.tokens))
    }
}

/// Computes the padding of a batch: that of frames and that of tokens.
fn padding(window: &[Padded], batch: &[usize]) -> (f64, f64) {
    let mut sums = Sums::default();
    batch.iter().for_each(|&index| sums.add(&window[index]));
    sums.padding()
}

/// Computes the share of padding in the frames of all batches.
fn padding_share(window: &[Padded], batches: &[Vec<usize>]) -> f64 {
    let padded: f64 = batches.iter().map(|batch| padding(window, batch).0).sum();
    let real: f64 = window.iter().map(|padded| f64::from(padded.frames)).sum();
    padded / (padded + real).max(1.0)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use plimsoll_core::{Key, Seconds};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_padding_of_a_group_is_that_of_its_batches(seed: u64, count in 1_u64..400, per in 1_u32..12, by_seconds: bool) {
            let key = Key::new(seed);
            let sample = |n: u64| {
                let key = key.at(n);
                let frames = 1 + (key.with("frames").below(1 + key.with("tail").below(900))) as u32;
                Padded { frames, tokens: key.with("tokens").below(60) as u32, seconds: f64::from(frames) * 0.01 }
            };
            let window: Vec<Padded> = (0..count).map(sample).collect();
            let size = match by_seconds {
                true => BatchSize::Seconds(Seconds(f64::from(per))),
                false => BatchSize::Utterances(NonZeroU32::new(per).unwrap()),
            };
            let splitter = Splitter::new(&window, size);
            let runs = splitter.runs.len();
            for first in 0..runs {
                for end in first + 1..=(first + MAX_GROUP).min(runs) {
                    let batches = splitter.group(first, end);
                    let expected: Vec<(f64, f64)> = batches.iter().map(|batch| padding(&window, batch)).collect();
                    prop_assert_eq!(splitter.groups.of(first, end), &expected[..], "{} to {} of {}", first, end, runs);
                }
            }
        }
    }
}
