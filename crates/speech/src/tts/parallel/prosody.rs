//! Prosody: a few numbers for each token that say how it is spoken.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_layers::{ConvNext, ConvNextConfig};
use plimsoll_tape::transfer::from_host;
use plimsoll_tape::{Pass, detach};

use super::ParallelConfig;
use super::durations::Durations;
use super::tokens::{EncodedTokens, stack};

// Shapes: b texts, k tokens, t frames, f features, p prosody.

/// How each token is spoken, as numbers from -1 to 1: louder, higher, clearer, whatever describes best how its frames differ from
/// those that the text alone lets expect.
///
/// In training they come from the mean of the true frames of a token. A predictor learns them from the text, and generation takes
/// what it predicts. So the decoder need not average over all ways in which a text can be spoken, which would blur its frames.
#[derive(Module, Debug)]
pub(super) struct Prosody {
    from_frames: Linear,
    found: Linear,
    to_text: Linear,
    block: ConvNext,
    predicted: Linear,
}

impl Prosody {
    /// Makes the part of `config`; `None` if it has no prosody.
    pub(super) fn init(config: &ParallelConfig, device: &Device) -> Option<Self> {
        let &ParallelConfig { features, text_dim: text, prosody_dim: width, dropout, .. } = config;
        let inner = text * config.feed_forward_multiplier;
        let linear = |from: usize, to: usize| LinearConfig::new(from, to).init(device);
        (width > 0).then(|| Self {
            from_frames: linear(features, text),
            found: linear(text, width),
            to_text: linear(width, text),
            block: ConvNextConfig { d_model: text, inner, kernel: config.text_kernel, dropout }.init(device),
            predicted: linear(text, width),
        })
    }

    /// Finds the prosody `[b, k, p]` of true frames `target` `[b, t, f]` that `expansion` `[b, t, k]` gives to tokens.
    pub(super) fn find(
        &self,
        target: Tensor<3>,
        expansion: &Tensor<3>,
        durations: &Durations,
        pass: &Pass,
    ) -> Tensor<3> {
        let pass = &pass.with("prosody");
        let [_, _, k] = expansion.dims();
        let shares = durations.shares(k, &target.device());
        let means = expansion.clone().swap_dims(1, 2).matmul(target) * shares;
        let x = pass.at_least_fp32(pass.dense(&self.from_frames, means)).tanh();
        pass.at_least_fp32(pass.dense(&self.found, x)).tanh()
    }

    /// Predicts the prosody `[b, k, p]` of a text. The text encoder learns nothing from it.
    pub(super) fn predict(&self, text: &EncodedTokens, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with("prosody").with("predicted");
        let x = detach(text.vectors.clone());
        let x = stack(std::slice::from_ref(&self.block), x, &text.lengths, pass);
        pass.at_least_fp32(pass.dense(&self.predicted, x)).tanh()
    }

    /// Adds a prosody to the vectors of a text.
    pub(super) fn add(&self, text: EncodedTokens, prosody: Tensor<3>, pass: &Pass) -> EncodedTokens {
        let vectors = text.vectors + pass.at_least_fp32(pass.dense(&self.to_text, prosody));
        EncodedTokens { vectors, ..text }
    }
}

impl Durations {
    /// Builds the share `[b, k, 1]` of one frame in its token: 1 by the duration.
    fn shares(&self, tokens: usize, device: &Device) -> Tensor<3> {
        from_host([self.frames.len(), tokens, 1], device, || {
            let row = |text: &Vec<u32>| {
                let shares = text.iter().map(|&frames| 1.0 / frames.max(1) as f32);
                shares.chain(std::iter::repeat(0.0)).take(tokens).collect::<Vec<f32>>()
            };
            self.frames.iter().flat_map(row).collect()
        })
    }
}
