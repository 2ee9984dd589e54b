//! Uncompressed sound of movies: where its pieces lie, and a reader that joins them.
//!
//! Symphonia would return each frame as a packet of its own, and a segment would cost reading all of them.

use std::io::{self, Read, Seek, SeekFrom};

use super::AudioReader;
use super::pcm::Encoding;

/// Uncompressed sound of a track.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MoviePcm {
    /// Sample rate in hertz; 0 for one that makes no sense.
    pub(super) rate: u32,
    pub(super) channels: u16,
    pub(super) encoding: Encoding,
    /// Pieces of the file, in the order in which they are heard: position and number of bytes.
    pieces: Vec<(u64, u64)>,
}

/// Tables of a track: the bodies of its boxes.
pub(super) struct SampleTables<'a> {
    /// `stsd`: the form of the samples.
    pub(super) form: &'a [u8],
    /// `stsz`: the number of bytes of each sample.
    pub(super) sizes: &'a [u8],
    /// `stsc`: the number of samples of each piece.
    pub(super) runs: &'a [u8],
    /// `stco`, or `co64` if the positions have 64 bits: the position of each piece.
    pub(super) places: &'a [u8],
    pub(super) is_wide: bool,
}

impl MoviePcm {
    /// Reads the tables of a track; `None` if they make no sense, or the form is not uncompressed.
    pub(super) fn read(tables: &SampleTables<'_>) -> Option<Self> {
        let (rate, channels, encoding) = form(tables.form)?;
        let frame = encoding.width() as u64 * u64::from(channels);
        let pieces = if frame == 0 { None } else { pieces(tables, frame) }?;
        Some(Self { rate, channels, encoding, pieces })
    }

    /// Leaves the part that is heard: `length` frames from frame `start` on, or all behind it.
    pub(super) fn narrow(&mut self, start: u64, length: Option<u64>) {
        let frame = self.encoding.width() as u64 * u64::from(self.channels);
        let (mut skipped, mut left) =
            (start.saturating_mul(frame), length.map_or(u64::MAX, |n| n.saturating_mul(frame)));
        for (at, bytes) in &mut self.pieces {
            let cut = skipped.min(*bytes);
            (skipped, *at, *bytes) = (skipped - cut, *at + cut, (*bytes - cut).min(left));
            left -= *bytes;
        }
        self.pieces.retain(|(_, bytes)| *bytes > 0);
    }

    /// Returns the number of values of each channel.
    pub(super) fn frames(&self) -> u64 {
        self.byte_len() / (self.encoding.width() as u64 * u64::from(self.channels))
    }

