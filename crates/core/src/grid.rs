//! Padded lengths of batches. A small set of them limits the shapes that a GPU backend compiles and autotunes.

use std::num::NonZeroU32;
use std::sync::Arc;

/// Set of lengths to which batches are padded: multiples of a step, or a few levels fitted to a data set.
///
/// ```
/// use plimsoll_core::Grid;
/// let lengths: Vec<(u32, u32)> = (100..1_000).map(|frames| (frames, frames / 7)).collect();
/// let grid = Grid::from_lengths(&lengths, 4, 4, 3.try_into().unwrap());
/// assert_eq!(grid.frames(998), 999);
/// assert_eq!(grid.shapes(), Some(16));
/// assert_eq!(Grid::multiples_of(8.try_into().unwrap()).frames(17), 24);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    step: NonZeroU32,
    levels: Arc<[Level]>,
}

/// One level of a grid: a number of frames to which batches are padded, and the numbers of tokens, in ascending order,
/// to which batches with this number of frames are padded.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    frames: u32,
    tokens: Vec<u32>,
}

impl Default for Grid {
    /// Creates a grid that pads nothing: multiples of 1.
    fn default() -> Self {
        Self::multiples_of(NonZeroU32::MIN)
    }
}

impl Grid {
    /// Creates a grid that pads frames to multiples of `step` and leaves tokens unchanged.
    pub fn multiples_of(step: NonZeroU32) -> Self {
        Self { step, levels: Arc::new([]) }
    }

    /// Fits levels to a data set, so that padding is as small as possible.
    ///
    /// `lengths` holds the numbers of frames and tokens of each utterance. The grid gets at most `frame_levels` numbers
    /// of frames, all multiples of `step`, and at most `token_levels` numbers of tokens for each number of frames.
    /// Utterances longer than the last level are padded to a multiple of `step`, and their tokens are not padded.
    pub fn from_lengths(lengths: &[(u32, u32)], frame_levels: usize, token_levels: usize, step: NonZeroU32) -> Self {
        let rounded = |frames: u32| frames.next_multiple_of(step.get());
        let frames = levels(lengths.iter().map(|&(frames, _)| rounded(frames)).collect(), frame_levels);
        let mut tokens: Vec<Vec<u32>> = vec![Vec::new(); frames.len()];
        for &(length, text) in lengths {
            tokens[frames.partition_point(|&level| level < rounded(length))].push(text);
        }
        let level = |(frames, tokens)| Level { frames, tokens: levels(tokens, token_levels) };
        Self { step, levels: frames.into_iter().zip(tokens).map(level).collect() }
    }

    /// Returns how many padded shapes (numbers of frames and tokens) the levels allow; `None` for a grid of multiples,
    /// which has no limit.
    pub fn shapes(&self) -> Option<usize> {
        let shapes = self.levels.iter().map(|level| level.tokens.len()).sum();
        (!self.levels.is_empty()).then_some(shapes)
    }

    /// Returns the padded length of `frames` frames.
    pub fn frames(&self, frames: u32) -> u32 {
        let index = self.levels.partition_point(|level| level.frames < frames);
        self.levels.get(index).map_or(frames.next_multiple_of(self.step.get()), |level| level.frames)
    }

    /// Returns the padded length of `tokens` tokens in a batch whose padded number of frames is `frames`.
    pub fn tokens(&self, frames: u32, tokens: u32) -> u32 {
        let Ok(index) = self.levels.binary_search_by_key(&frames, |level| level.frames) else { return tokens };
        let levels = &self.levels[index].tokens;
        levels.get(levels.partition_point(|&level| level < tokens)).copied().unwrap_or(tokens)
    }
}

/// Largest number of candidate lengths among which `levels` chooses. More candidates do not reduce padding further, and
/// the time grows with the square of their number.
const POINTS: usize = 300;

