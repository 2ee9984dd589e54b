//! The lines of a list, plain or compressed, read one by one so that no file has to fit into memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::MultiGzDecoder;

use super::trouble::Trouble;

/// A thousand times what a cut of Lhotse takes. A hostile line of JSON needs some eighty times its length when parsed:
/// `{"":1},` is a whole node of a tree.
pub(super) const LINE_MOST: usize = 4 << 20;

/// Lists of utterances become 5 to 30 times smaller when compressed; a bomb becomes a thousand times smaller.
const UNFOLDING_MOST: u64 = 200;

/// Below this size a list may unfold as it likes.
const HARMLESS: u64 = 256 << 20;

/// A line with its number, counted from one.
pub(super) type Line = (usize, Result<String, Trouble>);

/// The lines of a file that are not blank, without their ends and without a byte order mark.
///
/// They are UTF-8, or UTF-16 where the file begins with its mark, as what spreadsheets save does.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    number: usize,
    ended: bool,
    /// Whether letters are decoded, which leaves a mark where they are damaged.
    is_utf16: Arc<AtomicBool>,
}

impl Lines {
    /// Opens a list; whether it is compressed is seen from its first bytes, because names lie.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let file = File::open(file)?;
        let size = file.metadata()?.len();
        let mut reader = BufReader::new(file);
        let compressed = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn Read> = match compressed {
            true => Box::new(Unfolding { inner: MultiGzDecoder::new(reader), size, unfolded: 0 }),
            false => Box::new(reader),
        };
        let is_utf16 = Arc::new(AtomicBool::new(false));
        let reader = Begun { inner: reader, first: Vec::new(), is_utf16: is_utf16.clone() };
        // UTF-8 goes through as it is, so that what is wrong in it can be told.
        let reader = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(reader);
        Ok(Self { reader: Box::new(BufReader::new(reader)), number: 0, ended: false, is_utf16 })
    }

    /// The bytes of the next line, or `None` where it is too long.
    fn bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let most = LINE_MOST as u64 + 1;
        self.reader.by_ref().take(most).read_until(b'\n', &mut line)?;
        self.ended = line.is_empty();
        if line.len() <= LINE_MOST || line.ends_with(b"\n") {
            return Ok(Some(line));
        }
        self.reader.skip_until(b'\n')?;
        Ok(None)
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let bytes = self.bytes().map_err(|error| {
            self.ended = true;
            Trouble::Unreadable(error.to_string())
        })?;
        let mut bytes = bytes.ok_or(Trouble::TooLong { what: "line", most: LINE_MOST })?;
        let end = bytes.trim_ascii_end().len();
        // Only the end of the line: a tab before it may close an empty column.
        let tail = bytes[end..].iter().take_while(|byte| !b"\r\n".contains(byte)).count();
        bytes.truncate(end + tail);
        let line = String::from_utf8(bytes).map_err(|error| Trouble::NotUtf8(error.utf8_error().valid_up_to() + 1))?;
        let damage = self.is_utf16.load(Relaxed).then(|| line.chars().position(|letter| letter == '\u{fffd}'));
        match damage.flatten() {
            Some(place) => Err(Trouble::NotUtf16(place + 1)),
            None => Ok(line),
        }
    }
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

/// A reader whose first bytes say whether what it reads is UTF-16.
struct Begun<R> {
    inner: R,
    first: Vec<u8>,
    is_utf16: Arc<AtomicBool>,
}

impl<R: Read> Read for Begun<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.first.len() < 2 {
            self.first.extend(buffer[..count].iter().take(2 - self.first.len()));
            self.is_utf16.store(matches!(*self.first, [0xff, 0xfe] | [0xfe, 0xff]), Relaxed);
        }
        Ok(count)
    }
}

/// What a compressed file holds, until it holds more than can be honest.
struct Unfolding<R> {
    inner: R,
    size: u64,
    unfolded: u64,
}

impl<R: Read> Read for Unfolding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.unfolded += count as u64;
        if self.unfolded > HARMLESS.max(self.size.saturating_mul(UNFOLDING_MOST)) {
            let times = UNFOLDING_MOST;
            return Err(io::Error::other(format!("it unfolds to more than {times} times its size")));
        }
        Ok(count)
    }
}
