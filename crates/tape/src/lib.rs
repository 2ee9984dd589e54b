//! Gradients, and the one place that touches Burn's internals.
//!
//! Burn's tensors say what to compute and its devices say where. This crate adds what a trainer needs beside that: the
//! gradients of a module on every device (the recording one of the planner included), operations whose gradient is
//! known in closed form, randomness that is a function of a key, the names and initial values of parameters, and the
//! [`Task`] seam between a model and whoever trains or plans it. A new version of Burn is the work of `bridge.rs`.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_core::Key;
//! use plimsoll_tape::{backward, initialize};
//!
//! let device = Device::flex().autodiff();
//! let layer = initialize(LinearConfig::new(3, 2).init(&device), Key::new(1));
//! let loss = layer.forward(Tensor::<2>::ones([4, 3], &device)).sum();
//! let gradients = backward(loss, &layer);
//! assert_eq!(gradients.len(), 2);
//! ```

mod backward;
mod batch;
mod bridge;
mod buffers;
mod capture;
mod fused;
mod host;
mod noise;
mod parameters;
mod pass;
mod remat;
mod simd;
mod task;
mod tensors;
mod with_gradient;

pub use backward::{backward, free_dropped_graphs};
pub use batch::{References, TensorBatch};
pub use bridge::{inner_device, without_autodiff};
pub use buffers::BufferSnapshot;
/// Burn's types for the operations of a capture.
pub use burn_ir as ir;
pub use capture::{
    CaptureError, CaptureSession, CustomOp, SimulatedDevice, capture, is_capture_device, is_capturing,
    on_capture_device, record_scratch,
};
pub use fused::{
    AttentionInputs, AttentionMask, RelativePositions, attention_weights, chunked_attention, depthwise, glu,
    layer_norm, relative_shift, silu, single_query_attention, tanh,
};
pub use noise::Noise;
pub use parameters::{NamedTensor, NamedVisitor, ParametersError, apply, collect, count, freeze, initialize, walk};
pub use pass::Pass;
pub use remat::{remat, remat_dense};
pub use task::{StepLoss, Task};
pub use tensors::{FloatMapper, TensorTree};
pub use with_gradient::with_gradient;
