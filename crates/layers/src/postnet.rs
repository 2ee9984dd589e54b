//! Postnet of a synthesizer: corrects predicted frames from the frames around them.

use burn::module::Module;
use burn::nn::conv::Conv1d;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::activation::tanh;

use crate::time_convolution::{convolve, time_convolution};
use crate::{Lengths, apply_layer_norm};

// Shapes: b batch, t frames, f features.

/// Configuration of a [`Postnet`].
#[derive(Clone, Copy, Debug)]
pub struct PostnetConfig {
    /// Number of features in a frame.
    pub features: usize,
    /// Number of channels between the convolutions.
    pub channels: usize,
    /// Number of frames under each convolution. Must be odd, so that the number of frames stays unchanged.
    pub kernel: usize,
    /// Number of convolutions, at least 2.
    pub layers: usize,
    /// Dropout probability in training, in `[0, 1)`.
    pub dropout: f64,
}

/// Postnet of a synthesizer: convolutions over time with layer norm and tanh between them (Tacotron 2, Shen et al.
/// 2018).
///
/// The paper uses batch norm. Layer norm gives the same gradient for any split of a batch into micro-batches.
#[derive(Module, Debug)]
pub struct Postnet {
    layers: Vec<Conv1d>,
    norms: Vec<LayerNorm>,
    dropout: f64,
}

impl PostnetConfig {
    /// Builds the postnet on `device`.
    ///
    /// # Panics
    /// If there are fewer than two convolutions, or the kernel is even.
    pub fn init(&self, device: &Device) -> Postnet {
        let &Self { features, channels, kernel, layers, dropout } = self;
        assert!(layers > 1, "a postnet needs at least two convolutions, not {layers}");
        let width = |edge| if edge == 0 || edge == layers { features } else { channels };
        Postnet {
            layers: (0..layers).map(|i| time_convolution(width(i), width(i + 1), kernel, device)).collect(),
            norms: (1..layers).map(|_| LayerNormConfig::new(channels).init(device)).collect(),
            dropout,
        }
    }
}

impl Postnet {
    /// Computes the correction `[b, t, f]` of frames `x` `[b, t, f]`; the caller adds the correction to `x`. Padding
    /// counts as zeros.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.layers.iter().enumerate().fold(x, |x, (index, layer)| {
            let y = pass.at_least_fp32(convolve(layer, x, lengths, pass));
            match self.norms.get(index) {
                Some(norm) => pass.at(index).dropout(tanh(apply_layer_norm(norm, y, pass)), self.dropout),
                None => y,
            }
        })
    }
}
