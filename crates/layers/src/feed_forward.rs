//! The position-wise feed-forward layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, silu};

use crate::Lengths;
use crate::branch::Branch;

/// What stands between the two linear layers of a [`FeedForward`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// `x` times its sigmoid, as in Conformers.
    #[default]
    Silu,
    /// `x` where it is positive, as in the first Transformers.
    Relu,
}

/// How to build a [`FeedForward`].
#[derive(Clone, Copy, Debug)]
pub struct FeedForwardConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width inside.
    pub inner: usize,
    /// What stands between the two layers.
    pub activation: Activation,
    /// Share of values dropped in training, inside and at the end.
    pub dropout: f64,
}

/// Two linear layers with an activation between them.
#[derive(Module, Debug)]
pub struct FeedForward {
    widen: Linear,
    narrow: Linear,
    relu: bool,
    dropout: f64,
}

impl FeedForwardConfig {
    /// A feed-forward layer on `device`.
    pub fn init(&self, device: &Device) -> FeedForward {
        FeedForward {
            widen: LinearConfig::new(self.d_model, self.inner).init(device),
            narrow: LinearConfig::new(self.inner, self.d_model).init(device),
            relu: self.activation == Activation::Relu,
            dropout: self.dropout,
        }
    }
}

impl FeedForward {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        self.end(pass.dense(&self.narrow, self.widened(x, pass)), pass)
    }

    fn widened(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let wide = pass.dense(&self.widen, x);
        let inner = if self.relu { relu(wide) } else { silu(wide) };
        pass.with("inner").dropout(inner, self.dropout)
    }

    /// What comes after the last product.
    pub(crate) fn end(&self, y: Tensor<3>, pass: &Pass) -> Tensor<3> {
        pass.with("outer").dropout(y, self.dropout)
    }
}

impl Branch for FeedForward {
    fn before_output(&self, x: Tensor<3>, _: &Lengths, pass: &Pass) -> Tensor<3> {
        self.widened(x, pass)
    }

    fn output_layer(&self) -> &Linear {
        &self.narrow
    }
}
