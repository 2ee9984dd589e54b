//! A small recognizer gives the outputs, gradients and training steps of the same model in PyTorch.

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId};
use plimsoll_layers::Lengths;
use plimsoll_speech::asr::{EncodedAudio, Recognizer, RecognizerConfig};
use plimsoll_tape::{NamedTensor, NamedVisitor, Pass, Task, TensorBatch, apply, backward, collect, walk};
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

use crate::fixture::{Fixture, close};

/// Largest difference from PyTorch, relative to the largest value.
pub(crate) const TOLERANCE: f32 = 1e-4;

/// Returns the configuration of the model in `fixtures/model.py`.
fn config() -> RecognizerConfig {
    RecognizerConfig {
        features: 20,
        heads: 2,
        kernel: 5,
        subsampling_channels: 4,
        dropout: 0.0,
        ..RecognizerConfig::recommended(16, 2, 1, 9)
    }
}

/// Loads the weights of the fixture into `model`.
pub(crate) fn with_weights<M: Module>(model: M, fixture: &Fixture) -> M {
    let values = fixture.under("weight.");
    let named = |(name, shape, values): (&str, &[usize], &[f32])| NamedTensor {
        name: name.into(),
        shape: shape.into(),
        values: values.into(),
    };
    apply(model, values.map(named).collect()).unwrap()
}

fn model(fixture: &Fixture) -> Recognizer {
    with_weights(config().init_unseeded(&Device::flex().autodiff()), fixture)
}

fn batch(fixture: &Fixture) -> HostBatch {
    let (lengths, text_lengths) = (fixture.numbers("lengths"), fixture.numbers("text_lengths"));
    let [_, frames, features] = fixture.shape("features").unwrap().try_into().unwrap();
    let longest = fixture.shape("texts").unwrap()[1];
    let sample = |index: usize| {
        let from = index * frames * features;
        let texts = &fixture.numbers("texts")[index * longest..];
        HostSample {
            id: SampleId(index as u64),
            name: index.to_string(),
            features: fixture.values("features")[from..from + lengths[index] as usize * features].to_vec(),
            tokens: texts[..text_lengths[index] as usize].to_vec(),
            reference: Vec::new(),
        }
    };
    HostBatch::collate(&[sample(0), sample(1), sample(2)], features, &Grid::default()).unwrap()
}

/// Returns the values of `x` as a list, with padding after the given lengths set to zero.
pub(crate) fn valid(x: Tensor<3>, lengths: &[u32]) -> Vec<f32> {
    let width = x.dims()[1];
    Lengths::new(lengths.to_vec(), width).clear_padding(x).into_data().try_into_vec().unwrap()
}

/// Returns the gradient of each parameter by its name.
fn by_name<M: Module>(module: &M, gradients: &GradientsParams) -> BTreeMap<String, Vec<f32>> {
    struct Found<'a>(&'a GradientsParams, BTreeMap<String, Vec<f32>>);
    impl NamedVisitor for Found<'_> {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id).unwrap_or_else(|| panic!("no gradient of {name}"));
            self.1.insert(name.into(), gradient.into_data().try_into_vec().unwrap());
        }
    }
    let mut found = Found(gradients, BTreeMap::new());
    walk(module, &mut found);
    found.1
}

#[test]
fn forward_and_gradients_match_pytorch() {
    let fixture = Fixture::read("model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
    let lengths = Lengths::new(tensors.frame_lengths.clone(), tensors.features.dims()[1]);
    let (encoded, _): (EncodedAudio, _) = model.encode(tensors.features.clone(), &lengths, &Pass::plain());
    assert_eq!(encoded.lengths.each(), fixture.numbers("ctc_lengths"));
    let scores = valid(model.ctc_logits(&encoded, &Pass::plain()), encoded.lengths.each());
    close("scores of CTC", &scores, fixture.values("ctc_logits"), TOLERANCE);
    let logits = model.decoder().unwrap().forward(&tensors.tokens, &encoded, &Pass::plain());
    let text_lengths: Vec<u32> = fixture.numbers("text_lengths").iter().map(|n| n + 1).collect();
    close("scores of the decoder", &valid(logits, &text_lengths), fixture.values("decoder_logits"), TOLERANCE);
    gradients_agree(&model, model.loss(&tensors, &Pass::plain()).sum / model.weight(&batch), &fixture);
}

/// Compares `loss` and the gradient of every parameter of `model` with the fixture.
pub(crate) fn gradients_agree<M: Module>(model: &M, loss: Tensor<1>, fixture: &Fixture) {
    close("loss", &[loss.clone().into_scalar::<f32>()], &fixture.values("losses")[..1], TOLERANCE);
    let gradients = by_name(model, &backward(loss, model));
    for (name, _, expected) in fixture.under("grad.") {
        close(&format!("gradient of {name}"), &gradients[name], expected, TOLERANCE);
    }
    assert_eq!(gradients.len(), fixture.under("grad.").count());
}

/// Trains `model` for ten steps on `batch` and compares losses, gradient norms and final weights with the fixture. `norms` is
/// the largest relative difference of a norm.
pub(crate) fn ten_steps_agree<T: Task>(model: T, batch: &T::Batch, fixture: &Fixture, norms: f32) {
    let config = TrainerConfig::new(Schedule::constant(1e-3), Key::new(1));
    let mut trainer = Trainer::new(model, config, Governor::new(3));
    let expected = fixture.values("losses").iter().zip(fixture.values("gradient_norms"));
    for (step, (&loss, &norm)) in expected.enumerate() {
        let report = trainer.step(batch).unwrap();
        close(&format!("loss {step}"), &[report.loss as f32], &[loss], TOLERANCE);
        close(&format!("norm {step}"), &[report.norm as f32], &[norm], norms);
    }
    let values: BTreeMap<String, Vec<f32>> = collect(&trainer.task).into_iter().map(|v| (v.name, v.values)).collect();
    for (name, _, expected) in fixture.under("final.") {
        close(&format!("{name} after ten steps"), &values[name], expected, TOLERANCE);
    }
}

#[test]
fn ten_training_steps_match_pytorch() {
    let fixture = Fixture::read("model");
    ten_steps_agree(model(&fixture), &batch(&fixture), &fixture, TOLERANCE);
}