/// Computes at most `count` levels (padded lengths) that minimize the total padding when each of `values` is padded to
/// the next level. The highest level is the largest value.
///
/// Dynamic programming over the end of each level. Exact for up to `POINTS` values; more are reduced to `POINTS`
/// quantiles.
fn levels(mut values: Vec<u32>, count: usize) -> Vec<u32> {
    values.sort_unstable();
    let groups = values.len().min(POINTS);
    if groups == 0 {
        return Vec::new();
    }
    let end = |group: usize| group * values.len() / groups;
    let top: Vec<u64> = (1..=groups).map(|group| u64::from(values[end(group) - 1])).collect();
    let sums: Vec<u64> = std::iter::once(0)
        .chain(values.iter().scan(0, |sum, &value| {
            *sum += u64::from(value);
            Some(*sum)
        }))
        .collect();
    // Padding if one level covers the groups `first..last`.
    let padding = |first: usize, last: usize| {
        let (from, to) = (end(first), end(last));
        top[last - 1] * (to - from) as u64 - (sums[to] - sums[from])
    };
    let mut best: Vec<u64> = (0..=groups).map(|last| if last == 0 { 0 } else { padding(0, last) }).collect();
    let mut starts: Vec<Vec<usize>> = vec![vec![0; groups + 1]];
    for _ in 1..count.max(1) {
        let (mut better, mut start) = (best.clone(), starts[starts.len() - 1].iter().map(|_| 0).collect::<Vec<_>>());
        for last in 1..=groups {
            let cheapest = (0..last).map(|first| (best[first] + padding(first, last), first)).min();
            (better[last], start[last]) = cheapest.expect("`0..last` is not empty");
        }
        (best, _) = (better, starts.push(start));
    }
    let (mut found, mut last) = (Vec::new(), groups);
    for start in starts.iter().rev() {
        if last == 0 {
            break;
        }
        found.push(top[last - 1] as u32);
        last = start[last];
    }
    found.reverse();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_fit_the_values() {
        assert_eq!(levels(vec![9, 1, 10, 1, 1, 9, 2], 2), [2, 10]);
        assert_eq!(levels(vec![5, 5, 5], 4), [5]);
        assert_eq!(levels(vec![3, 1, 2], 1), [3]);
        assert!(levels(vec![], 3).is_empty());
    }

    /// Computes the smallest total padding of `values` with at most `count` levels, by trying all sets of levels.
    fn least(values: &[u32], count: usize) -> u32 {
        let top = *values.iter().max().unwrap();
        let mut others: Vec<u32> = values.to_vec();
        others.sort_unstable();
        others.dedup();
        let padded = |levels: &[u32]| -> u32 {
            values.iter().map(|v| levels.iter().filter(|l| *l >= v).min().unwrap() - v).sum()
        };
        (0..1usize << others.len())
            .filter(|set| (set.count_ones() as usize) < count.max(1))
            .map(|set| {
                let mut levels: Vec<u32> = (0..others.len()).filter(|n| set >> n & 1 == 1).map(|n| others[n]).collect();
                levels.push(top);
                padded(&levels)
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn levels_are_optimal(values in prop::collection::vec(0u32..30, 1..9), count in 1usize..5) {
            let found = levels(values.clone(), count);
            prop_assert!(found.len() <= count && found.is_sorted());
            let padding: u32 = values.iter().map(|v| found[found.partition_point(|l| l < v)] - v).sum();
            prop_assert_eq!(padding, least(&values, count));
        }

        #[test]
        fn padding_never_cuts_and_limits_shapes(
            lengths in prop::collection::vec((1u32..500, 0u32..90), 1..80), step in 1u32..20, frames in 1usize..9, tokens in 1usize..5,
        ) {
            let grid = Grid::from_lengths(&lengths, frames, tokens, step.try_into().unwrap());
            let shape = |&(frames, tokens): &(u32, u32)| (grid.frames(frames), grid.tokens(grid.frames(frames), tokens));
            let mut shapes: Vec<(u32, u32)> = lengths.iter().map(shape).collect();
            for (padded, length) in shapes.iter().zip(&lengths) {
                prop_assert!(padded.0 >= length.0 && padded.1 >= length.1 && padded.0 % step == 0);
                // A padded length is a level already.
                prop_assert_eq!(shape(padded), *padded);
            }
            shapes.sort_unstable();
            shapes.dedup();
            prop_assert!(shapes.len() <= grid.shapes().unwrap() && grid.shapes().unwrap() <= frames * tokens);
            prop_assert!(grid.frames(600) >= 600 && grid.tokens(grid.frames(600), 100) == 100);
        }
    }
}
