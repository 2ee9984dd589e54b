//! Configuration of a neural vocoder, of its discriminators and of its training loss.

use plimsoll_audio::{LogMelConfig, Padding, Vocoder};
use serde::{Deserialize, Serialize};

use crate::check::{self, InvalidField, MAX_LAYERS, MAX_WIDTH, inside, not_negative, positive, require};

/// Configuration of a [`NeuralVocoder`](super::NeuralVocoder).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocoderConfig {
    /// Settings of the log-mels that become sound. Hop and window of the sound follow from them.
    pub features: LogMelConfig,
    /// Width of the model.
    pub dim: usize,
    /// Number of blocks; at least 1.
    pub layers: usize,
    /// Number of frames under each convolution; odd.
    pub kernel: usize,
    /// Inner width of the feed-forward layers, as a multiple of `dim`.
    pub feed_forward_multiplier: usize,
    /// Number that is subtracted from each log-mel before the first layer: about the mean of speech.
    pub mel_mean: f64,
    /// Number that each log-mel is divided by after that: about the standard deviation of speech.
    pub mel_std: f64,
}

impl VocoderConfig {
    /// Returns the recommended configuration for log-mels of `features`: 1.6 million parameters, which two cores train.
    pub fn recommended(features: LogMelConfig) -> Self {
        Self { features, dim: 192, layers: 6, kernel: 7, feed_forward_multiplier: 3, mel_mean: -4.0, mel_std: 2.5 }
    }

    /// Checks that a vocoder of this configuration can be built.
    ///
    /// # Errors
    /// The first field for which it cannot.
    pub fn check(&self) -> Result<(), InvalidField> {
        inside("dim", self.dim, 1..=MAX_WIDTH)?;
        inside("layers", self.layers, 1..=MAX_LAYERS)?;
        inside("kernel", self.kernel, 1..=MAX_LAYERS)?;
        require(!self.kernel.is_multiple_of(2), "kernel", self.kernel, "an odd number")?;
        inside("feed_forward_multiplier", self.feed_forward_multiplier, 1..=MAX_LAYERS)?;
        require(self.mel_mean.is_finite(), "mel_mean", self.mel_mean, "a finite number")?;
        positive("mel_std", self.mel_std)?;
        check_features(&self.features)
    }

    /// Returns the number of frames, before and after a frame, that its samples depend on.
    pub fn context_frames(&self) -> usize {
        let overlap = self.before().max(self.features.win_length - self.before()).div_ceil(self.features.hop_length);
        (self.layers + 1) * (self.kernel / 2) + overlap
    }

    /// Returns the number of samples of the first frame's window that lie before the first sample of the sound.
    pub(super) fn before(&self) -> usize {
        let LogMelConfig { n_fft, win_length, .. } = self.features;
        n_fft / 2 - (n_fft - win_length) / 2
    }
}

/// Checks that log-mels of `config` become sound, and that each frame is centered on its first sample.
fn check_features(config: &LogMelConfig) -> Result<(), InvalidField> {
    check::features(config)?;
    if let Err(error) = Vocoder::new(config) {
        let expected = format!("features that can become sound: {error}");
        return Err(InvalidField { field: "features", value: "unsuitable".into(), expected });
    }
    let has_edges = matches!(config.padding, Padding::Reflect | Padding::Constant);
    require(has_edges, "features.padding", format!("{:?}", config.padding).to_lowercase(), "reflect or constant")?;
    let LogMelConfig { win_length, hop_length, .. } = *config;
    require(win_length.is_multiple_of(2), "features.win_length", win_length, "an even number")?;
    let most = win_length / 2;
    require(hop_length <= most, "features.hop_length", hop_length, format!("at most half the window, {most}"))
}

/// Configuration of the [`Discriminators`](super::Discriminators) that a vocoder is trained with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscriminatorConfig {
    /// Periods in samples. A discriminator compares samples that lie a multiple of its period apart.
    pub periods: Vec<usize>,
    /// Number of channels of each layer of a period's discriminator. All layers but the last keep every third output.
    pub period_channels: Vec<usize>,
    /// Lengths of Fourier transforms in samples. A discriminator sees the magnitudes of one length; the spectral loss sees
    /// all of them.
    pub resolutions: Vec<usize>,
    /// Number of channels of each layer of a resolution's discriminator.
    pub resolution_channels: Vec<usize>,
}

