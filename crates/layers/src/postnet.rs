//! The postnet of a synthesiser: a correction to frames that sees the frames around them.

use burn::module::Module;
use burn::nn::conv::Conv1d;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, tanh};

use crate::over_time::{convolve, over_time};
use crate::{Lengths, normed};

// Shapes: b batch, t frames, f features.

/// How to build a [`Postnet`].
#[derive(Clone, Copy, Debug)]
pub struct PostnetConfig {
    /// Features of a frame.
    pub features: usize,
    /// Channels inside.
    pub channels: usize,
    /// Frames under each convolution; odd, so that it has a middle.
    pub kernel: usize,
    /// How many convolutions, two at least.
    pub layers: usize,
    /// Share of values dropped in training.
    pub dropout: f64,
}

/// Convolutions over time, with a norm and tanh between them (Shen et al. 2018).
///
/// The norm is over the channels of a frame, where the paper's is over the batch: a step then has the same gradient
/// however it is cut into pieces.
#[derive(Module, Debug)]
pub struct Postnet {
    layers: Vec<Conv1d>,
    norms: Vec<LayerNorm>,
    dropout: f64,
}

impl PostnetConfig {
    /// A postnet on `device`.
    ///
    /// # Panics
    /// Where there are fewer than two convolutions, or their kernel has no middle.
    pub fn init(&self, device: &Device) -> Postnet {
        let &Self { features, channels, kernel, layers, dropout } = self;
        assert!(layers > 1, "a postnet has two convolutions at least, and not {layers}");
        let width = |edge| if edge == 0 || edge == layers { features } else { channels };
        Postnet {
            layers: (0..layers).map(|i| over_time(width(i), width(i + 1), kernel, device)).collect(),
            norms: (1..layers).map(|_| LayerNormConfig::new(channels).init(device)).collect(),
            dropout,
        }
    }
}

impl Postnet {
    /// What to add to the frames `[b, t, f]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.layers.iter().enumerate().fold(x, |x, (index, layer)| {
            let y = pass.full(convolve(layer, x, lengths, pass));
            match self.norms.get(index) {
                Some(norm) => pass.at(index).dropout(tanh(normed(norm, y, pass)), self.dropout),
                None => y,
            }
        })
    }
}
