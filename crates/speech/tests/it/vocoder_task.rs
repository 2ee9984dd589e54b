//! Properties of the training of a vocoder with its discriminators.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{
    Batch, BatchShape, Choice, Frames, Grid, HostBatch, HostSample, Key, OpenGate, Precision, Remat, SampleId,
};
use plimsoll_memory::Traceable;
use plimsoll_speech::vocoder::{NeuralVocoder, VocoderMetadata, VocoderTask, VocoderTaskConfig, evaluate_vocoding};
use plimsoll_speech::{ModelError, ModelFolder};
use plimsoll_tape::{NamedVisitor, Noise, Pass, SimulatedDevice, Task, backward, capture, collect, walk};
use plimsoll_train::{Governor, InferenceRunner, Schedule, Trainer, TrainerConfig, write_weights};

use crate::vocoder_pytorch::config;

type Gradients = BTreeMap<String, Vec<f32>>;

fn task() -> VocoderTask {
    config().init(&Device::flex().autodiff(), Key::new(3))
}

/// Makes a batch of `crops`, each with its own samples.
pub(crate) fn batch_of(crops: impl Iterator<Item = Vec<f32>>) -> HostBatch {
    let sample = |(index, features): (u64, Vec<f32>)| HostSample {
        id: SampleId(index),
        name: index.to_string(),
        features,
        tokens: vec![0],
        reference: Vec::new(),
    };
    HostBatch::collate(&(0..).zip(crops).map(sample).collect::<Vec<_>>(), 1, &Grid::default()).unwrap()
}

fn crops() -> HostBatch {
    let crop = |index: u64| {
        let key = Key::new(8).at(index);
        let sample = |n: u64| {
            let tone = (n as f64 * (0.1 + 0.07 * index as f64)).sin();
            (0.4 * tone + 0.1 * (key.at(n).unit() - 0.5)) as f32
        };
        (0..256).map(sample).collect()
    };
    batch_of((0..4).map(crop))
}

/// Computes the gradient of each parameter that `loss` has one for.
fn gradients(task: &VocoderTask, loss: Tensor<1>) -> Gradients {
    struct Found(burn::optim::GradientsParams, Gradients);
    impl NamedVisitor for Found {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                self.1.insert(name.into(), gradient.into_data().try_into_vec().unwrap());
            }
        }
    }
    let mut found = Found(backward(loss, task), Gradients::new());
    walk(task, &mut found);
    found.1
}

/// Computes the loss and the gradients of `crops` in micro-batches of at most `pieces`.
fn split(task: &VocoderTask, pieces: usize, choice: Choice) -> (f64, Gradients) {
    let (mut loss, mut sum) = (0.0, Gradients::new());
    for piece in crops().split(pieces) {
        let pass = Pass::new(choice, Noise::new(Key::new(4), piece.ids()));
        let step = task.loss(&VocoderTask::send(&piece, &Device::flex().autodiff()), &pass);
        loss += f64::from(step.sum.clone().into_scalar::<f32>());
        for (name, gradient) in gradients(task, step.sum) {
            let sum = sum.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            sum.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
        }
    }
    (loss, sum)
}

/// Computes the norm of the difference of all gradients, divided by the norm of `expected`.
fn apart(found: &Gradients, expected: &Gradients) -> f32 {
    assert!(found.keys().eq(expected.keys()));
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
    let pairs = found.values().flatten().zip(expected.values().flatten());
    norm(&mut pairs.map(|(a, b)| a - b)) / norm(&mut expected.values().flatten().copied())
}

#[test]
fn gradient_does_not_depend_on_the_split() {
    let task = task();
    let (whole, expected) = split(&task, 4, Choice::default());
    assert!(expected.values().flatten().all(|gradient| gradient.is_finite()));
    for pieces in [1, 2, 3] {
        let (loss, found) = split(&task, pieces, Choice::default());
        assert!((loss - whole).abs() < 1e-5 * whole, "{loss} {whole}");
        assert!(apart(&found, &expected) < 1e-5, "{pieces}: {}", apart(&found, &expected));
    }
}

#[test]
fn gradient_is_the_same_rematerialized_and_near_in_bf16() {
    let task = task();
    let plain = split(&task, 4, Choice::default());
    for remat in [Remat::All, Remat::Half, Remat::First(1)] {
        assert_eq!(split(&task, 4, Choice { remat, ..Choice::default() }), plain, "{remat:?}");
    }
    let (loss, found) = split(&task, 4, Choice { precision: Precision::Bf16, ..Choice::default() });
    assert!((loss - plain.0).abs() < 0.02 * plain.0, "{loss} {}", plain.0);
    assert!(apart(&found, &plain.1) < 0.2, "{}", apart(&found, &plain.1));
}

#[test]
fn each_part_gets_the_gradient_of_its_own_terms_alone() {
    let task = task();
    let samples = VocoderTask::send(&crops(), &Device::flex().autodiff());
    let joint = gradients(&task, task.loss(&samples, &Pass::plain()).sum);
    let own = gradients(&task, task.losses(&samples, &Pass::plain()).of_vocoder());
    let judging = gradients(&task, task.losses(&samples, &Pass::plain()).discriminator);
    assert!(own.keys().all(|name| name.starts_with("vocoder.")));
    assert!(judging.keys().all(|name| name.starts_with("discriminators.")));
    assert_eq!(joint.len(), own.len() + judging.len());
    assert!(own.iter().chain(&judging).all(|(name, gradient)| joint[name] == *gradient));
    // The adversarial terms do reach the vocoder, and the generated sound does reach the discriminators.
    let adversarial = gradients(&task, task.losses(&samples, &Pass::plain()).adversarial);
    assert!(adversarial["vocoder.phase.weight"].iter().any(|&gradient| gradient != 0.0));
}

