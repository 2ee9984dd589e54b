//! WAV files: any channels, any rate, any common encoding.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use hound::{SampleFormat, WavReader, WavSpec};
use plimsoll_core::Samples;

use super::{Audio, AudioError, AudioInfo, AudioKind, RATES, Span, Stretch, unreadable};

/// Reads a stretch of a WAV file, its channels averaged.
pub(super) fn read(path: &Path, stretch: Stretch) -> Result<Audio, AudioError> {
    let mut file = WavFile::open(path)?;
    let Span { first, count } = file.info().locate(path, stretch)?;
    let bytes = file.read(first, count)?;
    let samples = file.encoding.mono(&bytes, file.spec.channels as usize);
    Ok(Audio { samples, rate: file.spec.sample_rate })
}

/// What the header of a WAV file says.
pub(super) fn info(path: &Path) -> Result<AudioInfo, AudioError> {
    Ok(WavFile::open(path)?.info())
}

/// How the samples of a file are written.
#[derive(Clone, Copy)]
enum Encoding {
    /// Unsigned bytes around 128.
    Byte,
    /// Signed little-endian integers of so many bits, in so many bytes.
    Integer { bytes: usize, bits: u32 },
    /// 32 bit floats.
    Float,
}

impl Encoding {
    fn of(spec: WavSpec, bytes: u64) -> Option<Self> {
        match (spec.sample_format, bytes, spec.bits_per_sample) {
            (SampleFormat::Float, 4, 32) => Some(Self::Float),
            (SampleFormat::Int, 1, 8) => Some(Self::Byte),
            (SampleFormat::Int, 2..=4, bits @ (16 | 24 | 32)) if u64::from(bits) <= 8 * bytes => {
                Some(Self::Integer { bytes: bytes as usize, bits: bits.into() })
            }
            _ => None,
        }
    }

    fn value(self, bytes: &[u8]) -> f32 {
        match self {
            Self::Byte => (f32::from(bytes[0]) - 128.0) / 128.0,
            Self::Integer { bytes: width, bits } => {
                let mut word = [0; 4];
                word[..width].copy_from_slice(bytes);
                // To the top of the word, so that the sign bit is where i32 wants it.
                let value = i32::from_le_bytes(word) << (32 - bits);
                value as f32 / 2f32.powi(31)
            }
            // A float file may hold anything; one NaN would spread over the whole model.
            Self::Float => {
                let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                if value.is_finite() { value } else { 0.0 }
            }
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Integer { bytes, .. } => bytes,
            Self::Float => 4,
        }
    }

    fn mono(self, bytes: &[u8], channels: usize) -> Vec<f32> {
        let width = self.width();
        let scale = 1.0 / channels as f32;
        let moment = |moment: &[u8]| moment.chunks_exact(width).map(|b| self.value(b)).sum::<f32>() * scale;
        bytes.chunks_exact(width * channels).map(moment).collect()
    }
}

/// An open WAV file whose header made sense.
struct WavFile<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    spec: WavSpec,
    encoding: Encoding,
    /// Where the sound begins in the file, in bytes.
    start: u64,
    /// Samples of each channel.
    length: u64,
}

impl<'a> WavFile<'a> {
    fn open(path: &'a Path) -> Result<Self, AudioError> {
        let file = File::open(path).map_err(|error| unreadable(path, error))?;
        let size = file.metadata().map_err(|error| unreadable(path, error))?.len();
        if size == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        let mut reader = BufReader::new(file);
        let (spec, values) = header(&mut reader).map_err(|error| broken(path, &error))?;
        let (start, promised) = data_chunk(&mut reader).map_err(|error| unreadable(path, error))?;
        if values == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        // The header's reader keeps the width of a value to itself, but has checked that it divides the length.
        let encoding = encoding(path, spec, promised / values)?;
        let found = size.saturating_sub(start);
        if promised > found {
            return Err(AudioError::Truncated { file: path.into(), promised, found });
        }
        Ok(Self { path, reader, spec, encoding, start, length: values / u64::from(spec.channels) })
    }

    fn info(&self) -> AudioInfo {
        let WavSpec { sample_rate: rate, channels, .. } = self.spec;
        AudioInfo { kind: AudioKind::Wav, rate, channels, duration: Samples(self.length).at(rate) }
    }

    fn read(&mut self, first: u64, count: u64) -> Result<Vec<u8>, AudioError> {
        let moment = self.encoding.width() as u64 * u64::from(self.spec.channels);
        let mut bytes = vec![0; (count * moment) as usize];
        self.reader
            .seek(SeekFrom::Start(self.start + first * moment))
            .and_then(|_| self.reader.read_exact(&mut bytes))
            .map_err(|error| unreadable(self.path, error))?;
        Ok(bytes)
    }
}

/// What the header says, and how many values of all channels it promises.
fn header(reader: &mut BufReader<File>) -> Result<(WavSpec, u64), hound::Error> {
    let header = WavReader::new(reader)?;
    Ok((header.spec(), header.len().into()))
}

/// Where the sound begins and how many bytes it is said to have, seen from behind the header.
fn data_chunk(reader: &mut BufReader<File>) -> io::Result<(u64, u64)> {
    let start = reader.stream_position()?;
    let mut length = [0; 4];
    reader.seek_relative(-4)?;
    reader.read_exact(&mut length)?;
    Ok((start, u32::from_le_bytes(length).into()))
}

fn encoding(path: &Path, spec: WavSpec, bytes: u64) -> Result<Encoding, AudioError> {
    let unsupported = |found| AudioError::Unsupported { file: path.into(), found };
    if !RATES.contains(&spec.sample_rate) {
        return Err(unsupported(format!("{} samples a second", spec.sample_rate)));
    }
    Encoding::of(spec, bytes).ok_or_else(|| {
        let kind = if spec.sample_format == SampleFormat::Float { "floats" } else { "integers" };
        unsupported(format!("{} bit {kind} in {bytes} bytes", spec.bits_per_sample))
    })
}

fn broken(path: &Path, error: &hound::Error) -> AudioError {
    let file = path.into();
    match error {
        hound::Error::Unsupported => {
            AudioError::Unsupported { file, found: "neither plain integers nor plain floats".into() }
        }
        // A sound header that asks for 64 bit floats, say.
        hound::Error::FormatError(problem) if problem.starts_with("bits per sample") => {
            AudioError::Unsupported { file, found: (*problem).into() }
        }
        hound::Error::FormatError(problem) => AudioError::NotWav { file, problem: (*problem).into() },
        // The reader says so in its own words when the file ends inside the header.
        hound::Error::IoError(_) => AudioError::NotWav { file, problem: "it ends before its sound begins".into() },
        other => AudioError::NotWav { file, problem: other.to_string() },
    }
}
