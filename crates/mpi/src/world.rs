//! The world of MPI that a launcher has made: who this process is in it, and its replica.

use std::io;

use mpi::Threading;
use mpi::environment;
use plimsoll_core::{Collective, CollectiveError};

use crate::limits::Limits;
use crate::mpi_calls::{Communicator, MpiCallError};
use crate::mpi_transport::MpiTransport;
use crate::replica::MessageReplica;

/// A replica that is a process of an MPI world. `MpiWorld::into_replica` makes it.
pub type MpiReplica = MessageReplica<MpiTransport>;

/// The processes that a launcher has started together, and this one's place among them.
///
/// Keep it, or the replica made of it, until the end of the program, and drop it before the program exits: a program that
/// exits without that has failed in the eyes of `mpirun`. MPI can be initialized once in a process.
pub struct MpiWorld {
    transport: MpiTransport,
    place: MpiPlace,
}

/// Place of a process in its world.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MpiPlace {
    /// Index of this process.
    pub rank: usize,
    /// Number of processes.
    pub ranks: usize,
    /// Index of this process among those that share memory with it: the index of its GPU.
    pub local_rank: usize,
    /// Number of processes that share memory with this one.
    pub local_ranks: usize,
    /// Index of this node, in the order of the lowest ranks.
    pub node: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Name of this machine, as MPI gives it.
    pub machine: String,
}

/// Error of [`MpiWorld::initialize`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI was initialized before in this process.
    #[error("MPI was initialized before in this process")]
    Initialized,
    /// The library allows calls of one thread only.
    #[error("the MPI library allows calls of one thread only, and the heartbeat needs two: {library}")]
    Threads {
        /// Name and version of the library.
        library: String,
    },
    /// A call has failed.
    #[error(transparent)]
    Call(#[from] MpiCallError),
    /// The thread of the heartbeat could not be started.
    #[error("cannot start the thread of the heartbeat")]
    Thread(#[from] io::Error),
}

impl MpiWorld {
    /// Initializes MPI. Call it only in a process that a launcher has started: see [`Launch::detect`](crate::Launch::detect).
    /// Elsewhere it makes a world of one rank, and needs some hundred milliseconds and a few helper files.
    ///
    /// Waits until all processes have made this call. That wait has no limit of its own: the launcher ends all processes if
    /// one of them dies in it.
    ///
    /// # Errors
    /// If MPI was initialized before, or its library has no thread level for a heartbeat. Most libraries end the process
    /// themselves if they cannot reach the launcher.
    pub fn initialize() -> Result<Self, MpiError> {
        let (universe, threads) =
            environment::initialize_with_threading(Threading::Serialized).ok_or(MpiError::Initialized)?;
        if threads < Threading::Serialized {
            return Err(MpiError::Threads { library: library_version() });
        }
        let communicator = Communicator::of_all_ranks()?;
        let place = place(communicator)?;
        Ok(Self { transport: MpiTransport::new(communicator, universe, place.node)?, place })
    }

    /// Returns the place of this process.
    pub fn place(&self) -> &MpiPlace {
        &self.place
    }

    /// Returns name and version of the MPI library.
    pub fn library_version(&self) -> String {
        library_version()
    }

    /// Lets sums by the library be made inside of each group of ranks first, and then between the groups, in place of the nodes:
    /// for machines that are joined closely in groups of their own. `group` is the number of this rank's group. All processes
    /// make this call.
    ///
    /// # Errors
    /// If MPI reports one.
    pub fn with_group(mut self, group: usize) -> Result<Self, MpiError> {
        self.transport.set_group(group)?;
        Ok(self)
    }

    /// Makes the replica of this process. All processes make this call at about the same time: the heartbeat begins here.
    ///
    /// # Errors
    /// If the thread of the heartbeat cannot be started.
    pub fn into_replica(self, limits: Limits) -> Result<MpiReplica, MpiError> {
        Ok(MessageReplica::new(self.transport, limits)?)
    }
}

impl MpiReplica {
    /// Sums as plain `MPI_Allreduce` does: in an order of its own, and with a wait that has no limit. `sums` takes the result.
    /// It is here to be compared with.
    ///
    /// # Errors
    /// If MPI reports one.
    ///
    /// # Panics
    /// If the lengths differ, or do not fit 31 bits.
    pub fn plain_all_reduce(&self, values: &mut [f32], sums: &mut [f32]) -> Result<(), CollectiveError> {
        let sum = |transport: &mut MpiTransport| transport.communicator().all_reduce(values, sums);
        let failed = |error: MpiCallError| CollectiveError::failed(self.rank(), &error.to_string());
        self.with_transport(sum).map_err(failed)
    }
}

/// Finds the node by the ranks that share memory.
fn place(world: Communicator) -> Result<MpiPlace, MpiCallError> {
    let (rank, ranks) = (world.rank()?, world.ranks()?);
    let shared = world.of_node()?;
    let (local_rank, local_ranks) = (shared.rank()?, shared.ranks()?);
    let lowest = shared.gather_number(rank as u64)?.into_iter().min().unwrap_or_default();
    shared.free();
    let mut nodes = world.gather_number(lowest)?;
    nodes.sort_unstable();
    nodes.dedup();
    let node = nodes.binary_search(&lowest).unwrap_or_default();
    let machine = environment::processor_name().unwrap_or_default();
    Ok(MpiPlace { rank, ranks, local_rank, local_ranks, node, nodes: nodes.len(), machine })
}

/// Returns the first line of the library's description; MPICH writes a page.
fn library_version() -> String {
    let text = environment::library_version().unwrap_or_default();
    let text = text.trim_end_matches('\0');
    let (major, minor) = environment::version();
    format!("{} (MPI {major}.{minor})", text.lines().next().unwrap_or_default().trim())
}
