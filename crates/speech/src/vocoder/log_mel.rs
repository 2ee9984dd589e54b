//! Log-mels on a device, with a gradient: the same numbers as `plimsoll_audio::LogMel`.

use std::fmt::{Debug, Formatter};

use burn::tensor::Tensor;
use plimsoll_audio::{FeatureError, Floor, Log, LogMel, LogMelConfig, Padding, Spectrum};
use plimsoll_layers::{Stft, reflect};
use plimsoll_tape::transfer::from_host;

// Shapes: b waveforms, n samples, t frames, k bins, m mel channels.

/// Least squared magnitude under a square root, whose gradient is infinite at 0.
const LEAST_POWER: f64 = 1e-18;

/// Computes log-mels of waveforms by matrix products, so that a loss has a gradient.
///
/// Normalization over an utterance, pre-emphasis and a dynamic range are not computed: a vocoder has none of them.
#[derive(Clone)]
pub struct LogMelTransform {
    extractor: LogMel,
    stft: Stft,
    /// Samples of a frame before the first sample of its window.
    left: usize,
    filters: Vec<f32>,
}

impl Debug for LogMelTransform {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogMelTransform({:?})", self.extractor.config())
    }
}

impl LogMelTransform {
    /// Prepares the window and the mel filters.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn new(config: &LogMelConfig) -> Result<Self, FeatureError> {
        let extractor = LogMel::new(config)?;
        let LogMelConfig { n_fft, win_length, hop_length, .. } = *config;
        let left = (n_fft - win_length) / 2;
        let stft = Stft::new(n_fft, hop_length, extractor.window()[left..left + win_length].to_vec());
        let filters = extractor.filter_matrix();
        Ok(Self { extractor, stft, left, filters })
    }

    /// Computes the log-mels `[b, t, m]` of the waveforms `samples` `[b, n]`.
    ///
    /// # Panics
    /// If mirrored padding needs more samples than the waveforms have.
    pub fn forward(&self, samples: Tensor<2>) -> Tensor<3> {
        let config = self.extractor.config();
        let [b, n] = samples.dims();
        let (t, m, k) = (self.extractor.frames(n), config.n_mels, self.stft.bins());
        let device = samples.device();
        let half = config.n_fft / 2;
        let zeros = |count: usize| Tensor::<2>::zeros([b, count], &device).cast(samples.dtype());
        let padded = match config.padding {
            Padding::Reflect => reflect(samples, half),
            Padding::Constant => Tensor::cat(vec![zeros(half), samples.clone(), zeros(half)], 1),
            Padding::None | Padding::Silence => samples,
        };
        let used = (t - 1) * config.hop_length + self.stft.frame_length();
        let power = self.stft.power(padded.narrow(1, self.left, used));
        let spectrum = match config.spectrum {
            Spectrum::Magnitude => power.clamp_min(LEAST_POWER).sqrt(),
            Spectrum::Power => power,
        };
        let filters: Tensor<2> = from_host([k, m], &device, || self.filters.clone());
        let mels = spectrum.reshape([b * t, k]).matmul(filters).reshape([b, t, m]);
        let mels = match config.floor {
            Floor::Add(floor) => mels + floor,
            Floor::Max(floor) => mels.clamp_min(floor),
        };
        match config.log {
            Log::Ln => mels.log(),
            Log::Log10 => mels.log() / std::f64::consts::LN_10,
        }
    }
}
