//! Ways of the voice around the text encoder.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::transfer::from_host;

use super::ParallelConfig;
use super::tokens::EncodedTokens;

// Shapes: b texts, k tokens, t frames, d width, p prosody, v width of a voice.

/// Ways of the voice around the text encoder, for a model of many voices: what is predicted from the text teaches the text encoder nothing,
/// and would teach the voice encoder nothing either.
///
/// Durations and prosody get the voice added to the text. Each block of the frame decoder gets its input scaled and moved by the voice, channel by channel.
#[derive(Module, Debug)]
pub(super) struct VoiceLinks {
    to_duration: Linear,
    to_prosody: Option<Linear>,
    to_frames: Vec<Linear>,
}

impl VoiceLinks {
    /// Makes the ways of `config`; `None` if it has none.
    pub(super) fn init(config: &ParallelConfig, device: &Device) -> Option<Self> {
        let &ParallelConfig { text_dim: text, decoder_dim: wide, decoder_layers, .. } = config;
        let from_voice = |to: usize| LinearConfig::new(config.voice_width(), to).init(device);
        config.voice_links.then(|| Self {
            to_duration: from_voice(text),
            to_prosody: (config.prosody_width() > 0).then(|| from_voice(text)),
            to_frames: (0..decoder_layers).map(|_| from_voice(2 * wide)).collect(),
        })
    }

    /// Adds the voices of a text to vectors from which its durations are predicted.
    pub(super) fn for_duration(&self, vectors: Tensor<3>, text: &EncodedTokens, pass: &Pass) -> Tensor<3> {
        vectors + pass.at_least_fp32(pass.dense(&self.to_duration, text.voices.clone()))
    }

    /// Adds the voices of a text to vectors from which its prosody is predicted.
    pub(super) fn for_prosody(&self, vectors: Tensor<3>, text: &EncodedTokens, pass: &Pass) -> Tensor<3> {
        match &self.to_prosody {
            Some(link) => vectors + pass.at_least_fp32(pass.dense(link, text.voices.clone())),
            None => vectors,
        }
    }

    /// Scales and moves frames `[b, t, d]` before the block with this index of the frame decoder.
    pub(super) fn for_frames(&self, index: usize, x: Tensor<3>, text: &EncodedTokens, pass: &Pass) -> Tensor<3> {
        let [_, _, d] = x.dims();
        let change = pass.at_least_fp32(pass.dense(&self.to_frames[index], text.voices.clone()));
        x * (change.clone().narrow(2, 0, d) + 1.0) + change.narrow(2, d, d)
    }
}

/// Adds the pitch of voices `[b, 1, v]`, their last value, to the first value of each token's prosody `[b, k, p]`: what is predicted is how far a
/// token is from it.
pub(super) fn with_pitch_of_voice(prosody: Tensor<3>, voices: &Tensor<3>) -> Tensor<3> {
    let ([_, _, p], [_, _, v]) = (prosody.dims(), voices.dims());
    let first = from_host([1, 1, p], &prosody.device(), || (0..p).map(|n| if n == 0 { 1.0 } else { 0.0 }).collect());
    prosody + voices.clone().narrow(2, v - 1, 1) * first
}
