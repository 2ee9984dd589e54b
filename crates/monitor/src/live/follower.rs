//! Follows the record of a run, whichever process writes it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_core::{Bytes, Record};
use serde::Deserialize;

use super::state::RunView;
use crate::{RecordError, RunLock, RunSetup, RunStatus};

/// Bytes that one call reads at most, unless a line is longer. It bounds the memory for the record of a long run.
const CHUNK_BYTES: u64 = 4 << 20;
/// Number of bytes at the start of the file that are compared to notice another file. The first line has its time in it.
const HEAD_BYTES: u64 = 256;

/// Follows the record of a run, whichever process writes it, during the run and after it.
///
/// The folder or its record may not exist yet. An incomplete last line is read when it is complete. If the record is
/// replaced by another, the follower starts again with that one.
///
/// ```
/// use plimsoll_core::{Event, StepEvent};
/// use plimsoll_monitor::Recorder;
/// use plimsoll_monitor::live::RunFollower;
///
/// let folder = tempfile::tempdir()?;
/// let mut follower = RunFollower::new(folder.path());
/// let mut run = follower.start();
/// assert!(!follower.refresh(&mut run)?);
/// let mut recorder = Recorder::append(&folder.path().join("metrics.jsonl"))?;
/// recorder.record(&Event::Step(StepEvent { step: 1, loss: 2.5, ..StepEvent::default() }))?;
/// assert!(follower.refresh(&mut run)?);
/// assert_eq!(run.step(), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunFollower {
    folder: PathBuf,
    /// End of the last complete line that was read.
    offset: u64,
    /// First bytes of the file.
    head: Vec<u8>,
    /// Time and size of the plan that was read.
    plan: Option<(Option<SystemTime>, u64)>,
    skipped: u64,
}

/// Records that are new.
#[derive(Debug, Default)]
struct NewRecords {
    /// Whether the record was replaced by another: what was read before does not count.
    is_replaced: bool,
    /// Whether the file was read to its last complete line.
    is_end: bool,
    records: Vec<Record>,
}

impl RunFollower {
    /// Creates a follower of the run in `folder`. Nothing is read yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), offset: 0, head: Vec::new(), plan: None, skipped: 0 }
    }

    /// Creates the empty state of the run, with the name of its folder.
    pub fn start(&self) -> RunView {
        let whole = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        let name = self.folder.file_name().or(whole.file_name());
        RunView::new(&name.map_or_else(|| "run".into(), |name| name.to_string_lossy()))
    }

    /// Adds everything that is new in the folder to `state`: setup, events, and whether a process holds the lock of the
    /// run. Returns whether there was anything new.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the record exists and cannot be read.
    pub fn refresh(&mut self, state: &mut RunView) -> Result<bool, RecordError> {
        let mut is_new = self.refresh_setup(state);
        loop {
            let new = self.next_records()?;
            if new.is_replaced {
                let sample = state.last_sample().cloned();
                *state = self.start();
                sample.into_iter().for_each(|sample| state.sample(sample));
                self.plan = None;
                self.refresh_setup(state);
            }
            is_new |= new.is_replaced || !new.records.is_empty();
            new.records.iter().for_each(|record| state.observe(record));
            if new.is_end {
                break;
            }
        }
        let before = state.status();
        match RunLock::is_held(&self.folder) {
            Some(true) => state.set_status(RunStatus::Running),
            // A process holds the lock a little longer than it records: the end that it recorded counts. Without one it was killed.
            Some(false) if before == Some(RunStatus::Running) => {
                let ended = state.recorded_status().filter(|status| *status != RunStatus::Running);
                state.set_status(ended.unwrap_or(RunStatus::Stopped));
            }
            _ => {}
        }
        Ok(is_new || state.status() != before)
    }

    /// Returns the number of complete lines that were skipped, because they are not records.
    pub fn skipped_lines(&self) -> u64 {
        self.skipped
    }

    fn refresh_setup(&mut self, state: &mut RunView) -> bool {
        let path = self.folder.join("plan.toml");
        let plan = fs::metadata(&path).ok().map(|file| (file.modified().ok(), file.len()));
        if plan == self.plan {
            return false;
        }
        self.plan = plan;
        state.set_setup(&RunSetup::read(&self.folder, &mut Vec::new()));
        state.set_planned_bytes(fs::read_to_string(path).ok().and_then(|text| planned_bytes(&text)));
        true
    }

    fn next_records(&mut self) -> Result<NewRecords, RecordError> {
        let path = self.folder.join("metrics.jsonl");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(NewRecords { is_end: true, ..NewRecords::default() });
            }
            Err(source) => return Err(RecordError::Io { path, source }),
        };
        self.read(file).map_err(|source| RecordError::Io { path, source })
    }

    fn read(&mut self, mut file: File) -> io::Result<NewRecords> {
        let mut new = NewRecords::default();
        let mut head = Vec::new();
        (&mut file).take(HEAD_BYTES.min(self.offset)).read_to_end(&mut head)?;
        if head != self.head || file.metadata()?.len() < self.offset {
            new.is_replaced = true;
            (self.offset, self.skipped) = (0, 0);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut reader, start) = (BufReader::new(&mut file), self.offset);
        let mut line = Vec::new();
        while self.offset - start < CHUNK_BYTES {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                new.is_end = true;
                break;
            }
            self.offset += length as u64;
            match serde_json::from_slice(&line) {
                Ok(record) => new.records.push(record),
                Err(_) => self.skipped += 1,
            }
        }
        drop(reader);
        file.seek(SeekFrom::Start(0))?;
        self.head.clear();
        file.take(HEAD_BYTES.min(self.offset)).read_to_end(&mut self.head)?;
        Ok(new)
    }
}

/// Part of `plan.toml` that is read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlanFile {
    memory: Option<MemoryTable>,
}

/// Planned memory: of the model, by the number of replicas that share it, and of the process beside the model.
#[derive(Deserialize)]
struct MemoryTable {
    plan: PeakTable,
    #[serde(default)]
    around: Bytes,
    #[serde(default = "one")]
    sharing: u64,
}

#[derive(Deserialize)]
struct PeakTable {
    peak: Bytes,
}

fn one() -> u64 {
    1
}

fn planned_bytes(plan: &str) -> Option<Bytes> {
    let memory = toml::from_str::<PlanFile>(plan).ok()?.memory?;
    Some(Bytes(memory.plan.peak.0.checked_mul(memory.sharing)?.checked_add(memory.around.0)?))
}
