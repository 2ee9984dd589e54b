//! The processes that train one run together: one on each GPU or node of a cluster, started by MPI.

use std::sync::Arc;
#[cfg(feature = "mpi")]
use std::time::Duration;

use plimsoll_core::{Collective, CollectiveError, SingleReplica, counted, error_chain};
use plimsoll_mpi::scale::{Link, LinkTest, measure_full_speed, measure_link};
use plimsoll_mpi::{EqualError, Launch, require_equal};
#[cfg(feature = "mpi")]
use plimsoll_mpi::{Limits, MpiWorld};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, FailureExt, FailureKind};

/// The place of this process among the processes of a run.
///
/// Each process has one replica and computes its part of every batch. The process with rank 0 prepares the data first,
/// owns the run's folder, and records and evaluates the run.
#[derive(Clone)]
pub struct Processes {
    collective: Arc<dyn Collective>,
    local_rank: usize,
    local_ranks: usize,
    description: String,
    /// Numbers of the other processes on this machine, as far as known.
    neighbors: Vec<u32>,
}

/// Longest time that a process waits for another one that lives.
#[cfg(feature = "mpi")]
const LONGEST_WAIT: Duration = Duration::from_secs(6 * 60 * 60);

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes")
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .field("local_rank", &self.local_rank)
            .field("local_ranks", &self.local_ranks)
            .finish()
    }
}

/// How a part of the work ended in one process, for the other processes.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    message: String,
    is_invalid: bool,
}

impl Processes {
    /// Returns the only process of a run.
    pub fn alone() -> Self {
        Self::new(Arc::new(SingleReplica), 0, 1)
    }

    /// Returns the place of this process among those that MPI started, or the only process if MPI started none.
    ///
    /// # Errors
    /// If MPI started several processes and this program was built without it, or cannot connect them.
    pub fn join() -> Result<Self, Failure> {
        match Launch::detect().invalid()? {
            None | Some(Launch { ranks: Some(1), .. }) => Ok(Self::alone()),
            Some(launch) => connect(&launch),
        }
    }

    /// Makes one of the processes that `collective` connects. `local_rank` is its index among the `local_ranks` processes
    /// of its machine, which share the machine's processors and memory.
    pub fn new(collective: Arc<dyn Collective>, local_rank: usize, local_ranks: usize) -> Self {
        let description = collective.ranks().to_string();
        Self { collective, local_rank, local_ranks: local_ranks.max(1), description, neighbors: Vec::new() }
    }

    /// Describes how many processes there are and how they are connected.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// Returns the number of processes of the run.
    pub fn ranks(&self) -> usize {
        self.collective.ranks()
    }

    /// Returns the index of this process among those of its machine, from 0.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Returns the number of processes of the run on this machine.
    pub fn local_ranks(&self) -> usize {
        self.local_ranks
    }

    /// Returns whether this process records the run.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Returns whether the run has no other process.
    pub fn is_alone(&self) -> bool {
        self.ranks() == 1
    }

    /// Returns the numbers of the other processes of the run on this machine, as far as known.
    pub(crate) fn neighbors(&self) -> &[u32] {
        &self.neighbors
    }

    /// Returns the connection to the other processes.
    pub(crate) fn collective(&self) -> Arc<dyn Collective> {
        self.collective.clone()
    }

    /// Does `work` in the first process, and then in all others at the same time: the first one may write files that the
    /// others read.
    ///
    /// # Errors
    /// If `work` fails in any process. All processes then return the failure of the first one that failed.
    pub(crate) fn first_then_others<R>(&self, mut work: impl FnMut() -> Result<R, Failure>) -> Result<R, Failure> {
        let first = if self.is_first() { Some(self.together(work())) } else { None };
        if let Some(first) = first {
            let first = first?;
            self.together::<()>(Ok(()))?;
            return Ok(first);
        }
        // The first process has its turn.
        self.together::<()>(Ok(()))?;
        self.together(work())
    }

