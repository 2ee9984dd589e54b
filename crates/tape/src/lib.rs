//! Training tools beside Burn's autodiff: gradients by parameter, rematerialization, keyed dropout, fused CPU
//! operations, and captures of the operations of a training step.
#![doc = include_str!("../README.md")]

pub mod activation;
mod backward;
mod batch;
mod bridge;
mod buffers;
mod capture;
pub mod epilogue;
pub mod failure;
pub mod flat;
mod fused;
mod geometry;
pub mod gpu;
pub mod heads;
mod host;
mod kernels;
pub mod lora;
pub mod losses;
mod matrix;
mod noise;
pub mod observe;
mod parameters;
mod pass;
mod remat;
mod simd;
mod task;
mod tensors;
pub mod transfer;
pub mod windows;
mod with_gradient;

pub use backward::{backward, free_dropped_graphs};
pub use batch::{References, TensorBatch};
pub use bridge::{detach, inner_device, is_host_device, runs_host_ops, without_autodiff};
pub use buffers::BufferSnapshot;
/// Burn's types for the operations of a capture.
pub use burn_ir as ir;
pub use capture::{
    CaptureError, CaptureSession, CustomOp, SimulatedDevice, capture, is_capture_device, is_capturing,
    on_capture_device, record_scratch,
};
pub use fused::{
    AttentionInputs, AttentionMask, RelativePositions, attention_weights, chunked_attention, depthwise, layer_norm,
    single_query_attention,
};
pub use noise::Noise;
pub use observe::PassObserver;
pub use parameters::{
    NamedTensor, NamedVisitor, ParametersError, apply, check_shapes, collect, count, devices, freeze, initialize,
    try_collect, walk,
};
pub use pass::Pass;
pub use remat::{remat, remat_dense};
pub use task::{StepLoss, Task};
pub use tensors::{FloatMapper, TensorTree};
