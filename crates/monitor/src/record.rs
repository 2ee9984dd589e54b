//! The record of a run: one JSON object per line, flushed after every event.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::{Event, Record, open_regular_file, writes};
use serde_json::Value;

/// Number of bytes at the end of a record that are searched for the start of the last line. A line is shorter; the
/// longest lines list the samples that were left out of a batch.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of lines that wait for room on the disk: a day of steps.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Reason why a record, a recording, a report or a picture cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// File that cannot be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line of the file is not a record.
    #[error("{}: line {line} is not a record", path.display())]
    Line {
        /// File with the line that is not a record.
        path: PathBuf,
        /// Number of the line that is not a record, starting at 1.
        line: usize,
        /// Parser error of the line.
        source: serde_json::Error,
    },
    /// A file is no recording of samples of a machine.
    #[error("{} is no recording of a machine: line {line} is not a sample", path.display())]
    NoSamples {
        /// File without samples.
        path: PathBuf,
        /// Number of its first line that is not empty, starting at 1.
        line: usize,
        /// Parser error of the line.
        source: serde_json::Error,
    },
}

/// Writes the record of a run, one [`Record`] per line.
///
/// ```
/// use plimsoll_core::{Event, StepEvent};
/// use plimsoll_monitor::{Recorder, read_records};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("metrics.jsonl");
/// let mut recorder = Recorder::append(&path)?;
/// let event = Event::Step(StepEvent { step: 1, loss: 2.5, ..StepEvent::default() });
/// recorder.record(&event)?;
/// assert_eq!(read_records(&path)?[0].event.step(), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    waiting: Waiting,
}

impl Recorder {
    /// Opens the record at `path` to append lines, or creates it. An incomplete last line is removed, because the next
    /// line would be appended to it and become unreadable too.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be opened, read or shortened.
    pub fn append(path: &Path) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io { path: path.into(), source };
        let mut file = File::options().create(true).read(true).append(true).open(path).map_err(io)?;
        remove_incomplete_line(&mut file).map_err(io)?;
        Ok(Self { path: path.into(), file, waiting: Waiting::default() })
    }

    /// Writes one line: `event` with the time of the call. A line that cannot be written waits in memory, and is written before
    /// the next one: a disk that was full for a while leaves no gap.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the line cannot be written now.
    pub fn record(&mut self, event: &Event) -> Result<(), RecordError> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let record = Record::new((time * 1e3).round() / 1e3, event);
        let line = serde_json::to_string(&record).expect("an event is plain data") + "\n";
        let _write = writes::begin();
        // One write per line: a killed process leaves whole lines, and at most the last one incomplete.
        self.waiting.add(line.as_bytes());
        self.waiting.write_to(&mut self.file).map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }

    /// Returns the number of lines that are not written: they wait, or found no room in memory either.
    pub fn unwritten(&self) -> usize {
        self.waiting.lines()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The last try. `unwritten` counts what it leaves.
        let _ = self.waiting.write_to(&mut self.file);
    }
}

/// Lines that could not be written yet. The first may be written in part: the rest of it comes first, so that no two lines
/// become one.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines that did not find room in memory either.
    lost: usize,
}

impl Waiting {
    /// Adds a line, unless too much is waiting already.
    fn add(&mut self, line: &[u8]) {
        if self.bytes.len() + line.len() <= WAITING_BYTES_MAX {
            self.bytes.extend_from_slice(line);
        } else {
            self.lost += 1;
        }
    }

