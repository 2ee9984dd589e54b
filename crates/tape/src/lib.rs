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
//! use plimsoll_tape::{backward, initialise};
//!
//! let device = Device::flex().autodiff();
//! let layer = initialise(LinearConfig::new(3, 2).init(&device), Key::new(1));
//! let loss = layer.forward(Tensor::<2>::ones([4, 3], &device)).sum();
//! let gradients = backward(loss, &layer);
//! assert_eq!(gradients.len(), 2);
//! ```

mod backward;
mod batch;
mod bridge;
mod fused;
mod known;
mod noise;
mod parameters;
mod pass;
mod record;
mod remat;
mod statistics;
mod task;
mod tensors;

pub use backward::{backward, sweep};
pub use batch::{References, TensorBatch};
pub use bridge::off_tape;
/// The words that a recording is written in.
pub use burn_ir as ir;
pub use fused::{
    Attended, Offsets, Sight, attention_weights, chunked_attention, depthwise, glance, glu, layer_norm, relative_shift,
    silu, tanh,
};
pub use known::with_gradient;
pub use noise::Noise;
pub use parameters::{
    NamedTensor, NamedVisitor, ParametersError, apply, collect, count, freeze, initialise, is_recording, on_paper,
    plain_device, walk,
};
pub use pass::Pass;
pub use record::{Note, Played, RecordError, Recorder, note_scratch, record, records_now};
pub use remat::{remat, remat_dense};
pub use statistics::Statistics;
pub use task::{StepLoss, Task};
pub use tensors::{FloatMapper, Tensors};