    /// Returns the number of bytes of the sound.
    pub(super) fn byte_len(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the position behind the last byte of the sound in the file.
    pub(super) fn end(&self) -> u64 {
        self.pieces.iter().map(|(at, bytes)| at.saturating_add(*bytes)).max().unwrap_or(0)
    }

    /// Returns a reader of the sound alone.
    pub(super) fn reader(&self, file: AudioReader) -> JoinedPieces {
        let mut at = 0;
        let place = |&(position, bytes): &(u64, u64)| {
            at += bytes;
            (at - bytes, position, bytes)
        };
        JoinedPieces { file, pieces: self.pieces.iter().map(place).collect(), position: 0 }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns whether a type of samples is uncompressed sound.
pub(super) fn is_pcm(codec: [u8; 4]) -> bool {
    matches!(
        &codec,
        b"sowt"
            | b"twos"
            | b"lpcm"
            | b"ipcm"
            | b"fpcm"
            | b"in24"
            | b"in32"
            | b"fl32"
            | b"fl64"
            | b"raw "
            | b"NONE"
            | b"alaw"
            | b"ulaw"
    )
}

/// Reads the first entry of `stsd`: the sample rate, the number of channels and the encoding.
fn form(table: &[u8]) -> Option<(u32, u16, Encoding)> {
    const FLOAT: u32 = 1;
    const BIG: u32 = 2;
    let size = u32_at(table, 8)? as usize;
    let entry = table.get(8..8usize.checked_add(size)?)?;
    let codec: [u8; 4] = entry.get(4..8)?.try_into().ok()?;
    let version = u16_at(entry, 16)?;
    let (channels, bits, rate) = (u16_at(entry, 24)?, u16_at(entry, 26)?, u32_at(entry, 32)? >> 16);
    let integer = |bytes: usize, is_little: bool| match is_little {
        true => Encoding::Integer { bytes, bits: 8 * bytes as u32 },
        false => Encoding::Signed { bytes },
    };
    if version == 2 {
        let rate = f64::from_be_bytes(entry.get(40..48)?.try_into().ok()?);
        let rate = if (1.0..1e9).contains(&rate) { rate.round() as u32 } else { 0 };
        let channels = u16::try_from(u32_at(entry, 48)?).ok()?;
        let (bits, flags) = (u32_at(entry, 56)?, u32_at(entry, 60)?);
        let encoding = match (&codec, bits, flags & FLOAT != 0, flags & BIG != 0) {
            (b"lpcm", 32, true, false) => Encoding::Float,
            (b"lpcm", 32, true, true) => Encoding::BigFloat,
            (b"lpcm", 64, true, false) => Encoding::Double,
            (b"lpcm", 64, true, true) => Encoding::BigDouble,
            (b"lpcm", 8 | 16 | 24 | 32, false, is_big) => integer(bits as usize / 8, !is_big),
            _ => return None,
        };
        return Some((rate, channels, encoding));
    }
    // Boxes behind the entry: `enda` says whether the lowest byte comes first, and `pcmC` also the number of bits.
    let behind = entry.get(if version == 1 { 52 } else { 36 }..).unwrap_or_default();
    let is_little = body_of(behind, b"enda").and_then(|body| u16_at(body, 0)) == Some(1);
    let encoding = match (&codec, bits) {
        (b"sowt", 8) | (b"twos", 8) => integer(1, false),
        (b"sowt", _) => integer(2, true),
        (b"twos", _) | (b"NONE", 16) => integer(2, false),
        (b"raw " | b"NONE", 8) => Encoding::Byte,
        (b"in24", _) => integer(3, is_little),
        (b"in32", _) => integer(4, is_little),
        (b"fl32", _) => {
            if is_little {
                Encoding::Float
            } else {
                Encoding::BigFloat
            }
        }
        (b"fl64", _) => {
            if is_little {
                Encoding::Double
            } else {
                Encoding::BigDouble
            }
        }
        (b"alaw", _) => Encoding::ALaw,
        (b"ulaw", _) => Encoding::MuLaw,
        (b"ipcm" | b"fpcm", _) => {
            // Version and flags come first.
            let body = body_of(behind, b"pcmC")?;
            let (is_little, bits) = (body.get(4)? & 1 == 1, *body.get(5)?);
            match (&codec, bits, is_little) {
                (b"ipcm", 16 | 24 | 32, is_little) => integer(usize::from(bits) / 8, is_little),
                (b"fpcm", 32, true) => Encoding::Float,
                (b"fpcm", 32, false) => Encoding::BigFloat,
                (b"fpcm", 64, true) => Encoding::Double,
                (b"fpcm", 64, false) => Encoding::BigDouble,
                _ => return None,
            }
        }
        _ => return None,
    };
    Some((rate, channels, encoding))
}

/// Returns the body of the box of a type, by its name: QuickTime puts some boxes into a box `wave`.
fn body_of<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    let place = bytes.windows(4).position(|window| window == kind)?;
    let size = u32_at(bytes, place.checked_sub(4)?)? as usize;
    bytes.get(place + 4..(place - 4).checked_add(size)?)
}

/// Returns the pieces of the file with the samples. `frame` is the number of bytes of one value of each channel.
fn pieces(tables: &SampleTables<'_>, frame: u64) -> Option<Vec<(u64, u64)>> {
    let size = u64::from(u32_at(tables.sizes, 4)?);
    // Old programs call a frame a sample of one byte.
    let fixed = (size > 0).then_some(size.max(frame));
    let mut sizes = tables.sizes.get(12..)?.as_chunks::<4>().0.iter().map(|size| u64::from(u32::from_be_bytes(*size)));
    let width = if tables.is_wide { 8 } else { 4 };
    let count = (u32_at(tables.places, 4)? as usize).min(tables.places.len().saturating_sub(8) / width);
    let place = |n: usize| {
        let at = 8 + n * width;
        let low = u64::from(u32_at(tables.places, at + width - 4)?);
        Some(if tables.is_wide { u64::from(u32_at(tables.places, at)?) << 32 | low } else { low })
    };
    let runs: Vec<(u32, u32)> = tables
        .runs
        .get(8..)?
        .as_chunks::<12>()
        .0
        .iter()
        .map(|run| (u32_at(run, 0).unwrap_or(0), u32_at(run, 4).unwrap_or(0)))
        .collect();
    let (mut pieces, mut run) = (Vec::<(u64, u64)>::new(), 0);
    for n in 0..count {
        while runs.get(run + 1).is_some_and(|(first, _)| u64::from(*first) <= n as u64 + 1) {
            run += 1;
        }
        let samples = u64::from(runs.get(run)?.1);
        let bytes = match fixed {
            Some(size) => samples.checked_mul(size)?,
            None => sizes.by_ref().take(samples as usize).try_fold(0u64, u64::checked_add)?,
        };
        let at = place(n)?;
        match pieces.last_mut() {
            Some((start, length)) if start.checked_add(*length) == Some(at) => *length = length.checked_add(bytes)?,
            _ => pieces.push((at, bytes)),
        }
    }
    let total = pieces.iter().try_fold(0u64, |sum, (at, bytes)| at.checked_add(*bytes).and(sum.checked_add(*bytes)));
    total.map(|_| pieces)
}

/// Pieces of a file that read as one.
pub(super) struct JoinedPieces {
    file: AudioReader,
    /// Position in the sound and in the file, and number of bytes, of each piece.
    pieces: Vec<(u64, u64, u64)>,
    /// Position in the sound.
    position: u64,
}

impl Read for JoinedPieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let behind = self.pieces.partition_point(|(start, ..)| *start <= self.position);
        let Some(&(start, at, bytes)) = behind.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return Ok(0);
        };
        let inside = self.position - start;
        let wanted = buffer.len().min(usize::try_from(bytes.saturating_sub(inside)).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        self.file.seek(SeekFrom::Start(at + inside))?;
        let count = self.file.read(&mut buffer[..wanted])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for JoinedPieces {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = self.pieces.last().map_or(0, |(start, _, bytes)| start + bytes);
        let wanted = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => end.checked_add_signed(by),
        };
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the audio");
        self.position = wanted.ok_or_else(outside)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests;
