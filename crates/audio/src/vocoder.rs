//! The built-in vocoder: from log-mel features back to sound, without a trained model.
//!
//! Features keep how loud every band is in every frame, and lose which bins of the spectrum made it so and all phases.
//! [`unmel`] finds bins that would have made these bands; [`griffin_lim`] finds phases under which neighbouring frames
//! agree about the samples they share. The sound is plain and a little hollow, but it says what the features say.

// Shapes: t frames, m mel channels, k bins of the spectrum; all frame after frame, as features are.

mod griffin_lim;
mod unmel;

use std::sync::Arc;

use rayon::prelude::*;
use realfft::{ComplexToReal, RealFftPlanner};

use crate::features::{FeatureError, LogMel, LogMelConfig, Normalise, Padding};
use griffin_lim::GriffinLim;
use unmel::Unmel;

/// Why features cannot be turned back into sound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VocoderError {
    /// They are no features in the first place.
    #[error(transparent)]
    Features(#[from] FeatureError),
    /// The loudness of their channels was taken out.
    #[error("features that are normalised over each utterance cannot be turned back into sound")]
    Normalised,
    /// What was quiet was raised, and how loud the loudest value was is not in them.
    #[error("features with a `dynamic_range` cannot be turned back into sound")]
    DynamicRange,
    /// They are those of another sound.
    #[error("features with `preemphasis` cannot be turned back into sound")]
    Preemphasis,
    /// Between their frames there is sound that no frame has seen.
    #[error("features whose `hop_length` of {hop_length} is more than their `win_length` of {win_length} have gaps")]
    Gaps {
        /// Samples from one frame to the next.
        hop_length: usize,
        /// Samples that a frame sees.
        win_length: usize,
    },
}

/// Turns log-mel features back into sound (Griffin-Lim with momentum).
///
/// One serves any number of threads; a sound is made on the thread that asks for it, at 16 kHz about 40 times faster than
/// it lasts (measured, with a transform of 1024 and a hop of 200).
///
/// ```
/// use plimsoll_audio::{LogMel, LogMelConfig, Vocoder};
///
/// let config = LogMelConfig::preset("myxtts").expect("a known preset");
/// let tone: Vec<f32> = (0..22_050).map(|n| 0.5 * (0.1 * n as f32).sin()).collect();
/// let features = LogMel::new(&config)?.extract(&tone);
/// let sound = Vocoder::new(&config)?.with_iterations(10).wave(&features);
/// assert!(sound.len().abs_diff(tone.len()) < config.hop_length);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Vocoder {
    log_mel: LogMel,
    inverse: Arc<dyn ComplexToReal<f32>>,
    iterations: usize,
}

impl Vocoder {
    /// Rounds of Griffin-Lim where nobody says otherwise; later ones change little with momentum.
    pub const ITERATIONS: usize = 60;

    /// A vocoder for features of `config`; an error where these cannot be turned back.
    pub fn new(config: &LogMelConfig) -> Result<Self, VocoderError> {
        let log_mel = LogMel::new(config)?;
        let LogMelConfig { hop_length, win_length, .. } = *config;
        if config.normalise != Normalise::None {
            return Err(VocoderError::Normalised);
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

    /// The same vocoder with another number of rounds.
    #[must_use]
    pub fn with_iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// The features it was made for.
    pub fn config(&self) -> &LogMelConfig {
        self.log_mel.config()
    }

    /// The sound of each of `stretches`, as [`wave`](Self::wave) makes it, all cores at work.
    pub fn waves(&self, stretches: &[&[f32]]) -> Vec<Vec<f32>> {
        stretches.par_iter().map(|features| self.wave(features)).collect()
    }

    /// The sound of `features` `[t, m]`, frame after frame: samples at the configured rate, between -1 and 1.
    ///
    /// It has as many frames as `features`, and about `t * hop_length` samples. The same features give the same
    /// sound, to the last bit on one machine.
    ///
    /// # Panics
    /// When `features` end inside a frame.
    pub fn wave(&self, features: &[f32]) -> Vec<f32> {
        let n_mels = self.log_mel.n_mels();
        assert!(features.len().is_multiple_of(n_mels), "{} values are no frames of {n_mels}", features.len());
        if features.is_empty() {
            return Vec::new();
        }
        let magnitudes = Unmel::new(&self.log_mel).magnitudes(features);
        let length = self.length(features.len() / n_mels);
        let sound = GriffinLim::new(&self.log_mel, &*self.inverse, &magnitudes, length).run(self.iterations);
        within_one(sound)
    }

    /// The samples of so many frames: a hop for each, without the one that would begin the next frame.
    fn length(&self, frames: usize) -> usize {
        let LogMelConfig { hop_length, n_fft, padding, drop_last_frame, .. } = *self.config();
        if padding == Padding::None {
            return (frames - 1 + usize::from(drop_last_frame)) * hop_length + n_fft;
        }
        let whole = frames * hop_length;
        if self.log_mel.frames(whole) > frames { (whole - 1).max(1) } else { whole }
    }
}

/// Softer where it is too loud, never cut.
fn within_one(mut sound: Vec<f32>) -> Vec<f32> {
    let loudest = sound.iter().fold(1f32, |most, sample| most.max(sample.abs()));
    sound.iter_mut().for_each(|sample| *sample /= loudest);
    sound
}
