//! Memory of micro-batches of every size, as lines of which the highest counts.

use plimsoll_core::Bytes;

use crate::timeline::Timeline;

/// Bytes that grow linearly with the utterances: of one utterance, and of each further one.
pub(crate) type Line = (f64, f64);

/// Memory of a bucket's micro-batches of every size, as lines of which the highest counts.
#[derive(Debug)]
pub(crate) struct Envelope {
    /// Memory in use, one line for each moment that is the peak of some size.
    pub(crate) in_use: Vec<Line>,
    /// Size of an allocation, one line for each allocation that is the largest of some size.
    pub(crate) largest: Vec<Line>,
}

impl Envelope {
    /// Makes the envelope of `timeline`, if `scaled` returns the size of an allocation for a number of utterances.
    pub(crate) fn new(timeline: &Timeline, scaled: impl Fn(Bytes, u32) -> u64) -> Self {
        // Sizes are linear in the utterances, so are their sums.
        let [one, two] = [1, 2].map(|utterances| timeline.in_use(|size| scaled(size, utterances)));
        let line = |one: u64, two: u64| (one as f64, two as f64 - one as f64);
        let in_use = one.into_iter().zip(two).map(|(one, two)| line(one, two));
        let largest = timeline.allocations.iter().map(|one| line(scaled(one.size, 1), scaled(one.size, 2)));
        Self { in_use: highest(in_use.collect()), largest: highest(largest.collect()) }
    }
}

/// Returns those of `lines` that no other line exceeds both in start and in slope.
fn highest(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut steepest = f64::NEG_INFINITY;
    lines.retain(|&(_, slope)| {
        let is_steeper = slope > steepest;
        steepest = steepest.max(slope);
        is_steeper
    });
    lines
}

/// Computes the value of the highest of `lines` at `utterances`, in bytes.
pub(crate) fn greatest(lines: &[Line], utterances: u32) -> u64 {
    let further = f64::from(utterances.max(1) - 1);
    lines.iter().map(|&(start, slope)| (start + slope * further).max(0.0) as u64).max().unwrap_or_default()
}
