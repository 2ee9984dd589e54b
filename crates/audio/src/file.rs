//! Audio files: reads WAV, FLAC, MP3 and Ogg with any channels and sample rate as mono samples in `-1..1`; writes WAV.
//!
//! Our own code reads WAV files, because a segment in the middle of an hour then costs one seek and one read.
//! Symphonia decodes the compressed formats. The first bytes of a file decide between the two; its name does not
//! matter.

mod compressed;
mod wav;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_core::{Samples, Seconds};

use crate::resample::resample;
pub use write::{wav_bytes, write_wav};

/// One channel of audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Audio {
    /// Samples between -1 and 1.
    pub samples: Vec<f32>,
    /// Sample rate in hertz.
    pub rate: u32,
}

impl Audio {
    /// Length of the audio.
    pub fn duration(&self) -> Seconds {
        Samples(self.samples.len() as u64).at(self.rate)
    }
}

/// A part of an audio file. The default is the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AudioSegment {
    /// Start, from the beginning of the file.
    pub offset: Seconds,
    /// Length; `None` reads to the end of the file.
    pub duration: Option<Seconds>,
}

/// Format of an audio file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AudioKind {
    /// Uncompressed samples.
    Wav,
    /// Lossless compression.
    Flac,
    /// MPEG layer 3.
    Mp3,
    /// Vorbis in Ogg.
    Vorbis,
    /// Opus in Ogg; needs the feature `opus`.
    Opus,
}

impl AudioKind {
    /// Name for messages, such as `Ogg Vorbis`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wav => "WAV",
            Self::Flac => "FLAC",
            Self::Mp3 => "MP3",
            Self::Vorbis => "Ogg Vorbis",
            Self::Opus => "Ogg Opus",
        }
    }
}

/// Facts about an audio file that are known without decoding it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudioInfo {
    /// Format of the file.
    pub kind: AudioKind,
    /// Sample rate in hertz.
    pub rate: u32,
    /// Number of channels. Reading averages them into one.
    pub channels: u16,
    /// Length of the audio.
    pub duration: Seconds,
}

/// An [`AudioSegment`] in samples.
struct SampleRange {
    first: u64,
    count: u64,
}

impl AudioInfo {
    fn locate(&self, path: &Path, segment: AudioSegment) -> Result<SampleRange, AudioError> {
        let (rate, length, from) = (f64::from(self.rate), self.duration, segment.offset);
        let to = segment.duration.map_or(length, |duration| from + duration);
        let first = (from.0 * rate).round();
        let last = (to.0.min(length.0) * rate).round();
        let inside = from.0 >= 0.0 && to <= length + DURATION_TOLERANCE && last > first;
        if !inside {
            return Err(AudioError::Outside { file: path.into(), length, from, to });
        }
        Ok(SampleRange { first: first as u64, count: last as u64 - first as u64 })
    }
}

/// Why an audio file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// There is no such file.
    #[error("audio file {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The file exists but the system cannot read it.
    #[error("cannot read audio file {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file begins like a WAV file, but its header is broken.
    #[error("{} is not a WAV file: {problem}", file.display())]
    NotWav {
        /// The file.
        file: PathBuf,
        /// What is wrong with the header.
        problem: String,
    },
    /// An audio file in a format that this crate does not read.
    #[error("{} has an unsupported audio format: {found}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// Not an audio file of any known format.
    #[error("{} is neither WAV, FLAC, MP3 nor Ogg", .0.display())]
    NotAudio(PathBuf),
    /// The audio cannot be decoded.
    #[error("audio file {} is damaged after {after}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// How much of it could be decoded.
        after: Seconds,
        /// What is wrong with it.
        problem: String,
    },
    /// A compressed file ends before the length that its header gives.
    #[error("audio file {} is cut short: {promised} expected, {found} found", file.display())]
    CutShort {
        /// The file.
        file: PathBuf,
        /// Where the audio should end.
        promised: Seconds,
        /// Where it ends.
        found: Seconds,
    },
    /// The file holds no samples.
    #[error("audio file {} is empty", .0.display())]
    Empty(PathBuf),
    /// The header of a WAV file gives more bytes than the file holds.
    #[error("audio file {} is truncated: its header promises {promised} bytes of audio, the file has {found}", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Bytes of audio according to the header.
        promised: u64,
        /// Bytes of audio in the file.
        found: u64,
    },
    /// The requested segment is not inside the file.
    #[error("audio file {} lasts {length}, so nothing can be read from {from} to {to}", file.display())]
    Outside {
        /// The file.
        file: PathBuf,
        /// Length of the file.
        length: Seconds,
        /// Start of the segment.
        from: Seconds,
        /// End of the segment.
        to: Seconds,
    },
    /// The file cannot be written.
    #[error("cannot write audio file {}", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Accepted sample rates in hertz. Others come from broken headers, and a resampler for them would need gigabytes.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// Tolerance between the length of a file and a time in a manifest, because manifests round their times: a segment may
/// end this much after its file.
pub const DURATION_TOLERANCE: Seconds = Seconds(0.1);

/// Reads a whole file at its own sample rate and averages its channels.
///
/// # Errors
/// When the file is missing, unreadable, damaged, empty or not in a supported format.
pub fn read_recording(path: impl AsRef<Path>) -> Result<Audio, AudioError> {
    read_segment(path.as_ref(), AudioSegment::default())
}

/// Reads a whole file, averages its channels and resamples to `rate` hertz.
///
/// # Errors
/// As [`read_recording`].
///
/// # Panics
/// When `rate` is zero.
pub fn read_audio(path: impl AsRef<Path>, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_recording(path)?, rate))
}

/// Reads a segment of a file, averages its channels and resamples to `rate` hertz.
///
/// Of the rest of the file it decodes only what is needed to find the segment.
///
/// # Errors
/// As [`read_recording`], and when the segment is not inside the file.
///
/// # Panics
/// When `rate` is zero.
pub fn read_audio_segment(path: impl AsRef<Path>, segment: AudioSegment, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_segment(path.as_ref(), segment)?, rate))
}

/// Reads format, sample rate, channels and length of a file without decoding it.
///
/// For most formats this reads a header. An MP3 file is scanned to its end, because the length in its header is often
/// a guess.
///
/// # Errors
/// As [`read_recording`], except that damage behind the header is not noticed.
pub fn audio_info(path: impl AsRef<Path>) -> Result<AudioInfo, AudioError> {
    let path = path.as_ref();
    if is_wav(path)? { wav::info(path) } else { compressed::info(path) }
}

fn at_rate(audio: Audio, rate: u32) -> Audio {
    Audio { samples: resample(audio.samples, audio.rate, rate), rate }
}

fn read_segment(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    if is_wav(path)? { wav::read(path, segment) } else { compressed::read(path, segment) }
}

/// Whether a file begins like a WAV file, whatever its name. A file of zero bytes is an error.
fn is_wav(path: &Path) -> Result<bool, AudioError> {
    let mut first = Vec::with_capacity(4);
    File::open(path).and_then(|file| file.take(4).read_to_end(&mut first)).map_err(|error| unreadable(path, error))?;
    if first.is_empty() {
        return Err(AudioError::Empty(path.into()));
    }
    Ok(matches!(&*first, b"RIFF"))
}

fn unreadable(path: &Path, source: io::Error) -> AudioError {
    let file = path.into();
    match source.kind() {
        io::ErrorKind::NotFound => AudioError::NotFound(file),
        _ => AudioError::Unreadable { file, source },
    }
}

#[cfg(test)]
mod tests;
