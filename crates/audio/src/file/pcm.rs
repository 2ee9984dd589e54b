//! Uncompressed samples: their encodings, and reading them in blocks.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{AudioError, unreadable};

/// Most bytes of one block. A pipe of Linux holds as many.
const BLOCK_BYTES: usize = 1 << 16;

/// Encoding of uncompressed samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Unsigned 8-bit integers; silence is 128.
    Byte,
    /// Signed little-endian integers of `bits` bits, stored in `bytes` bytes.
    Integer { bytes: usize, bits: u32 },
    /// 32-bit floats.
    Float,
}

impl Encoding {
    fn value(self, bytes: &[u8]) -> f32 {
        match self {
            Self::Byte => (f32::from(bytes[0]) - 128.0) / 128.0,
            Self::Integer { bytes: width, bits } => {
                let mut word = [0; 4];
                word[..width].copy_from_slice(bytes);
                // Shifts the value to the top of the word, so that its sign bit is that of the i32.
                let value = i32::from_le_bytes(word) << (32 - bits);
                value as f32 / 2f32.powi(31)
            }
            // A file of floats may hold anything; one NaN would spread over the whole model.
            Self::Float => {
                let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                if value.is_finite() { value } else { 0.0 }
            }
        }
    }

    /// Returns the number of bytes of one value.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Integer { bytes, .. } => bytes,
            Self::Float => 4,
        }
    }

    /// Averages the channels of whole frames.
    pub(super) fn mono(self, bytes: &[u8], channels: usize) -> Vec<f32> {
        let width = self.width();
        let scale = 1.0 / channels as f32;
        let average = |frame: &[u8]| frame.chunks_exact(width).map(|b| self.value(b)).sum::<f32>() * scale;
        bytes.chunks_exact(width * channels).map(average).collect()
    }
}

/// Uncompressed samples that are read in blocks.
pub(super) struct PcmBlocks {
    path: PathBuf,
    reader: Box<dyn Read>,
    encoding: Encoding,
    channels: usize,
    /// Bytes that may still be read.
    left: u64,
    /// Whether an earlier end is an error.
    is_promised: bool,
    /// Bytes that were read, and are no whole frame yet.
    bytes: Vec<u8>,
}

impl PcmBlocks {
    /// Takes a reader at its first sample. Its end ends the sound.
    pub(super) fn new(path: &Path, reader: Box<dyn Read>, encoding: Encoding, channels: usize) -> Self {
        let (path, bytes) = (path.into(), Vec::new());
        Self { path, reader, encoding, channels, left: u64::MAX, is_promised: false, bytes }
    }

    /// Reads at most `bytes` bytes.
    pub(super) fn with_most(self, bytes: u64) -> Self {
        Self { left: bytes, ..self }
    }

    /// Reads exactly `bytes` bytes; an earlier end is an error.
    pub(super) fn with_promised(self, bytes: u64) -> Self {
        Self { left: bytes, is_promised: true, ..self }
    }

    /// Appends the next samples, averaged to one channel; false at the end. Waits for bytes, but for no whole block.
    pub(super) fn read(&mut self, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        let frame = self.encoding.width() * self.channels;
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
                return match self.is_promised && self.left > 0 {
                    true => Err(unreadable(&self.path, io::ErrorKind::UnexpectedEof.into())),
                    false => Ok(false),
                };
            }
            self.left -= count as u64;
            let whole = self.bytes.len() / frame * frame;
            samples.extend(self.encoding.mono(&self.bytes[..whole], self.channels));
            self.bytes.drain(..whole);
            if whole > 0 {
                return Ok(true);
            }
        }
    }
}
