//! WAV files: reading any channels, any rate, any common encoding, to mono samples in `-1..1`; writing 16 bits of them.

mod write;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hound::{SampleFormat, WavReader, WavSpec};
use plimsoll_core::{Samples, Seconds};

use crate::resample::resample;
pub(crate) use write::wav_bytes;
pub use write::write_wav;

/// One channel of sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Audio {
    /// The samples, between -1 and 1.
    pub samples: Vec<f32>,
    /// Samples a second.
    pub rate: u32,
}

impl Audio {
    /// How long it lasts.
    pub fn duration(&self) -> Seconds {
        Samples(self.samples.len() as u64).at(self.rate)
    }
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Where it begins.
    pub offset: Seconds,
    /// How long it is; `None` reads to the end.
    pub duration: Option<Seconds>,
}

/// Why a file gives or takes no audio.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// There is no such file.
    #[error("audio file {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The file is there but cannot be read.
    #[error("cannot read audio file {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The header is not that of a WAV file, or is broken.
    #[error("{} is not a WAV file: {problem}", file.display())]
    NotWav {
        /// The file.
        file: PathBuf,
        /// What is wrong with its header.
        problem: String,
    },
    /// A WAV file whose samples are written in a way we do not read.
    #[error("{} is a WAV file of a kind that cannot be read: {found}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// The file holds no sample.
    #[error("audio file {} is empty", .0.display())]
    Empty(PathBuf),
    /// The header promises more than the file holds.
    #[error("audio file {} is truncated: its header promises {promised} bytes of sound, {found} are there", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Bytes that the header promises.
        promised: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The stretch asked for is not inside the file.
    #[error("audio file {} lasts {length}, so nothing can be read from {from} to {to}", file.display())]
    Outside {
        /// The file.
        file: PathBuf,
        /// How long it is.
        length: Seconds,
        /// Where the stretch begins.
        from: Seconds,
        /// Where it ends.
        to: Seconds,
    },
    /// The file cannot be written.
    #[error("cannot write audio file {}", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Rates outside this range come from broken headers, and a resampler for them would want gigabytes.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// A manifest's times are rounded, so a stretch may end this much after the file does.
const SLACK: Seconds = Seconds(0.1);

/// Reads a whole WAV file at its own rate, its channels averaged.
pub fn read_wav(path: impl AsRef<Path>) -> Result<Audio, AudioError> {
    read_stretch(path, Stretch::default())
}

/// Reads a whole WAV file and brings it to `rate`.
pub fn read_audio(path: impl AsRef<Path>, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_wav(path)?, rate))
}

/// Reads a stretch of a WAV file and brings it to `rate`; the rest of the file is not read.
pub fn read_audio_stretch(path: impl AsRef<Path>, stretch: Stretch, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_stretch(path, stretch)?, rate))
}

/// How long a WAV file lasts, from its header alone.
pub fn wav_duration(path: impl AsRef<Path>) -> Result<Seconds, AudioError> {
    Ok(WavFile::open(path.as_ref())?.duration())
}

fn at_rate(audio: Audio, rate: u32) -> Audio {
    Audio { samples: resample(audio.samples, audio.rate, rate), rate }
}

fn read_stretch(path: impl AsRef<Path>, stretch: Stretch) -> Result<Audio, AudioError> {
    let mut file = WavFile::open(path.as_ref())?;
    let (first, count) = file.locate(stretch)?;
    let bytes = file.read(first, count)?;
    let samples = file.encoding.mono(&bytes, file.spec.channels as usize);
    Ok(Audio { samples, rate: file.spec.sample_rate })
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

    fn duration(&self) -> Seconds {
        Samples(self.length).at(self.spec.sample_rate)
    }

    /// The first sample and the number of samples of a stretch.
    fn locate(&self, stretch: Stretch) -> Result<(u64, u64), AudioError> {
        let (rate, length, from) = (f64::from(self.spec.sample_rate), self.duration(), stretch.offset);
        let to = stretch.duration.map_or(length, |duration| from + duration);
        let first = (from.0 * rate).round();
        let last = (to.0.min(length.0) * rate).round();
        let inside = from.0 >= 0.0 && to <= length + SLACK && last > first;
        if !inside {
            return Err(AudioError::Outside { file: self.path.into(), length, from, to });
        }
        Ok((first as u64, last as u64 - first as u64))
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

fn unreadable(path: &Path, source: io::Error) -> AudioError {
    let file = path.into();
    match source.kind() {
        io::ErrorKind::NotFound => AudioError::NotFound(file),
        _ => AudioError::Unreadable { file, source },
    }
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

#[cfg(test)]
mod tests;
