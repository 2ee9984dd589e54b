//! What more ranks would bring: a model of a step on a cluster, and a short measurement.
//!
//! ```
//! use plimsoll_mpi::scale::{Cluster, Link, Step, predict};
//!
//! let step = Step {
//!     compute_seconds: 4.0,
//!     fixed_seconds: 0.1,
//!     gradient_bytes: 100e6,
//!     micro_batches: 64,
//!     audio_seconds: 600.0,
//!     jitter: 0.0,
//! };
//! let cluster = Cluster {
//!     within: Link { latency_seconds: 5e-6, message_seconds: 1e-6, bytes_per_second: 5e9 },
//!     between: Link { latency_seconds: 5e-5, message_seconds: 2e-6, bytes_per_second: 1.25e9 },
//!     ranks_per_node: 4,
//!     full_speed_ranks: 4.0,
//!     node_hour_cost: Some(3.0),
//! };
//! let one = predict(&step, &cluster, 1);
//! let eight = predict(&step, &cluster, 8);
//! assert_eq!(one.step_seconds, 4.1);
//! assert!(eight.speedup > 3.0 && eight.efficiency < 1.0);
//! assert_eq!(eight.nodes, 2);
//! ```

mod cluster;
mod collective;
mod measure;
mod predict;

pub use cluster::{Cluster, Link};
pub use collective::all_reduce_seconds;
pub use measure::{LinkTest, measure_full_speed, measure_link};
pub use predict::{Prediction, Step, predict, table};
