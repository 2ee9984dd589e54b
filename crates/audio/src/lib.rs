//! Decodes audio, computes log-mel features and converts them back to audio.
#![doc = include_str!("../README.md")]

mod file;
mod resample;

mod features;
mod vocoder;

mod voice_traits;

pub mod buffers;
#[cfg(test)]
mod testing;

pub use features::{
    FeatureError, Floor, Log, LogMel, LogMelConfig, MelAxis, MelScale, Normalize, Padding, PitchTables, Spectrum,
    Window,
};
pub use file::{
    Audio, AudioError, AudioInfo, AudioKind, AudioPart, AudioReader, AudioSegment, AudioSource, AudioStream,
    DURATION_TOLERANCE, EXTENSIONS, PackedPage, PageCompression, RawAudio, RawEncoding, WavStream, audio_info,
    flac_bytes, is_audio_name, quick_audio_info, read_audio, read_audio_segment, read_heard_segment, read_recording,
    taken_channel, wav_bytes, write_wav,
};
pub use resample::{ResampleStream, resample};
pub use vocoder::{Refinement, Vocoder, VocoderError};
pub use voice_traits::VoiceTraits;
