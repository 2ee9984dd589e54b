//! A replica that exchanges messages with the others, over any transport.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_core::{Collective, CollectiveError};

use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::gather::{CHUNK_LEN, Gather};
use crate::library_sum::{LibrarySum, PART_LEN, ReadValues, check_equal};
use crate::limits::Limits;
use crate::operation::Operation;
use crate::post::Post;
use crate::transport::Transport;

/// A replica that exchanges messages with the others.
///
/// No wait lasts for ever: a rank that is silent for [`Limits::wait`] is named, a thread of its own sends heartbeats and
/// notices a rank that died or hangs within [`Limits::silence`], and a replica that [fails](Collective::fail) or is
/// dropped ends the waits of the others. After an error, all further operations give an error.
///
/// Methods may be called from any thread; calls from several threads follow each other.
///
/// ```
/// use plimsoll_core::Collective;
/// use plimsoll_mpi::{Limits, LocalTransport, MessageReplica};
///
/// let work = |transport| {
///     let replica = MessageReplica::new(transport, Limits::default())?;
///     let mut gradient = [1.0, 10.0_f32.powi(replica.rank() as i32)];
///     replica.sum_f32(&mut gradient).expect("both ranks live");
///     std::io::Result::Ok(gradient)
/// };
/// let mut ranks = LocalTransport::for_ranks(2).into_iter();
/// let (first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
/// let other = std::thread::spawn(move || work(second));
/// assert_eq!(work(first)?, [2.0, 11.0]);
/// assert_eq!(other.join().unwrap()?, [2.0, 11.0]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct MessageReplica<T: Transport> {
    rank: usize,
    ranks: usize,
    has_library: bool,
    shared: Arc<Shared<T>>,
    /// Lets one operation begin after the other.
    turn: Mutex<()>,
    waits: Mutex<Vec<Duration>>,
    heart: Option<JoinHandle<()>>,
}

/// What the replica shares with the thread of its heartbeat.
struct Shared<T> {
    engine: Mutex<Engine<T>>,
    born: Instant,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl<T: Transport> Shared<T> {
    fn engine(&self) -> MutexGuard<'_, Engine<T>> {
        // A thread that panicked has left an engine that can at least report a failure.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    /// Keeps the heart beating until the replica is dropped.
    fn beat(&self, interval: Duration) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            drop(stopped);
            self.engine().tick(self.now());
            stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.stop.wait_timeout_while(stopped, interval, |stopped| !*stopped);
            stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T: Transport + 'static> MessageReplica<T> {
    /// Makes a replica of the transport, and starts the thread of its heartbeat.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(transport: T, limits: Limits) -> io::Result<Self> {
        let (rank, ranks, born) = (transport.rank(), transport.ranks(), Instant::now());
        let has_library = transport.has_library();
        let engine = Mutex::new(Engine::new(transport, limits, Duration::ZERO));
        let shared = Arc::new(Shared { engine, born, stopped: Mutex::new(false), stop: Condvar::new() });
        let heart = if ranks > 1 {
            let (shared, interval) = (shared.clone(), limits.beat());
            let thread = thread::Builder::new().name("heartbeat".into());
            Some(thread.spawn(move || shared.beat(interval))?)
        } else {
            None
        };
        Ok(Self {
            rank,
            ranks,
            has_library,
            shared,
            turn: Mutex::new(()),
            waits: Mutex::new(vec![Duration::ZERO; ranks]),
            heart,
        })
    }
}

impl<T: Transport> MessageReplica<T> {
    /// Replaces `values` by their sums over all ranks, with the bits that adding the arrays in the order of the ranks
    /// gives. All ranks get the same bits. Each rank sends its array to all others, part by part. After an error the values mean
    /// nothing.
    ///
    /// # Errors
    /// If another rank has ended, has failed, does not answer in time, or gave another number of values.
    pub fn sum_f32(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        match self.ranks {
            1 => Ok(()),
            _ => self.sum_in_order(values, PART_LEN),
        }
    }

