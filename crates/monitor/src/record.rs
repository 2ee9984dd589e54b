//! The record of a run: one JSON object a line, flushed as it happens.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

/// Where the last line is looked for; the longest ones list what was left out of a batch.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Why a record cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system refused.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not JSON.
    #[error("{}: line {line} is no JSON object", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, the first being 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Writes the record of a run.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
}

impl Recorder {
    /// Goes on with the record at `path`, or starts it. A last line that was cut off is taken away: the next one would
    /// be written behind it and be lost with it.
    pub fn append(path: &Path) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io { path: path.into(), source };
        let mut file = File::options().create(true).read(true).append(true).open(path).map_err(io)?;
        take_cut_line(&mut file).map_err(io)?;
        Ok(Self { path: path.into(), file })
    }

    /// Writes one line: `event`, which must be an object, with the time as `time` (seconds since 1970).
    ///
    /// # Panics
    /// Where `event` is not an object.
    pub fn record(&mut self, event: &impl Serialize) -> Result<(), RecordError> {
        let mut object = serde_json::to_value(event).expect("an event is plain data");
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let fields = object.as_object_mut().expect("an event is an object");
        fields.insert("time".into(), Value::from((time * 1e3).round() / 1e3));
        let line = format!("{object}\n");
        // One write for each line: a kill leaves whole lines, and at most the last one cut.
        self.file.write_all(line.as_bytes()).map_err(|source| RecordError::Io { path: self.path.clone(), source })
    }
}

/// Ends the file with its last whole line.
fn take_cut_line(file: &mut File) -> std::io::Result<()> {
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

/// Reads a record. A last line that was cut off is left out.
pub fn read_records(path: &Path) -> Result<Vec<Value>, RecordError> {
    let io = |source| RecordError::Io { path: path.into(), source };
    let lines: Vec<String> =
        BufReader::new(File::open(path).map_err(io)?).lines().collect::<Result<_, _>>().map_err(io)?;
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
    use super::*;

    #[test]
    fn a_record_goes_on_and_survives_a_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        for step in 0..2 {
            Recorder::append(&path).unwrap().record(&serde_json::json!({"step": step})).unwrap();
        }
        File::options().append(true).open(&path).unwrap().write_all(b"{\"step\": 2, \"lo").unwrap();
        let records = read_records(&path).unwrap();
        assert_eq!(records.iter().map(|r| r["step"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
        assert!(records[0]["time"].as_f64().unwrap() > 1.7e9);
    }

    #[test]
    fn a_record_that_was_cut_goes_on_with_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        for (before, steps) in [
            ("", &[9][..]),
            ("{\"step\":1}\n", &[1, 9]),
            ("{\"step\":1}\n{\"step\":2,\"lo", &[1, 9]),
            ("{\"step\":1}\n{\"step\":2}", &[1, 2, 9]),
            ("{\"st", &[9]),
        ] {
            std::fs::write(&path, before).unwrap();
            Recorder::append(&path).unwrap().record(&serde_json::json!({"step": 9})).unwrap();
            let records = read_records(&path).unwrap();
            assert_eq!(records.iter().map(|r| r["step"].as_u64().unwrap()).collect::<Vec<_>>(), steps, "{before}");
        }
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        std::fs::write(&path, "{}\nnonsense\n{}\n").unwrap();
        assert!(read_records(&path).unwrap_err().to_string().ends_with("line 2 is no JSON object"));
    }
}
