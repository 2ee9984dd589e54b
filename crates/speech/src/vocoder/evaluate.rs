//! Evaluation of a vocoder: recordings that become log-mels and sound again.

use plimsoll_audio::{LogMel, Vocoder, VocoderError};
use plimsoll_core::{Grid, HostBatch, HostSample};
use plimsoll_train::InferenceRunner;

use super::refined::refine;
use super::{NeuralVocoder, RefinedVocoder};
use crate::EvaluationError;

/// Frames of which the sound is refined at once.
const REFINED_CHUNK: usize = 512;

/// A recording, and the sound that a vocoder makes of its log-mels.
#[derive(Clone, Debug)]
pub struct VocodedUtterance {
    /// The recording: its features are samples.
    pub target: HostSample,
    /// Sound of the vocoder alone, of the length of the recording.
    pub sound: Vec<f32>,
    /// Mean absolute difference of the log-mels of both, in nats; see [`log_mel_distance`].
    pub distance: f64,
}

impl VocodedUtterance {
    /// Refines the sound as a [`RefinedVocoder`] does it. `log_mel` extracts the features of the vocoder. Returns the sound, of
    /// the length of the recording, and its distance from the recording.
    ///
    /// # Errors
    /// When the features cannot be turned into sound by Griffin-Lim.
    pub fn refined(&self, log_mel: &LogMel) -> Result<(Vec<f32>, f64), VocoderError> {
        let rounds = Vocoder::new(log_mel.config())?.with_iterations(RefinedVocoder::ROUNDS);
        let recording = &self.target.features;
        let mut refined = refine(&rounds, &log_mel.extract(recording), &self.sound, REFINED_CHUNK);
        refined.resize(recording.len(), 0.0);
        let distance = log_mel_distance(log_mel, &refined, recording);
        Ok((refined, distance))
    }
}

/// Computes the mean absolute difference of the log-mels of `sound` and of `recording`, over the frames of both.
pub fn log_mel_distance(log_mel: &LogMel, sound: &[f32], recording: &[f32]) -> f64 {
    let (found, truth) = (log_mel.extract(sound), log_mel.extract(recording));
    let count = found.len().min(truth.len());
    let sum: f64 = found.iter().zip(&truth).map(|(found, truth)| f64::from((found - truth).abs())).sum();
    sum / count.max(1) as f64
}

/// Turns each recording of `samples` into log-mels and back, `chunk` frames at a time.
///
/// The sound has 0 in place of values that are no number, which a model in training can produce.
///
/// # Errors
/// [`EvaluationError::Device`] when the device fails.
///
/// # Panics
/// If `chunk` is 0, or a sample has no sound.
pub fn evaluate_vocoding(
    vocoder: &NeuralVocoder,
    samples: &[HostSample],
    chunk: usize,
    runner: &mut InferenceRunner<'_>,
) -> Result<Vec<VocodedUtterance>, EvaluationError> {
    let log_mel = LogMel::new(&vocoder.config().features).expect("the features of a vocoder were checked");
    let mut evaluated = Vec::with_capacity(samples.len());
    for target in samples {
        let batch =
            HostBatch::collate(std::slice::from_ref(target), 1, &Grid::default()).expect("sound has whole frames");
        let mels = log_mel.extract(&target.features);
        let mut sound = runner.run(&batch, |_| vocoder.waveform(&mels, chunk))?.concat();
        sound.resize(target.features.len(), 0.0);
        sound.iter_mut().filter(|sample| !sample.is_finite()).for_each(|sample| *sample = 0.0);
        let distance = log_mel_distance(&log_mel, &sound, &target.features);
        evaluated.push(VocodedUtterance { target: target.clone(), sound, distance });
    }
    Ok(evaluated)
}