    /// Sums in the order of the ranks, in parts of `part_len` numbers.
    pub(crate) fn sum_in_order(&self, values: &mut [f32], part_len: usize) -> Result<(), CollectiveError> {
        let len = values.len() as u64;
        // One turn for all parts: no other call comes between them.
        let turn = self.turn();
        // No numbers at all are a part, too, so that ranks that give some are found.
        for part in 0..values.len().div_ceil(part_len).max(1) {
            let end = ((part + 1) * part_len).min(values.len());
            let own = &mut values[part * part_len..end];
            let bytes = own.iter().flat_map(|value| value.to_le_bytes());
            let all = self.gather_in(&turn, len.to_le_bytes().into_iter().chain(bytes).collect())?;
            for (rank, bytes) in all.iter().enumerate() {
                let (found, bytes) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
                check_equal(rank, u64::from_le_bytes(*found), len)
                    .inspect_err(|error| self.shared.engine().report(error.clone()))?;
                let numbers = bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number));
                // From the first number on, not from zero: the sum of nothing but -0.0 is -0.0.
                match rank {
                    0 => own.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = number),
                    _ => own.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number),
                }
            }
        }
        Ok(())
    }

    /// Replaces `values` by their sums over all ranks, as the library of the network adds them: inside of each node first,
    /// and then between the nodes. The order is the library's own. All ranks get the same bits. Where the network has no
    /// library this is [`MessageReplica::sum_f32`].
    ///
    /// # Errors
    /// As for [`MessageReplica::sum_f32`].
    pub fn sum_f32_by_library(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        // They are there.
        self.sum_f32_by_library_while_read(values, &mut |_| Ok(()))
    }

    /// Sums as [`MessageReplica::sum_f32_by_library`] does, while `read` writes the values: it fills each slice that it gets with
    /// the next ones.
    fn sum_f32_by_library_while_read(
        &self,
        values: &mut [f32],
        read: &mut ReadValues<'_>,
    ) -> Result<(), CollectiveError> {
        if self.ranks > 1 && self.has_library {
            return self.run(&self.turn(), |_| LibrarySum::new(values, PART_LEN, read)).map(|_| ());
        }
        read(values).map_err(|reason| self.failed(&reason))?;
        self.sum_f32(values)
    }

    /// Reports to the other replicas that this one has failed, and returns the error.
    fn failed(&self, reason: &str) -> CollectiveError {
        self.fail(reason);
        CollectiveError::failed(self.rank, reason)
    }

    /// Returns how long this rank has waited for each other one since it was made. A straggler stands out in it.
    pub fn wait_times(&self) -> Vec<Duration> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until no other call of this replica is under way.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gathers in a turn that has begun.
    fn gather_in(&self, turn: &MutexGuard<'_, ()>, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        match self.ranks {
            1 => Ok(vec![own.into()]),
            _ => self.run(turn, |post| Gather::new(own, CHUNK_LEN, post)).map(Gather::into_contents),
        }
    }

    /// Runs an operation to its end.
    fn run<O: Operation>(
        &self,
        _turn: &MutexGuard<'_, ()>,
        make: impl FnOnce(&Post<T>) -> O,
    ) -> Result<O, CollectiveError> {
        let mut now = self.shared.now();
        let (mut operation, mut started) = {
            let mut engine = self.shared.engine();
            let started = engine.start(now)?;
            (make(engine.post()), started)
        };
        let mut backoff = Backoff::new();
        loop {
            let worked = operation.work().map_err(|reason| self.failed(&reason))?;
            let mut engine = self.shared.engine();
            let before = engine.post().moved();
            if let Some(end) = engine.advance(&mut operation, &mut started, now) {
                return end.map(|()| operation);
            }
            let moved = engine.post().moved();
            let awaited = if moved == before { engine.awaited(&operation, &started) } else { None };
            drop(engine);
            if !worked {
                backoff.pause(moved);
            }
            let after = self.shared.now();
            if let Some(rank) = awaited {
                self.waits.lock().unwrap_or_else(PoisonError::into_inner)[rank] += after - now;
            }
            now = after;
        }
    }

    /// Runs `work` while no thread of this replica uses the transport.
    #[cfg(feature = "mpi")]
    pub(crate) fn with_transport<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _turn = self.turn();
        work(self.shared.engine().post().transport())
    }
}

impl<T: Transport> Collective for MessageReplica<T> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        self.gather_in(&self.turn(), own)
    }

    fn sum_f32(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        Self::sum_f32(self, values)
    }

    fn sum_f32_in_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.sum_f32_by_library(values)
    }

    fn sum_f32_while_read(&self, values: &mut [f32], read: &mut ReadValues<'_>) -> Result<(), CollectiveError> {
        self.sum_f32_by_library_while_read(values, read)
    }

    fn fail(&self, reason: &str) {
        self.shared.engine().report(CollectiveError::failed(self.rank, reason));
    }
}

impl<T: Transport> Drop for MessageReplica<T> {
    fn drop(&mut self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stop.notify_all();
        if let Some(heart) = self.heart.take() {
            // If it panicked, the process ends all the same.
            let _ = heart.join();
        }
        let hurry = thread::panicking();
        let mut engine = self.shared.engine();
        engine.leave(self.shared.now());
        let together = engine.post().ends_together();
        let mut backoff = Backoff::new();
        let clean = loop {
            match engine.farewell(hurry, self.shared.now()) {
                Some(clean) => break clean,
                None if !together => break false,
                None => backoff.pause(0),
            }
        };
        engine.post().close(clean);
    }
}
