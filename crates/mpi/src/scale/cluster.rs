//! What a prediction knows of machines and networks.

use serde::{Deserialize, Serialize};

/// A way that messages take between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Time from the end of sending to the arrival.
    pub latency_seconds: f64,
    /// Time that a message keeps its sender busy besides its bytes.
    #[serde(default)]
    pub message_seconds: f64,
    /// Bytes a second in one direction. Within a node this is for each rank, between nodes for each node.
    pub bytes_per_second: f64,
}

impl Link {
    /// Returns the time that a message keeps the link busy.
    pub(super) fn busy_seconds(&self, bytes: f64) -> f64 {
        self.message_seconds + bytes / self.bytes_per_second
    }
}

/// Nodes with their networks. Ranks stand on the nodes in their order: the first ones on the first node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Between ranks of a node.
    pub within: Link,
    /// Between nodes.
    pub between: Link,
    /// Number of ranks on each node.
    pub ranks_per_node: usize,
    /// Number of ranks of a node that compute at full speed at the same time: its GPUs, or on a CPU its cores by the
    /// threads of a rank. More ranks share them. It is no whole number where cores share parts of themselves:
    /// [`measure_full_speed`](super::measure_full_speed) finds it.
    pub full_speed_ranks: f64,
    /// Price of a node for an hour, in any currency.
    #[serde(default)]
    pub node_hour_cost: Option<f64>,
}

impl Cluster {
    /// Returns the number of nodes that `ranks` ranks need.
    pub fn nodes(&self, ranks: usize) -> usize {
        ranks.div_ceil(self.ranks_per_node.max(1)).max(1)
    }

    /// Returns the number of ranks on a full node, with `ranks` ranks together.
    pub fn ranks_on_node(&self, ranks: usize) -> usize {
        ranks.min(self.ranks_per_node.max(1))
    }
}
