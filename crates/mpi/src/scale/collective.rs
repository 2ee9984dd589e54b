//! How long an all-reduce takes, in closed form.

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use crate::sum::{AHEAD, SLICE_LEN};

/// How ranks sum an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Algorithm {
    /// Each rank adds its slice of the arrays of all others, in the order of the ranks: what `MessageReplica` does.
    Slices,
    /// Partial sums go around a ring: what NCCL and many MPI libraries do for large arrays. Its order differs by slice.
    Ring,
}

/// A bucket of [`Algorithm::Slices`].
pub(super) struct Buckets {
    pub(super) count: usize,
    /// Bytes of the slice of one rank in one bucket.
    pub(super) slice_bytes: f64,
}

impl Buckets {
    pub(super) fn new(ranks: usize, bytes: f64) -> Self {
        let count = (bytes / (SLICE_LEN as f64 * ranks as f64)).ceil().max(1.0) as usize;
        Self { count, slice_bytes: bytes / ranks as f64 / count as f64 }
    }
}

/// Returns the predicted time in which `ranks` ranks sum an array of `bytes` bytes.
///
/// With slices of `s` bytes, a phase of a bucket keeps the busiest link busy for the messages that pass it: `R - 1` within a
/// node of `R` ranks, and `R (n - R)` on the network of a node. Each of the buckets takes two phases, one for slices and one
/// for sums; four buckets are under way at once. The ring takes `2 (n - 1)` steps, as fast as its slowest link.
pub fn all_reduce_seconds(algorithm: Algorithm, ranks: usize, bytes: f64, cluster: &Cluster) -> f64 {
    if ranks <= 1 {
        return 0.0;
    }
    match algorithm {
        Algorithm::Slices => slices_seconds(ranks, bytes, cluster),
        Algorithm::Ring => ring_seconds(ranks, bytes, cluster),
    }
}

fn slices_seconds(ranks: usize, bytes: f64, cluster: &Cluster) -> f64 {
    let buckets = Buckets::new(ranks, bytes);
    let local = cluster.ranks_on_node(ranks);
    let within = (local - 1) as f64 * cluster.within.busy_seconds(buckets.slice_bytes);
    let passing = (local * (ranks - local)) as f64;
    let between = passing * cluster.between.busy_seconds(buckets.slice_bytes);
    let busy = within.max(between);
    let last = |busy: f64, latency: f64| if busy > 0.0 { busy + latency } else { 0.0 };
    let phase = last(within, cluster.within.latency_seconds).max(last(between, cluster.between.latency_seconds));
    // A bucket follows the one before at once, until as many are under way as may be; then it waits for the oldest.
    let (full, more) = ((buckets.count - 1) / AHEAD, (buckets.count - 1) % AHEAD);
    let cycle = (2.0 * busy * AHEAD as f64).max(2.0 * phase);
    // The sums of the first of them travel while the slices of the last are on their way.
    let rest = more as f64 * busy;
    2.0 * phase + full as f64 * cycle + rest + (rest - (phase - busy)).max(0.0)
}

fn ring_seconds(ranks: usize, bytes: f64, cluster: &Cluster) -> f64 {
    let slice_bytes = bytes / ranks as f64;
    let steps = 2.0 * (ranks - 1) as f64;
    let within = cluster.within.busy_seconds(slice_bytes);
    let between = cluster.between.busy_seconds(slice_bytes);
    if cluster.nodes(ranks) == 1 {
        return steps * (within + cluster.within.latency_seconds);
    }
    // The slice that passes most links between nodes is the last; and a link can be no faster than its bytes.
    let crossings = (steps / cluster.ranks_per_node.max(1) as f64).ceil();
    let way = crossings * (between + cluster.between.latency_seconds)
        + (steps - crossings) * (within + cluster.within.latency_seconds);
    let slowest = if cluster.ranks_per_node > 1 { between.max(within) } else { between };
    way.max(steps * slowest)
}
