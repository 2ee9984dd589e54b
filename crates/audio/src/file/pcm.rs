//! Uncompressed samples: their encodings, and reading them in blocks.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::mix::{Mix, MixJudge, Mixer};
use super::{AudioError, unreadable};

/// Most bytes of one block. A pipe of Linux holds as many.
const BLOCK_BYTES: usize = 1 << 16;

/// Bytes that are shown to a judge of channels at once: about a quarter of a second.
const JUDGED_BYTES: usize = 1 << 15;

/// Encoding of uncompressed samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Unsigned 8-bit integers; silence is 128.
    Byte,
    /// Signed integers of whole bytes, the highest byte first.
    Signed { bytes: usize },
    /// Signed little-endian integers of `bits` bits, stored in `bytes` bytes.
    Integer { bytes: usize, bits: u32 },
    /// 32-bit floats, the lowest byte first.
    Float,
    /// 64-bit floats, the lowest byte first.
    Double,
    /// 32-bit floats, the highest byte first.
    BigFloat,
    /// 64-bit floats, the highest byte first.
    BigDouble,
    /// A-law of telephones, by ITU-T G.711.
    ALaw,
    /// Mu-law of telephones, by ITU-T G.711.
    MuLaw,
}

impl Encoding {
    /// Returns the number of bytes of one value.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Byte | Self::ALaw | Self::MuLaw => 1,
            Self::Double | Self::BigDouble => 8,
            Self::Integer { bytes, .. } | Self::Signed { bytes } => bytes,
            Self::Float | Self::BigFloat => 4,
        }
    }

    /// Appends the average of the channels of whole frames to `samples`.
    pub(super) fn mono(self, bytes: &[u8], channels: usize, samples: &mut Vec<f32>) {
        // Each encoding has a loop of its own, which the compiler turns into operations on many samples at once.
        match self {
            Self::Byte => average(bytes, channels, samples, |[byte]| (f32::from(byte) - 128.0) / 128.0),
            Self::Integer { bytes: 2, bits: 16 } => {
                average(bytes, channels, samples, |word| f32::from(i16::from_le_bytes(word)) / 32_768.0);
            }
            Self::Integer { bytes: 1, bits } => average(bytes, channels, samples, |word: [u8; 1]| integer(word, bits)),
            Self::Integer { bytes: 2, bits } => average(bytes, channels, samples, |word: [u8; 2]| integer(word, bits)),
            Self::Integer { bytes: 3, bits } => average(bytes, channels, samples, |word: [u8; 3]| integer(word, bits)),
            Self::Integer { bits, .. } => average(bytes, channels, samples, |word: [u8; 4]| integer(word, bits)),
            Self::Signed { bytes: 1 } => average(bytes, channels, samples, big::<1>),
            Self::Signed { bytes: 2 } => average(bytes, channels, samples, big::<2>),
            Self::Signed { bytes: 3 } => average(bytes, channels, samples, big::<3>),
            Self::Signed { .. } => average(bytes, channels, samples, big::<4>),
            Self::Float => average(bytes, channels, samples, |word| finite(f32::from_le_bytes(word))),
            Self::Double => average(bytes, channels, samples, |word| finite(f64::from_le_bytes(word) as f32)),
            Self::BigFloat => average(bytes, channels, samples, |word| finite(f32::from_be_bytes(word))),
            Self::BigDouble => average(bytes, channels, samples, |word| finite(f64::from_be_bytes(word) as f32)),
            Self::ALaw => average(bytes, channels, samples, |[byte]| a_law(byte)),
            Self::MuLaw => average(bytes, channels, samples, |[byte]| mu_law(byte)),
        }
    }
}

/// Returns a value, or zero for what is no number: a file of floats may hold anything, and one NaN would spread over the whole
/// model.
#[inline]
fn finite(value: f32) -> f32 {
    if value.is_finite() { value } else { 0.0 }
}

/// Returns the value of an integer whose highest byte comes first.
#[inline]
fn big<const WIDTH: usize>(mut bytes: [u8; WIDTH]) -> f32 {
    bytes.reverse();
    integer(bytes, 8 * WIDTH as u32)
}

/// Returns the value of a byte of A-law: a sign, a power of two and four bits, all even bits inverted.
#[inline]
fn a_law(byte: u8) -> f32 {
    let bits = i32::from(byte ^ 0x55);
    let (power, rest) = (bits >> 4 & 7, (bits & 15) << 4 | 8);
    let size = if power == 0 { rest } else { (rest | 0x100) << (power - 1) };
    (if bits & 0x80 != 0 { size } else { -size }) as f32 / 32_768.0
}

