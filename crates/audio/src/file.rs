//! Audio files: reads [many formats](EXTENSIONS), and the sound of videos, with any channels and sample rate as mono
//! samples in `-1..1`; writes WAV and FLAC.
//!
//! Code of this crate reads WAV files and others with uncompressed samples, because a segment in the middle of an hour then costs one seek and one read.
//! Symphonia decodes the compressed formats; a decoder of this crate is faster for whole FLAC files, and leaves to Symphonia
//! what is unusual or damaged. The reader is chosen by the first bytes of a file, not by the file name.
//!
//! Every path may name a part of a container or one channel instead, see [`AudioSource`].

mod aac;
mod compressed;
mod flac;
mod matroska;
mod mix;
mod movie_pcm;
mod mp4;
mod opus;
mod other_pcm;
mod page;
mod pcm;
mod source;
mod stream;
mod wav;
mod write;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_core::{Samples, Seconds, counted};

use crate::resample::resample;
pub use page::{PackedPage, PageCompression};
pub use source::{AudioPart, AudioReader, AudioSource};
pub use stream::{AudioStream, RawAudio, RawEncoding};
pub use write::{WavStream, flac_bytes, wav_bytes, write_wav};

/// One channel of audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Audio {
    /// Samples of the audio, between -1 and 1.
    pub samples: Vec<f32>,
    /// Sample rate in hertz.
    pub rate: u32,
}

impl Audio {
    /// Returns whether all samples are equal but for differences below -80 dB of full scale: nothing can be heard.
    pub fn is_silent(&self) -> bool {
        // In lanes, which processors compare at once.
        let (mut least, mut most) = ([f32::INFINITY; 16], [f32::NEG_INFINITY; 16]);
        let (blocks, rest) = self.samples.as_chunks::<16>();
        let mut add = |lane: usize, sample: f32| {
            least[lane] = if sample < least[lane] { sample } else { least[lane] };
            most[lane] = if sample > most[lane] { sample } else { most[lane] };
        };
        blocks.iter().for_each(|block| (0..16).for_each(|lane| add(lane, block[lane])));
        rest.iter().for_each(|&sample| add(0, sample));
        let (least, most) = (least.into_iter().reduce(f32::min), most.into_iter().reduce(f32::max));
        most.zip(least).is_none_or(|(most, least)| most - least < 2.0 * SILENCE)
    }

    /// Returns whether all samples are numbers whose spectrum is one: a file of floating-point numbers can hold others.
    pub fn is_sound(&self) -> bool {
        self.samples.iter().all(|sample| sample.abs() <= LOUDEST)
    }

    /// Returns the length of the audio.
    pub fn duration(&self) -> Seconds {
        Samples(self.samples.len() as u64).at(self.rate)
    }
}

/// Extensions of the names of files that have sound this crate reads, in lower case and without the dot. Of files that
/// differ only in the extension, the first in this list has the best sound.
///
/// Names are only for lists of files: readers go by the first bytes.
pub const EXTENSIONS: [&str; 19] = [
    "wav", "flac", "aiff", "aif", "aifc", "caf", "au", "mp3", "ogg", "oga", "opus", "m4a", "aac", "mka", "mp4", "m4v",
    "mov", "mkv", "webm",
];

/// Returns whether the name of a file says that it [has sound](EXTENSIONS), in any case of letters.
///
/// ```
/// assert!(plimsoll_audio::is_audio_name("voice/PTT-0001.OPUS"));
/// assert!(!plimsoll_audio::is_audio_name("voice/notes.txt"));
/// ```
pub fn is_audio_name(path: impl AsRef<Path>) -> bool {
    let extension = path.as_ref().extension();
    extension.is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
}

/// A part of an audio file. The default is the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AudioSegment {
    /// Start of the segment, from the beginning of the file.
    pub offset: Seconds,
    /// Length of the segment; `None` reads to the end of the file.
    pub duration: Option<Seconds>,
}

/// Format of an audio file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AudioKind {
    /// WAV: uncompressed samples.
    Wav,
    /// FLAC: lossless compression.
    Flac,
    /// MP3: MPEG layer 3.
    Mp3,
    /// Vorbis, in Ogg or in a video.
    Vorbis,
    /// Opus, in Ogg or in a video.
    Opus,
    /// AAC, in MP4, alone or in another video.
    Aac,
    /// ALAC: lossless compression, in MP4.
    Alac,
    /// AIFF or AIFF-C: uncompressed samples, of Apple.
    Aiff,
    /// AU: uncompressed samples, of Sun.
    Au,
    /// CAF: uncompressed samples in Apple's Core Audio.
    Caf,
    /// Uncompressed samples in QuickTime or MP4.
    MoviePcm,
}

