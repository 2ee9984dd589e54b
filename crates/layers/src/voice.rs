//! What a voice sounds like: an encoder of reference audio, and styles that are learned beside it.

use burn::module::{Module, Param};
use burn::nn::conv::Conv1d;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, tanh};

use crate::over_time::{convolve, over_time};
use crate::{CrossAttention, CrossAttentionConfig, Lengths, normed};

// Shapes: b batch, t frames, f features, c channels, n style tokens, d width of a style.

/// Added to the variance of a pooled channel, so that its root has a slope at zero.
const EPSILON: f64 = 1e-5;

/// A score that softmax turns into an exact zero, beside any that is not so far off.
const MASKED: f32 = -3e4;

/// How to build a [`SpeakerEncoder`].
#[derive(Clone, Copy, Debug)]
pub struct SpeakerEncoderConfig {
    /// Features of a frame.
    pub features: usize,
    /// Channels of the convolutions.
    pub channels: usize,
    /// How many convolutions.
    pub layers: usize,
    /// Frames under each; odd, so that it has a middle.
    pub kernel: usize,
    /// Share of values dropped in training.
    pub dropout: f64,
}

/// Convolutions over a stretch of a voice, and one vector that says what is in it.
#[derive(Module, Debug)]
pub struct SpeakerEncoder {
    layers: Vec<Conv1d>,
    norms: Vec<LayerNorm>,
    pooling: AttentivePooling,
    dropout: f64,
}

impl SpeakerEncoderConfig {
    /// An encoder on `device`.
    ///
    /// # Panics
    /// Where there is no convolution, or their kernel has no middle.
    pub fn init(&self, device: &Device) -> SpeakerEncoder {
        let &Self { features, channels, layers, kernel, dropout } = self;
        assert!(layers > 0, "a voice is heard through one convolution at least");
        let inputs = |index| if index == 0 { features } else { channels };
        SpeakerEncoder {
            layers: (0..layers).map(|i| over_time(inputs(i), channels, kernel, device)).collect(),
            norms: (0..layers).map(|_| LayerNormConfig::new(channels).init(device)).collect(),
            pooling: AttentivePooling::init(channels, device),
            dropout,
        }
    }

    /// The width of what comes out.
    pub fn width(&self) -> usize {
        2 * self.channels
    }
}

impl SpeakerEncoder {
    /// Frames `[b, t, f]` to one vector `[b, 1, 2c]` each.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let layers = self.layers.iter().zip(&self.norms).enumerate();
        let heard = layers.fold(x, |x, (index, (layer, norm))| {
            let y = relu(normed(norm, convolve(layer, x, lengths, pass), pass));
            pass.at(index).dropout(y, self.dropout)
        });
        self.pooling.forward(heard, lengths, pass)
    }
}

/// Mean and spread of every channel over time, each frame weighing what a small network says (Okabe et al. 2018).
#[derive(Module, Debug)]
pub struct AttentivePooling {
    hidden: Linear,
    score: Linear,
}

impl AttentivePooling {
    /// A pooling of `channels` on `device`.
    pub fn init(channels: usize, device: &Device) -> Self {
        let hidden = LinearConfig::new(channels, channels).init(device);
        Self { hidden, score: LinearConfig::new(channels, 1).init(device) }
    }

    /// `[b, t, c]` to `[b, 1, 2c]`: means, then standard deviations.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let hidden = tanh(pass.full(pass.dense(&self.hidden, x.clone())));
        let scores = pass.full(pass.dense(&self.score, hidden));
        let scores = match lengths.padding(&x.device()) {
            Some(padding) => scores.mask_fill(padding.unsqueeze_dim::<3>(2), MASKED),
            None => scores,
        };
        let weights = softmax(scores, 1);
        let mean = (x.clone() * weights.clone()).sum_dim(1);
        let variance = ((x - mean.clone()).square() * weights).sum_dim(1);
        Tensor::cat(vec![mean, (variance + EPSILON).sqrt()], 2)
    }
}

/// How to build [`StyleTokens`].
#[derive(Clone, Copy, Debug)]
pub struct StyleTokensConfig {
    /// Width of what asks for a style.
    pub input: usize,
    /// How many tokens there are.
    pub tokens: usize,
    /// Width of a style.
    pub width: usize,
    /// Heads of the attention to the tokens.
    pub heads: usize,
}

/// Styles as mixtures of a few that are learned (Wang et al. 2018).
#[derive(Module, Debug)]
pub struct StyleTokens {
    query: Linear,
    tokens: Param<Tensor<2>>,
    attention: CrossAttention,
}

impl StyleTokensConfig {
    /// Style tokens on `device`, all zero until they are learned or given values.
    ///
    /// # Panics
    /// Where there is no token, or the heads do not share the width evenly.
    pub fn init(&self, device: &Device) -> StyleTokens {
        let &Self { input, tokens, width, heads } = self;
        assert!(tokens > 0, "a style is a mixture of one token at least");
        let attention = CrossAttentionConfig { d_model: width, d_memory: width, heads, dropout: 0.0 };
        StyleTokens {
            query: LinearConfig::new(input, width).init(device),
            tokens: Param::from_tensor(Tensor::zeros([tokens, width], device)),
            attention: attention.init(device),
        }
    }
}

impl StyleTokens {
    /// The style `[b, 1, d]` of what asks `[b, 1, i]`.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let [b, _, _] = x.dims();
        let tokens = self.tokens.val().tanh();
        let [n, d] = tokens.dims();
        let memory = tokens.unsqueeze::<3>().expand([b, n, d]);
        let lengths = Lengths::new(vec![n as u32; b], n);
        pass.full(self.attention.forward(pass.dense(&self.query, x), memory, &lengths, pass))
    }
}
