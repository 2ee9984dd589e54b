//! Sound of generated log-mels: by Griffin-Lim, or by a trained vocoder.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::{LogMelConfig, Vocoder};
use plimsoll_core::Seconds;

use crate::vocoder::{NeuralVocoder, RefinedVocoder};
use crate::{ModelError, ModelFolder};

/// Number of frames that a trained vocoder computes at once, which bounds its memory.
const CHUNK: usize = 512;

/// Time in which a sound rises at its beginning and falls at its end.
const FADE: Seconds = Seconds(0.005);

/// Turns log-mels into sound.
pub(super) enum Sound {
    /// By Griffin-Lim, which needs no training.
    GriffinLim(Vocoder),
    /// By a trained vocoder, followed by some rounds of Griffin-Lim.
    Neural(Box<RefinedVocoder>),
}

impl Sound {
    /// Loads the vocoder that the model in `folder` has, with the warnings about its weights, or else prepares Griffin-Lim.
    pub(super) fn of_model(
        folder: &Path,
        features: &LogMelConfig,
        device: &Device,
    ) -> Result<(Self, Vec<String>), ModelError> {
        let own = ModelFolder(folder).vocoder();
        if !ModelFolder(&own).metadata_file().exists() {
            return Ok((Self::griffin_lim(features)?, Vec::new()));
        }
        if !ModelFolder(&own).has_weights() {
            let warning =
                format!("the vocoder in {} has no weights yet, so Griffin-Lim makes the sound", own.display());
            return Ok((Self::griffin_lim(features)?, vec![warning]));
        }
        let (vocoder, warnings) = NeuralVocoder::load(&own, device)?;
        Ok((Self::neural(vocoder, features)?, warnings))
    }

    pub(super) fn griffin_lim(features: &LogMelConfig) -> Result<Self, ModelError> {
        Ok(Self::GriffinLim(Vocoder::new(features)?))
    }

    /// Takes `vocoder` for log-mels of `features`.
    ///
    /// # Errors
    /// [`ModelError::OtherFeatures`] when it was trained with others.
    pub(super) fn neural(vocoder: NeuralVocoder, features: &LogMelConfig) -> Result<Self, ModelError> {
        let own = &vocoder.config().features;
        match own == features {
            true => Ok(Self::Neural(Box::new(RefinedVocoder::new(vocoder)?))),
            false => Err(ModelError::OtherFeatures { vocoder: describe(own), model: describe(features) }),
        }
    }

    /// Computes the samples, between -1 and 1, of each of `mels`.
    pub(super) fn waveforms(&self, mels: &[&[f32]]) -> Vec<Vec<f32>> {
        match self {
            Self::GriffinLim(vocoder) => vocoder.waveforms(mels),
            Self::Neural(vocoder) => vocoder.waveforms(mels, CHUNK),
        }
    }
}

/// Names the settings by which features of one kind mostly differ.
fn describe(features: &LogMelConfig) -> String {
    let LogMelConfig { sample_rate, n_mels, hop_length, win_length, n_fft, .. } = *features;
    format!("{n_mels} bands, {sample_rate} Hz, hop {hop_length}, window {win_length} of {n_fft}")
}

/// Lets a sound rise at its beginning and fall at its end, so that a joint does not click.
pub(super) fn fade_ends(samples: &mut [f32], sample_rate: u32) {
    let length = samples.len();
    let fade = ((FADE.0 * f64::from(sample_rate)) as usize).min(length / 2);
    for at in 0..fade {
        let share = at as f32 / fade as f32;
        samples[at] *= share;
        samples[length - 1 - at] *= share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_begin_and_end_at_nothing_and_the_middle_stays() {
        for length in [0, 1, 2, 9, 400] {
            let mut samples = vec![1.0; length];
            fade_ends(&mut samples, 16_000);
            assert!(samples.iter().all(|sample| (0.0..=1.0).contains(sample)));
            assert!(length < 2 || (samples[0], samples[length - 1]) == (0.0, 0.0), "{length}");
            assert!(length < 400 || samples[80..320].iter().all(|&sample| sample == 1.0));
        }
    }
}