/// Returns the value of a byte of mu-law: a sign, a power of two and four bits, all inverted.
#[inline]
fn mu_law(byte: u8) -> f32 {
    const BIAS: i32 = 0x84;
    let bits = i32::from(!byte);
    let size = (((bits & 15) << 3 | BIAS) << (bits >> 4 & 7)) - BIAS;
    (if bits & 0x80 != 0 { -size } else { size }) as f32 / 32_768.0
}

impl Encoding {
    /// Gives the bytes of whole frames to `mixer`, and appends to `samples` what can be mixed.
    pub(super) fn push(self, bytes: &[u8], mixer: &mut Mixer, samples: &mut Vec<f32>) {
        let Some(mix) = mixer.mix() else { return mixer.push(&self.values(bytes), samples) };
        let channels = mixer.channels();
        self.mixed(bytes, channels, mix, mixer.at(), samples);
        mixer.pass((bytes.len() / self.width() / channels) as u64);
    }

    /// Appends one channel of whole frames to `samples`, the first of which has index `at` in the file.
    pub(super) fn mixed(self, bytes: &[u8], channels: usize, mix: Mix, at: u64, samples: &mut Vec<f32>) {
        if mix.channel().is_none() {
            return self.mono(bytes, channels, samples);
        }
        mix.apply(&self.values(bytes), channels, at, samples);
    }

    /// Decodes the values of all channels.
    pub(super) fn values(self, bytes: &[u8]) -> Vec<f32> {
        let mut values = Vec::with_capacity(bytes.len() / self.width());
        self.mono(bytes, 1, &mut values);
        values
    }

    /// Shows whole frames to a judge. Returns its decision once it is made.
    pub(super) fn show(self, bytes: &[u8], channels: usize, judge: &mut MixJudge) -> Option<Mix> {
        let piece = (JUDGED_BYTES / (self.width() * channels)).max(1) * self.width() * channels;
        bytes.chunks(piece).find_map(|piece| judge.push(&self.values(piece)))
    }
}

/// Returns the value of an integer of `bits` bits.
#[inline]
fn integer<const WIDTH: usize>(bytes: [u8; WIDTH], bits: u32) -> f32 {
    let mut word = [0; 4];
    word[..WIDTH].copy_from_slice(&bytes);
    // Shifts the value to the top of the word, so that its sign bit is that of the i32.
    (i32::from_le_bytes(word) << (32 - bits)) as f32 / 2f32.powi(31)
}

/// Appends the average of the channels of whole frames to `samples`. `value` gives the value of a word.
#[inline]
fn average<const WIDTH: usize>(
    bytes: &[u8],
    channels: usize,
    samples: &mut Vec<f32>,
    value: impl Fn([u8; WIDTH]) -> f32,
) {
    let (words, _) = bytes.as_chunks::<WIDTH>();
    if channels == 1 {
        return samples.extend(words.iter().map(|&word| value(word)));
    }
    let scale = 1.0 / channels as f32;
    let average = |frame: &[[u8; WIDTH]]| frame.iter().map(|&word| value(word)).sum::<f32>() * scale;
    samples.extend(words.chunks_exact(channels).map(average));
}

/// Uncompressed samples that are read in blocks.
pub(super) struct PcmBlocks {
    path: PathBuf,
    reader: Box<dyn Read>,
    encoding: Encoding,
    mixer: Mixer,
    /// Bytes that may still be read.
    left: u64,
    /// Whether an earlier end is an error.
    is_promised: bool,
    /// Bytes that were read, and are no whole frame yet.
    bytes: Vec<u8>,
}

impl PcmBlocks {
    /// Takes a reader at its first sample. Its end ends the sound.
    pub(super) fn new(path: &Path, reader: Box<dyn Read>, encoding: Encoding, mixer: Mixer) -> Self {
        let (path, bytes) = (path.into(), Vec::new());
        Self { path, reader, encoding, mixer, left: u64::MAX, is_promised: false, bytes }
    }

    /// Reads at most `bytes` bytes.
    pub(super) fn with_most(self, bytes: u64) -> Self {
        Self { left: bytes, ..self }
    }

    /// Reads exactly `bytes` bytes; an earlier end is an error.
    pub(super) fn with_promised(self, bytes: u64) -> Self {
        Self { left: bytes, is_promised: true, ..self }
    }

    /// Returns how the channels are mixed, once that is known.
    pub(super) fn mix(&self) -> Option<Mix> {
        self.mixer.mix()
    }

