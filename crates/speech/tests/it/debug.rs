//! Debug mode names the layer where a value that is not finite began, for each layer of each model.

use burn::tensor::Device;
use plimsoll_core::{Choice, Grid, HostBatch, HostSample, Key, Precision, Remat, SampleId};
use plimsoll_layers::{HeadPositions, NormKind};
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::SynthesizerConfig;
use plimsoll_tape::{Task, apply, collect};
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

const FEATURES: usize = 20;

fn batch() -> HostBatch {
    let sample = |name: &str, frames: usize, tokens: &[u32]| {
        let value = |index: usize| Key::new(1).with(name).at(index as u64).unit() as f32 - 0.5;
        HostSample {
            id: SampleId::from_name(name),
            name: name.into(),
            features: (0..frames * FEATURES).map(value).collect(),
            tokens: tokens.to_vec(),
            reference: (0..12 * FEATURES).map(value).collect(),
        }
    };
    HostBatch::collate(&[sample("a", 60, &[5, 6, 7]), sample("b", 41, &[8, 8])], FEATURES, &Grid::default()).unwrap()
}

/// Puts NaN into the weight of each layer in turn, and checks that a step names that layer.
fn check<T: Task<Batch = HostBatch>>(model: &T, choice: Choice) {
    let values = collect(model);
    let batch = batch();
    let layers = values.iter().enumerate().filter_map(|(index, value)| {
        let ends = [".weight", ".gamma"].iter();
        Some((index, ends.filter_map(|end| value.name.strip_suffix(end)).next()?))
    });
    let (mut count, mut wrong) = (0, Vec::new());
    for (index, layer) in layers {
        let mut broken = values.clone();
        broken[index].values.fill(f32::NAN);
        let task = apply(model.clone(), broken).unwrap();
        let config = TrainerConfig { debug: true, choice, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let mut trainer = Trainer::new(task, config, Governor::new(2));
        let error = trainer.step(&batch).unwrap_err();
        let StepError::NotFinite { place, .. } = &error else { panic!("{layer}: {error}") };
        if place.as_deref() != Some(format!("the output of `{layer}`").as_str()) {
            wrong.push(format!("{layer}: {place:?}"));
        }
        count += 1;
    }
    assert!(count > 15 && wrong.is_empty(), "{count} layers, wrong: {wrong:#?}");
}

#[test]
fn each_layer_of_a_recognizer_is_named() {
    let config = RecognizerConfig {
        features: FEATURES,
        heads: 2,
        kernel: 5,
        subsampling_channels: 4,
        ..RecognizerConfig::recommended(16, 1, 1, 9)
    };
    let device = Device::flex().autodiff();
    for (positions, norm, choice) in [
        (HeadPositions::Absolute, NormKind::Layer, Choice::default()),
        (HeadPositions::Relative, NormKind::Group(4), Choice { remat: Remat::All, ..Choice::default() }),
        (HeadPositions::Rotary, NormKind::Batch, Choice { precision: Precision::Bf16, ..Choice::default() }),
    ] {
        check(&RecognizerConfig { positions, norm, ..config }.init(&device, Key::new(3)), choice);
    }
}

#[test]
fn each_layer_of_a_synthesizer_is_named() {
    let model = SynthesizerConfig::recommended(FEATURES, 9, 16, 1).init(&Device::flex().autodiff(), Key::new(3));
    for remat in [Remat::None, Remat::All] {
        check(&model, Choice { remat, ..Choice::default() });
    }
}
