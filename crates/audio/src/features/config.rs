//! What decides a log-mel spectrogram, and the choices of the systems whose models we want to match.

use serde::{Deserialize, Serialize};

/// How frequencies are spaced into mels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MelScale {
    /// `2595 log10(1 + f / 700)`: HTK, Kaldi, torchaudio's default.
    Htk,
    /// Linear below 1 kHz and logarithmic above: Slaney's Auditory Toolbox, librosa's default.
    Slaney,
}

/// The shape of a frame's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Hann over one sample more than the window, as PyTorch and librosa make it.
    HannPeriodic,
    /// Hann that reaches zero at both ends.
    HannSymmetric,
    /// Kaldi's: the symmetric Hann to the power 0.85.
    Povey,
}

/// What stands before the first sample and after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Half a frame of mirrored audio, so that frame `n` is centred on sample `n * hop_length`.
    Reflect,
    /// Half a frame of silence, centred likewise.
    Constant,
    /// Nothing: frames begin at the first sample and only whole ones count.
    None,
}

/// What is summed into mels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spectrum {
    /// The absolute value (power 1).
    Magnitude,
    /// Its square (power 2).
    Power,
}

/// Which logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Log {
    /// The natural one.
    Ln,
    /// To the base ten.
    Log10,
}

/// How zero is kept from the logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Floor {
    /// `log(x + number)`.
    Add(f32),
    /// `log(max(x, number))`.
    Max(f32),
}

/// What is done to an utterance's features at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalise {
    /// Nothing.
    None,
    /// Each mel channel's mean over the utterance becomes zero.
    UtteranceMean,
    /// And its (unbiased) standard deviation, plus 1e-5, becomes one.
    UtteranceMeanVariance,
}

/// All that decides a log-mel spectrogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogMelConfig {
    /// Samples a second.
    pub sample_rate: u32,
    /// Length of the Fourier transform, in samples.
    pub n_fft: usize,
    /// Length of the window, centred in the transform.
    pub win_length: usize,
    /// Samples from one frame to the next.
    pub hop_length: usize,
    /// Mel channels.
    pub n_mels: usize,
    /// Lower edge of the first channel, in hertz.
    pub f_min: f64,
    /// Upper edge of the last channel, in hertz; half the sample rate when left out.
    pub f_max: Option<f64>,
    /// Spacing of the channels.
    pub mel_scale: MelScale,
    /// Whether a channel's weights are divided by its width (librosa's `norm="slaney"`).
    pub area_norm: bool,
    /// Shape of the window.
    pub window: Window,
    /// Whether the spectrum is divided by the window's L2 norm (torchaudio's `normalized=True`).
    pub window_norm: bool,
    /// What stands before and after the audio.
    pub padding: Padding,
    /// Magnitude or power.
    pub spectrum: Spectrum,
    /// `x[n] - number * x[n - 1]` before all else.
    pub preemphasis: Option<f32>,
    /// Which logarithm.
    pub log: Log,
    /// How zero is kept from it.
    pub floor: Floor,
    /// Whisper's: raise what is more than this below the loudest value, then scale by `(x + 4) / 4`.
    pub dynamic_range: Option<f32>,
    /// Whether the last frame, which stands mostly on padding, is left out.
    pub drop_last_frame: bool,
    /// What is done at the end.
    pub normalise: Normalise,
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
            normalise: Normalise::UtteranceMeanVariance,
        }
    }
}

impl LogMelConfig {
    /// The names that [`LogMelConfig::preset`] knows.
    pub const PRESETS: [&str; 7] = ["plimsoll", "konkani", "espnet", "nemo", "whisper", "xtts", "myxtts"];

    /// The features of a known system.
    ///
    /// What a system does outside of this formula is not in its preset: ESPnet's global normalisation, NeMo's dither,
    /// XTTS's division by per-channel norms, MyXTTS's peak normalisation of the wave.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "plimsoll" => Some(Self::default()),
            "konkani" => Some(Self::konkani()),
            "espnet" => Some(Self::espnet()),
            "nemo" => Some(Self::nemo()),
            "whisper" => Some(Self::whisper()),
            "xtts" => Some(Self::xtts()),
            "myxtts" => Some(Self::myxtts()),
            _ => None,
        }
    }

    /// KonkaniVani: torchaudio's `MelSpectrogram(normalized=True)`, then `ln(x + 1e-9)`.
    fn konkani() -> Self {
        Self { n_fft: 400, window_norm: true, floor: Floor::Add(1e-9), normalise: Normalise::None, ..Self::default() }
    }

    /// ESPnet's default frontend, before its global normalisation.
    fn espnet() -> Self {
        Self { win_length: 512, hop_length: 128, normalise: Normalise::None, ..Self::default().slaney() }
    }

    /// NeMo's `AudioToMelSpectrogramPreprocessor`, without dither.
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

    /// Whisper, all sizes before large-v3.
    fn whisper() -> Self {
        Self {
            n_fft: 400,
            log: Log::Log10,
            dynamic_range: Some(8.0),
            drop_last_frame: true,
            normalise: Normalise::None,
            ..Self::default().slaney()
        }
    }

    /// XTTS's discrete autoencoder, before the division by its per-channel norms.
    fn xtts() -> Self {
        let default = Self::default();
        Self { f_max: Some(8_000.0), area_norm: true, floor: Floor::Max(1e-5), ..default.speech_synthesis() }
    }

    /// MyXTTS: librosa's magnitude mel spectrogram.
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
        Self { sample_rate: 22_050, n_fft, win_length, hop_length, normalise: Normalise::None, ..self }
    }

    /// Upper edge of the last channel, in hertz.
    pub fn f_max(&self) -> f64 {
        self.f_max.unwrap_or(f64::from(self.sample_rate) / 2.0)
    }
}
