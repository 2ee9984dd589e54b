//! Neural vocoder: waveforms from log-mels, its training beside discriminators, and its use in chunks.
//!
//! The model is of Vocos' family (Siuzdak 2023): blocks of convolutions over the frames, then an inverse Fourier transform.
//! It is trained to sound like recordings: [`VocoderTask`] joins spectral losses and the losses of discriminators, which
//! learn to tell recordings from generated sound, in one loss and one backward pass.

mod batch;
mod config;
mod crops;
mod discriminator;
mod generator;
mod levels;
mod log_mel;
mod losses;
mod metadata;
mod stream;
mod task;

pub use batch::SoundBatch;
pub use config::{DiscriminatorConfig, VocoderConfig, VocoderLossConfig, VocoderTaskConfig};
pub use crops::CropSource;
pub use discriminator::{Discriminators, Judgment};
pub use generator::NeuralVocoder;
pub use log_mel::LogMelTransform;
pub use metadata::VocoderMetadata;
pub use stream::VocoderStream;
pub use task::{VocoderLosses, VocoderTask};
