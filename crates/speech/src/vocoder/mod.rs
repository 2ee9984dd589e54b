//! Neural vocoder: waveforms from log-mels, its training beside discriminators, its use in chunks, and rounds of Griffin-Lim
//! behind it.
//!
//! The model is of Vocos' family (Siuzdak 2023): blocks of convolutions over the frames, then an inverse Fourier transform.
//! It is trained to sound like recordings: [`VocoderTask`] joins spectral losses and the losses of discriminators, which
//! learn to tell recordings from generated sound, in one loss and one backward pass.

mod config;
mod discriminator;
mod evaluate;
mod generator;
mod levels;
mod log_mel;
mod losses;
mod metadata;
mod refined;
mod stream;
mod task;

pub use config::{DiscriminatorConfig, VocoderConfig, VocoderLossConfig, VocoderTaskConfig};
pub use discriminator::{Discriminators, Judgment};
pub use evaluate::{VocodedUtterance, evaluate_vocoding, log_mel_distance};
pub use generator::NeuralVocoder;
pub use log_mel::LogMelTransform;
pub use metadata::{VocoderMetadata, vocoder_weights};
pub use refined::{RefinedStream, RefinedVocoder};
pub use stream::VocoderStream;
pub use task::{VocoderLosses, VocoderTask};
