//! The voice encoder: a reference recording as one vector.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_layers::{Lengths, SpeakerEncoder, SpeakerEncoderConfig, StyleTokens, StyleTokensConfig};
use plimsoll_tape::Pass;

use super::VoiceConfig;

// Shapes: b references, r frames, f features, v width of a voice.

/// Width in frames of each convolution over a reference.
const KERNEL: usize = 5;

/// Encodes a reference into a speaker vector, followed by a style vector when the model has style tokens.
#[derive(Module, Debug)]
pub struct VoiceEncoder {
    encoder: SpeakerEncoder,
    speaker: Linear,
    style: Option<StyleTokens>,
}

impl VoiceEncoder {
    /// Makes a voice encoder of log-mels of `features` bands on `device`.
    pub(super) fn init(features: usize, voice: &VoiceConfig, dropout: f64, device: &Device) -> Self {
        let encoder =
            SpeakerEncoderConfig { features, channels: voice.channels, layers: voice.layers, kernel: KERNEL, dropout };
        let style = StyleTokensConfig {
            input: encoder.width(),
            tokens: voice.style_tokens,
            width: voice.style_dim,
            heads: voice.style_heads,
        };
        Self {
            encoder: encoder.init(device),
            speaker: LinearConfig::new(encoder.width(), voice.speaker_dim).init(device),
            style: (voice.style_tokens > 0).then(|| style.init(device)),
        }
    }

    /// Encodes normalized log-mels `[references, frames, mel bands]` to voices `[references, 1, voice width]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let encoded = self.encoder.forward(x, lengths, pass);
        let speaker = pass.at_least_fp32(pass.dense(&self.speaker, encoded.clone())).tanh();
        match &self.style {
            Some(style) => Tensor::cat(vec![speaker, style.forward(encoded, pass)], 2),
            None => speaker,
        }
    }
}