impl AudioKind {
    /// Returns the name of the format for messages, such as `Vorbis`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wav => "WAV",
            Self::Flac => "FLAC",
            Self::Mp3 => "MP3",
            Self::Vorbis => "Vorbis",
            Self::Opus => "Opus",
            Self::Aac => "AAC",
            Self::Alac => "ALAC",
            Self::Aiff => "AIFF",
            Self::Au => "AU",
            Self::Caf => "CAF",
            Self::MoviePcm => "PCM in a movie",
        }
    }

    /// Returns the extension of file names, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Flac => "flac",
            Self::Mp3 => "mp3",
            Self::Vorbis => "ogg",
            Self::Opus => "opus",
            Self::Aac | Self::Alac => "m4a",
            Self::Aiff => "aiff",
            Self::Au => "au",
            Self::Caf => "caf",
            Self::MoviePcm => "mov",
        }
    }

    /// Returns whether the samples are not compressed, so that a segment costs one read.
    pub fn is_uncompressed(self) -> bool {
        matches!(self, Self::Wav | Self::Aiff | Self::Au | Self::Caf | Self::MoviePcm)
    }
}

/// Facts about an audio file that are known without decoding it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudioInfo {
    /// Format of the file.
    pub kind: AudioKind,
    /// Sample rate in hertz.
    pub rate: u32,
    /// Number of channels in the file. Readers make one of them, see [`taken_channel`].
    pub channels: u16,
    /// Length of the audio.
    pub duration: Seconds,
}

/// Range of samples to read from an audio file: the index of the first sample, and the number of samples per channel.
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

/// Reason why an audio file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The audio file does not exist.
    #[error("audio file {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The audio file exists but cannot be read.
    #[error("cannot read audio file {}", file.display())]
    Unreadable {
        /// Audio file that cannot be read.
        file: PathBuf,
        /// Error of the operating system while reading.
        source: io::Error,
    },
    /// The file begins like a WAV file, but its header is broken.
    #[error("{} is not a WAV file: {problem}", file.display())]
    NotWav {
        /// WAV file with a broken header.
        file: PathBuf,
        /// Description of the fault in the header.
        problem: String,
    },
    /// The file is an audio file in a format that this crate does not read.
    #[error("{} has an unsupported audio format: {found}", file.display())]
    Unsupported {
        /// Audio file in an unsupported format.
        file: PathBuf,
        /// Name of the format that was found in the file.
        found: String,
    },
    /// The file is not an audio file of any known format.
    #[error("{} is neither WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, MP4, AAC nor Matroska", .0.display())]
    NotAudio(PathBuf),
    /// The sound is in a form that this crate does not decode, but other programs do.
    #[error("{} has sound that cannot be read: {found}; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`", file.display())]
    Codec {
        /// File with the sound.
        file: PathBuf,
        /// Name of the form.
        found: String,
    },
    /// The sound is encrypted.
    #[error("{} is protected against copying (DRM), so its sound cannot be read; use a copy without protection", .0.display())]
    Protected(PathBuf),
    /// The file does not have the channel that its path names.
    #[error("{} has {}, counted from 0, so it has no channel {channel}", file.display(), counted(usize::from(*channels), "channel"))]
    NoChannel {
        /// Path of the channel.
        file: PathBuf,
        /// Channel, counted from 0.
        channel: u16,
        /// Number of channels of the file.
        channels: u16,
    },
    /// The file is a video without sound.
    #[error("{} has no sound: none of its tracks is audio", .0.display())]
    NoTrack(PathBuf),
    /// The audio cannot be decoded.
    #[error("audio file {} is damaged after {after}: {problem}", file.display())]
    Damaged {
        /// Audio file that cannot be decoded.
        file: PathBuf,
        /// Length of the audio before the damage.
        after: Seconds,
        /// Description of the damage.
        problem: String,
    },
    /// A compressed file ends before the length that its header gives.
    #[error("audio file {} is cut short: {} expected, {} found", file.display(), apart(*promised, *found).0, apart(*promised, *found).1)]
    CutShort {
        /// Compressed file that ends too early.
        file: PathBuf,
        /// Length of the audio according to the header.
        promised: Seconds,
        /// Length of the audio that the file really holds.
        found: Seconds,
    },
    /// The samples cannot be encoded.
    #[error("cannot encode the audio: {reason}")]
    Encoding {
        /// Reason that the encoder gives.
        reason: String,
    },
    /// The audio file holds no samples.
    #[error("audio file {} is empty", .0.display())]
    Empty(PathBuf),
    /// All samples of the audio are equal, so nothing can be heard; see [`Audio::is_silent`].
    #[error("the audio of {} is silent", .0.display())]
    Silent(PathBuf),
    /// A sample of the audio is so large that its features would not be numbers; see [`Audio::is_sound`].
    #[error("the audio of {} is no sound: it has samples far beyond full scale", .0.display())]
    NoSound(PathBuf),
    /// The header of a WAV file gives more bytes than the file holds.
    #[error("audio file {} is truncated: its header promises {promised} bytes of audio, the file has {found}", file.display())]
    Truncated {
        /// WAV file that is too short for its header.
        file: PathBuf,
        /// Number of bytes of audio according to the header.
        promised: u64,
        /// Number of bytes of audio that the file really holds.
        found: u64,
    },
    /// The requested segment is not inside the file.
    #[error("audio file {} lasts {length}, so nothing can be read from {from} to {to}", file.display())]
    Outside {
        /// Audio file of the requested segment.
        file: PathBuf,
        /// Length of the audio file.
        length: Seconds,
        /// Start of the requested segment.
        from: Seconds,
        /// End of the requested segment.
        to: Seconds,
    },
    /// The audio file cannot be written.
    #[error("cannot write audio file {}", file.display())]
    Unwritable {
        /// Audio file that cannot be written.
        file: PathBuf,
        /// Error of the operating system while writing.
        source: io::Error,
    },
}

