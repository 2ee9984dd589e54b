//! The vocoder: convolutions over frames, then an inverse Fourier transform.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::Key;
use plimsoll_layers::{ConvNext, ConvNextConfig, InverseStft, Lengths, TimeConvolution, apply_layer_norm, hann_window};
use plimsoll_tape::{Pass, initialize};

use super::VocoderConfig;
use super::levels::BinLevels;

// Shapes: b waveforms, n samples, t frames, m mel channels, d width, k bins.

/// Largest magnitude of a bin, as a share of the window's length. A sine of full scale has a quarter of the length under
/// a Hann window.
const LARGEST_MAGNITUDE: f64 = 1.0;

/// A neural vocoder: turns log-mels into a waveform in one pass.
///
/// A convolution over time, ConvNeXt blocks and a linear layer predict magnitude and phase of each bin of each frame; the
/// inverse Fourier transform makes samples of them (Siuzdak 2023). Magnitudes are relative to the level that the log-mels
/// tell. The samples depend on [`VocoderConfig::context_frames`] frames before and after them.
///
/// Build it with [`VocoderConfig::init`].
#[derive(Module, Debug)]
pub struct NeuralVocoder {
    embedding: TimeConvolution,
    embedding_norm: LayerNorm,
    blocks: Vec<ConvNext>,
    norm: LayerNorm,
    magnitude: Linear,
    phase: Linear,
    #[module(skip)]
    levels: BinLevels,
    #[module(skip)]
    inverse: InverseStft,
    #[module(skip)]
    config: VocoderConfig,
}

impl VocoderConfig {
    /// Makes a vocoder on `device`. Its initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// If the configuration does not pass [`check`](Self::check).
    pub fn init(&self, device: &Device, key: Key) -> NeuralVocoder {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes a vocoder on `device` with Burn's initial weights, which follow no seed. Use it to load weights from a file or
    /// to count parameters.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> NeuralVocoder {
        let checked = self.check();
        assert!(checked.is_ok(), "no vocoder can be built: {checked:?}");
        let &Self { dim: d, kernel, .. } = self;
        let window = hann_window(self.features.win_length);
        let inverse = InverseStft::new(self.features.hop_length, self.before(), window);
        let inner = d * self.feed_forward_multiplier;
        let block = |_| ConvNextConfig { d_model: d, inner, kernel, dropout: 0.0 }.init(device);
        NeuralVocoder {
            embedding: TimeConvolution::init(self.features.n_mels, d, kernel, device),
            embedding_norm: LayerNormConfig::new(d).init(device),
            blocks: (0..self.layers).map(block).collect(),
            norm: LayerNormConfig::new(d).init(device),
            magnitude: LinearConfig::new(d, inverse.bins()).init(device),
            phase: LinearConfig::new(d, inverse.bins()).init(device),
            levels: BinLevels::new(&self.features).expect("the features were checked"),
            inverse,
            config: self.clone(),
        }
    }
}

impl NeuralVocoder {
    /// Returns the configuration that the vocoder was built from.
    pub fn config(&self) -> &VocoderConfig {
        &self.config
    }

    /// Generates the waveforms `[b, t * hop]` of log-mels `[b, t, m]`, all of the same length.
    pub fn generate(&self, mels: Tensor<3>) -> Tensor<2> {
        let [b, t, _] = mels.dims();
        self.forward(mels, &Lengths::new(vec![t as u32; b], t), &Pass::plain())
    }

    /// Generates the waveforms `[b, t * hop]` of padded log-mels `[b, t, m]`. Padding changes no valid sample, and the
    /// samples of the padding are 0.
    pub fn forward(&self, mels: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<2> {
        let levels = self.levels.forward(mels.clone());
        let mels = (mels - self.config.mel_mean) / self.config.mel_std;
        let x = pass.at_least_fp32(self.embedding.forward(mels, lengths, pass));
        let x = apply_layer_norm(&self.embedding_norm, x, pass);
        let x = self.blocks.iter().enumerate().fold(x, |x, (index, block)| {
            let own = pass.with("block").at(index);
            match pass.choice().remat.covers(index) {
                true => block.forward_rematerialized(x, lengths, &own),
                false => block.forward(x, lengths, &own),
            }
        });
        let x = apply_layer_norm(&self.norm, x, pass);
        let limit = (LARGEST_MAGNITUDE * self.config.features.win_length as f64).ln();
        let magnitude = pass.at_least_fp32(pass.dense(&self.magnitude, x.clone())) + levels;
        let magnitude = magnitude.clamp_max(limit).exp();
        let phase = pass.at_least_fp32(pass.dense(&self.phase, x));
        let (real, imaginary) = (magnitude.clone() * phase.clone().cos(), magnitude * phase.sin());
        self.inverse.forward(real, imaginary, lengths)
    }
}
