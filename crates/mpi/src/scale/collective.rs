//! How long an all-reduce takes, in closed form.

use super::cluster::{Cluster, Link};
use crate::library_sum::PART_LEN;

/// Returns the predicted time in which `ranks` ranks sum an array of `bytes` bytes, as libraries of MPI and NCCL do it for large
/// arrays.
///
/// On one node the sums go around a ring of ranks: `2 (n - 1)` steps, as fast as the slowest link. On several nodes the ranks
/// of each are summed first, then the sums go around a ring of nodes, and back to the ranks. Parts of the array are in all
/// of these at the same time.
pub fn all_reduce_seconds(ranks: usize, bytes: f64, cluster: &Cluster) -> f64 {
    if ranks <= 1 {
        return 0.0;
    }
    let (local, nodes) = (cluster.ranks_on_node(ranks), cluster.nodes(ranks));
    if nodes == 1 {
        return ring_seconds(ranks, bytes, &cluster.within);
    }
    let between = |bytes: f64| ring_seconds(nodes, bytes, &cluster.between);
    let within = |bytes: f64| match local {
        1 => 0.0,
        _ => 2.0 * (cluster.within.busy_seconds(bytes) + cluster.within.latency_seconds),
    };
    // The first part passes both, and the slower of the two keeps all others waiting.
    let part = bytes.min(PART_LEN as f64 * size_of::<f32>() as f64);
    let slower = between(bytes).max(within(bytes));
    slower + between(part).min(within(part))
}

/// Returns the time in which sums of `bytes` bytes go around a ring of `count` places.
fn ring_seconds(count: usize, bytes: f64, link: &Link) -> f64 {
    2.0 * (count - 1) as f64 * (link.busy_seconds(bytes / count as f64) + link.latency_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_between_nodes_carries_an_array_once_each_way() {
        let link = |bytes_per_second| Link { latency_seconds: 1e-5, message_seconds: 0.0, bytes_per_second };
        let cluster = |ranks_per_node| Cluster {
            within: link(1e10),
            between: link(1e9),
            ranks_per_node,
            full_speed_ranks: 64.0,
            node_hour_cost: None,
        };
        let seconds = |ranks, ranks_per_node| all_reduce_seconds(ranks, 1e8, &cluster(ranks_per_node));
        assert_eq!(seconds(1, 4), 0.0);
        for (ranks, ranks_per_node, expected) in [(8, 8, 0.0175), (8, 4, 0.1), (8, 2, 0.15), (8, 1, 0.175), (2, 1, 0.1)]
        {
            let found = seconds(ranks, ranks_per_node);
            assert!((found / expected - 1.0).abs() < 0.05, "{ranks} by {ranks_per_node}: {found}");
        }
    }
}
