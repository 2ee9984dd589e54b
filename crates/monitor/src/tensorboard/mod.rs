//! Curves of a run for TensorBoard: an event file in the run's folder.
//!
//! TensorBoard shows a folder of event files as one run and reads them in the order of their names. A resumed run
//! writes a new file, which begins with the number of the first step after the resumption. TensorBoard then drops this
//! step and later steps of earlier files, and draws no step twice.

mod frame;
mod message;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::frame::framed;
use self::message::Message;
use crate::RecordError;

/// Maximum delay of a point, and maximum time span of points that are lost when the process is killed. A long run
/// writes about ten points per second; one system call for each point would be wasteful.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// Writes the curves and texts of a run for TensorBoard.
///
/// The file is flushed every few seconds and on drop.
///
/// ```
/// use plimsoll_monitor::TensorBoardFile;
///
/// let folder = tempfile::tempdir()?;
/// let mut file = TensorBoardFile::create(folder.path(), 0)?;
/// file.scalar("train/loss", 1, 2.5)?;
/// file.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorBoardFile {
    path: PathBuf,
    file: BufWriter<File>,
    flushed: Instant,
}

impl TensorBoardFile {
    /// Creates a new file in `folder`, and the folder if needed, for a run that has completed `after` steps: 0 for a
    /// new run. TensorBoard ignores later steps of earlier files.
    ///
    /// # Errors
    /// [`RecordError::Io`] if folder or file cannot be created or written.
    pub fn create(folder: &Path, after: u64) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io { path: folder.into(), source };
        fs::create_dir_all(folder).map_err(io)?;
        let (path, file) = first_free(folder)?;
        let mut created = Self { path, file: BufWriter::new(file), flushed: Instant::now() };
        created.write(&Message::Version)?;
        // Also for a new run: TensorBoard takes the first start as the beginning and drops nothing for it.
        created.write(&Message::Start { step: after + 1 })?;
        created.flush()?;
        Ok(created)
    }

    /// Returns the path of the event file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one point of the curve `tag`; a slash in the tag groups curves. TensorBoard stores values in single
    /// precision.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<(), RecordError> {
        self.write(&Message::Scalar { tag, step, value: value as f32 })
    }

    /// Writes a text, which TensorBoard renders as Markdown.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be written.
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> Result<(), RecordError> {
        self.write(&Message::Text { tag, step, text })
    }

    /// Passes all buffered data to the operating system.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.flushed = Instant::now();
        self.file.flush().map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }

    fn write(&mut self, message: &Message<'_>) -> Result<(), RecordError> {
        let bytes = framed(&message.encoded(since_1970()));
        self.file.write_all(&bytes).map_err(|source| RecordError::Io { path: self.path.clone(), source })?;
        if self.flushed.elapsed() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }
}

/// Creates the first event file `events.out.tfevents.SECONDS.HOST.PID.NUMBER` that does not exist, named as TensorFlow
/// names event files. The seconds have ten digits until 2286, so the names sort by time.
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

/// Returns the name of the machine, without characters that are not allowed in file names.
fn host() -> String {
    let name = sysinfo::System::host_name().unwrap_or_else(|| "localhost".into());
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect()
}

fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
