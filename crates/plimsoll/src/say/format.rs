//! Formats of the sound that `say` writes.

use clap::ValueEnum;
use plimsoll_audio::{flac_bytes, wav_bytes};
use plimsoll_recipes::{Failure, FailureExt};

/// Formats of the sound that `say` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SoundFormat {
    /// WAV with 16 bits.
    Wav,
    /// FLAC, which is lossless too and half as long.
    Flac,
}

impl SoundFormat {
    /// Returns the ending of names of files in this format.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Flac => "flac",
        }
    }

    /// Returns the content of a file with `samples`.
    pub(super) fn encode(self, samples: &[f32], rate: u32) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Wav => Ok(wav_bytes(samples, rate)),
            Self::Flac => flac_bytes(samples, rate).invalid(),
        }
    }
}
