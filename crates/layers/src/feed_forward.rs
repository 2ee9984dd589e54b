//! Position-wise feed-forward layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::activation;
use plimsoll_tape::epilogue::Epilogue;

use crate::Lengths;
use crate::branch::Branch;

/// Activation function between the two linear layers of a [`FeedForward`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// SiLU, also called Swish: `x * sigmoid(x)`, as in Conformers.
    #[default]
    Silu,
    /// ReLU: `max(x, 0)`, as in the first Transformers.
    Relu,
    /// GELU: `x` times the normal distribution function of `x`, as in Whisper.
    Gelu,
}

/// Configuration of a [`FeedForward`].
#[derive(Clone, Copy, Debug)]
pub struct FeedForwardConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width between the two linear layers.
    pub inner: usize,
    /// Activation function between the two linear layers.
    pub activation: Activation,
    /// Dropout probability in training, after the activation and at the end, in `[0, 1)`.
    pub dropout: f64,
}

/// Feed-forward layer: two linear layers with an activation between them, applied to each frame (Vaswani et al. 2017).
#[derive(Module, Debug)]
pub struct FeedForward {
    widen: Linear,
    narrow: Linear,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
}

impl FeedForwardConfig {
    /// Builds the layer on `device`.
    pub fn init(&self, device: &Device) -> FeedForward {
        FeedForward {
            widen: LinearConfig::new(self.d_model, self.inner).init(device),
            narrow: LinearConfig::new(self.inner, self.d_model).init(device),
            activation: self.activation,
            dropout: self.dropout,
        }
    }
}

impl FeedForward {
    /// Applies the layer: `[b, t, d]` to `[b, t, d]`. Frames do not mix, so padding needs no mask.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        self.forward_into(x, pass, Epilogue::default())
    }

    /// Applies the layer like [`forward`](Self::forward), and then `end`, to which the dropout of the layer is added.
    pub(crate) fn forward_into(&self, x: Tensor<3>, pass: &Pass, end: Epilogue) -> Tensor<3> {
        let end = Epilogue { dropout: self.dropout, ..end };
        Self::output_pass(pass).dense_into(&self.narrow, self.activated(x, pass), end)
    }

    /// Computes the activations between the two linear layers from `[b, t, d]`.
    fn activated(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let activation = match self.activation {
            Activation::Silu => activation::Activation::Silu,
            Activation::Relu => activation::Activation::Relu,
            Activation::Gelu => activation::Activation::Gelu,
        };
        let end = Epilogue { activation: Some(activation), dropout: self.dropout, ..Epilogue::default() };
        pass.with("inner").dense_into(&self.widen, x, end)
    }

    /// Returns the pass with the noise of the dropout after the last linear layer. It is separate, because a block applies the
    /// last linear layer itself.
    pub(crate) fn output_pass(pass: &Pass) -> Pass {
        pass.with("outer")
    }
}

impl Branch for FeedForward {
    fn before_output(&self, x: Tensor<3>, _: &Lengths, pass: &Pass) -> Tensor<3> {
        self.activated(x, pass)
    }

    fn output_layer(&self) -> &Linear {
        &self.narrow
    }
}