/// Largest sample of a sound. Integers of 32 bits that were written as floating-point numbers are heard; squares of larger numbers
/// leave the range of fp32 when they are added up.
const LOUDEST: f32 = 4_294_967_296.0;

/// Largest distance of silent samples from their mean: 80 dB below full scale.
const SILENCE: f32 = 1e-4;

/// Writes two lengths so that their difference is seen.
fn apart(promised: Seconds, found: Seconds) -> (String, String) {
    match (promised.to_string(), found.to_string()) {
        (a, b) if a == b => (format!("{:.5}s", promised.0), format!("{:.5}s", found.0)),
        texts => texts,
    }
}

/// Accepted sample rates in hertz. Other rates come from broken headers, and a resampler for them would need gigabytes.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// Tolerance between the length of a file and a time in a manifest, because manifests round their times: a segment may
/// end this much after its file. A file whose format does not tell its exact length may end this much too early.
pub const DURATION_TOLERANCE: Seconds = Seconds(0.1);

/// Returns the channel that is read in place of the average of all channels, counted from 1; `None` where channels are averaged,
/// and where the path names a channel.
///
/// Where the channels of a file cancel each other, as with one upside down, their average is silence. The rule is one for a
/// file, by its first second of clear sound: a channel is taken where the average is 20 dB below it. About a second of the
/// file is read for this.
///
/// # Errors
/// When the file is missing, unreadable, damaged, empty or not in a supported format.
pub fn taken_channel(path: impl AsRef<Path>) -> Result<Option<u16>, AudioError> {
    let path = path.as_ref();
    let find = || if is_uncompressed(path, &first_bytes(path)?)? { wav::mix(path) } else { compressed::mix_of(path) };
    Ok(mix::known(path, find)?.number())
}

/// Reads a whole audio file at its own sample rate as one channel: the average of all, or the [taken](taken_channel).
///
/// # Errors
/// When the file is missing, unreadable, damaged, empty or not in a supported format.
pub fn read_recording(path: impl AsRef<Path>) -> Result<Audio, AudioError> {
    read_segment(path.as_ref(), AudioSegment::default())
}

/// Reads a whole audio file as [`read_recording`] does, and resamples to `rate` hertz.
///
/// # Errors
/// When the file is missing, unreadable, damaged, empty or not in a supported format.
///
/// # Panics
/// When `rate` is zero.
pub fn read_audio(path: impl AsRef<Path>, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_recording(path)?, rate))
}

