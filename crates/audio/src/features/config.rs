//! Settings of a log-mel spectrogram, and presets that match those of known speech systems.

use serde::{Deserialize, Serialize};

/// Formula of the mel scale, which spaces the mel channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelScale {
    /// Mel scale `2595 log10(1 + f / 700)`, used by HTK and Kaldi; torchaudio's default.
    Htk,
    /// Mel scale that is linear below 1 kHz and logarithmic above, from Slaney's Auditory Toolbox; librosa's default.
    Slaney,
}

/// Window function that each frame is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Hann window with a period of the window's length, as PyTorch and librosa compute it.
    HannPeriodic,
    /// Hann window that reaches zero at both ends.
    HannSymmetric,
    /// Kaldi's window: the symmetric Hann window to the power 0.85.
    Povey,
}

/// Padding of the audio before its first and after its last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Half a frame of mirrored audio, so that frame `n` is centered on sample `n * hop_length`.
    Reflect,
    /// Half a frame of zeros, so that frame `n` is centered on sample `n * hop_length`.
    Constant,
    /// Half a frame of mirrored audio before the first sample, and silence after the last: the frames end with the first that
    /// hears nothing else. Frame `n` is centered on sample `n * hop_length`.
    Silence,
    /// No padding: the first frame begins at the first sample, and an incomplete last frame is dropped.
    None,
}

/// Quantity that the mel filters sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spectrum {
    /// Absolute value of the spectrum (power 1).
    Magnitude,
    /// Squared absolute value of the spectrum (power 2).
    Power,
}

/// Base of the logarithm of the mel values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Log {
    /// Natural logarithm.
    Ln,
    /// Logarithm to base 10.
    Log10,
}

/// Lower limit of the mel values, which keeps zeros away from the logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Floor {
    /// Adds the number before the logarithm: `log(x + number)`.
    Add(f32),
    /// Raises smaller values to the number: `log(max(x, number))`.
    Max(f32),
}

/// Normalization of the features over one utterance, as the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalize {
    /// No normalization.
    None,
    /// Subtracts the mean of each mel channel.
    UtteranceMean,
    /// Subtracts the mean of each mel channel, then divides by its standard deviation (unbiased) plus 1e-5.
    UtteranceMeanVariance,
    /// As [`UtteranceMeanVariance`](Self::UtteranceMeanVariance), with the mean and the deviation of the frames with speech:
    /// those at most 20 dB below the loudest. So a pause before or after the words changes little in them. Values more than
    /// four deviations below the mean are raised to that: silence has no end.
    SpeechMeanVariance,
}

/// All settings of a log-mel spectrogram. The default is the preset `plimsoll`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogMelConfig {
    /// Sample rate in hertz. Default: 16000.
    pub sample_rate: u32,
    /// Length of the Fourier transform in samples. Default: 512.
    pub n_fft: usize,
    /// Length of the window in samples, centered in the transform; at most `n_fft`. Default: 400.
    pub win_length: usize,
    /// Samples from one frame to the next. Default: 160, which is 10 ms.
    pub hop_length: usize,
    /// Number of mel channels. Default: 80.
    pub n_mels: usize,
    /// Lower edge of the first mel channel in hertz. Default: 0.
    pub f_min: f64,
    /// Upper edge of the last mel channel in hertz. Default: half the sample rate.
    pub f_max: Option<f64>,
    /// Formula of the mel scale, which spaces the channels. Default: HTK.
    pub mel_scale: MelScale,
    /// Whether the weights of a mel channel are divided by its width (librosa's `norm="slaney"`). Default: no.
    pub area_norm: bool,
    /// Window function that each frame is multiplied by. Default: periodic Hann.
    pub window: Window,
    /// Whether the spectrum is divided by the L2 norm of the window (torchaudio's `normalized=True`). Default: no.
    pub window_norm: bool,
    /// Padding before and after the audio. Default: mirrored audio.
    pub padding: Padding,
    /// Quantity that the mel filters sum. Default: power.
    pub spectrum: Spectrum,
    /// Factor of the pre-emphasis `x[n] - factor * x[n - 1]`, the first step. Default: none.
    pub preemphasis: Option<f32>,
    /// Base of the logarithm. Default: natural.
    pub log: Log,
    /// Lower limit of the mel values, which keeps zeros away from the logarithm. Default: at least 1e-10.
    pub floor: Floor,
    /// Dynamic range of Whisper's last step: raises log-mel values that lie more than this below the maximum, then
    /// scales by `(x + 4) / 4`. Default: none.
    pub dynamic_range: Option<f32>,
    /// Whether the last frame, which covers mostly padding, is dropped. Default: no.
    pub drop_last_frame: bool,
    /// Normalization of the features over the utterance, the last step. Default: mean and variance.
    ///
    /// Written as `normalise`, the spelling of the first versions; both spellings are read.
    #[serde(rename = "normalise", alias = "normalize")]
    pub normalize: Normalize,
}

