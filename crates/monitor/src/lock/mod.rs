//! The lock of a run's folder: one process at a time may write into it.
//!
//! The operating system holds the lock as long as the process lives, so the lock of a killed process is free at once. Some
//! disks that several machines share have locks that hold on one machine only. So the holder also writes its name into the
//! lock file, and writes it again every few seconds: another machine sees a file that changes.

mod holder;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

pub use holder::LockHolder;

/// Name of the lock file in the folder of a run.
const FILE: &str = ".lock";
/// Time between two writes of the lock file by its holder.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Time without a write after which a holder on another machine counts as dead. Several heartbeats long, because a disk in
/// a network can be slow.
const SILENCE: Duration = Duration::from_secs(120);
/// Number of tries to take a lock. A program that lists runs holds it for a moment.
const TRIES: u32 = 10;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The lock of a run's folder. Dropping it, or the end of the process, frees the folder.
///
/// ```
/// use plimsoll_monitor::{LockError, RunLock};
///
/// let folder = tempfile::tempdir()?;
/// let lock = RunLock::take(folder.path())?;
/// assert!(matches!(RunLock::take(folder.path()), Err(LockError::Held { .. })));
/// drop(lock);
/// assert!(RunLock::take(folder.path()).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunLock {
    file: File,
    /// Content of the lock file: the name of this process.
    text: String,
    /// Thread that writes the lock file again and again. It ends when its channel closes.
    heartbeat: Option<Heartbeat>,
}

/// Thread that writes a lock file again and again, and the channel that ends it.
type Heartbeat = (Sender<()>, JoinHandle<()>);

/// Reason why the lock of a run's folder cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process holds the lock.
    #[error("{} is in use by {holder}", folder.display())]
    Held {
        /// Folder of the run.
        folder: PathBuf,
        /// Process that holds the lock.
        holder: LockHolder,
    },
    /// The lock file cannot be opened, read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// Path of the lock file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Answer of the operating system to the question for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OsLock {
    /// This process has the lock now, so no process of this machine has it.
    Taken,
    /// Another process has the lock.
    Busy,
    /// The disk has no locks.
    Unsupported,
}

