//! Audio that is read in blocks: recordings of any length in bounded memory, and sound that is still being made.

use std::io::Read;
use std::path::Path;

use plimsoll_core::Seconds;

use super::compressed::{self, CompressedBlocks};
use super::mix::{Mix, Mixer};
use super::pcm::{Encoding, PcmBlocks};
use super::{AudioError, SAMPLE_RATES, first_bytes, is_uncompressed, wav};
use crate::resample::ResampleStream;

/// Encoding of samples without a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RawEncoding {
    /// Unsigned integers of 8 bits.
    U8,
    /// Signed little-endian integers of 16 bits.
    #[default]
    S16,
    /// Signed little-endian integers of 24 bits.
    S24,
    /// Signed little-endian integers of 32 bits.
    S32,
    /// Little-endian floats of 32 bits.
    F32,
}

impl RawEncoding {
    /// All encodings.
    pub const ALL: [Self; 5] = [Self::U8, Self::S16, Self::S24, Self::S32, Self::F32];

    /// Returns the name as ffmpeg has it, such as `s16le`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::S16 => "s16le",
            Self::S24 => "s24le",
            Self::S32 => "s32le",
            Self::F32 => "f32le",
        }
    }

    /// Returns the encoding with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name() == name)
    }

    fn encoding(self) -> Encoding {
        match self {
            Self::U8 => Encoding::Byte,
            Self::S16 => Encoding::Integer { bytes: 2, bits: 16 },
            Self::S24 => Encoding::Integer { bytes: 3, bits: 24 },
            Self::S32 => Encoding::Integer { bytes: 4, bits: 32 },
            Self::F32 => Encoding::Float,
        }
    }
}

/// Form of samples without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawAudio {
    /// Sample rate in hertz.
    pub rate: u32,
    /// Number of channels, whose samples alternate.
    pub channels: u16,
    /// Encoding of a sample.
    pub encoding: RawEncoding,
}

/// Audio that is read in blocks as one channel, at the sample rate that was asked for.
///
/// The samples are those of [`read_audio`](super::read_audio), to the last bit. The memory does not depend on the length of
/// the audio.
///
/// ```
/// use plimsoll_audio::{AudioStream, wav_bytes};
///
/// let recording = std::io::Cursor::new(wav_bytes(&[0.5; 8_000], 8_000));
/// let mut stream = AudioStream::from_wav(recording, 16_000)?;
/// let mut samples = Vec::new();
/// while stream.read(&mut samples)? {}
/// assert_eq!(samples.len(), 16_000);
/// # Ok::<(), plimsoll_audio::AudioError>(())
/// ```
pub struct AudioStream {
    blocks: Blocks,
    resampler: ResampleStream,
    length: Option<Seconds>,
    /// Samples of a block before the resampler.
    block: Vec<f32>,
    is_finished: bool,
}

enum Blocks {
    Pcm(PcmBlocks),
    Compressed(Box<CompressedBlocks>),
}

impl AudioStream {
    /// Opens the audio file at `path`, to read it at `rate` hertz. The packets of some formats are counted first,
    /// see [`audio_info`](super::audio_info).
    ///
    /// # Errors
    /// When the file is missing, unreadable, empty or not in a supported format, or its header is damaged.
    ///
    /// # Panics
    /// When `rate` is zero.
    pub fn open(path: impl AsRef<Path>, rate: u32) -> Result<Self, AudioError> {
        let path = path.as_ref();
        let (blocks, info) = match is_uncompressed(path, &first_bytes(path)?)? {
            true => wav::blocks(path).map(|(blocks, info)| (Blocks::Pcm(blocks), info))?,
            false => compressed::blocks(path).map(|(blocks, info)| (Blocks::Compressed(Box::new(blocks)), info))?,
        };
        Ok(Self { length: Some(info.duration), ..Self::new(blocks, info.rate, rate) })
    }

    /// Reads a WAV file from a pipe or another reader, at `rate` hertz. Its header may leave the size open, and the sound ends
    /// with the reader. Returns when the header was read.
    ///
    /// # Errors
    /// When the reader fails or is empty, or what it gives does not begin as a WAV file.
    ///
    /// # Panics
    /// When `rate` is zero.
    pub fn from_wav(reader: impl Read + 'static, rate: u32) -> Result<Self, AudioError> {
        let (blocks, own) = wav::stream(Path::new("-"), reader)?;
        Ok(Self::new(Blocks::Pcm(blocks), own, rate))
    }

    /// Reads samples without a header, at `rate` hertz.
    ///
    /// # Errors
    /// When the form has no channel or an impossible sample rate.
    ///
    /// # Panics
    /// When `rate` is zero.
    pub fn from_raw(reader: impl Read + 'static, form: RawAudio, rate: u32) -> Result<Self, AudioError> {
        if form.channels == 0 || !SAMPLE_RATES.contains(&form.rate) {
            let found = format!("{} channels at {} Hz", form.channels, form.rate);
            return Err(AudioError::Unsupported { file: "-".into(), found });
        }
        let mixer = Mixer::new(form.channels.into(), form.rate);
        let blocks = PcmBlocks::new(Path::new("-"), Box::new(reader), form.encoding.encoding(), mixer);
        Ok(Self::new(Blocks::Pcm(blocks), form.rate, rate))
    }

    fn new(blocks: Blocks, own: u32, rate: u32) -> Self {
        let resampler = ResampleStream::new(own, rate);
        Self { blocks, resampler, length: None, block: Vec::new(), is_finished: false }
    }

    /// Returns the length of the audio; `None` for a stream, whose end is not known.
    pub fn length(&self) -> Option<Seconds> {
        self.length
    }

    /// Returns the channel that is taken in place of the average of all, counted from 1, see [`taken_channel`](super::taken_channel).
    /// `None` where channels are averaged, and before about a second of sound was read.
    pub fn taken_channel(&self) -> Option<u16> {
        let mix = match &self.blocks {
            Blocks::Pcm(blocks) => blocks.mix(),
            Blocks::Compressed(blocks) => blocks.mix(),
        };
        mix.and_then(Mix::number)
    }

    /// Appends the next samples to `samples`; false at the end. A block may be empty before the end. A stream is waited for
    /// until it has samples.
    ///
    /// # Errors
    /// When the audio cannot be read, or is damaged or cut short.
    pub fn read(&mut self, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        if self.is_finished {
            return Ok(false);
        }
        self.block.clear();
        let goes_on = match &mut self.blocks {
            Blocks::Pcm(blocks) => blocks.read(&mut self.block)?,
            Blocks::Compressed(blocks) => blocks.read(&mut self.block)?,
        };
        self.resampler.push(&self.block, samples);
        if !goes_on {
            self.is_finished = true;
            self.resampler.finish(samples);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
