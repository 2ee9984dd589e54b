//! Reads long manifests of JSON lines in pieces, which all threads parse.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memchr::{memchr, memchr_iter, memrchr};
use plimsoll_core::SampleId;
use plimsoll_core::open_regular_file;
use rayon::prelude::*;

use super::fields::{Fields, Times};
use super::{Names, utterance};
use crate::import::builder::{MAX_NAME_BYTES, MAX_TEXT_BYTES, ParsedPiece, non_blank_part};
use crate::import::lines::{FIRST_BYTES, MAX_LINE_BYTES, ends_with_returns, without_line_end};
use crate::import::listing::ImportOptions;
use crate::import::watch::ImportWatch;
use crate::issue::{Issue, IssueKind};
use crate::table::{PieceRow, Record};

/// Number of bytes of a piece, besides its last line.
const PIECE_BYTES: usize = 2 << 20;

/// Reader of a file in pieces of whole lines.
pub(super) struct Pieces {
    file: File,
    /// Bytes of the file, and those that are read.
    size: u64,
    read: u64,
    /// Number of lines before the next piece.
    lines: usize,
    /// Beginning of a line whose end is not read.
    rest: Vec<u8>,
    is_finished: bool,
    watch: ImportWatch,
}

/// Lines of a file, one after the other.
pub(super) struct RawPiece {
    bytes: Vec<u8>,
    lines_before: usize,
    /// Error behind the last line.
    error: Option<io::Error>,
}

impl Pieces {
    /// Opens a list. `None` for a list that is not plain JSON lines in UTF-8 from its first byte on.
    pub(super) fn open(file: &Path, watch: &ImportWatch) -> io::Result<Option<Self>> {
        let mut file = open_regular_file(file)?;
        let mut read = Vec::new();
        (&mut file).take(FIRST_BYTES).read_to_end(&mut read)?;
        if ends_with_returns(&read) {
            return Ok(None);
        }
        let first = &*read;
        let first = first.strip_prefix("\u{feff}".as_bytes()).unwrap_or(first);
        let size = file.metadata()?.len();
        let rest = first.to_vec();
        if !first.starts_with(b"{") {
            return Ok(None);
        }
        watch.begin(size);
        Ok(Some(Self { file, size, read: 0, lines: 0, rest, is_finished: false, watch: watch.clone() }))
    }

    /// Estimates how many lines the file has.
    pub(super) fn expected_lines(&self) -> usize {
        // No utterance is shorter.
        const SHORTEST: u64 = 48;
        let lines = self.lines as u64;
        let expected = self.size.checked_div(self.read / lines.max(1)).unwrap_or(lines);
        expected.min(self.size / SHORTEST).max(lines) as usize
    }

    /// Reads some pieces, one for each thread; none at the end of the file.
    pub(super) fn read(&mut self) -> Vec<RawPiece> {
        let most = 2 * rayon::current_num_threads();
        std::iter::from_fn(|| (!self.is_finished).then(|| self.next())).take(most).collect()
    }

    fn next(&mut self) -> RawPiece {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.reserve(PIECE_BYTES + PIECE_BYTES / 8);
        let mut error = None;
        let end = loop {
            let before = bytes.len();
            let read = (&self.file).take(PIECE_BYTES as u64).read_to_end(&mut bytes);
            if let Some(end) = memrchr(b'\n', &bytes[before..]) {
                break before + end + 1;
            }
            // Of a line that is too long, the rest is not kept.
            bytes.truncate(MAX_LINE_BYTES + 1);
            match read {
                Ok(0) => {
                    self.is_finished = true;
                    break bytes.len();
                }
                Ok(_) => {}
                Err(failed) => {
                    (error, self.is_finished) = (Some(failed), true);
                    bytes.clear();
                    break 0;
                }
            }
        };
        self.rest = bytes.split_off(end);
        self.read += bytes.len() as u64;
        self.watch.add(bytes.len() as u64);
        let piece = RawPiece { lines_before: self.lines, error, bytes };
        self.lines += memchr_iter(b'\n', &piece.bytes).count();
        piece
    }
}