    /// Returns the result of this process if no process has failed.
    ///
    /// # Errors
    /// If `own` or the result of another process is a failure. All processes return the failure of the first of them.
    pub fn together<R>(&self, own: Result<R, Failure>) -> Result<R, Failure> {
        if self.is_alone() {
            return own;
        }
        let ended = own
            .as_ref()
            .err()
            .map(|failure| Ended { message: error_chain(failure), is_invalid: failure.kind() == FailureKind::Invalid });
        let ended = serde_json::to_vec(&ended).expect("a message is plain data");
        let all = self.collective.gather(ended).map_err(lost);
        let first = all?.iter().enumerate().find_map(|(rank, ended)| {
            let ended: Option<Ended> = serde_json::from_slice(ended).ok()?;
            ended.map(|ended| (rank, ended))
        });
        match (first, own) {
            (None, own) => own,
            (Some((rank, _)), Err(own)) if rank == self.rank() => Err(own),
            (Some((rank, Ended { message, is_invalid: true })), _) => {
                Err(Failure::invalid(format!("process {rank}: {message}"), "all processes of the run stop"))
            }
            (Some((rank, Ended { message, .. })), _) => Err(Failure::stopped(format!("process {rank}: {message}"))),
        }
    }

    /// Returns the value that the first process has.
    ///
    /// # Errors
    /// If another process is gone.
    pub(crate) fn value_of_first(&self, own: Vec<u8>) -> Result<Arc<[u8]>, Failure> {
        self.collective.broadcast(0, own).map_err(lost)
    }

    /// Returns what each process has, in the order of their ranks.
    ///
    /// # Errors
    /// If another process is gone.
    pub(crate) fn gathered<V: Serialize + DeserializeOwned>(&self, own: &V) -> Result<Vec<V>, Failure> {
        let own = serde_json::to_vec(own).expect("a value that processes exchange is plain data");
        let all = self.collective.gather(own).map_err(lost)?;
        all.iter().map(|value| serde_json::from_slice(value).failed()).collect()
    }

    /// Checks that `value` is the same in all processes. `name` says what it is: `the configuration`.
    ///
    /// # Errors
    /// If it is not; the message names the processes that differ.
    pub(crate) fn check_equal(&self, name: &str, value: &[u8]) -> Result<(), Failure> {
        require_equal(&*self.collective, name, value).map_err(|error| match error {
            EqualError::Collective(error) => lost(error),
            error => Failure::invalid(
                error.to_string(),
                "start all processes with the same program, the same arguments and the same files",
            ),
        })
    }

    /// Measures latency and bandwidth between the processes, in about a second; `None` if there is only one.
    ///
    /// # Errors
    /// If another process is gone.
    pub fn measure_link(&self) -> Result<Option<Link>, Failure> {
        let nodes = self.ranks().div_ceil(self.local_ranks);
        let mut sum = |values: &mut [f32]| self.collective.sum_f32_in_any_order(values);
        measure_link(&*self.collective, nodes, &LinkTest::default(), &mut sum).map_err(lost)
    }

    /// Measures how many processes of this machine compute at full speed at the same time; `None` if there is only one process.
    ///
    /// # Errors
    /// If another process is gone.
    pub fn measure_full_speed(&self) -> Result<Option<f64>, Failure> {
        /// Computations alone and together, of some milliseconds each.
        const ROUNDS: usize = 40;
        measure_full_speed(&*self.collective, self.local_ranks, ROUNDS).map_err(lost)
    }

    /// Asks for the numbers of the other processes of the run on this machine.
    ///
    /// # Errors
    /// If another process is gone.
    #[cfg(any(test, feature = "mpi"))]
    fn find_neighbors(&self) -> Result<Vec<u32>, Failure> {
        // Equal for all containers of a machine. Without it nothing is known of the others.
        let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let own = (machine, std::process::id());
        let all = self.gathered(&own)?;
        let is_here = |other: &(String, u32)| !own.0.is_empty() && other.0 == own.0 && other.1 != own.1;
        Ok(all.into_iter().filter(is_here).map(|(_, process)| process).collect())
    }

