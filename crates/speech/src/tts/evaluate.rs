//! How well a synthesiser speaks: what it says where it is told the truth, and what it says by itself.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{BatchSource, Grid, HostBatch, HostSample, Key};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};
use plimsoll_train::Careful;

use super::{Alignment, Ending, GeneratedMels, Synthesizer, dtw_distance};
use crate::EvaluationError;

/// What the prenet forgets while a model is judged: the same whenever it is.
const PRENET_SEED: u64 = 1;

/// The losses of `model` over all of `source`, by name, for each frame, as much at once as `careful` finds to fit; the model
/// may be in training.
pub fn teacher_forced_losses(
    model: &Synthesizer,
    source: &mut dyn BatchSource,
    careful: &mut Careful<'_>,
) -> Result<BTreeMap<&'static str, f64>, EvaluationError> {
    let model = model.valid();
    let device = device_of(&model);
    let (mut sums, mut frames) = (BTreeMap::new(), 0.0);
    while let Some(delivered) = source.next_batch() {
        let batch = delivered?.batch;
        let pieces = careful.over(&batch, |piece| {
            let tensors = TensorBatch::send(piece, &device);
            let prenet_noise = Noise::new(Key::new(PRENET_SEED), &tensors.ids);
            let guided = model.config().loss.guide_weight > 0.0;
            let output = model.teacher_forced(&tensors, guided, &prenet_noise, &Pass::plain());
            let value = |(name, loss): (&'static str, Tensor<1>)| (name, f64::from(loss.into_scalar::<f32>()));
            model.losses(&output).into_iter().map(value).collect::<Vec<_>>()
        })?;
        for (name, loss) in pieces.into_iter().flatten() {
            *sums.entry(name).or_insert(0.0) += loss;
        }
        frames += model.weight(&batch);
    }
    Ok(sums.into_iter().map(|(name, sum)| (name, sum / f64::max(frames, 1.0))).collect())
}

/// What a model said of an utterance by itself, beside the utterance.
#[derive(Clone, Debug)]
pub struct SynthesizedUtterance {
    /// The utterance.
    pub target: HostSample,
    /// What was said.
    pub generated: GeneratedMels,
    /// How far that is from the utterance, whatever its pace: [`dtw_distance`] of their log-mels.
    pub distance: f64,
}

/// How a model speaks by itself.
#[derive(Clone, Debug, Default)]
pub struct SynthesisEvaluation {
    /// What was said.
    pub utterances: Vec<SynthesizedUtterance>,
}

impl SynthesisEvaluation {
    /// The mean distance from the truth.
    pub fn mean_distance(&self) -> f64 {
        self.mean(|utterance| utterance.distance)
    }

    /// The share that came to an end by itself.
    pub fn stopped_share(&self) -> f64 {
        self.mean(|utterance| f64::from(u8::from(utterance.generated.ending == Ending::Stopped)))
    }

    /// How much longer or shorter than the truth, as a share of it: the mean of what each is off.
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

/// Has `model`, which may be in training, say the texts of `samples` by itself in the voices of their references, up to
/// `together` at once, and no more than `careful` finds to fit.
pub fn evaluate_synthesis(
    model: &Synthesizer,
    samples: &[HostSample],
    batch_size: usize,
    careful: &mut Careful<'_>,
) -> Result<SynthesisEvaluation, EvaluationError> {
    let model = model.valid();
    let device = device_of(&model);
    let width = model.config().features;
    let mut evaluation = SynthesisEvaluation::default();
    for samples in samples.chunks(batch_size.max(1)) {
        let batch = HostBatch::collate(samples, width, &Grid::default()).expect("samples are whole frames");
        let generated = careful.over(&batch, |piece| {
            let tensors = TensorBatch::send(piece, &device);
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
    /// Where `model` looked while it said this.
    pub fn alignment(&self, model: &Synthesizer) -> Alignment {
        let model = model.valid();
        let own_frames = HostSample { features: self.generated.before_postnet.clone(), ..self.target.clone() };
        let batch = HostBatch::collate(&[own_frames], model.config().features, &Grid::default())
            .expect("whole frames were said");
        let batch = TensorBatch::send(&batch, &device_of(&model));
        let target = HostBatch::collate(std::slice::from_ref(&self.target), model.config().features, &Grid::default())
            .expect("whole frames");
        let voice = model.batch_voices(&TensorBatch::send(&target, &device_of(&model)), &Pass::plain());
        let prenet_noise = Noise::new(Key::new(PRENET_SEED), &batch.ids);
        Alignment::from_attention(&model.attention_weights_in(&batch, voice, &prenet_noise), model.config().reduction)
    }
}

fn device_of(model: &Synthesizer) -> Device {
    model.devices().into_iter().next().expect("a model has parameters")
}