/// Parses pieces on all threads.
pub(super) fn parse(pieces: &[RawPiece], names: &Names<'_>, options: &ImportOptions) -> Vec<ParsedPiece> {
    pieces.par_iter().map(|piece| parse_piece(piece, names, options)).collect()
}

fn parse_piece(raw: &RawPiece, names: &Names<'_>, options: &ImportOptions) -> ParsedPiece {
    let mut parsed = ParsedPiece::default();
    parsed.piece.records.reserve(raw.bytes.len());
    // Mostly all lines are UTF-8, and checking them together takes less time.
    let whole = simdutf8::basic::from_utf8(&raw.bytes).ok();
    let (mut number, mut start) = (raw.lines_before, 0);
    while start < raw.bytes.len() {
        let end = memchr(b'\n', &raw.bytes[start..]).map_or(raw.bytes.len(), |end| start + end + 1);
        let line = std::mem::replace(&mut start, end)..end;
        number += 1;
        match text(&raw.bytes[line.clone()], whole.map(|whole| &whole[line])) {
            Ok(line) if !line.starts_with('{') && line.trim().is_empty() => {}
            Ok(line) => {
                if add(&mut parsed, number, line, names, options).is_none() {
                    parsed.add_other(number, utterance(line, names));
                }
            }
            Err(kind) => parsed.add_other(number, Err(Issue::from(kind))),
        }
    }
    if let Some(error) = &raw.error {
        parsed.add_other(number + 1, Err(Issue::from(IssueKind::Unreadable(error.to_string()))));
    }
    parsed
}

/// Returns the text of a line without its end. `whole` is the line where it is known to be UTF-8.
fn text<'a>(line: &'a [u8], whole: Option<&'a str>) -> Result<&'a str, IssueKind> {
    if line.strip_suffix(b"\n").unwrap_or(line).len() > MAX_LINE_BYTES {
        return Err(IssueKind::FieldTooLong { field: "line", max_bytes: MAX_LINE_BYTES });
    }
    let bytes = without_line_end(line);
    match whole {
        // A line end is a character of its own.
        Some(whole) => Ok(&whole[..bytes.len()]),
        None => std::str::from_utf8(bytes).map_err(|error| IssueKind::NotUtf8(error.valid_up_to() + 1)),
    }
}

/// Adds the utterance of a line that is written as usual; `None` for any other line.
fn add(parsed: &mut ParsedPiece, number: usize, line: &str, names: &Names<'_>, options: &ImportOptions) -> Option<()> {
    let Fields { id, audio, text, speaker, language, times: Times { offset, duration } } = Fields::read(line)?;
    let written = id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let made = if written.is_none() { names.id(audio.to_string(), offset) } else { String::new() };
    let id = written.unwrap_or(made.trim());
    let text = text.trim();
    let joined = names.folder.join(&*audio);
    let longest = id.len().max(joined.as_os_str().len());
    let is_faulty = id.is_empty() || audio.trim().is_empty() || text.is_empty() || longest > MAX_NAME_BYTES;
    if is_faulty || text.contains(['\n', '\r']) || text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let is_below_here = joined.as_os_str().as_encoded_bytes().starts_with(b".");
    let audio = if is_below_here { joined.strip_prefix(".").unwrap_or(&joined) } else { &joined };
    let speaker = non_blank_part(speaker.as_deref()).or(options.speaker.as_deref());
    let language = non_blank_part(language.as_deref()).or(options.language.as_deref());
    let piece = &mut parsed.piece;
    let row = PieceRow {
        at: u32::try_from(piece.records.len()).ok()?,
        sample: SampleId::from_name(id),
        duration: duration.map_or(f64::NAN, |time| time.0),
        voice: piece.names.voice(speaker, language),
    };
    Record { id, audio, offset, text, rate: None, resampled: None }.write(&mut piece.records);
    piece.rows.push(row);
    parsed.lines.push(number as u32);
    Some(())
}