impl Default for DiscriminatorConfig {
    /// Periods of HiFi-GAN and three resolutions, with few channels, for a CPU.
    fn default() -> Self {
        Self {
            periods: vec![2, 3, 5, 7, 11],
            period_channels: vec![8, 16, 32, 64],
            resolutions: vec![256, 512, 1024],
            resolution_channels: vec![8, 16, 16],
        }
    }
}

impl DiscriminatorConfig {
    /// Checks that discriminators of this configuration can be built, for sound of `crop` samples.
    fn check(&self, crop: usize) -> Result<(), InvalidField> {
        require(!self.resolutions.is_empty(), "resolutions", "empty", "at least one")?;
        inside("periods", self.periods.len(), 0..=MAX_LAYERS)?;
        for &period in &self.periods {
            inside("periods", period, 1..=crop)?;
        }
        for &resolution in &self.resolutions {
            inside("resolutions", resolution, 16..=crop)?;
            require(resolution.is_multiple_of(4), "resolutions", resolution, "a multiple of 4")?;
            // Each layer needs bins for its kernel; see `resolution_stack`.
            let halvings = self.resolution_channels.len().saturating_sub(1).min(32);
            let least = 8usize << halvings;
            require(resolution >= least, "resolutions", resolution, format!("at least {least} for so many layers"))?;
        }
        for (field, channels) in
            [("period_channels", &self.period_channels), ("resolution_channels", &self.resolution_channels)]
        {
            inside(field, channels.len(), 1..=MAX_LAYERS)?;
            for &count in channels {
                inside(field, count, 1..=MAX_WIDTH)?;
            }
        }
        Ok(())
    }
}

/// Weights of the terms of a vocoder's training loss. Each term is a mean over the values of a crop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocoderLossConfig {
    /// Weight of the absolute difference of log-mels, in nats.
    pub mel: f64,
    /// Weight of the multi-resolution spectral loss: spectral convergence and the difference of logarithms.
    pub spectrum: f64,
    /// Weight of the adversarial term: how clearly generated sound is recognized as generated.
    pub adversarial: f64,
    /// Weight of feature matching: the difference of the discriminators' hidden values.
    pub features: f64,
}

impl Default for VocoderLossConfig {
    fn default() -> Self {
        Self { mel: 5.0, spectrum: 2.0, adversarial: 0.5, features: 1.0 }
    }
}

/// Configuration of a [`VocoderTask`](super::VocoderTask).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocoderTaskConfig {
    /// Configuration of the vocoder.
    pub vocoder: VocoderConfig,
    /// Configuration of the discriminators.
    pub discriminators: DiscriminatorConfig,
    /// Weights of the loss.
    pub loss: VocoderLossConfig,
    /// Number of samples of each crop.
    pub crop: usize,
}

impl VocoderTaskConfig {
    /// Returns the recommended configuration for log-mels of `features`: crops of half a second.
    pub fn recommended(features: LogMelConfig) -> Self {
        let hops = (features.sample_rate as usize / 2).div_ceil(features.hop_length.max(1));
        let crop = hops * features.hop_length;
        let (discriminators, loss) = (DiscriminatorConfig::default(), VocoderLossConfig::default());
        Self { vocoder: VocoderConfig::recommended(features), discriminators, loss, crop }
    }

    /// Returns the number of frames that validation turns into sound at a time: as many as a crop has.
    pub fn chunk_frames(&self) -> usize {
        (self.crop / self.vocoder.features.hop_length.max(1)).max(1)
    }

    /// Checks that the vocoder and its discriminators can be built and trained.
    ///
    /// # Errors
    /// The first field for which they cannot.
    pub fn check(&self) -> Result<(), InvalidField> {
        self.vocoder.check()?;
        let least = self.vocoder.features.n_fft;
        inside("crop", self.crop, least..=1 << 24)?;
        self.discriminators.check(self.crop)?;
        let VocoderLossConfig { mel, spectrum, adversarial, features } = self.loss;
        positive("loss.mel", mel)?;
        not_negative("loss.spectrum", spectrum)?;
        not_negative("loss.adversarial", adversarial)?;
        not_negative("loss.features", features)
    }
}
