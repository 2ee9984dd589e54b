//! ConvNeXt block over time: depthwise convolution, layer norm, and a feed-forward layer.

use burn::module::Module;
use burn::nn::conv::Conv1d;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::activation::silu;
use plimsoll_tape::{Pass, depthwise, remat_dense};

use crate::time_convolution::depthwise_convolution;
use crate::{Lengths, apply_layer_norm};

// Shapes: b batch, t frames, d model width, i inner width.

/// Configuration of a [`ConvNext`] block.
#[derive(Clone, Copy, Debug)]
pub struct ConvNextConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width between the two linear layers.
    pub inner: usize,
    /// Number of frames under the depthwise kernel. Must be odd, so that the number of frames stays unchanged.
    pub kernel: usize,
    /// Dropout probability of the output in training, in `[0, 1)`.
    pub dropout: f64,
}

/// ConvNeXt block over time (Liu et al. 2022; Siuzdak 2023): depthwise convolution, layer norm, two linear layers with
/// SiLU between them, and a residual connection.
///
/// It has no attention, so time and memory grow linearly with the number of frames.
#[derive(Module, Debug)]
pub struct ConvNext {
    depthwise: Conv1d,
    norm: LayerNorm,
    widen: Linear,
    narrow: Linear,
    dropout: f64,
}

impl ConvNextConfig {
    /// Builds the block on `device`.
    ///
    /// # Panics
    /// If the kernel is even.
    pub fn init(&self, device: &Device) -> ConvNext {
        let &Self { d_model: d, inner, kernel, dropout } = self;
        ConvNext {
            depthwise: depthwise_convolution(d, kernel, device),
            norm: LayerNormConfig::new(d).init(device),
            widen: LinearConfig::new(d, inner).init(device),
            narrow: LinearConfig::new(inner, d).init(device),
            dropout,
        }
    }
}

impl ConvNext {
    /// Applies the block: `[b, t, d]` to `[b, t, d]`. Padding changes no valid frame; output frames in the padding have
    /// no meaning.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let y = pass.dense(&self.narrow, self.activated(x.clone(), lengths, pass));
        self.add_branch(x, y, pass)
    }

    /// Applies the block like [`forward`](Self::forward), with less memory and more time: the tape keeps the input of
    /// the block, and the backward pass computes the activations again, except the last linear layer.
    pub fn forward_rematerialized(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let (lengths, inner_pass) = (lengths.clone(), pass.clone());
        let inner = move |block: &Self, x| block.activated(x, &lengths, &inner_pass);
        let y = remat_dense(self, x.clone(), inner, |block| &block.narrow, pass);
        self.add_branch(x, y, pass)
    }

    /// Computes the activations `[b, t, i]` between the two linear layers.
    fn activated(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let Conv1d { weight, bias, .. } = &self.depthwise;
        let bias = bias.as_ref().expect("built with a bias").val();
        // In fp32 in every precision: it is no matrix product, and the norm after it needs fp32.
        let mixed = depthwise(lengths.clear_padding(x), weight.val(), bias);
        let normed = apply_layer_norm(&self.norm, pass.observe(weight.id, mixed), pass);
        silu(pass.dense(&self.widen, normed))
    }

    fn add_branch(&self, x: Tensor<3>, y: Tensor<3>, pass: &Pass) -> Tensor<3> {
        x + pass.at_least_fp32(pass.dropout(y, self.dropout))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;
    use plimsoll_tape::initialize;

    use super::*;

    #[test]
    fn padding_changes_no_valid_frame() {
        let device = Device::flex();
        let config = ConvNextConfig { d_model: 8, inner: 16, kernel: 5, dropout: 0.0 };
        let block = initialize(config.init(&device), Key::new(1));
        let values: Vec<f32> = (0..56).map(|i| Key::new(2).at(i).unit() as f32).collect();
        let x = Tensor::<1>::from_floats(values.as_slice(), &device).reshape([1, 7, 8]);
        let alone = block.forward(x.clone(), &Lengths::new(vec![7], 7), &Pass::plain());
        let padding = Tensor::<3>::full([1, 4, 8], 9.0, &device);
        let padded = Tensor::cat(vec![x, padding], 1);
        let found = block.forward(padded, &Lengths::new(vec![7], 11), &Pass::plain()).narrow(1, 0, 7);
        assert_eq!(found.into_data(), alone.into_data());
    }
}