/// Reads a segment of an audio file as one channel, as [`read_recording`] does, and resamples to `rate` hertz.
///
/// The audio outside of the segment is decoded only as far as needed to find the segment.
///
/// # Errors
/// When the file is missing, unreadable, damaged, empty or not in a supported format, or the segment is not inside it.
///
/// # Panics
/// When `rate` is zero.
pub fn read_audio_segment(path: impl AsRef<Path>, segment: AudioSegment, rate: u32) -> Result<Audio, AudioError> {
    Ok(at_rate(read_segment(path.as_ref(), segment)?, rate))
}

/// Reads a segment as [`read_audio_segment`] does, and refuses silence and what is no sound.
///
/// # Errors
/// In the same cases as [`read_audio_segment`], [`AudioError::Silent`] if the segment [is silent](Audio::is_silent), and
/// [`AudioError::NoSound`] if it [is no sound](Audio::is_sound).
///
/// # Panics
/// When `rate` is zero.
pub fn read_heard_segment(path: impl AsRef<Path>, segment: AudioSegment, rate: u32) -> Result<Audio, AudioError> {
    let path = path.as_ref();
    let audio = read_segment(path, segment)?;
    if !audio.is_sound() {
        return Err(AudioError::NoSound(path.into()));
    }
    if audio.is_silent() { Err(AudioError::Silent(path.into())) } else { Ok(at_rate(audio, rate)) }
}

/// Reads the format, sample rate, channels and length of an audio file without decoding it.
///
/// For most formats, only a header is read. MP3, AAC without a container and Matroska are scanned to the end, because the
/// length in their headers is a guess, or that of a video.
///
/// # Errors
/// When the file is missing, unreadable, empty or not in a supported format, or when its header is damaged. Damage
/// behind the header is not noticed.
pub fn audio_info(path: impl AsRef<Path>) -> Result<AudioInfo, AudioError> {
    let path = path.as_ref();
    if is_uncompressed(path, &first_bytes(path)?)? { wav::info(path) } else { compressed::info(path, true) }
}

/// Reads the format, sample rate and channels of an audio file from its header. The length is infinite where the whole
/// file would have to be scanned for it, as [`audio_info`] does.
///
/// # Errors
/// In the same cases as [`audio_info`].
pub fn quick_audio_info(path: impl AsRef<Path>) -> Result<AudioInfo, AudioError> {
    let path = path.as_ref();
    if is_uncompressed(path, &first_bytes(path)?)? { wav::info(path) } else { compressed::info(path, false) }
}

fn at_rate(audio: Audio, rate: u32) -> Audio {
    Audio { samples: resample(audio.samples, audio.rate, rate), rate }
}

fn read_segment(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    let first = first_bytes(path)?;
    if is_uncompressed(path, &first)? {
        return wav::read(path, segment);
    }
    let fast = if flac::may_begin_with(&first) { flac::read(path, segment) } else { None };
    fast.map_or_else(|| compressed::read(path, segment), Ok)
}

/// Reads the first eight bytes of a file, or what it has. An empty file is an error.
fn first_bytes(path: &Path) -> Result<Vec<u8>, AudioError> {
    let mut first = Vec::with_capacity(8);
    AudioSource::from_path(path)
        .open()
        .and_then(|file| file.take(8).read_to_end(&mut first))
        .map_err(|error| unreadable(path, error))?;
    if first.is_empty() { Err(AudioError::Empty(path.into())) } else { Ok(first) }
}

/// Returns whether a file that begins with the bytes `first` has uncompressed samples, whatever its name.
fn is_uncompressed(path: &Path, first: &[u8]) -> Result<bool, AudioError> {
    let is_known = matches!(first.get(..4), Some(b"RIFF" | b"RF64" | b"BW64")) || other_pcm::may_begin_with(first);
    Ok(is_known || mp4::may_begin_with(first) && wav::is_in_movie(path)?)
}

/// Checks that a file with some channels has the one that is asked for, if one is.
fn check_channel(path: &Path, named: Option<u16>, channels: u16) -> Result<(), AudioError> {
    match named.filter(|channel| *channel >= channels) {
        Some(channel) => Err(AudioError::NoChannel { file: path.into(), channel, channels }),
        None => Ok(()),
    }
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
