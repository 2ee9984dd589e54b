//! The Conformer's convolution: gated, depthwise over time, blind to padding.

use burn::module::Module;
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig1d};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, depthwise, glu, silu};

use crate::branch::Branch;
use crate::{Lengths, Norm, NormConfig, NormKind};

/// How to build a [`Convolution`].
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Frames that the depthwise kernel spans; odd, so that it has a middle.
    pub kernel: usize,
    /// What the norm takes its mean and variance over.
    pub norm: NormKind,
    /// Share of values dropped in training.
    pub dropout: f64,
}

/// Pointwise, gate, depthwise over time, norm, SiLU, pointwise (Gulati et al. 2020).
#[derive(Module, Debug)]
pub struct Convolution {
    widen: Linear,
    depthwise: Conv1d,
    norm: Norm,
    output: Linear,
    dropout: f64,
}

impl ConvolutionConfig {
    /// A convolution on `device`.
    ///
    /// # Panics
    /// Where the kernel is even.
    pub fn init(&self, device: &Device) -> Convolution {
        let (d, kernel) = (self.d_model, self.kernel);
        assert!(!kernel.is_multiple_of(2), "a kernel of {kernel} frames has no middle");
        let side = kernel / 2;
        let depthwise = Conv1dConfig::new(d, d, kernel)
            .with_groups(d)
            .with_padding(PaddingConfig1d::Explicit(side, side))
            .init(device);
        Convolution {
            widen: LinearConfig::new(d, 2 * d).init(device),
            depthwise,
            norm: NormConfig { channels: d, kind: self.norm }.init(device),
            output: LinearConfig::new(d, d).init(device),
            dropout: self.dropout,
        }
    }
}

impl Convolution {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        pass.dropout(pass.dense(&self.output, self.before_output(x, lengths, pass)), self.dropout)
    }
}

impl Branch for Convolution {
    fn before_output(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let gated = lengths.clear_padding(glu(pass.dense(&self.widen, x)));
        let Conv1d { weight, bias, .. } = &self.depthwise;
        let bias = bias.as_ref().expect("built with a bias").val();
        let mixed = depthwise(gated, pass.lower(weight.val()), pass.lower(bias));
        silu(self.norm.forward(mixed, lengths, pass))
    }

    fn output_layer(&self) -> &Linear {
        &self.output
    }
}
