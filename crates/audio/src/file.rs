//! Sound files: reading WAV, FLAC, MP3 and Ogg of any channels and rate to mono samples in `-1..1`; writing WAV.
//!
//! WAV files are read by our own hand, because a stretch in the middle of an hour then costs one seek and one read; what
//! is coded goes through Symphonia. Which of the two it is, the first bytes of a file say, and never its name.

mod coded;
mod wav;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_core::{Samples, Seconds};

use crate::resample::resample;
pub use write::{wav_bytes, write_wav};

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

/// How the sound of a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AudioKind {
    /// Plain numbers.
    Wav,
    /// Without loss.
    Flac,
    /// MPEG layer 3.
    Mp3,
    /// Vorbis in Ogg.
    Vorbis,
    /// Opus in Ogg; needs the feature `opus`.
    Opus,
}

impl AudioKind {
    /// The name that people know it by.
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

/// What a file says of its sound before any of it is decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudioInfo {
    /// How it is written.
    pub kind: AudioKind,
    /// Samples a second of each channel.
    pub rate: u32,
    /// Channels, which are averaged when read.
    pub channels: u16,
    /// How long it lasts.
    pub duration: Seconds,
}

/// A stretch in samples.
struct Span {
    first: u64,
    count: u64,
}

impl AudioInfo {
    fn locate(&self, path: &Path, stretch: Stretch) -> Result<Span, AudioError> {
        let (rate, length, from) = (f64::from(self.rate), self.duration, stretch.offset);
        let to = stretch.duration.map_or(length, |duration| from + duration);
        let first = (from.0 * rate).round();
        let last = (to.0.min(length.0) * rate).round();
        let inside = from.0 >= 0.0 && to <= length + SLACK && last > first;
        if !inside {
            return Err(AudioError::Outside { file: path.into(), length, from, to });
        }
        Ok(Span { first: first as u64, count: last as u64 - first as u64 })
    }
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
    /// Sound that is written in a way we do not read.
    #[error("{} is a sound file of a kind that cannot be read: {found}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// No sound file at all.
    #[error("{} is neither WAV, FLAC, MP3 nor Ogg", .0.display())]
    NotAudio(PathBuf),
    /// Sound that cannot be decoded.
    #[error("audio file {} is damaged after {after}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// How far it could be read.
        after: Seconds,
        /// What is wrong with it.
        problem: String,
    },
    /// Coded sound that ends too early.
    #[error("audio file {} is cut short: {promised} are promised, {found} are there", file.display())]
    CutShort {
        /// The file.
        file: PathBuf,
        /// Where the sound was to end.
        promised: Seconds,
        /// Where it ends.
        found: Seconds,
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
pub const SLACK: Seconds = Seconds(0.1);

/// Reads a whole file at its own rate, its channels averaged.
pub fn read_recording(path: impl AsRef<Path>) -> Result<Audio, AudioError> {
    read_stretch(path.as_ref(), Stretch::default())
}

/// Reads a whole file and brings it to `rate`.
pub fn read_audio(path: impl AsRef<Path>, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_recording(path)?, rate))
}

/// Reads a stretch of a file and brings it to `rate`; of the rest no more is decoded than it takes to find the place.
pub fn read_audio_stretch(path: impl AsRef<Path>, stretch: Stretch, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_stretch(path.as_ref(), stretch)?, rate))
}

/// What a file says of its sound; nothing is decoded.
///
/// Most files tell their length in a header. An MP3 is read through, because what its header says is often a guess.
pub fn audio_info(path: impl AsRef<Path>) -> Result<AudioInfo, AudioError> {
    let path = path.as_ref();
    if is_wav(path)? { wav::info(path) } else { coded::info(path) }
}

fn at_rate(audio: Audio, rate: u32) -> Audio {
    Audio { samples: resample(audio.samples, audio.rate, rate), rate }
}

fn read_stretch(path: &Path, stretch: Stretch) -> Result<Audio, AudioError> {
    if is_wav(path)? { wav::read(path, stretch) } else { coded::read(path, stretch) }
}

/// Whether a file begins as a WAV file does, whatever its name; one without a byte is an error.
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
