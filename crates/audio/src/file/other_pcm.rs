//! Headers of other files with uncompressed samples: AIFF and AIFF-C, Sun audio (AU), and Apple's Core Audio (CAF).

use std::io::{self, Read, Seek, SeekFrom};

use super::AudioKind;
use super::pcm::Encoding;

/// Largest number of chunks before the audio. Only a broken file has more.
const MAX_CHUNKS: usize = 4096;

/// Header of a file, up to the first sample.
#[derive(Debug, PartialEq)]
pub(super) struct OtherHeader {
    pub(super) kind: AudioKind,
    /// Sample rate in hertz; 0 for one that makes no sense.
    pub(super) rate: u32,
    pub(super) channels: u16,
    pub(super) encoding: Encoding,
    /// Position of the first sample in the file, in bytes.
    pub(super) start: u64,
    /// Bytes of audio according to the header; `None` if the program that wrote the file did not know them.
    pub(super) audio_bytes: Option<u64>,
}

/// Reason why a header cannot be read.
#[derive(Debug, PartialEq)]
pub(super) enum OtherProblem {
    /// The header is broken.
    Broken(&'static str),
    /// The sound is in a form that is not read. Holds its name.
    Codec(String),
}

/// Result of reading a header that may be broken.
type Found = io::Result<Result<OtherHeader, OtherProblem>>;

/// Returns whether a file begins like one that is read here.
pub(super) fn may_begin_with(first: &[u8]) -> bool {
    matches!(first.get(..4), Some(b"FORM" | b".snd" | b"caff"))
}

impl OtherHeader {
    /// Reads the header of a file from its first byte on.
    pub(super) fn read(reader: &mut (impl Read + Seek)) -> Found {
        let found = match &bytes::<4>(reader)? {
            b".snd" => au(reader),
            b"caff" => caf(reader),
            _ => aiff(reader),
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => broken("it ends before its sound begins"),
            found => found,
        }
    }

