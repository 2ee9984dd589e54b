//! The time and the cost of a step on more ranks.

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::collective::all_reduce_seconds;

/// A step as one rank computes it, such as a run's ledger has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Time for what is shared out: loading, forward and backward passes of all micro-batches.
    pub compute_seconds: f64,
    /// Time for what each rank does itself: the norm, the update, the record.
    pub fixed_seconds: f64,
    /// Bytes of the gradient as it travels.
    pub gradient_bytes: f64,
    /// Number of parts into which the effective batch can be cut: its utterances, or its micro-batches if those cannot
    /// become smaller.
    pub micro_batches: usize,
    /// Audio of an effective batch.
    pub audio_seconds: f64,
    /// How much the time of equal work varies from step to step: its standard deviation, as a share. All ranks wait for the one
    /// that was slowest this time.
    #[serde(default)]
    pub jitter: f64,
}

/// A predicted step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes for them.
    pub nodes: usize,
    /// Time of a step.
    pub step_seconds: f64,
    /// Its part that computes: the rank with the most micro-batches.
    pub compute_seconds: f64,
    /// Its part that each rank does itself.
    pub fixed_seconds: f64,
    /// Its part that sums the gradient.
    pub sum_seconds: f64,
    /// How many times as fast as with one rank.
    pub speedup: f64,
    /// The speedup by the number of ranks.
    pub efficiency: f64,
    /// Cost of training on an hour of audio, if the price of a node is known.
    pub audio_hour_cost: Option<f64>,
}

/// Predicts a step on `ranks` ranks. The effective batch stays the same, and the gradient is summed after the backward
/// pass, as the trainer does it.
pub fn predict(step: &Step, cluster: &Cluster, ranks: usize) -> Prediction {
    let ranks = ranks.max(1);
    let seconds = |ranks: usize| {
        let shared = cluster.ranks_on_node(ranks) as f64 / cluster.full_speed_ranks.max(1.0);
        let slowdown = shared.max(1.0);
        let parts = step.micro_batches.max(1);
        let most = parts.div_ceil(ranks) as f64 / parts as f64;
        let sum = all_reduce_seconds(ranks, step.gradient_bytes, cluster);
        // What disturbs a process comes at any time, so a shorter part varies by a larger share.
        let waited = 1.0 + step.jitter.max(0.0) / most.sqrt() * slowest_of(ranks.min(parts));
        (step.compute_seconds * most * slowdown * waited, step.fixed_seconds * slowdown, sum)
    };
    let total = |(compute, fixed, sum): (f64, f64, f64)| compute + fixed + sum;
    let parts = seconds(ranks);
    let (step_seconds, nodes) = (total(parts), cluster.nodes(ranks));
    let speedup = total(seconds(1)) / step_seconds;
    let hour_cost = |cost: f64| cost * nodes as f64 * step_seconds / step.audio_seconds;
    Prediction {
        ranks,
        nodes,
        step_seconds,
        compute_seconds: parts.0,
        fixed_seconds: parts.1,
        sum_seconds: parts.2,
        speedup,
        efficiency: speedup / ranks as f64,
        audio_hour_cost: cluster.node_hour_cost.map(hour_cost),
    }
}

/// Returns by how many standard deviations the slowest of `ranks` is slower than the mean, if their times are normal: 0.564 for
/// two, which is exact, and within a tenth of the truth for more.
fn slowest_of(ranks: usize) -> f64 {
    0.564 * (ranks as f64).log2().powf(0.8)
}

/// Predicts a step on 1, 2, 4 and so on up to `ranks_max` ranks.
pub fn table(step: &Step, cluster: &Cluster, ranks_max: usize) -> Vec<Prediction> {
    let powers = std::iter::successors(Some(1_usize), |ranks| ranks.checked_mul(2));
    powers.take_while(|&ranks| ranks <= ranks_max).map(|ranks| predict(step, cluster, ranks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Link;

    const LINK: Link = Link { latency_seconds: 1e-5, message_seconds: 1e-6, bytes_per_second: 1e9 };

    fn cluster(ranks_per_node: usize, full_speed_ranks: f64) -> Cluster {
        Cluster { within: LINK, between: LINK, ranks_per_node, full_speed_ranks, node_hour_cost: Some(2.0) }
    }

    const STEP: Step = Step {
        compute_seconds: 8.0,
        fixed_seconds: 0.5,
        gradient_bytes: 1e8,
        micro_batches: 12,
        audio_seconds: 850.0,
        jitter: 0.0,
    };

    #[test]
    fn the_rank_with_the_most_parts_counts() {
        let compute = |ranks| predict(&STEP, &cluster(64, 64.0), ranks).compute_seconds;
        assert_eq!([1, 5, 12, 64].map(compute), [8.0, 2.0, 8.0 / 12.0, 8.0 / 12.0]);
    }

    #[test]
    fn ranks_that_share_a_core_are_no_faster() {
        let table = table(&STEP, &cluster(4, 2.0), 4);
        assert_eq!(table.iter().map(|row| row.ranks).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(table.iter().map(|row| row.compute_seconds).collect::<Vec<_>>(), [8.0, 4.0, 4.0]);
        assert_eq!(table.iter().map(|row| row.fixed_seconds).collect::<Vec<_>>(), [0.5, 0.5, 1.0]);
        // Two that share parts of a core.
        let table = super::table(&STEP, &cluster(4, 1.6), 2);
        assert_eq!(table.iter().map(|row| row.compute_seconds).collect::<Vec<_>>(), [8.0, 5.0]);
    }

    #[test]
    fn all_wait_for_the_slowest() {
        // Of 2, 4, 16 and 1,024 normal numbers the largest is this much above the mean, on average.
        for (ranks, expected) in [(1, 0.0), (2, 0.564), (4, 1.029), (16, 1.766), (1024, 3.24)] {
            let found = slowest_of(ranks);
            assert!((found - expected).abs() <= 0.1 * expected, "{ranks}: {found}");
        }
        let step = Step { jitter: 0.2, ..STEP };
        assert_eq!(predict(&step, &cluster(4, 4.0), 1), predict(&STEP, &cluster(4, 4.0), 1));
        let (steady, jittery) = (predict(&STEP, &cluster(4, 4.0), 2), predict(&step, &cluster(4, 4.0), 2));
        assert!((jittery.compute_seconds / steady.compute_seconds - (1.0 + 0.1128 * 2_f64.sqrt())).abs() < 1e-9);
    }

    #[test]
    fn an_hour_of_audio_has_its_price() {
        let one = predict(&STEP, &cluster(1, 1.0), 1);
        // 8.5 s for 850 s of audio, at 2 an hour.
        assert_eq!(one.audio_hour_cost, Some(0.02));
        assert!(predict(&STEP, &cluster(1, 1.0), 4).audio_hour_cost > Some(0.02));
    }

    #[test]
    fn predictions_are_read_as_written() {
        for row in table(&STEP, &cluster(8, 8.0), 1024) {
            let text = serde_json::to_string(&row).unwrap();
            let read: Prediction = serde_json::from_str(&text).unwrap();
            // The last bit of a number may be lost in text.
            assert!((read.step_seconds / row.step_seconds - 1.0).abs() < 1e-12);
            assert_eq!((read.ranks, read.nodes), (row.ranks, row.nodes));
        }
    }
}
