//! Speaker encoder and style tokens: vectors that describe the voice of a reference recording.

use burn::module::{Module, Param};
use burn::nn::conv::Conv1d;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::activation::tanh;

use crate::time_convolution::{convolve, time_convolution};
use crate::{CrossAttention, CrossAttentionConfig, Lengths, apply_layer_norm};

// Shapes: b batch, t frames, f features, c channels, n style tokens, d width of a style, i input width.

/// Number added to the variance of a pooled channel: the square root has no finite gradient at zero.
const EPSILON: f64 = 1e-5;

/// Score of padding frames. Softmax turns it into exactly zero next to any usual score.
const MASKED: f32 = -3e4;

/// Configuration of a [`SpeakerEncoder`].
#[derive(Clone, Copy, Debug)]
pub struct SpeakerEncoderConfig {
    /// Number of features in a frame.
    pub features: usize,
    /// Number of channels of the convolutions.
    pub channels: usize,
    /// Number of convolutions, at least 1.
    pub layers: usize,
    /// Number of frames under each convolution. Must be odd, so that the number of frames stays unchanged.
    pub kernel: usize,
    /// Dropout probability in training, in `[0, 1)`.
    pub dropout: f64,
}

/// Encodes a reference recording to one vector: convolutions over time with layer norm, ReLU and dropout, then
/// [`AttentivePooling`].
#[derive(Module, Debug)]
pub struct SpeakerEncoder {
    layers: Vec<Conv1d>,
    norms: Vec<LayerNorm>,
    pooling: AttentivePooling,
    dropout: f64,
}

impl SpeakerEncoderConfig {
    /// Builds the encoder on `device`.
    ///
    /// # Panics
    /// If there is no convolution, or the kernel is even.
    pub fn init(&self, device: &Device) -> SpeakerEncoder {
        let &Self { features, channels, layers, kernel, dropout } = self;
        assert!(layers > 0, "a speaker encoder needs at least one convolution");
        let inputs = |index| if index == 0 { features } else { channels };
        SpeakerEncoder {
            layers: (0..layers).map(|i| time_convolution(inputs(i), channels, kernel, device)).collect(),
            norms: (0..layers).map(|_| LayerNormConfig::new(channels).init(device)).collect(),
            pooling: AttentivePooling::init(channels, device),
            dropout,
        }
    }

    /// Returns the width of the output vector: twice the number of channels.
    pub fn width(&self) -> usize {
        2 * self.channels
    }
}

impl SpeakerEncoder {
    /// Encodes each recording of `[b, t, f]` as one vector: `[b, 1, 2c]`. Padding does not count.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let layers = self.layers.iter().zip(&self.norms).enumerate();
        let frames = layers.fold(x, |x, (index, (layer, norm))| {
            let y = relu(apply_layer_norm(norm, convolve(layer, x, lengths, pass), pass));
            pass.at(index).dropout(y, self.dropout)
        });
        self.pooling.forward(frames, lengths, pass)
    }
}

/// Attentive statistics pooling (Okabe et al. 2018): weighted mean and standard deviation of each channel over time.
/// Two linear layers compute the weight of each frame.
#[derive(Module, Debug)]
pub struct AttentivePooling {
    hidden: Linear,
    score: Linear,
}

impl AttentivePooling {
    /// Builds the layer for `channels` channels on `device`.
    pub fn init(channels: usize, device: &Device) -> Self {
        let hidden = LinearConfig::new(channels, channels).init(device);
        Self { hidden, score: LinearConfig::new(channels, 1).init(device) }
    }

    /// Pools `[b, t, c]` to `[b, 1, 2c]`: means, then standard deviations. Padding gets a weight of zero.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let hidden = tanh(pass.at_least_fp32(pass.dense(&self.hidden, x.clone())));
        let scores = pass.at_least_fp32(pass.dense(&self.score, hidden));
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

/// Configuration of [`StyleTokens`].
#[derive(Clone, Copy, Debug)]
pub struct StyleTokensConfig {
    /// Width of the input vector.
    pub input: usize,
    /// Number of style tokens, at least 1.
    pub tokens: usize,
    /// Width of a token and of the output.
    pub width: usize,
    /// Number of attention heads. Must divide `width`.
    pub heads: usize,
}

/// Global style tokens (Wang et al. 2018): a style is a mixture of a few learned vectors, weighted by attention.
#[derive(Module, Debug)]
pub struct StyleTokens {
    query: Linear,
    tokens: Param<Tensor<2>>,
    attention: CrossAttention,
}

impl StyleTokensConfig {
    /// Builds the layer on `device`. The tokens are zero, and stay equal to each other in training unless they get
    /// random values first, for example from `plimsoll_tape::initialize`.
    ///
    /// # Panics
    /// If there is no token, or `heads` does not divide `width`.
    pub fn init(&self, device: &Device) -> StyleTokens {
        let &Self { input, tokens, width, heads } = self;
        assert!(tokens > 0, "style tokens need at least one token");
        let attention = CrossAttentionConfig { d_model: width, d_memory: width, heads, dropout: 0.0 };
        StyleTokens {
            query: LinearConfig::new(input, width).init(device),
            tokens: Param::from_tensor(Tensor::zeros([tokens, width], device)),
            attention: attention.init(device),
        }
    }
}

impl StyleTokens {
    /// Computes the style `[b, 1, d]` for the query vector `x` `[b, 1, i]`.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let [b, _, _] = x.dims();
        let tokens = self.tokens.val().tanh();
        let [n, d] = tokens.dims();
        let memory = tokens.unsqueeze::<3>().expand([b, n, d]);
        let lengths = Lengths::new(vec![n as u32; b], n);
        pass.at_least_fp32(self.attention.forward(pass.dense(&self.query, x), memory, &lengths, pass))
    }
}