    fn checked(self) -> Found {
        let frame = self.encoding.width() as u64 * u64::from(self.channels);
        Ok(match frame {
            0 => Err(OtherProblem::Broken("it has no channel")),
            _ => Ok(self),
        })
    }
}

fn broken(problem: &'static str) -> Found {
    Ok(Err(OtherProblem::Broken(problem)))
}

fn bytes<const COUNT: usize>(reader: &mut impl Read) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(reader: &mut impl Read) -> io::Result<u32> {
    bytes(reader).map(u32::from_be_bytes)
}

fn short(reader: &mut impl Read) -> io::Result<u16> {
    bytes(reader).map(u16::from_be_bytes)
}

/// Returns a rate as a whole number; 0 for one that makes no sense.
fn whole(rate: f64) -> u32 {
    if (1.0..1e9).contains(&rate) { rate.round() as u32 } else { 0 }
}

/// Reads the rest of an AU file: lengths and numbers with the highest byte first.
fn au(reader: &mut (impl Read + Seek)) -> Found {
    let [start, size, form, rate, channels] = [(); 5].map(|()| number(reader));
    let (start, size, form, rate, channels) = (start?, size?, form?, rate?, channels?);
    let encoding = match form {
        1 => Encoding::MuLaw,
        2 => Encoding::Signed { bytes: 1 },
        3 => Encoding::Signed { bytes: 2 },
        4 => Encoding::Signed { bytes: 3 },
        5 => Encoding::Signed { bytes: 4 },
        6 => Encoding::BigFloat,
        7 => Encoding::BigDouble,
        27 => Encoding::ALaw,
        other => return Ok(Err(OtherProblem::Codec(format!("the encoding {other} of Sun audio (AU)")))),
    };
    let audio_bytes = (size != u32::MAX).then_some(size.into());
    let channels = u16::try_from(channels).unwrap_or(0);
    OtherHeader { kind: AudioKind::Au, rate, channels, encoding, start: start.into(), audio_bytes }.checked()
}

/// What the chunk `COMM` of an AIFF file says.
struct Common {
    channels: u16,
    rate: u32,
    encoding: Encoding,
}

/// Reads the rest of an AIFF file.
fn aiff(reader: &mut (impl Read + Seek)) -> Found {
    number(reader)?;
    let kind = bytes::<4>(reader)?;
    if !matches!(&kind, b"AIFF" | b"AIFC") {
        return Ok(Err(OtherProblem::Codec(format!("IFF of the type `{}`", String::from_utf8_lossy(&kind)))));
    }
    let (mut common, mut sound) = (None, None);
    for _ in 0..MAX_CHUNKS {
        let (id, size) = (bytes::<4>(reader)?, number(reader)?);
        let at = reader.stream_position()?;
        match &id {
            b"COMM" => match common_chunk(reader, size)? {
                Ok(found) => common = Some(found),
                Err(problem) => return Ok(Err(problem)),
            },
            b"SSND" => {
                let offset = u64::from(number(reader)?);
                // A program that writes into a pipe does not know the size.
                let known = (8..0x7fff_0000).contains(&size).then(|| u64::from(size - 8).saturating_sub(offset));
                sound = Some((at + 8 + offset, known));
            }
            _ => {}
        }
        if let (Some(Common { channels, rate, encoding }), Some((start, audio_bytes))) = (&common, sound) {
            let (channels, rate, encoding) = (*channels, *rate, *encoding);
            return OtherHeader { kind: AudioKind::Aiff, rate, channels, encoding, start, audio_bytes }.checked();
        }
        reader.seek(SeekFrom::Start(at + u64::from(size) + u64::from(size % 2)))?;
    }
    broken("it has no audio in its first chunks")
}

fn common_chunk(reader: &mut impl Read, size: u32) -> io::Result<Result<Common, OtherProblem>> {
    let (channels, _, bits) = (short(reader)?, number(reader)?, short(reader)?);
    let (exponent, mantissa) = (short(reader)?, u64::from_be_bytes(bytes(reader)?));
    let rate = whole(mantissa as f64 * 2f64.powi(i32::from(exponent & 0x7fff) - 16_383 - 63));
    let form = if size >= 22 { bytes::<4>(reader)? } else { *b"NONE" };
    let width = usize::from(bits.div_ceil(8));
    let encoding = match &form {
        b"NONE" | b"twos" | b"in24" | b"in32" if (1..=4).contains(&width) => Encoding::Signed { bytes: width },
        b"sowt" | b"42ni" | b"23ni" if (1..=4).contains(&width) => {
            Encoding::Integer { bytes: width, bits: 8 * width as u32 }
        }
        b"raw " if width == 1 => Encoding::Byte,
        b"fl32" | b"FL32" => Encoding::BigFloat,
        b"fl64" | b"FL64" => Encoding::BigDouble,
        b"alaw" | b"ALAW" => Encoding::ALaw,
        b"ulaw" | b"ULAW" => Encoding::MuLaw,
        other => {
            let name = String::from_utf8_lossy(other);
            return Ok(Err(OtherProblem::Codec(format!("{bits} bits of the form `{}` in AIFF", name.trim()))));
        }
    };
    Ok(Ok(Common { channels, rate, encoding }))
}

/// Reads the rest of a CAF file.
fn caf(reader: &mut (impl Read + Seek)) -> Found {
    number(reader)?;
    let mut described = None;
    for _ in 0..MAX_CHUNKS {
        let (id, size) = (bytes::<4>(reader)?, i64::from_be_bytes(bytes(reader)?));
        let at = reader.stream_position()?;
        match &id {
            b"desc" => match description(reader)? {
                Ok(found) => described = Some(found),
                Err(problem) => return Ok(Err(problem)),
            },
            b"data" => {
                let Some(Common { channels, rate, encoding }) = described else {
                    return broken("its sound is not described before it begins");
                };
                // A number of edits stands before the samples.
                let audio_bytes = u64::try_from(size).ok().map(|size| size.saturating_sub(4));
                let header = OtherHeader { kind: AudioKind::Caf, rate, channels, encoding, start: at + 4, audio_bytes };
                return header.checked();
            }
            _ => {}
        }
        let Some(next) = u64::try_from(size).ok().and_then(|size| at.checked_add(size)) else {
            return broken("a chunk without a size");
        };
        reader.seek(SeekFrom::Start(next))?;
    }
    broken("it has no audio in its first chunks")
}

fn description(reader: &mut impl Read) -> io::Result<Result<Common, OtherProblem>> {
    const FLOAT: u32 = 1;
    const LITTLE: u32 = 2;
    let (rate, form, flags) = (f64::from_be_bytes(bytes(reader)?), bytes::<4>(reader)?, number(reader)?);
    let (_, _, channels, bits) = (number(reader)?, number(reader)?, number(reader)?, number(reader)?);
    let (width, is_little) = (bits as usize / 8, flags & LITTLE != 0);
    let encoding = match (&form, bits) {
        (b"alaw", _) => Encoding::ALaw,
        (b"ulaw", _) => Encoding::MuLaw,
        (b"lpcm", 32) if flags & FLOAT != 0 => {
            if is_little {
                Encoding::Float
            } else {
                Encoding::BigFloat
            }
        }
        (b"lpcm", 64) if flags & FLOAT != 0 => {
            if is_little {
                Encoding::Double
            } else {
                Encoding::BigDouble
            }
        }
        (b"lpcm", 8 | 16 | 24 | 32) if flags & FLOAT == 0 && is_little => Encoding::Integer { bytes: width, bits },
        (b"lpcm", 8 | 16 | 24 | 32) if flags & FLOAT == 0 => Encoding::Signed { bytes: width },
        _ => {
            let name = String::from_utf8_lossy(&form);
            return Ok(Err(OtherProblem::Codec(format!("the form `{}` in Apple's Core Audio (CAF)", name.trim()))));
        }
    };
    Ok(Ok(Common { channels: u16::try_from(channels).unwrap_or(0), rate: whole(rate), encoding }))
}

#[cfg(test)]
mod tests;
