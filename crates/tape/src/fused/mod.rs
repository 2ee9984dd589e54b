//! Operations in one pass where Burn's CPU backend takes many.
//!
//! On the CPU, Burn computes an activation and its gradient as a dozen operations, each with a buffer of its own and with
//! the scalar exponential of the C library. Here each is one pass forward and one pass back, by the widest instructions
//! that the processor has. On every other device the same operation is composed of Burn's own: a GPU backend fuses
//! them, and the recording device sees what that backend would do.

mod activation;
mod chunked;
mod depthwise;
mod norm;
mod shift;
mod single_query;
mod weights;

pub use activation::{glu, silu, tanh};
pub use chunked::{AttentionInputs, RelativePositions, chunked_attention};
pub use depthwise::depthwise;
pub use norm::layer_norm;
pub use shift::relative_shift;
pub use single_query::single_query_attention;
pub use weights::{AttentionMask, attention_weights};
