//! How well a synthesiser speaks: what it says where it is told the truth, and what it says by itself.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{BatchSource, Grid, HostBatch, HostSample, Key};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};
use plimsoll_train::Careful;

use super::{Alignment, Ending, Spoken, Synthesiser, likeness};
use crate::JudgeError;

/// What the prenet forgets while a model is judged: the same whenever it is.
const FORGETTING: u64 = 1;

/// The losses of `model` over all of `source`, by name, for each frame, as much at once as `careful` finds to fit; the model
/// may be in training.
pub fn losses(
    model: &Synthesiser,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    careful: &mut Careful<'_>,
) -> Result<BTreeMap<&'static str, f64>, JudgeError> {
    let model = model.valid();
    let device = device_of(&model);
    let (mut sums, mut frames) = (BTreeMap::new(), 0.0);
    while let Some(delivered) = source.next_batch() {
        let batch = delivered?.batch;
        let pieces = careful.over(&batch, |piece| {
            let tensors = TensorBatch::send(piece, &device);
            let forgetting = Noise::new(Key::new(FORGETTING), &tensors.ids);
            let guided = model.config().loss.guide_weight > 0.0;
            let said = model.follow(&tensors, guided, &forgetting, &Pass::plain());
            let value = |(name, loss): (&'static str, Tensor<1>)| (name, f64::from(loss.into_scalar::<f32>()));
            model.losses(&said).into_iter().map(value).collect::<Vec<_>>()
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
pub struct Spoke {
    /// The utterance.
    pub truth: HostSample,
    /// What was said.
    pub spoken: Spoken,
    /// How far that is from the utterance, whatever its pace: [`likeness`] of their log-mels.
    pub apart: f64,
}

/// How a model speaks by itself.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// What was said.
    pub utterances: Vec<Spoke>,
}

impl Delivery {
    /// The mean distance from the truth.
    pub fn apart(&self) -> f64 {
        self.mean(|spoke| spoke.apart)
    }

    /// The share that came to an end by itself.
    pub fn stopped(&self) -> f64 {
        self.mean(|spoke| f64::from(u8::from(spoke.spoken.ending == Ending::Stopped)))
    }

    /// How much longer or shorter than the truth, as a share of it: the mean of what each is off.
    pub fn off_length(&self) -> f64 {
        self.mean(|spoke| {
            let (said, truth) = (spoke.spoken.mels.len() as f64, spoke.truth.features.len() as f64);
            (said - truth).abs() / truth.max(1.0)
        })
    }

    fn mean(&self, of: impl Fn(&Spoke) -> f64) -> f64 {
        self.utterances.iter().map(of).sum::<f64>() / self.utterances.len().max(1) as f64
    }
}

/// Has `model`, which may be in training, say the texts of `samples` by itself in the voices of their references, up to
/// `together` at once, and no more than `careful` finds to fit.
pub fn deliver(
    model: &Synthesiser,
    samples: &[HostSample],
    together: usize,
    careful: &mut Careful<'_>,
) -> Result<Delivery, JudgeError> {
    let model = model.valid();
    let device = device_of(&model);
    let width = model.config().features;
    let mut delivery = Delivery::default();
    for samples in samples.chunks(together.max(1)) {
        let batch = HostBatch::collate(samples, width, &Grid::default()).expect("samples are whole frames");
        let spoken = careful.over(&batch, |piece| {
            let tensors = TensorBatch::send(piece, &device);
            let voices = model.voice_of(&tensors, &Pass::plain());
            model.speak(&tensors.tokens, &tensors.ids, voices, Key::new(FORGETTING))
        })?;
        delivery.utterances.extend(samples.iter().zip(spoken.into_iter().flatten()).map(|(truth, spoken)| {
            let apart = likeness(&spoken.mels, &truth.features, width);
            Spoke { truth: truth.clone(), spoken, apart }
        }));
    }
    Ok(delivery)
}

impl Spoke {
    /// Where `model` looked while it said this.
    pub fn alignment(&self, model: &Synthesiser) -> Alignment {
        let model = model.valid();
        let told = HostSample { features: self.spoken.rough.clone(), ..self.truth.clone() };
        let batch =
            HostBatch::collate(&[told], model.config().features, &Grid::default()).expect("whole frames were said");
        let batch = TensorBatch::send(&batch, &device_of(&model));
        let own = HostBatch::collate(std::slice::from_ref(&self.truth), model.config().features, &Grid::default())
            .expect("whole frames");
        let voice = model.voice_of(&TensorBatch::send(&own, &device_of(&model)), &Pass::plain());
        let forgetting = Noise::new(Key::new(FORGETTING), &batch.ids);
        Alignment::of(&model.watch_in(&batch, voice, &forgetting), model.config().reduction)
    }
}

fn device_of(model: &Synthesiser) -> Device {
    model.devices().into_iter().next().expect("a model has parameters")
}
