//! Header of a WAV file, also of more than 4 GiB (RF64, BW64): finds the format and the position of the audio.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use hound::{SampleFormat, WavReader, WavSpec};

use super::super::pcm::Encoding;

/// Header of a WAV file, up to the first sample.
pub(super) struct Header {
    /// Sample rate in hertz.
    pub(super) rate: u32,
    pub(super) channels: u16,
    pub(super) encoding: Encoding,
    /// Position of the first sample in the file, in bytes.
    pub(super) start: u64,
    /// Bytes of audio according to the header; `None` if the program that wrote the file did not know them.
    pub(super) audio_bytes: Option<u64>,
}

/// Reason why a header cannot be read.
#[derive(Debug)]
pub(super) enum Problem {
    /// The header is broken.
    Broken(hound::Error),
    /// The samples are in a form that no other WAV file has.
    Unusual(String),
    /// The sound is compressed in a form that is not read. Holds its name.
    Codec(String),
}

impl From<hound::Error> for Problem {
    fn from(error: hound::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// Tag of a format whose real tag stands in its extension.
const EXTENSIBLE: u16 = 0xfffe;

/// End of the name of a format in an extension, behind its tag.
const EXTENSION_END: [u8; 14] = *b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71";

/// Size of the part of a format chunk that describes the samples. What follows in longer chunks is not needed.
const FORMAT_BYTES: u32 = 40;

/// Largest number of chunks before the audio. Only a broken file has more.
const MAX_CHUNKS: usize = 4096;

impl Header {
    /// Reads the header of the file that `reader` has just opened.
    pub(super) fn read(reader: &mut (impl BufRead + Seek)) -> Result<Self, Problem> {
        let mut riff = [0; 12];
        reader.read_exact(&mut riff)?;
        if !riff.ends_with(b"WAVE") {
            return Err(hound::Error::FormatError("no WAVE tag found").into());
        }
        let riff_size = size_at(&riff, 4);
        let is_long = LONG.contains(&&riff[..4]);
        let mut long_sizes = LongSizes::default();
        let mut format: Option<Vec<u8>> = None;
        for _ in 0..MAX_CHUNKS {
            let mut chunk = [0; 8];
            reader.read_exact(&mut chunk)?;
            let size = size_at(&chunk, 4);
            match &chunk[..4] {
                b"data" => {
                    let format = format.ok_or(hound::Error::FormatError("missing fmt chunk"))?;
                    let known = || (!is_unknown(size, riff_size)).then_some(u64::from(size));
                    let audio_bytes = if size == u32::MAX && is_long { long_sizes.audio } else { known() };
                    return Self::new(&format, reader.stream_position()?, audio_bytes);
                }
                b"ds64" if is_long => {
                    let needed = size.min(LONG_SIZES_BYTES);
                    let mut bytes = Vec::new();
                    reader.by_ref().take(needed.into()).read_to_end(&mut bytes)?;
                    long_sizes = LongSizes::read(&bytes);
                    skip(reader, u64::from(size - needed), u64::from(size))?;
                }
                b"fmt " => {
                    let mut bytes = Vec::new();
                    let needed = size.min(FORMAT_BYTES);
                    if reader.by_ref().take(needed.into()).read_to_end(&mut bytes)? < needed as usize {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    format = Some(bytes);
                    skip(reader, u64::from(size - needed), u64::from(size))?;
                }
                id => {
                    let long = if size == u32::MAX && is_long { long_sizes.of(id) } else { None };
                    let size = long.unwrap_or(size.into());
                    skip(reader, size, size)?;
                }
            }
        }
        Err(hound::Error::FormatError("it has no audio in its first chunks").into())
    }

    /// Makes the header of a file with the format chunk `format`.
    fn new(format: &[u8], start: u64, audio_bytes: Option<u64>) -> Result<Self, Problem> {
        let Format { rate, channels, encoding } = match Format::own(format)? {
            Some(own) => own,
            None => Format::checked(format)?,
        };
        let value_bytes = encoding.width() as u64;
        match audio_bytes {
            Some(bytes) if bytes % value_bytes != 0 => {
                Err(hound::Error::FormatError("data chunk length is not a multiple of sample size").into())
            }
            Some(bytes) if bytes % (value_bytes * u64::from(channels)) != 0 => {
                Err(hound::Error::FormatError("invalid data chunk length").into())
            }
            _ => Ok(Self { rate, channels, encoding, start, audio_bytes }),
        }
    }
}

/// Format of samples.
struct Format {
    rate: u32,
    channels: u16,
    encoding: Encoding,
}

impl Format {
    /// Reads a format that `hound` does not know. `None` for one that it knows, and for a broken one.
    fn own(format: &[u8]) -> Result<Option<Self>, Problem> {
        let number = |at: usize| format.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        let [Some(tag), Some(channels), Some(bits)] = [0, 2, 14].map(number) else { return Ok(None) };
        let is_extended = tag == EXTENSIBLE && format.get(26..40) == Some(&EXTENSION_END);
        let tag = if is_extended { number(24).unwrap_or(tag) } else { tag };
        let encoding = match (tag, bits) {
            (3, 64) => Encoding::Double,
            (6, 8) => Encoding::ALaw,
            (7, 8) => Encoding::MuLaw,
            (1 | 3 | EXTENSIBLE, _) => return Ok(None),
            _ => return codec(tag).map_or(Ok(None), |name| Err(Problem::Codec(name))),
        };
        if channels == 0 || number(12).map(usize::from) != Some(encoding.width() * usize::from(channels)) {
            return Ok(None);
        }
        Ok(Some(Self { rate: size_at(format, 4), channels, encoding }))
    }

    /// Reads a format of integers or floats, which `hound` checks.
    fn checked(format: &[u8]) -> Result<Self, Problem> {
        let frame_bytes = format.get(12..14).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        // `hound` checks the format. It gets a file of one frame, because it knows nothing of padding and unknown sizes.
        let (riff_size, format_size) = (28 + format.len() as u32, format.len() as u32);
        let parts = [
            &b"RIFF"[..],
            &riff_size.to_le_bytes(),
            b"WAVEfmt ",
            &format_size.to_le_bytes(),
            format,
            b"data",
            &u32::from(frame_bytes).to_le_bytes(),
        ];
        let file = parts.concat();
        let spec = WavReader::new(&*file)?.spec();
        let value_bytes = u64::from(frame_bytes) / u64::from(spec.channels);
        let kind = if spec.sample_format == SampleFormat::Float { "floats" } else { "integers" };
        let encoding = encoding(spec, value_bytes)
            .ok_or_else(|| Problem::Unusual(format!("{}-bit {kind} in {value_bytes} bytes", spec.bits_per_sample)))?;
        Ok(Self { rate: spec.sample_rate, channels: spec.channels, encoding })
    }
}

fn encoding(spec: WavSpec, bytes: u64) -> Option<Encoding> {
    match (spec.sample_format, bytes, spec.bits_per_sample) {
        (SampleFormat::Float, 4, 32) => Some(Encoding::Float),
        (SampleFormat::Int, 1, 8) => Some(Encoding::Byte),
        (SampleFormat::Int, 2..=4, bits @ (16 | 24 | 32)) if u64::from(bits) <= 8 * bytes => {
            Some(Encoding::Integer { bytes: bytes as usize, bits: bits.into() })
        }
        _ => None,
    }
}

/// Names a compressed form by its tag, as Microsoft registered it; `None` for a tag of no meaning.
fn codec(tag: u16) -> Option<String> {
    let name = match tag {
        0 | 1 | 3 => return None,
        0x0002 => "MS ADPCM",
        0x0006 | 0x0007 => "A-law or mu-law of other than 8 bits",
        0x0010 => "OKI ADPCM",
        0x0011 => "IMA ADPCM",
        0x0020 => "Yamaha ADPCM",
        0x0014 | 0x0040 | 0x0045 | 0x0064 => "G.721 or G.726 ADPCM",
        0x0022 => "TrueSpeech",
        0x0031 | 0x0032 => "GSM",
        0x0042 => "G.723.1",
        0x0050 => "MPEG layer 2 (MP2)",
        0x0055 => "MP3",
        0x0065 => "G.722",
        0x0083 => "G.729",
        0x00ff | 0x1600..=0x1602 => "AAC",
        0x0160..=0x0163 => "Windows Media Audio",
        0x2000 => "AC-3 (Dolby Digital)",
        0x2001 => "DTS",
        0x566f | 0x674f..=0x6751 | 0x676f..=0x6771 => "Vorbis",
        0xa109 => "Speex",
        0xf1ac => "FLAC",
        other => return Some(format!("the format {other:#06x} of WAV")),
    };
    Some(format!("{name} in WAV"))
}

/// First bytes of WAV files whose sizes can have 64 bits, in a chunk `ds64`: by EBU Tech 3306 and ITU-R BS.2088.
const LONG: [&[u8]; 2] = [b"RF64", b"BW64"];

/// Bytes of a chunk `ds64` that are read: three sizes, and a table of as many chunks as any file has.
const LONG_SIZES_BYTES: u32 = 28 + 12 * 64;

/// Sizes of 64 bits in a chunk `ds64`. They count where the size of a chunk is `0xFFFFFFFF`.
#[derive(Default)]
struct LongSizes {
    /// Bytes of audio; `None` if the program that wrote the file did not know them.
    audio: Option<u64>,
    /// Sizes of other chunks, by their names.
    others: Vec<([u8; 4], u64)>,
}

impl LongSizes {
    /// Reads the content of the chunk. What is missing at its end stays unknown.
    fn read(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?;
            Some(u64::from(size_at(bytes, 0)) | u64::from(size_at(bytes, 4)) << 32)
        };
        let entry = |at: usize| Some((bytes.get(at..at + 4)?.try_into().ok()?, number(at + 4)?));
        Self {
            // A size that was never written is zero, or all ones.
            audio: number(8).filter(|size| !matches!(*size, 0 | u64::MAX)),
            others: (28..bytes.len()).step_by(12).map_while(entry).collect(),
        }
    }

    fn of(&self, chunk: &[u8]) -> Option<u64> {
        self.others.iter().find(|(id, _)| id.as_slice() == chunk).map(|(_, size)| *size)
    }
}

fn size_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether `audio_size`, the size of the audio in a header, only stands for a size that was not known.
///
/// A program that writes into a pipe cannot come back to write the size. ffmpeg then writes `0xFFFFFFFF`, sox and
/// espeak-ng `0x7FFFF000`, arecord `0x80000000`, and some subtract the size of the header. Others leave both sizes at
/// zero. A file that was cut short has another size, because no such number comes from real audio but by chance.
fn is_unknown(audio_size: u32, riff_size: u32) -> bool {
    let is_marker = |size: u32| size >= 0xFFFF_F000 || (0x7FFF_F000..=0x8000_0000).contains(&size);
    is_marker(audio_size) || audio_size == 0 && (riff_size == 0 || is_marker(riff_size))
}

/// A reader that cannot go back, such as a pipe, with its position: what is skipped is read.
pub(super) struct ForwardReader<R> {
    reader: R,
    position: u64,
}

impl<R> ForwardReader<R> {
    /// Takes a reader that is at its first byte.
    pub(super) fn new(reader: R) -> Self {
        Self { reader, position: 0 }
    }

    /// Returns the reader, at its position.
    pub(super) fn into_inner(self) -> R {
        self.reader
    }
}

impl<R: BufRead> Read for ForwardReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for ForwardReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.position += count as u64;
        self.reader.consume(count);
    }
}

impl<R: BufRead> Seek for ForwardReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let by = match to {
            SeekFrom::Current(by) => u64::try_from(by).ok(),
            SeekFrom::Start(to) => to.checked_sub(self.position),
            SeekFrom::End(_) => None,
        };
        let by = by.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "a stream cannot go back"))?;
        io::copy(&mut self.by_ref().take(by), &mut io::sink())?;
        Ok(self.position)
    }
}

/// Skips the remaining bytes of a chunk of `size` bytes, with the zero byte that follows a chunk of odd size. Some
/// programs do not write that byte.
fn skip(reader: &mut (impl BufRead + Seek), remaining: u64, size: u64) -> io::Result<()> {
    let remaining = i64::try_from(remaining).map_err(|_| io::ErrorKind::UnexpectedEof)?;
    reader.seek_relative(remaining)?;
    if size % 2 == 1 && reader.fill_buf()?.first() == Some(&0) {
        reader.consume(1);
    }
    Ok(())
}