    /// Waits until all processes have come here, so that no process ends while others need it.
    ///
    /// # Errors
    /// If another process is gone.
    pub fn wait_for_all(&self) -> Result<(), Failure> {
        match self.is_alone() {
            true => Ok(()),
            false => self.collective.gather(Vec::new()).map(|_| ()).map_err(lost),
        }
    }
}

/// Connects the processes that a launcher of MPI has started.
#[cfg(feature = "mpi")]
fn connect(_: &Launch) -> Result<Processes, Failure> {
    let world = MpiWorld::initialize().failed()?;
    let place = world.place().clone();
    // The first process may prepare a large corpus while the others wait; a dead process is noticed by its heartbeat.
    let limits = Limits::default().with_wait(LONGEST_WAIT);
    let description = format!("{} on {}, {}", place.ranks, counted(place.nodes, "node"), world.library_version());
    let replica = world.into_replica(limits).failed()?;
    let processes = Processes::new(Arc::new(replica), place.local_rank, place.local_ranks);
    let neighbors = processes.find_neighbors()?;
    Ok(Processes { description, neighbors, ..processes })
}

/// Refuses processes that could not be connected.
#[cfg(not(feature = "mpi"))]
fn connect(launch: &Launch) -> Result<Processes, Failure> {
    let count = launch.ranks.map_or("several processes".into(), |ranks| counted(ranks, "process"));
    let started = format!("{} started {count}, and this program was built without MPI", launch.launcher.name());
    Err(Failure::invalid(
        format!("{started}: each process would train a run of its own"),
        "build it with `--features mpi` (docs/clusters.md says how), or start one process",
    ))
}

/// Makes the failure for a lost connection to another process.
fn lost(error: CollectiveError) -> Failure {
    let text = error.to_string();
    Failure::stopped(format!("the run lost a process: {text}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use plimsoll_train::ThreadReplica;

    use super::*;

    /// Does `work` in three processes, here threads, and returns what each got.
    fn in_three<R: Send + 'static>(work: impl Fn(&Processes) -> R + Clone + Send + 'static) -> Vec<R> {
        let threads = ThreadReplica::for_ranks(3).into_iter().enumerate().map(|(rank, replica)| {
            let work = work.clone();
            std::thread::spawn(move || work(&Processes::new(Arc::new(replica), rank, 3)))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn the_first_process_works_before_the_others() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = order.clone();
        let results = in_three(move |processes| {
            processes.first_then_others(|| {
                seen.lock().unwrap().push(processes.rank());
                Ok(processes.rank())
            })
        });
        let results: Vec<usize> = results.into_iter().map(Result::unwrap).collect();
        assert_eq!(results, [0, 1, 2]);
        assert_eq!(order.lock().unwrap()[0], 0);
    }

    #[test]
    fn a_failure_of_one_process_is_that_of_all() {
        for failing in 0..3 {
            let results = in_three(move |processes| {
                let work = || match processes.rank() == failing {
                    true => Err(Failure::invalid("the disk is full", "make room")),
                    false => Ok(()),
                };
                processes.first_then_others(work).unwrap_err()
            });
            for (rank, failure) in results.iter().enumerate() {
                assert!(failure.to_string().contains("the disk is full"), "{rank}: {failure}");
                assert_eq!(failure.to_string().starts_with("process"), rank != failing);
                assert_eq!(failure.kind(), FailureKind::Invalid);
            }
        }
    }

    #[test]
    fn neighbors_are_other_processes() {
        // Three threads are one process.
        assert!(in_three(|processes| processes.find_neighbors().unwrap()).iter().all(Vec::is_empty));
    }

    #[test]
    fn another_value_is_refused_with_the_rank_that_has_it() {
        let same = in_three(|processes| processes.check_equal("the seed", b"17").is_ok());
        assert_eq!(same, [true; 3]);
        let other = in_three(|processes| processes.check_equal("the seed", &[255 - processes.rank() as u8 / 2]));
        for failure in other {
            assert_eq!(failure.unwrap_err().to_string(), "the seed differs on rank 2 of 3");
        }
    }
}
