//! Reads a recording of samples: one JSON object a line, compressed or plain.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use plimsoll_core::open_regular_file;

use super::Sample;
use crate::RecordError;

/// First bytes of a compressed file.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Longest line that is read. A sample of a machine with 16 GPUs has some 50 KB.
const LINE_BYTES_MAX: u64 = 1 << 24;

/// Number of lines in which a sample must be. Damage at the start of a recording is a line or two.
const LINES_AHEAD: usize = 64;

/// Reads the samples of a recording one after another, whether it is compressed (`.jsonl.zst`) or plain (`.jsonl`).
///
/// A recording whose end is cut off, because the program or the machine crashed, is read up to the cut.
pub struct SampleReader {
    path: PathBuf,
    lines: Box<dyn BufRead + Send>,
    /// What was read to find the first sample.
    ahead: VecDeque<Result<Sample, RecordError>>,
    has_sample: bool,
    line: usize,
    ended: bool,
    is_cut: bool,
    is_compressed: bool,
}

impl SampleReader {
    /// Opens the recording at `path`. An empty file, or one that is cut off in its first sample, is a recording without
    /// samples.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be read, [`RecordError::NoSamples`] if its first lines are no samples.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io { path: path.into(), source };
        let mut file = BufReader::new(open_regular_file(path).map_err(io)?);
        // A cut can leave less than these bytes.
        let start = file.fill_buf().map_err(io)?;
        let n = start.len().min(ZSTD_MAGIC.len());
        let is_compressed = n > 0 && start[..n] == ZSTD_MAGIC[..n];
        let lines: Box<dyn BufRead + Send> = match is_compressed {
            true => Box::new(BufReader::new(zstd::Decoder::with_buffer(file).map_err(io)?)),
            false => Box::new(file),
        };
        let mut reader = Self {
            path: path.into(),
            lines,
            ahead: VecDeque::new(),
            has_sample: false,
            line: 0,
            ended: false,
            is_cut: false,
            is_compressed,
        };
        reader.find_first()?;
        Ok(reader)
    }

    /// Reads up to the first sample. Other files of JSON lines, such as the record of a run, are refused here.
    fn find_first(&mut self) -> Result<(), RecordError> {
        while !self.has_sample && self.ahead.len() < LINES_AHEAD {
            let Some(read) = self.read() else { break };
            self.ahead.push_back(read);
        }
        match self.ahead.pop_front() {
            Some(Err(RecordError::Line { path, line, source })) if !self.has_sample => {
                Err(RecordError::NoSamples { path, line, source })
            }
            Some(Err(error)) if !self.has_sample => Err(error),
            first => {
                first.into_iter().for_each(|first| self.ahead.push_front(first));
                Ok(())
            }
        }
    }

    /// Returns whether the end of the recording is cut off. It is known after the last sample.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns whether the recording is compressed.
    pub fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    /// Reads the next line that is not empty.
    fn read(&mut self) -> Option<Result<Sample, RecordError>> {
        let mut line = Vec::new();
        while !self.ended {
            line.clear();
            let read = (&mut self.lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            self.line += 1;
            let is_whole = line.ends_with(b"\n");
            match read {
                Ok(0) => return self.end(false),
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.end(true),
                Err(source) => {
                    self.ended = true;
                    return Some(Err(RecordError::Io { path: self.path.clone(), source }));
                }
            }
            match serde_json::from_slice(&line) {
                Ok(sample) => {
                    self.has_sample = true;
                    return Some(Ok(sample));
                }
                // The start of a sample is cut off, not wrong.
                Err(error) if !is_whole && (self.has_sample || error.is_eof()) => return self.end(true),
                Err(source) => {
                    return Some(Err(RecordError::Line { path: self.path.clone(), line: self.line, source }));
                }
            }
        }
        None
    }

    fn end(&mut self, is_cut: bool) -> Option<Result<Sample, RecordError>> {
        (self.ended, self.is_cut) = (true, is_cut);
        None
    }
}

impl Iterator for SampleReader {
    type Item = Result<Sample, RecordError>;

    /// Reads the next sample. A line that is no sample is an error, and the next call reads the line after it.
    fn next(&mut self) -> Option<Self::Item> {
        self.ahead.pop_front().or_else(|| self.read())
    }
}

impl fmt::Debug for SampleReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleReader").field("path", &self.path).field("line", &self.line).finish_non_exhaustive()
    }
}
