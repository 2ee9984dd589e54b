//! The record of a run as TensorBoard reads it: an event file in the run's folder.
//!
//! TensorBoard shows a folder of event files as one run and reads them in the order of their names. A run that goes on
//! therefore writes a file of its own, whose beginning says after which step it goes on: what the files before it say
//! of later steps is dropped, and no step is drawn twice.

mod frame;
mod message;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::frame::framed;
use self::message::Event;
use crate::RecordError;

/// A reader sees a point at most this late, and a kill loses no more. A long run writes some ten points a second, so
/// a write of its own for each would be paid for nothing.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// Writes what TensorBoard shows of a run.
///
/// It is flushed every few seconds and when it is dropped.
///
/// ```
/// use plimsoll_monitor::EventFile;
///
/// let folder = tempfile::tempdir()?;
/// let mut events = EventFile::create(folder.path(), 0)?;
/// events.scalar("train/loss", 1, 2.5)?;
/// events.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
    flushed: Instant,
}

impl EventFile {
    /// A new file in `folder`, which is made where it is missing, for a run that has taken `after` steps: 0 for a new
    /// run. What earlier files say of later steps no longer counts.
    pub fn create(folder: &Path, after: u64) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io { path: folder.into(), source };
        fs::create_dir_all(folder).map_err(io)?;
        let (path, file) = first_free(folder)?;
        let mut events = Self { path, file: BufWriter::new(file), flushed: Instant::now() };
        events.write(&Event::Version)?;
        // A new run says it too: TensorBoard takes the first start that it meets for the beginning and drops nothing.
        events.write(&Event::Start { step: after + 1 })?;
        events.flush()?;
        Ok(events)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one point of the curve `tag`; a slash in it groups curves. TensorBoard keeps single precision.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<(), RecordError> {
        self.write(&Event::Scalar { tag, step, value: value as f32 })
    }

    /// Writes a text, which TensorBoard shows as Markdown.
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> Result<(), RecordError> {
        self.write(&Event::Text { tag, step, text })
    }

    /// Hands all that was written to the system.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.flushed = Instant::now();
        self.file.flush().map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }

    fn write(&mut self, event: &Event<'_>) -> Result<(), RecordError> {
        let bytes = framed(&event.encoded(since_1970()));
        self.file.write_all(&bytes).map_err(|source| RecordError::Io { path: self.path.clone(), source })?;
        if self.flushed.elapsed() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }
}

/// `events.out.tfevents.SECONDS.HOST.PID.NUMBER`, as TensorFlow names it. The seconds have ten digits until 2286, so
/// names sort by time.
fn first_free(folder: &Path) -> Result<(PathBuf, File), RecordError> {
    let (seconds, host, pid) = (since_1970() as u64, host(), std::process::id());
    let mut number = 0;
    loop {
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.{host}.{pid}.{number}"));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(source) => return Err(RecordError::Io { path, source }),
        }
    }
}

/// The machine's name, without what a file's name may not hold.
fn host() -> String {
    let name = sysinfo::System::host_name().unwrap_or_else(|| "localhost".into());
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect()
}

fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
