//! Layers of speech models as Burn modules: Conformer blocks and what surrounds them.
//!
//! Every layer takes the lengths of its sequences and never lets padding change a valid output; what is random in it
//! comes from the [`Pass`](plimsoll_tape::Pass) that the caller hands on, never from the device's own generator.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_layers::{ConformerConfig, Lengths};
//! use plimsoll_tape::Pass;
//!
//! let device = Device::flex();
//! let block = ConformerConfig::new(32, 4).init(&device);
//! let lengths = Lengths::new(vec![50, 31], 50);
//! let y = block.forward(Tensor::ones([2, 50, 32], &device), &lengths, &Pass::plain());
//! assert_eq!(y.dims(), [2, 50, 32]);
//! ```

mod attention;
mod branch;
mod conformer;
mod convolution;
mod cross_entropy;
mod ctc;
mod feed_forward;
mod guide;
mod lengths;
mod mel_loss;
mod norm;
mod over_time;
mod policy;
mod position;
mod postnet;
mod prenet;
mod subsampling;
mod transformer;
mod voice;

pub use attention::{
    Attention, AttentionConfig, CrossAttention, CrossAttentionConfig, CrossMemory, HeadPositions, KeyValues,
};
pub use conformer::{Conformer, ConformerConfig};
pub use convolution::{Convolution, ConvolutionConfig};
pub use cross_entropy::cross_entropy;
pub use ctc::{CTC_BLANK, CtcLoss, ctc_greedy, ctc_loss, is_ctc_feasible};
pub use feed_forward::{Activation, FeedForward, FeedForwardConfig};
pub use guide::Guide;
pub use lengths::Lengths;
pub use mel_loss::{Distance, mel_distance, stop_loss};
pub use norm::{Norm, NormConfig, NormKind, normed};
pub use policy::LengthPolicy;
pub use position::{LearnedPositions, add_sinusoids, rotate};
pub use postnet::{Postnet, PostnetConfig};
pub use prenet::{Prenet, PrenetConfig};
pub use subsampling::{Subsampling, SubsamplingConfig};
pub use transformer::{DecoderBlock, DecoderCache, EncoderBlock, TransformerConfig};
pub use voice::{AttentivePooling, SpeakerEncoder, SpeakerEncoderConfig, StyleTokens, StyleTokensConfig};
