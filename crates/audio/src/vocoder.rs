//! Built-in vocoder: converts log-mel features back to audio, without a trained model.
//!
//! Features keep the level of every mel channel in every frame, but lose the single bins of the spectrum and all
//! phases. [`inverse_mel`] estimates bins with the mel levels of the features; [`griffin_lim`] finds phases for which
//! neighboring frames agree on the samples they share. The result sounds a little hollow, but is intelligible.
//! [`Refinement`] begins with the sound of a trained vocoder instead.

// Shapes: t frames, m mel channels, k bins of the spectrum; all frame after frame, as features are.

mod griffin_lim;
mod inverse_mel;
mod refinement;

use std::sync::Arc;

use rayon::prelude::*;
use realfft::{ComplexToReal, RealFftPlanner};

use crate::features::{FeatureError, LogMel, LogMelConfig, Normalize, Padding};
use griffin_lim::{GriffinLim, magnitudes};
use inverse_mel::InverseMel;

pub use refinement::Refinement;

/// Largest sample of a sound that is refined. No vocoder makes it, and its square is a finite number.
const LOUDEST: f32 = 1e6;

/// Reason why features cannot be converted back to audio.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VocoderError {
    /// The configuration does not describe valid features.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// Normalization over the utterance removed the level of each channel.
    #[error("features normalized over each utterance cannot be converted back to audio")]
    Normalized,
    /// The dynamic range was limited relative to the loudest value, and the features do not contain that value.
    #[error("features with a `dynamic_range` cannot be converted back to audio")]
    DynamicRange,
    /// Pre-emphasis changed the audio, and the vocoder does not undo it.
    #[error("features with `preemphasis` cannot be converted back to audio")]
    Preemphasis,
    /// The hop is longer than the window, so that some samples between two frames are in no frame.
    #[error("features whose `hop_length` of {hop_length} is more than their `win_length` of {win_length} have gaps")]
    Gaps {
        /// Samples from one frame to the next.
        hop_length: usize,
        /// Length of the window in samples.
        win_length: usize,
    },
}

/// Converts log-mel features back to audio (Griffin-Lim with momentum).
///
/// Threads can share one vocoder. Each waveform is computed on the calling thread, at 16 kHz about 40 times faster than
/// real time (measured with a transform of 1024 and a hop of 200).
///
/// ```
/// use plimsoll_audio::{LogMel, LogMelConfig, Vocoder};
///
/// let config = LogMelConfig::preset("myxtts").expect("a known preset");
/// let tone: Vec<f32> = (0..22_050).map(|n| 0.5 * (0.1 * n as f32).sin()).collect();
/// let features = LogMel::new(&config)?.extract(&tone);
/// let sound = Vocoder::new(&config)?.with_iterations(10).waveform(&features);
/// assert!(sound.len().abs_diff(tone.len()) < config.hop_length);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Vocoder {
    log_mel: LogMel,
    inverse: Arc<dyn ComplexToReal<f32>>,
    iterations: usize,
}

impl std::fmt::Debug for Vocoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocoder").field("config", self.config()).field("iterations", &self.iterations).finish()
    }
}

impl Vocoder {
    /// Default number of Griffin-Lim iterations; with momentum, more iterations change little.
    pub const ITERATIONS: usize = 60;

    /// Prepares a vocoder for features of `config`.
    ///
    /// # Errors
    /// When `config` is invalid, or when its features cannot be converted back: with normalization, a `dynamic_range`,
    /// `preemphasis`, or a hop longer than the window.
    pub fn new(config: &LogMelConfig) -> Result<Self, VocoderError> {
        let log_mel = LogMel::new(config)?;
        let LogMelConfig { hop_length, win_length, .. } = *config;
        if config.normalize != Normalize::None {
            return Err(VocoderError::Normalized);
        }
        if config.dynamic_range.is_some() {
            return Err(VocoderError::DynamicRange);
        }
        if config.preemphasis.is_some() {
            return Err(VocoderError::Preemphasis);
        }
        if hop_length > win_length {
            return Err(VocoderError::Gaps { hop_length, win_length });
        }
        let inverse = RealFftPlanner::new().plan_fft_inverse(config.n_fft);
        Ok(Self { log_mel, inverse, iterations: Self::ITERATIONS })
    }

    /// Sets the number of Griffin-Lim iterations. Default: [`Self::ITERATIONS`].
    #[must_use]
    pub fn with_iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// Returns the configuration of the features that the vocoder converts.
    pub fn config(&self) -> &LogMelConfig {
        self.log_mel.config()
    }

    /// Converts the features of each of `utterances` to samples between -1 and 1, on all cores.
    ///
    /// # Panics
    /// When the features of an utterance end inside a frame.
    pub fn waveforms(&self, utterances: &[&[f32]]) -> Vec<Vec<f32>> {
        utterances.par_iter().map(|features| self.waveform(features)).collect()
    }

    /// Computes the waveform of the features `[t, m]` (frames, mel channels): samples between -1 and 1 at the
    /// configured sample rate.
    ///
    /// The waveform has as many frames as `features`, and about `t * hop_length` samples. On one machine, equal
    /// features give bit-identical samples.
    ///
    /// # Panics
    /// When `features` end inside a frame.
    pub fn waveform(&self, features: &[f32]) -> Vec<f32> {
        let n_mels = self.log_mel.n_mels();
        assert!(features.len().is_multiple_of(n_mels), "{} values are not whole frames of {n_mels}", features.len());
        if features.is_empty() {
            return Vec::new();
        }
        let magnitudes = InverseMel::new(&self.log_mel).magnitudes(features);
        let length = self.length(features.len() / n_mels);
        let sound = GriffinLim::new(&self.log_mel, &*self.inverse, &magnitudes, length).run(self.iterations);
        limit_peak(sound)
    }

    /// Brings `sound`, which another vocoder made of the features `[t, m]`, nearer to them.
    fn refined(&self, features: &[f32], sound: &[f32]) -> Vec<f32> {
        let frames = features.len() / self.log_mel.n_mels();
        // A broken model may give NaN, which would spread over all samples.
        let sane = |sample: f32| if sample.is_finite() { sample.clamp(-LOUDEST, LOUDEST) } else { 0.0 };
        let mut start: Vec<f32> = sound.iter().map(|&sample| sane(sample)).collect();
        start.resize(self.length(frames), 0.0);
        let mut spectra = magnitudes(&self.log_mel, &start, frames);
        InverseMel::new(&self.log_mel).correct(features, &mut spectra);
        GriffinLim::new(&self.log_mel, &*self.inverse, &spectra, start.len()).run_from(&start, self.iterations)
    }

    /// Computes the number of samples of a waveform from whose samples exactly `frames` frames of features can be
    /// extracted: about one hop for each frame.
    fn length(&self, frames: usize) -> usize {
        let LogMelConfig { hop_length, n_fft, padding, drop_last_frame, .. } = *self.config();
        if padding == Padding::None {
            return (frames - 1 + usize::from(drop_last_frame)) * hop_length + n_fft;
        }
        let whole = frames * hop_length;
        if self.log_mel.frames(whole) > frames { (whole - 1).max(1) } else { whole }
    }
}

/// Scales samples down when their peak is above 1, instead of clipping.
fn limit_peak(mut sound: Vec<f32>) -> Vec<f32> {
    let loudest = sound.iter().fold(1f32, |most, sample| most.max(sample.abs()));
    sound.iter_mut().for_each(|sample| *sample /= loudest);
    sound
}
