//! Evaluation of a synthesizer: losses with teacher forcing, and distance from the recordings in free generation.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use plimsoll_core::{BatchSource, Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_tape::TensorBatch;
use plimsoll_train::InferenceRunner;

use super::{Alignment, Ending, GeneratedMels, GenerationOptions, SpeechModel, SpeechTask, SpeechText, dtw_distance};
use crate::EvaluationError;

/// Seed of the prenet's dropout in evaluations, so that all evaluations have the same randomness.
const PRENET_SEED: u64 = 1;

/// Computes the mean losses of `model` per frame over `source` with teacher forcing. The keys of the result are the
/// names of the losses in training.
///
/// The model may be in training; `runner` splits a batch that does not fit into memory.
///
/// # Errors
/// [`EvaluationError::Source`] when the source fails as a whole, [`EvaluationError::Device`] when the device fails.
pub fn teacher_forced_losses<M: SpeechTask>(
    model: &M,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    runner: &mut InferenceRunner<'_>,
) -> Result<BTreeMap<&'static str, f64>, EvaluationError> {
    let model = model.valid();
    let device = model.device();
    let (mut sums, mut frames) = (BTreeMap::new(), 0.0);
    while let Some(delivered) = source.next_batch() {
        let batch = delivered?.batch;
        let losses = runner.run(&batch, |micro_batch| {
            let tensors = TensorBatch::send(micro_batch, &device);
            let value = |(name, loss): (&'static str, Tensor<1>)| (name, f64::from(loss.into_scalar::<f32>()));
            let losses = model.evaluation_losses(&tensors, Key::new(PRENET_SEED));
            losses.into_iter().map(value).collect::<Vec<_>>()
        })?;
        for (name, loss) in losses.into_iter().flatten() {
            *sums.entry(name).or_insert(0.0) += loss;
        }
        frames += model.weight(&batch);
    }
    Ok(sums.into_iter().map(|(name, sum)| (name, sum / f64::max(frames, 1.0))).collect())
}

/// An utterance with its true recording and the generated log-mels.
#[derive(Clone, Debug)]
pub struct SynthesizedUtterance {
    /// True utterance: its text, its log-mels and the reference of its voice.
    pub target: HostSample,
    /// Log-mels that were generated for the text of the utterance.
    pub generated: GeneratedMels,
    /// Distance between the generated and the true log-mels by dynamic time warping; see [`dtw_distance`].
    pub distance: f64,
}

/// Result of evaluating a synthesizer in free generation: the generated utterances, beside their recordings.
#[derive(Clone, Debug, Default)]
pub struct SynthesisEvaluation {
    /// Every generated utterance, with its distance from the recording.
    pub utterances: Vec<SynthesizedUtterance>,
}

impl SynthesisEvaluation {
    /// Computes the mean of the utterances' distances from the recordings.
    pub fn mean_distance(&self) -> f64 {
        self.mean(|utterance| utterance.distance)
    }

    /// Computes the share of utterances in which the model predicted a stop, from 0 to 1.
    pub fn stopped_share(&self) -> f64 {
        self.mean(|utterance| f64::from(u8::from(utterance.generated.ending == Ending::Stopped)))
    }

    /// Computes the mean relative error of the generated lengths: `|generated length - true length| / true length`.
    pub fn length_error(&self) -> f64 {
        self.mean(|utterance| {
            let (generated, target) = (utterance.generated.mels.len() as f64, utterance.target.features.len() as f64);
            (generated - target).abs() / target.max(1.0)
        })
    }

    fn mean(&self, value: impl Fn(&SynthesizedUtterance) -> f64) -> f64 {
        self.utterances.iter().map(value).sum::<f64>() / self.utterances.len().max(1) as f64
    }
}

/// Generates the texts of `samples` in the voices of their references and compares them with the recordings.
///
/// A model in training is given as its `valid()`. A batch has at most `batch_size` texts; `runner` splits it when it does not fit into
/// memory.
///
/// # Errors
/// [`EvaluationError::Device`] when the device fails.
///
/// # Panics
/// When a sample's features are not whole frames.
pub fn evaluate_synthesis(
    model: &dyn SpeechModel,
    samples: &[HostSample],
    batch_size: usize,
    runner: &mut InferenceRunner<'_>,
) -> Result<SynthesisEvaluation, EvaluationError> {
    let (device, width) = (model.device(), model.features());
    let mut evaluation = SynthesisEvaluation::default();
    for samples in samples.chunks(batch_size.max(1)) {
        let batch = HostBatch::collate(samples, width, &Grid::default()).expect("samples are whole frames");
        let generated = runner.run(&batch, |micro_batch| {
            let tensors = TensorBatch::send(micro_batch, &device);
            let text = |(tokens, id): (&Vec<u32>, &SampleId)| SpeechText { tokens: tokens.clone(), id: *id };
            let texts: Vec<SpeechText> = tensors.tokens.iter().zip(&tensors.ids).map(text).collect();
            model.generate(&texts, model.voices(&tensors), GenerationOptions::new(Key::new(PRENET_SEED)))
        })?;
        evaluation.utterances.extend(samples.iter().zip(generated.into_iter().flatten()).map(|(target, generated)| {
            let distance = dtw_distance(&generated.mels, &target.features, width);
            SynthesizedUtterance { target: target.clone(), generated, distance }
        }));
    }
    Ok(evaluation)
}

impl SynthesizedUtterance {
    /// Computes which token each frame of this utterance came from. `model` must be the model that generated the
    /// utterance.
    pub fn alignment(&self, model: &dyn SpeechModel) -> Alignment {
        let target = HostBatch::collate(std::slice::from_ref(&self.target), model.features(), &Grid::default())
            .expect("the features are whole frames");
        let voice = model.voices(&TensorBatch::send(&target, &model.device()));
        let text = SpeechText { tokens: self.target.tokens.clone(), id: self.target.id };
        model.alignment(&text, &self.generated, voice, GenerationOptions::new(Key::new(PRENET_SEED)))
    }
}