#[test]
fn training_lowers_the_loss_of_log_mels() {
    let config = TrainerConfig { lanes: 2, ..TrainerConfig::new(Schedule::constant(2e-3), Key::new(1)) };
    let mut trainer = Trainer::new(task(), config, Governor::new(4));
    let mut mel = Vec::new();
    for _ in 0..30 {
        let report = trainer.step(&crops()).unwrap();
        assert_eq!((report.micro_batches.len(), report.parts.len()), (2, 5));
        mel.push(report.parts["mel"]);
    }
    assert!(mel[29] < 0.7 * mel[0], "{mel:?}");
}

#[test]
fn capture_device_records_a_step_under_every_choice() {
    let operations = |simulated, choice: Choice| {
        let recorded = capture(simulated, |session| {
            let config = config();
            let model = Traceable::init(&config, session.device());
            let batch = config.batch(BatchShape { frames: Frames(256), ..BatchShape::samples(3) });
            let pass = Pass::new(choice, Noise::new(Key::new(4), batch.ids()));
            let loss = model.loss(&VocoderTask::send(&batch, session.device()), &pass);
            assert!(backward(loss.sum, &model).len() > 40);
            config.validate(
                &session.without_autodiff(model),
                &VocoderTask::send(&batch, &session.device().clone().inner()),
            );
        });
        recorded.unwrap().len()
    };
    for simulated in [SimulatedDevice::Cpu, SimulatedDevice::Gpu] {
        let plain = operations(simulated, Choice::default());
        assert!(plain > 300, "{plain}");
        assert!(operations(simulated, Choice { remat: Remat::All, ..Choice::default() }) > plain);
        assert!(operations(simulated, Choice { precision: Precision::Bf16, ..Choice::default() }) > plain);
    }
}

#[test]
fn recordings_are_evaluated_in_chunks() {
    let task = config().init(&Device::flex(), Key::new(3));
    let samples: Vec<HostSample> = (0..2).map(|index| crops().sample(index)).collect();
    let mut runner = InferenceRunner::new(&Device::flex(), &OpenGate, 1);
    let mut evaluated = |chunk| evaluate_vocoding(task.vocoder(), &samples, chunk, &mut runner).unwrap();
    let (small, whole) = (evaluated(2), evaluated(1_000));
    assert_eq!(small.len(), 2);
    for (small, whole) in small.iter().zip(&whole) {
        assert_eq!((small.sound.len(), whole.sound.len()), (256, 256));
        assert!(small.sound.iter().zip(&whole.sound).all(|(a, b)| (a - b).abs() < 1e-4));
        assert!(whole.distance > 0.0 && (small.distance - whole.distance).abs() < 1e-3);
    }
}

#[test]
fn a_vocoder_is_loaded_from_its_training_and_from_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let (task, path) = (config().init(&Device::flex(), Key::new(3)), folder.path());
    assert!(matches!(NeuralVocoder::load(path, &Device::flex()), Err(ModelError::NoModel { .. })));
    VocoderMetadata::new(config()).with_run("one").write(path).unwrap();
    assert_eq!(ModelFolder(path).kind().unwrap(), "vocoder");
    assert_eq!(VocoderMetadata::read(path).unwrap(), VocoderMetadata::new(config()).with_run("one"));
    let weights = ModelFolder(path).exported_weights();
    for values in [collect(&task), collect(task.vocoder())] {
        write_weights(&weights, &values).unwrap();
        let (loaded, warnings) = NeuralVocoder::load(path, &Device::flex()).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(collect(&loaded), collect(task.vocoder()));
    }
    write_weights(&weights, &collect(task.discriminators())).unwrap();
    assert!(matches!(NeuralVocoder::load(path, &Device::flex()), Err(ModelError::Parameters(_))));
    let mut impossible = config();
    impossible.vocoder.layers = usize::MAX;
    VocoderMetadata::new(impossible).write(path).unwrap();
    assert!(matches!(VocoderMetadata::read(path), Err(ModelError::Impossible { .. })));
    std::fs::write(ModelFolder(path).metadata_file(), "{\"kind\": \"asr\"}").unwrap();
    assert!(matches!(VocoderMetadata::read(path), Err(ModelError::Kind { .. })));
}

#[test]
fn configurations_survive_json_and_impossible_ones_are_refused() {
    let text = serde_json::to_string(&config()).unwrap();
    assert_eq!(serde_json::from_str::<VocoderTaskConfig>(&text).unwrap(), config());
    let refused = |change: fn(&mut VocoderTaskConfig)| {
        let mut config = config();
        change(&mut config);
        config.check().unwrap_err().field
    };
    assert_eq!(refused(|c| c.crop = 63), "crop");
    assert_eq!(refused(|c| c.loss.mel = 0.0), "loss.mel");
    assert_eq!(refused(|c| c.loss.adversarial = f64::NAN), "loss.adversarial");
    assert_eq!(refused(|c| c.discriminators.periods = vec![0]), "periods");
    assert_eq!(refused(|c| c.discriminators.resolutions = Vec::new()), "resolutions");
    assert_eq!(refused(|c| c.discriminators.resolutions = vec![1024]), "resolutions");
    assert_eq!(refused(|c| c.discriminators.resolution_channels = vec![4; 4]), "resolutions");
    assert_eq!(refused(|c| c.discriminators.period_channels = Vec::new()), "period_channels");
}
