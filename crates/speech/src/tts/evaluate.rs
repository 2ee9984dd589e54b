//! Evaluation of a synthesizer: losses with teacher forcing, and distance from the recordings in free generation.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{BatchSource, Grid, HostBatch, HostSample, Key};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};
use plimsoll_train::InferenceRunner;

use super::{Alignment, Ending, GeneratedMels, Synthesizer, dtw_distance};
use crate::EvaluationError;

/// Seed of the prenet's dropout in evaluations, so that all evaluations have the same randomness.
const PRENET_SEED: u64 = 1;

/// Computes the mean losses of `model` per frame over `source` with teacher forcing. The keys of the result are the
/// names of [`Synthesizer::losses`].
///
/// The model may be in training; `runner` splits a batch that does not fit into memory.
///
/// # Errors
/// [`EvaluationError::Source`] when the source fails as a whole, [`EvaluationError::Device`] when the device fails.
pub fn teacher_forced_losses(
    model: &Synthesizer,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    runner: &mut InferenceRunner<'_>,
) -> Result<BTreeMap<&'static str, f64>, EvaluationError> {
    let model = model.valid();
    let device = device_of(&model);
    let (mut sums, mut frames) = (BTreeMap::new(), 0.0);
    while let Some(delivered) = source.next_batch() {
        let batch = delivered?.batch;
        let losses = runner.run(&batch, |micro_batch| {
            let tensors = TensorBatch::send(micro_batch, &device);
            let prenet_noise = Noise::new(Key::new(PRENET_SEED), &tensors.ids);
            let guided = model.config().loss.guide_weight > 0.0;
            let output = model.teacher_forced(&tensors, guided, &prenet_noise, &Pass::plain());
            let value = |(name, loss): (&'static str, Tensor<1>)| (name, f64::from(loss.into_scalar::<f32>()));
            model.losses(&output).into_iter().map(value).collect::<Vec<_>>()
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
/// The model may be in training. A batch has at most `batch_size` texts; `runner` splits it when it does not fit into
/// memory.
///
/// # Errors
/// [`EvaluationError::Device`] when the device fails.
///
/// # Panics
/// When a sample's features are not whole frames.
pub fn evaluate_synthesis(
    model: &Synthesizer,
    samples: &[HostSample],
    batch_size: usize,
    runner: &mut InferenceRunner<'_>,
) -> Result<SynthesisEvaluation, EvaluationError> {
    let model = model.valid();
    let device = device_of(&model);
    let width = model.config().features;
    let mut evaluation = SynthesisEvaluation::default();
    for samples in samples.chunks(batch_size.max(1)) {
        let batch = HostBatch::collate(samples, width, &Grid::default()).expect("samples are whole frames");
        let generated = runner.run(&batch, |micro_batch| {
            let tensors = TensorBatch::send(micro_batch, &device);
            let voices = model.batch_voices(&tensors, &Pass::plain());
            model.generate(&tensors.tokens, &tensors.ids, voices, Key::new(PRENET_SEED))
        })?;
        evaluation.utterances.extend(samples.iter().zip(generated.into_iter().flatten()).map(|(target, generated)| {
            let distance = dtw_distance(&generated.mels, &target.features, width);
            SynthesizedUtterance { target: target.clone(), generated, distance }
        }));
    }
    Ok(evaluation)
}

impl SynthesizedUtterance {
    /// Computes the attention of `model` over the text during the generation of this utterance. `model` must be the
    /// model that generated the utterance.
    pub fn alignment(&self, model: &Synthesizer) -> Alignment {
        let model = model.valid();
        let own_frames = HostSample { features: self.generated.before_postnet.clone(), ..self.target.clone() };
        let batch = HostBatch::collate(&[own_frames], model.config().features, &Grid::default())
            .expect("generated frames are whole");
        let batch = TensorBatch::send(&batch, &device_of(&model));
        let target = HostBatch::collate(std::slice::from_ref(&self.target), model.config().features, &Grid::default())
            .expect("the features are whole frames");
        let voice = model.batch_voices(&TensorBatch::send(&target, &device_of(&model)), &Pass::plain());
        let prenet_noise = Noise::new(Key::new(PRENET_SEED), &batch.ids);
        Alignment::from_attention(&model.attention_weights_in(&batch, voice, &prenet_noise), model.config().reduction)
    }
}

fn device_of(model: &Synthesizer) -> Device {
    model.devices().into_iter().next().expect("a model has parameters")
}
