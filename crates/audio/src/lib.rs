//! Sound: files read and written, log-mel features by the presets of known systems, sound made of features again, and the
//! traits that tell voices apart.
//!
//! ```
//! use plimsoll_audio::{LogMel, LogMelConfig, Vocoder};
//!
//! let config = LogMelConfig::preset("myxtts").expect("a preset of this name");
//! let second = vec![0.0; config.sample_rate as usize];
//! let features = LogMel::new(&config)?.extract(&second);
//! assert_eq!(features.len() % config.n_mels, 0);
//! let sound = Vocoder::new(&config).expect("these features can become sound").wave(&features);
//! assert!(sound.iter().all(|sample| sample.abs() < 0.01));
//! # Ok::<(), plimsoll_audio::FeatureError>(())
//! ```

pub mod buffers;
mod features;
mod file;
mod resample;
#[cfg(test)]
mod testing;
mod traits;
mod vocoder;

pub use features::{FeatureError, Floor, Log, LogMel, LogMelConfig, MelScale, Normalise, Padding, Spectrum, Window};
pub use file::{
    Audio, AudioError, AudioInfo, AudioKind, SLACK, Stretch, audio_info, read_audio, read_audio_stretch,
    read_recording, wav_bytes, write_wav,
};
pub use resample::resample;
pub use traits::VoiceTraits;
pub use vocoder::{Vocoder, VocoderError};