impl Default for LogMelConfig {
    fn default() -> Self {
        Self {
            sample_rate: 16_000,
            n_fft: 512,
            win_length: 400,
            hop_length: 160,
            n_mels: 80,
            f_min: 0.0,
            f_max: None,
            mel_scale: MelScale::Htk,
            area_norm: false,
            window: Window::HannPeriodic,
            window_norm: false,
            padding: Padding::Reflect,
            spectrum: Spectrum::Power,
            preemphasis: None,
            log: Log::Ln,
            floor: Floor::Max(1e-10),
            dynamic_range: None,
            drop_last_frame: false,
            normalize: Normalize::UtteranceMeanVariance,
        }
    }
}

impl LogMelConfig {
    /// Names of the presets that [`LogMelConfig::preset`] accepts.
    pub const PRESETS: [&str; 9] =
        ["plimsoll", "spoken", "konkani", "espnet", "nemo", "whisper", "whisper-padded", "xtts", "myxtts"];

    /// Returns the feature settings of a known speech system; `None` for an unknown name.
    ///
    /// Steps of a system that [`LogMelConfig`] cannot express are not in its preset: ESPnet's global normalization,
    /// NeMo's dither, XTTS's division by per-channel norms, MyXTTS's peak normalization of the waveform.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "plimsoll" => Some(Self::default()),
            "spoken" => Some(Self { normalize: Normalize::SpeechMeanVariance, ..Self::default() }),
            "konkani" => Some(Self::konkani()),
            "espnet" => Some(Self::espnet()),
            "nemo" => Some(Self::nemo()),
            "whisper" => Some(Self::whisper()),
            "whisper-padded" => Some(Self { padding: Padding::Silence, ..Self::whisper() }),
            "xtts" => Some(Self::xtts()),
            "myxtts" => Some(Self::myxtts()),
            _ => None,
        }
    }

    /// Returns the feature settings of KonkaniVani: torchaudio's `MelSpectrogram(normalized=True)` and a logarithm,
    /// `ln(x + 1e-9)`.
    fn konkani() -> Self {
        Self { n_fft: 400, window_norm: true, floor: Floor::Add(1e-9), normalize: Normalize::None, ..Self::default() }
    }

    /// Returns the feature settings of ESPnet's default frontend, before its global normalization.
    fn espnet() -> Self {
        Self { win_length: 512, hop_length: 128, normalize: Normalize::None, ..Self::default().slaney() }
    }

    /// Returns the feature settings of NeMo's `AudioToMelSpectrogramPreprocessor`, without dither.
    fn nemo() -> Self {
        Self {
            window: Window::HannSymmetric,
            padding: Padding::Constant,
            preemphasis: Some(0.97),
            floor: Floor::Add(2f32.powi(-24)),
            drop_last_frame: true,
            ..Self::default().slaney()
        }
    }

    /// Returns the feature settings of Whisper, all sizes before large-v3.
    fn whisper() -> Self {
        Self {
            n_fft: 400,
            log: Log::Log10,
            dynamic_range: Some(8.0),
            drop_last_frame: true,
            normalize: Normalize::None,
            ..Self::default().slaney()
        }
    }

    /// Returns the feature settings of XTTS's discrete autoencoder, before the division by its per-channel norms.
    fn xtts() -> Self {
        let default = Self::default();
        Self { f_max: Some(8_000.0), area_norm: true, floor: Floor::Max(1e-5), ..default.speech_synthesis() }
    }

    /// Returns the feature settings of MyXTTS: librosa's magnitude mel spectrogram.
    fn myxtts() -> Self {
        Self {
            padding: Padding::Constant,
            spectrum: Spectrum::Magnitude,
            floor: Floor::Max(1e-5),
            ..Self::default().slaney().speech_synthesis()
        }
    }

    fn slaney(self) -> Self {
        Self { mel_scale: MelScale::Slaney, area_norm: true, ..self }
    }

    fn speech_synthesis(self) -> Self {
        let (n_fft, win_length, hop_length) = (1024, 1024, 256);
        Self { sample_rate: 22_050, n_fft, win_length, hop_length, normalize: Normalize::None, ..self }
    }

    /// Returns a text that identifies these settings in the keys of stored features.
    ///
    /// The text is the `Debug` text, but with `normalise` spelled as in the first versions, so that features which
    /// those versions stored are still found.
    pub fn cache_key(&self) -> String {
        format!("{self:?}").replace(" normalize: ", " normalise: ")
    }

    /// Returns the upper edge of the last mel channel in hertz.
    pub fn f_max(&self) -> f64 {
        self.f_max.unwrap_or(f64::from(self.sample_rate) / 2.0)
    }
}
