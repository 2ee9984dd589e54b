//! Reads the lines of a list, plain or gzip, in UTF-8 or UTF-16, one by one: a list may be larger than memory.

mod array;

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::MultiGzDecoder;

use crate::issue::IssueKind;
pub(super) use array::JsonItems;
use plimsoll_core::open_regular_file;

/// Largest line in bytes: a thousand times a cut of Lhotse. A hostile JSON line takes about eighty times its length in
/// memory when parsed, because `{"":1},` is a whole node of a tree.
pub(super) const MAX_LINE_BYTES: usize = 4 << 20;

/// Largest ratio of unpacked to packed size. Real lists compress 5 to 30 times, a decompression bomb a thousand times.
const MAX_UNPACK_RATIO: u64 = 200;

/// Number of unpacked bytes up to which the ratio of unpacked to packed size is not checked.
const UNCHECKED_BYTES: u64 = 256 << 20;

/// Number of bytes at the beginning of a list that show how its lines end.
pub(super) const FIRST_BYTES: u64 = 8 << 10;

/// Number of a line, counted from 1, and the text of the line.
pub(super) type Line = (usize, Result<String, IssueKind>);

/// Reader of the lines of a file that are not blank, without line ends and without a byte order mark.
///
/// Lines end with a line feed, with or without a carriage return, or with a carriage return alone.
///
/// The file is UTF-8, or UTF-16 where it begins with a UTF-16 byte order mark, as spreadsheets write it.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    number: usize,
    ended: bool,
    /// Whether the file is UTF-16. The UTF-16 decoder replaces damaged characters with U+FFFD.
    is_utf16: Arc<AtomicBool>,
}

impl Lines {
    /// Opens a list. Compression is recognized by the first bytes, because file names can be wrong.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let file = open_regular_file(file)?;
        let size = file.metadata()?.len();
        let mut reader = BufReader::new(file);
        let compressed = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn Read> = match compressed {
            true => Box::new(BoundedUnpack::new(MultiGzDecoder::new(reader), size)),
            false => Box::new(reader),
        };
        let is_utf16 = Arc::new(AtomicBool::new(false));
        let reader = Utf16Sniffer { inner: reader, first: Vec::new(), is_utf16: is_utf16.clone() };
        // UTF-8 passes through unchanged, so that a wrong byte can be reported with its position.
        let reader = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(reader);
        let (mut reader, mut first) = (BufReader::new(reader), Vec::new());
        let read = reader.by_ref().take(FIRST_BYTES).read_to_end(&mut first);
        let is_returned = ends_with_returns(&first);
        let first = Cursor::new(first);
        let reader: Box<dyn Read> = match read {
            Ok(_) => Box::new(first.chain(reader)),
            // Damage is an issue of the line that it is met in.
            Err(error) => Box::new(first.chain(Broken(Some(error)))),
        };
        let reader: Box<dyn BufRead> = match is_returned {
            true => Box::new(BufReader::new(ReturnEnds(reader))),
            false => Box::new(BufReader::new(reader)),
        };
        Ok(Self { reader, number: 0, ended: false, is_utf16 })
    }

    /// Returns the bytes of the next line; `None` for a line that is too long.
    fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let most = MAX_LINE_BYTES as u64 + 1;
        self.reader.by_ref().take(most).read_until(b'\n', &mut line)?;
        self.ended = line.is_empty();
        if line.len() <= MAX_LINE_BYTES || line.ends_with(b"\n") {
            return Ok(Some(line));
        }
        self.reader.skip_until(b'\n')?;
        Ok(None)
    }

    fn line(&mut self) -> Result<String, IssueKind> {
        let bytes = self.bytes().map_err(|error| self.end(&error))?;
        let mut bytes = bytes.ok_or(IssueKind::FieldTooLong { field: "line", max_bytes: MAX_LINE_BYTES })?;
        bytes.truncate(without_line_end(&bytes).len());
        self.text(bytes)
    }

    /// Ends reading at an error, and returns the issue of the rest of the file.
    fn end(&mut self, error: &io::Error) -> IssueKind {
        self.ended = true;
        IssueKind::Unreadable(error.to_string())
    }

    /// Converts the bytes of a line to text.
    fn text(&self, bytes: Vec<u8>) -> Result<String, IssueKind> {
        let line =
            String::from_utf8(bytes).map_err(|error| IssueKind::NotUtf8(error.utf8_error().valid_up_to() + 1))?;
        let damaged = self.is_utf16.load(Relaxed).then(|| line.chars().position(|character| character == '\u{fffd}'));
        match damaged.flatten() {
            Some(place) => Err(IssueKind::NotUtf16(place + 1)),
            None => Ok(line),
        }
    }
}

/// Removes the line end, and nothing else: a tab before it may close an empty column.
pub(super) fn without_line_end(line: &[u8]) -> &[u8] {
    let end = line.trim_ascii_end().len();
    let tail = line[end..].iter().take_while(|byte| !b"\r\n".contains(byte)).count();
    &line[..end + tail]
}

impl Iterator for Lines {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while !self.ended {
            self.number += 1;
            match self.line() {
                Ok(line) if line.trim().is_empty() => {}
                line => return Some((self.number, line)),
            }
        }
        None
    }
}

/// Reader that detects the byte order mark of UTF-16 in its first two bytes.
struct Utf16Sniffer<R> {
    inner: R,
    first: Vec<u8>,
    is_utf16: Arc<AtomicBool>,
}

impl<R: Read> Read for Utf16Sniffer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.first.len() < 2 {
            self.first.extend(buffer[..count].iter().take(2 - self.first.len()));
            self.is_utf16.store(matches!(*self.first, [0xff, 0xfe] | [0xfe, 0xff]), Relaxed);
        }
        Ok(count)
    }
}

/// Reader that fails once.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Reader that turns carriage returns into line feeds.
struct ReturnEnds<R>(R);

impl<R: Read> Read for ReturnEnds<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        buffer[..count].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(count)
    }
}

/// Returns whether the lines of a list end with carriage returns alone, as spreadsheets save them for the Macintosh. `first`
/// is the beginning of the list.
pub(super) fn ends_with_returns(first: &[u8]) -> bool {
    // The line feed of the last return may lie behind `first`.
    let before = &first[..first.len().saturating_sub(1)];
    before.contains(&b'\r') && !first.contains(&b'\n')
}

/// Reader of a compressed file. Reading fails when the unpacked size exceeds `MAX_UNPACK_RATIO` times the packed size.
pub(super) struct BoundedUnpack<R> {
    inner: R,
    size: u64,
    unpacked: u64,
}

impl<R> BoundedUnpack<R> {
    /// Reads what `inner` unpacks from a file of `size` bytes.
    pub(super) fn new(inner: R, size: u64) -> Self {
        Self { inner, size, unpacked: 0 }
    }
}

impl<R: Read> Read for BoundedUnpack<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.unpacked += count as u64;
        if self.unpacked > UNCHECKED_BYTES.max(self.size.saturating_mul(MAX_UNPACK_RATIO)) {
            let times = MAX_UNPACK_RATIO;
            return Err(io::Error::other(format!("it unpacks to more than {times} times its size")));
        }
        Ok(count)
    }
}
