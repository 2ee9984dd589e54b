//! Convolution layer of the Conformer block.

use burn::module::Module;
use burn::nn::conv::Conv1d;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::activation::Activation;
use plimsoll_tape::epilogue::Epilogue;
use plimsoll_tape::{Pass, depthwise};

use crate::branch::Branch;
use crate::time_convolution::depthwise_convolution;
use crate::{Lengths, Norm, NormConfig, NormKind};

/// Configuration of a [`Convolution`].
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Number of frames under the depthwise kernel. Must be odd, so that the number of frames stays unchanged.
    pub kernel: usize,
    /// Norm after the depthwise convolution.
    pub norm: NormKind,
    /// Dropout probability of the output in training, in `[0, 1)`.
    pub dropout: f64,
}

/// Convolution layer of a Conformer: pointwise convolution, gated linear unit, depthwise convolution over time, norm,
/// SiLU, pointwise convolution (Gulati et al. 2020).
///
/// The pointwise convolutions are linear layers. Padding is set to zero before the depthwise convolution, like the
/// frames beyond the edges.
#[derive(Module, Debug)]
pub struct Convolution {
    widen: Linear,
    depthwise: Conv1d,
    norm: Norm,
    output: Linear,
    dropout: f64,
}

impl ConvolutionConfig {
    /// Builds the layer on `device`.
    ///
    /// # Panics
    /// If the kernel is even, or the groups of a group norm do not divide `d_model`.
    pub fn init(&self, device: &Device) -> Convolution {
        let d = self.d_model;
        Convolution {
            widen: LinearConfig::new(d, 2 * d).init(device),
            depthwise: depthwise_convolution(d, self.kernel, device),
            norm: NormConfig { channels: d, kind: self.norm }.init(device),
            output: LinearConfig::new(d, d).init(device),
            dropout: self.dropout,
        }
    }
}

impl Convolution {
    /// Applies the layer: `[b, t, d]` to `[b, t, d]`. Padding changes no valid frame.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let end = Epilogue { dropout: self.dropout, ..Epilogue::default() };
        pass.dense_into(&self.output, self.before_output(x, lengths, pass), end)
    }
}

impl Branch for Convolution {
    fn before_output(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let valid = Some(lengths.attention_mask(false));
        let gated = Epilogue { activation: Some(Activation::Glu), valid, ..Epilogue::default() };
        let gated = pass.dense_into(&self.widen, x, gated);
        let Conv1d { weight, bias, .. } = &self.depthwise;
        let bias = bias.as_ref().expect("built with a bias").val();
        let mixed = depthwise(gated, pass.to_compute_dtype(weight.val()), pass.to_compute_dtype(bias));
        let normed = self.norm.forward(pass.observe(weight.id, mixed), lengths, pass);
        pass.end(normed, Epilogue { activation: Some(Activation::Silu), ..Epilogue::default() })
    }

    fn output_layer(&self) -> &Linear {
        &self.output
    }
}