    /// Appends the next samples of one channel; false at the end. Waits for bytes, but for no whole block.
    pub(super) fn read(&mut self, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        let frame = self.encoding.width() * self.mixer.channels();
        loop {
            let had = self.bytes.len();
            let wanted = (BLOCK_BYTES.max(frame) as u64).min(self.left) as usize;
            self.bytes.resize(had + wanted, 0);
            let read = self.reader.read(&mut self.bytes[had..]);
            self.bytes.truncate(had + read.as_ref().map_or(0, |count| *count));
            let count = match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|error| unreadable(&self.path, error))?,
            };
            if count == 0 {
                if self.is_promised && self.left > 0 {
                    return Err(unreadable(&self.path, io::ErrorKind::UnexpectedEof.into()));
                }
                self.mixer.finish(samples);
                return Ok(false);
            }
            self.left -= count as u64;
            let whole = self.bytes.len() / frame * frame;
            self.encoding.push(&self.bytes[..whole], &mut self.mixer, samples);
            self.bytes.drain(..whole);
            if whole > 0 {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes word by word, as the formats are described.
    fn plainly(encoding: Encoding, bytes: &[u8], channels: usize) -> Vec<f32> {
        let value = |word: &[u8]| match encoding {
            Encoding::Byte => (f32::from(word[0]) - 128.0) / 128.0,
            Encoding::Integer { bits, .. } => {
                let unsigned = word.iter().rev().fold(0_i64, |sum, &byte| sum << 8 | i64::from(byte));
                let cut = unsigned & ((1 << bits) - 1);
                let signed = if cut >> (bits - 1) == 1 { cut - (1 << bits) } else { cut };
                (signed as f64 / (1_i64 << (bits - 1)) as f64) as f32
            }
            Encoding::Float => {
                let value = f32::from_le_bytes(word.try_into().unwrap());
                if value.is_finite() { value } else { 0.0 }
            }
            Encoding::Double => {
                let value = f64::from_le_bytes(word.try_into().unwrap()) as f32;
                if value.is_finite() { value } else { 0.0 }
            }
            Encoding::ALaw => a_law(word[0]),
            Encoding::MuLaw => mu_law(word[0]),
            Encoding::Signed { .. } | Encoding::BigFloat | Encoding::BigDouble => {
                let reversed: Vec<u8> = word.iter().rev().copied().collect();
                let little = match encoding {
                    Encoding::BigFloat => Encoding::Float,
                    Encoding::BigDouble => Encoding::Double,
                    _ => Encoding::Integer { bytes: word.len(), bits: 8 * word.len() as u32 },
                };
                plainly(little, &reversed, 1)[0]
            }
        };
        let frames = bytes.chunks_exact(encoding.width() * channels);
        let mean =
            |frame: &[u8]| frame.chunks_exact(encoding.width()).map(value).sum::<f32>() * (1.0 / channels as f32);
        frames.map(mean).collect()
    }

    #[test]
    fn telephone_bytes_have_the_values_of_g711() {
        // From the tables of G.711: the first, some in the middle, and the last of each sign, as whole numbers of 16 bits.
        let whole = |value: f32| (value * 32_768.0) as i32;
        for (byte, a, mu) in [
            (0x00, -5_504, -32_124),
            (0x55, -8, -716),
            (0x2a, -32_256, -5_372),
            (0x7f, -848, 0),
            (0x80, 5_504, 32_124),
            (0xd5, 8, 716),
            (0xaa, 32_256, 5_372),
            (0xff, 848, 0),
        ] {
            assert_eq!((whole(a_law(byte)), whole(mu_law(byte))), (a, mu), "{byte:#x}");
        }
    }

    proptest! {
        #[test]
        fn every_encoding_has_the_values_of_its_words(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            channels in 1_usize..5,
            kind in 0_usize..16,
        ) {
            let integer = |bytes, bits| Encoding::Integer { bytes, bits };
            let encoding = [
                Encoding::Byte, Encoding::Float, integer(1, 8), integer(2, 16), integer(2, 12), integer(3, 24),
                integer(4, 32), integer(4, 20), Encoding::Double, Encoding::ALaw, Encoding::MuLaw,
                Encoding::Signed { bytes: 1 }, Encoding::Signed { bytes: 2 }, Encoding::Signed { bytes: 3 },
                Encoding::BigFloat, Encoding::BigDouble,
            ][kind];
            let mut samples = vec![7.0];
            encoding.mono(&bytes, channels, &mut samples);
            let bits = |samples: &[f32]| samples.iter().map(|sample| sample + 0.0).map(f32::to_bits).collect::<Vec<_>>();
            prop_assert_eq!(bits(&samples[1..]), bits(&plainly(encoding, &bytes, channels)));
        }
    }
}
