//! Layers of speech models as Burn modules: Conformer blocks and what surrounds them.
//!
//! Every layer takes the lengths of its sequences and never lets padding change a valid output; what is random in it
//! comes from a [`Noise`](plimsoll_tape::Noise) that the caller passes, never from the device's own generator.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_layers::{ConformerConfig, Lengths};
//! use plimsoll_tape::Noise;
//!
//! let device = Device::flex();
//! let block = ConformerConfig::new(32, 4).init(&device);
//! let lengths = Lengths::new(vec![50, 31], 50);
//! let y = block.forward(Tensor::ones([2, 50, 32], &device), &lengths, &Noise::off());
//! assert_eq!(y.dims(), [2, 50, 32]);
//! ```

mod attention;
mod conformer;
mod convolution;
mod ctc;
mod dense;
mod feed_forward;
mod lengths;
mod position;
mod subsampling;

pub use attention::{Attention, AttentionConfig};
pub use conformer::{Conformer, ConformerConfig};
pub use convolution::{Convolution, ConvolutionConfig};
pub use ctc::{CTC_BLANK, CtcLoss, ctc_greedy, ctc_loss, is_ctc_feasible};
pub use dense::dense;
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use lengths::Lengths;
pub use position::add_sinusoids;
pub use subsampling::{Subsampling, SubsamplingConfig};
