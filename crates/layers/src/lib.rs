//! Layers of speech models as Burn modules: Conformer and Transformer blocks, CTC, and the parts of a synthesizer.
#![doc = include_str!("../README.md")]

mod attention;
mod branch;
mod conformer;
mod convnext;
mod convolution;
mod ctc;
mod feed_forward;
mod guided_attention;
mod lengths;
mod mel_loss;
mod monotonic;
mod norm;
mod policy;
mod position;
mod postnet;
mod prenet;
mod speaker;
mod spectrum;
mod subsampling;
mod time_convolution;
mod transformer;
mod window_convolution;

pub use attention::{
    Attention, AttentionConfig, CrossAttention, CrossAttentionConfig, CrossMemory, HeadPositions, KeyValueCache,
};
pub use conformer::{Conformer, ConformerConfig};
pub use convnext::{ConvNext, ConvNextConfig};
pub use convolution::{Convolution, ConvolutionConfig};
pub use ctc::{CTC_BLANK, CtcLoss, ctc_greedy, ctc_loss, infeasible_texts, is_ctc_feasible};
pub use feed_forward::{Activation, FeedForward, FeedForwardConfig};
pub use guided_attention::GuidedAttention;
pub use lengths::Lengths;
pub use mel_loss::{Distance, mel_distance, stop_loss};
pub use monotonic::monotonic_alignment;
pub use norm::{Norm, NormConfig, NormKind, apply_layer_norm};
pub use plimsoll_tape::losses::cross_entropy;
pub use policy::LengthPolicy;
pub use position::{LearnedPositions, add_sinusoids, apply_rotary};
pub use postnet::{Postnet, PostnetConfig};
pub use prenet::{Prenet, PrenetConfig};
pub use speaker::{AttentivePooling, SpeakerEncoder, SpeakerEncoderConfig, StyleTokens, StyleTokensConfig};
pub use spectrum::{InverseStft, Stft, hann_window, reflect};
pub use subsampling::{Subsampling, SubsamplingConfig};
pub use time_convolution::TimeConvolution;
pub use transformer::{DecoderBlock, DecoderCache, EncoderBlock, TransformerConfig};
pub use window_convolution::{WindowConvolution, WindowConvolutionConfig};
