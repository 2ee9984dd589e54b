//! Writes that must not be cut off: a thread that ends the process waits until none is under way.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};

/// Writes of this process.
struct Writes {
    /// Number of writes that are under way.
    count: usize,
    /// Thread that has stopped the writes of all others.
    stopped_by: Option<ThreadId>,
}

static WRITES: Mutex<Writes> = Mutex::new(Writes { count: 0, stopped_by: None });
static RESUMED: Condvar = Condvar::new();

/// A write that is under way, until it is dropped.
#[derive(Debug)]
pub struct Write(());

/// Begins a write that must not be cut off. Waits while another thread has [stopped](stop) all writes.
pub fn begin() -> Write {
    let may_not = |writes: &mut Writes| writes.stopped_by.is_some_and(|thread| thread != current().id());
    RESUMED.wait_while(writes(), may_not).unwrap_or_else(PoisonError::into_inner).count += 1;
    Write(())
}

impl Drop for Write {
    fn drop(&mut self) {
        writes().count -= 1;
    }
}

/// All writes of other threads, stopped until this is dropped.
#[derive(Debug)]
pub struct Stopped(());

/// Stops the writes of all other threads, so that this thread can end the process; `None` if one is under way.
///
/// ```
/// use plimsoll_core::writes;
///
/// let write = writes::begin();
/// assert!(writes::stop().is_none());
/// drop(write);
/// assert!(writes::stop().is_some());
/// ```
pub fn stop() -> Option<Stopped> {
    let mut writes = writes();
    if writes.count > 0 || writes.stopped_by.is_some() {
        return None;
    }
    writes.stopped_by = Some(current().id());
    Some(Stopped(()))
}

impl Drop for Stopped {
    fn drop(&mut self) {
        writes().stopped_by = None;
        RESUMED.notify_all();
    }
}

fn writes() -> MutexGuard<'static, Writes> {
    // Two plain values: a panic leaves nothing half done.
    WRITES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stop_waits_for_writes_and_writes_wait_for_its_end() {
        // Other tests of this process write files.
        let stopped = std::iter::repeat_with(stop).flatten().next().unwrap();
        drop(begin());
        let (sender, begun) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let write = begin();
            sender.send(()).unwrap();
            drop(write);
        });
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err(), "a write began while all were stopped");
        drop(stopped);
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        other.join().unwrap();
    }
}
