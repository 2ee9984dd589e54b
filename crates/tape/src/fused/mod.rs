//! Neural network operations that take one pass over memory on the CPU.
//!
//! On the CPU, Burn computes an activation and its gradient as a dozen operations, each with its own buffer and with
//! the scalar exponential of the C library. The functions of this module take one pass forward and one pass backward,
//! with the widest instructions of the processor. On a GPU, layer norm, depthwise convolution, attention weights, cross-entropy, CTC and monotonic alignment have
//! kernels of this crate. All others are composed of Burn's operations there, which a GPU backend fuses. A capture device records what the
//! GPU backend would execute.

mod alignment;
mod chunked;
mod cross_entropy;
mod ctc;
mod depthwise;
mod norm;
mod rows;
mod shift;
mod single_query;
mod tiled;
mod weights;

pub use alignment::{FrameShares, share_frames};
pub use chunked::{AttentionInputs, RelativePositions, chunked_attention};
pub use cross_entropy::cross_entropy;
pub use ctc::ctc;
pub use depthwise::depthwise;
pub use norm::layer_norm;
pub use single_query::single_query_attention;
pub use tiled::{is_tiled, tiled_attention};
pub use weights::{AttentionMask, attention_weights};