    /// Returns the number of lines that are not written.
    fn lines(&self) -> usize {
        self.lost + self.bytes.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Writes as much as the file takes.
    fn write_to(&mut self, file: &mut impl Write) -> std::io::Result<()> {
        while !self.bytes.is_empty() {
            match file.write(&self.bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.bytes.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Makes the file end with a complete line: adds a missing line break, or removes an incomplete line.
fn remove_incomplete_line(file: &mut File) -> std::io::Result<()> {
    let start = file.metadata()?.len().saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => end + 1,
        None if start == 0 => 0,
        None => return Ok(()),
    };
    match &tail[whole..] {
        [] => Ok(()),
        line if serde_json::from_slice::<Value>(line).is_ok() => file.write_all(b"\n"),
        _ => file.set_len(start + whole as u64),
    }
}

/// Reads a record that this version or an older version of the program wrote. An incomplete last line is skipped.
///
/// Events of a newer schema are read as [`Event::Unknown`].
///
/// # Errors
/// [`RecordError::Io`] if the file cannot be read, [`RecordError::Line`] if a line other than the last is not a record.
pub fn read_records(path: &Path) -> Result<Vec<Record>, RecordError> {
    let io = |source| RecordError::Io { path: path.into(), source };
    let lines: Vec<String> =
        BufReader::new(open_regular_file(path).map_err(io)?).lines().collect::<Result<_, _>>().map_err(io)?;
    let mut records = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) if index + 1 == lines.len() => {}
            Err(source) => return Err(RecordError::Line { path: path.into(), line: index + 1, source }),
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{SCHEMA_VERSION, StepEvent};

    use super::*;

    fn step(step: u64) -> Event {
        Event::Step(StepEvent { step, loss: 1.0, norm: 1.0, rate: 1.0, ..StepEvent::default() })
    }

    fn steps(path: &Path) -> Vec<u64> {
        read_records(path).unwrap().iter().map(|record| record.event.step().unwrap()).collect()
    }

    #[test]
    fn a_record_can_be_continued_and_survives_an_incomplete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        for number in 0..2 {
            Recorder::append(&path).unwrap().record(&step(number)).unwrap();
        }
        File::options().append(true).open(&path).unwrap().write_all(b"{\"step\": 2, \"lo").unwrap();
        let records = read_records(&path).unwrap();
        assert_eq!(steps(&path), [0, 1]);
        assert!(records.iter().zip(0..).all(|(record, number)| record.event == step(number)));
        assert!(records[0].time > 1.7e9);
        assert_eq!(records[0].schema_version, SCHEMA_VERSION);
    }

    /// A disk that takes `room` bytes.
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_was_full_leaves_no_gap_and_no_joined_lines() {
        let lines = ["one\n", "two\n", "three\n", "four\n"];
        for room in 0..=lines.concat().len() {
            let (mut disk, mut waiting) = (Disk { room, bytes: Vec::new() }, Waiting::default());
            for line in lines {
                waiting.add(line.as_bytes());
                let _ = waiting.write_to(&mut disk);
            }
            disk.room = 1000;
            waiting.add(b"five\n");
            waiting.write_to(&mut disk).unwrap();
            assert_eq!(String::from_utf8(disk.bytes).unwrap(), lines.concat() + "five\n", "{room}");
        }
        // A day later the rest is lost, in whole lines.
        let (mut disk, mut waiting) = (Disk { room: 0, bytes: Vec::new() }, Waiting::default());
        let line = [vec![b'x'; 1 << 20], vec![b'\n']].concat();
        for _ in 0..100 {
            waiting.add(&line);
            assert_eq!(waiting.write_to(&mut disk).unwrap_err().kind(), ErrorKind::StorageFull);
        }
        assert!(waiting.bytes.len() <= WAITING_BYTES_MAX && waiting.bytes.len().is_multiple_of(line.len()));
        assert_eq!(waiting.lines(), 100);
    }

    #[test]
    fn appending_starts_on_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        let line = |step: u64| format!("{{\"event\":\"step\",\"step\":{step}}}");
        for (before, expected) in [
            (String::new(), &[9][..]),
            (line(1) + "\n", &[1, 9]),
            (line(1) + "\n{\"event\":\"step\",\"step\":2,\"lo", &[1, 9]),
            (line(1) + "\n" + &line(2), &[1, 2, 9]),
            ("{\"ev".into(), &[9]),
        ] {
            std::fs::write(&path, &before).unwrap();
            Recorder::append(&path).unwrap().record(&step(9)).unwrap();
            assert_eq!(steps(&path), expected, "{before}");
        }
    }

    #[test]
    fn an_error_names_the_broken_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        let line = "{\"event\":\"step\",\"step\":1}";
        std::fs::write(&path, format!("{line}\nnonsense\n{line}\n")).unwrap();
        assert!(read_records(&path).unwrap_err().to_string().ends_with("line 2 is not a record"));
    }
}
