//! The position-wise feed-forward layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Noise, silu};

use crate::dense;

/// How to build a [`FeedForward`].
#[derive(Clone, Copy, Debug)]
pub struct FeedForwardConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width inside.
    pub inner: usize,
    /// Share of values dropped in training, inside and at the end.
    pub dropout: f64,
}

/// Two linear layers with a SiLU between them.
#[derive(Module, Debug)]
pub struct FeedForward {
    widen: Linear,
    narrow: Linear,
    dropout: f64,
}

impl FeedForwardConfig {
    /// A feed-forward layer on `device`.
    pub fn init(&self, device: &Device) -> FeedForward {
        FeedForward {
            widen: LinearConfig::new(self.d_model, self.inner).init(device),
            narrow: LinearConfig::new(self.inner, self.d_model).init(device),
            dropout: self.dropout,
        }
    }
}

impl FeedForward {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, noise: &Noise) -> Tensor<3> {
        let inner = noise.with("inner").dropout(silu(dense(&self.widen, x)), self.dropout);
        noise.with("outer").dropout(dense(&self.narrow, inner), self.dropout)
    }
}
