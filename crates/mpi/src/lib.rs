//! Replicas of a training run on several machines, over MPI.
#![doc = include_str!("../README.md")]

mod launch;
mod limits;

mod packet;
mod pool;
mod transport;

mod local;

mod backoff;
mod watch;

mod operation;
mod post;

mod gather;
mod library_sum;

mod engine;
mod replica;

#[cfg(feature = "mpi")]
mod mpi_calls;
#[cfg(feature = "mpi")]
mod mpi_sums;
#[cfg(feature = "mpi")]
mod mpi_transport;
#[cfg(feature = "mpi")]
mod world;

mod equal;

pub mod scale;

#[cfg(test)]
mod tests;

pub use equal::{EqualError, require_equal};
pub use launch::{Launch, LaunchError, Launcher};
pub use limits::Limits;
pub use local::LocalTransport;
pub use packet::Packet;
pub use pool::Pool;
pub use replica::MessageReplica;
pub use transport::Transport;
#[cfg(feature = "mpi")]
pub use {
    mpi_calls::MpiCallError,
    mpi_transport::MpiTransport,
    world::{MpiError, MpiPlace, MpiReplica, MpiWorld},
};