impl RunLock {
    /// Takes the lock of the run in `folder`, which must exist.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process holds it, [`LockError::Io`] if the lock file cannot be used.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(FILE);
        let io = |source| LockError::Io { path: path.clone(), source };
        let is_new = !path.exists();
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(io)?;
        let taken = Self::take_in(&mut file, folder);
        if is_new && matches!(taken, Err(LockError::Io { .. })) {
            // A disk that is full keeps no empty file.
            let _ = fs::remove_file(&path);
        }
        let (text, heartbeat) = taken?;
        Ok(Self { file, text, heartbeat: Some(heartbeat) })
    }

    /// Takes the lock of the run in `folder` by its lock file, and starts the heartbeat.
    fn take_in(file: &mut File, folder: &Path) -> Result<(String, Heartbeat), LockError> {
        let path = folder.join(FILE);
        let io = |source| LockError::Io { path: path.clone(), source };
        let answer = ask(|| file.try_lock()).map_err(io)?;
        let written = read(file).map_err(io)?;
        let age = || Ok(age_of(file, disk_time(folder)?));
        if answer == OsLock::Busy || is_alive(written.as_ref(), answer, age).map_err(io)? {
            let holder = written.unwrap_or_else(LockHolder::unknown);
            return Err(LockError::Held { folder: folder.into(), holder });
        }
        let text = LockHolder::current().to_text();
        write(file, &text).map_err(io)?;
        let heartbeat = start_heartbeat(file.try_clone().map_err(io)?, text.clone()).map_err(io)?;
        Ok((text, heartbeat))
    }

    /// Returns whether the lock file in `folder` does not name this process, so that the folder is not the one in which this lock
    /// was taken, or another process took the lock. False if there is no lock file.
    pub fn is_replaced(&self, folder: &Path) -> bool {
        fs::read(folder.join(FILE)).is_ok_and(|found| found != self.text.as_bytes())
    }

    /// Returns whether a process holds the lock of the run in `folder`; `None` if the folder never had a lock. Changes no
    /// file.
    pub fn is_held(folder: &Path) -> Option<bool> {
        Some(Self::state(folder)?.1)
    }

    /// Returns the process that holds the lock of the run in `folder`, if it has written its name. Changes no file.
    pub fn holder(folder: &Path) -> Option<LockHolder> {
        Self::state(folder).filter(|(_, is_held)| *is_held)?.0
    }

    /// Reads the name in the lock file, and whether a process holds the lock.
    fn state(folder: &Path) -> Option<(Option<LockHolder>, bool)> {
        let mut file = File::open(folder.join(FILE)).ok()?;
        let answer = ask(|| file.try_lock_shared()).ok()?;
        let written = read(&mut file).ok()?;
        let age = || Ok(age_of(&file, SystemTime::now()));
        let is_held = answer == OsLock::Busy || is_alive(written.as_ref(), answer, age).unwrap_or(false);
        Some((written, is_held))
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.heartbeat.take() {
            drop(stop);
            let _ = thread.join();
        }
        // An empty file has no holder. It stays: a process that waits for its lock would otherwise lock a deleted file.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Asks the operating system for a lock, several times if it is busy.
fn ask(lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<OsLock> {
    for attempt in 1.. {
        match lock() {
            Ok(()) => return Ok(OsLock::Taken),
            Err(TryLockError::WouldBlock) if attempt == TRIES => return Ok(OsLock::Busy),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            // ENOLCK, ENOSYS or EOPNOTSUPP, depending on the disk.
            Err(TryLockError::Error(_)) => return Ok(OsLock::Unsupported),
        }
    }
    Ok(OsLock::Busy)
}

/// Returns whether the process that wrote its name into the lock file is alive. `age` is the time since it wrote.
fn is_alive(
    written: Option<&LockHolder>,
    answer: OsLock,
    age: impl FnOnce() -> io::Result<Duration>,
) -> io::Result<bool> {
    let Some(holder) = written else { return Ok(false) };
    match answer {
        OsLock::Busy => Ok(true),
        OsLock::Taken if holder.is_on_this_machine() => Ok(false),
        OsLock::Taken | OsLock::Unsupported => Ok(age()? < SILENCE),
    }
}

/// Computes the time since `file` was written. A file from the future was written now: clocks differ between machines.
fn age_of(file: &File, now: SystemTime) -> Duration {
    let written = file.metadata().and_then(|metadata| metadata.modified());
    written.ok().and_then(|written| now.duration_since(written).ok()).unwrap_or_default()
}

/// Returns the time by the clock that dates the files of `folder`, which can be the clock of a file server.
fn disk_time(folder: &Path) -> io::Result<SystemTime> {
    let path = folder.join(format!("{FILE}-clock-{}", std::process::id()));
    let mut file = File::create(&path)?;
    let time = file.write_all(b"now").and_then(|()| file.sync_all()).and_then(|()| file.metadata()?.modified());
    fs::remove_file(&path)?;
    time
}

/// Reads the name of the holder; `None` if there is none, or if it cannot be read.
fn read(file: &mut File) -> io::Result<Option<LockHolder>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(LockHolder::from_text(&bytes))
}

/// Replaces the content of the lock file.
fn write(file: &mut File, text: &str) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Starts the thread that writes the lock file again and again.
fn start_heartbeat(mut file: File, text: String) -> io::Result<Heartbeat> {
    let (stop, stopped) = mpsc::channel();
    let beat = move || {
        while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
            // A disk that is full or gone for a moment must not end the run; the next beat tries again.
            let _ = write(&mut file, &text);
        }
    };
    Ok((stop, std::thread::Builder::new().name("run lock".into()).spawn(beat)?))
}
