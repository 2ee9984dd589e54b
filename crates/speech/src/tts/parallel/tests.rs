//! Properties that hold for a parallel synthesizer with any weights.

use burn::tensor::{Device, Tensor};
use plimsoll_audio::{LogMelConfig, MelAxis};
use plimsoll_core::{Choice, Grid, HostBatch, HostSample, Key, Precision, Remat, SampleId};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch, backward, collect};

use super::*;
use crate::ModelKind;
use crate::testing::{self, apart};
use crate::tts::{Ending, GenerationDetail, GenerationOptions, LengthBounds, MelNormalization, VoiceConfig};

/// Returns a configuration that is small enough for a step in milliseconds and has every part.
fn small() -> ParallelConfig {
    ParallelConfig {
        decoder_dim: 24,
        voice_links: true,
        voice: VoiceConfig {
            layers: 2,
            channels: 8,
            speaker_dim: 6,
            style_tokens: 3,
            style_dim: 8,
            style_heads: 2,
            reference_frames: 20,
        },
        dropout: 0.2,
        prosody_dim: 3,
        pitch: Some(axis()),
        normalization: MelNormalization { mean: -1.0, std: 2.0, harmonics: None },
        length_bounds: LengthBounds { frames_per_token_min: 2.0, frames_per_token_max: 8.0, tokens_max: 9 },
        ..ParallelConfig::recommended(10, 9, 16, 2)
    }
}

/// Returns the axis of ten bands, most of them below 1 kHz.
fn axis() -> MelAxis {
    let features = LogMelConfig { n_mels: 10, f_max: Some(1500.0), ..LogMelConfig::default() };
    MelAxis::of(&features)
}

fn usual() -> GenerationOptions {
    GenerationOptions::new(Key::new(0))
}

fn sample(name: &str, frames: usize, tokens: &[u32]) -> HostSample {
    let key = Key::new(1).with(name);
    let values = |key: Key, frames: usize| (0..frames * 10).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
    let features = values(key, frames);
    let reference = values(key.with("reference"), 7 + frames % 5);
    HostSample { id: SampleId::from_name(name), name: name.into(), features, tokens: tokens.to_vec(), reference }
}

/// Returns utterances of different lengths; the last has more tokens than frames.
fn samples() -> Vec<HostSample> {
    vec![
        sample("a", 31, &[5, 6, 7]),
        sample("b", 20, &[8, 8]),
        sample("c", 18, &[4, 5, 6, 7, 8]),
        sample("d", 4, &[5, 6, 7, 8]),
    ]
}

fn gradient_under(samples: &[HostSample], pieces: usize, choice: &Choice) -> (f64, Vec<f32>) {
    let model = small().init(&Device::flex().autodiff(), Key::new(3));
    testing::gradient_under(&model, samples, 10, pieces, choice)
}

#[test]
fn a_model_of_an_older_version_has_no_ways_of_the_voice() {
    let mut stored = serde_json::to_value(small()).unwrap();
    stored.as_object_mut().unwrap().remove("voice_links");
    let old: ParallelConfig = serde_json::from_value(stored).unwrap();
    assert_eq!(old, ParallelConfig { voice_links: false, ..small() });
    let device = Device::flex();
    let names = |config: ParallelConfig| collect(&config.init_unseeded(&device)).into_iter().map(|tensor| tensor.name);
    assert!(names(small()).any(|name| name.starts_with("voice_links.to_frames")));
    assert!(!names(old).any(|name| name.starts_with("voice_links")));
}

#[test]
fn a_decoder_with_harmonics_is_not_sharpened() {
    let normalization = MelNormalization { harmonics: Some(9.0), ..small().normalization };
    let sharpened = |pitch_harmonics: bool| {
        let config = ParallelConfig { normalization, pitch_harmonics, ..small() };
        let before: Vec<f32> = (0..200).map(|index| Key::new(4).at(index).unit() as f32).collect();
        let mut mels = before.clone();
        config.init(&Device::flex(), Key::new(3)).sharpen(&mut mels);
        mels != before
    };
    assert!(sharpened(false) && !sharpened(true));
}

#[test]
fn gradient_does_not_depend_on_the_split_even_with_dropout() {
    let (whole, expected) = gradient_under(&samples(), 4, &Choice::default());
    for pieces in [1, 2, 3] {
        let (loss, found) = gradient_under(&samples(), pieces, &Choice::default());
        assert!((loss - whole).abs() < 1e-5 * whole, "{loss} {whole}");
        assert!(apart(&found, &expected) < 1e-5, "{pieces}: {}", apart(&found, &expected));
    }
}

#[test]
fn gradient_is_the_same_rematerialized_and_in_bf16() {
    let plain = gradient_under(&samples(), 4, &Choice::default());
    for remat in [Remat::All, Remat::Half, Remat::First(1)] {
        let choice = Choice { remat, ..Choice::default() };
        assert_eq!(gradient_under(&samples(), 4, &choice), plain, "{remat:?}");
    }
    let low = Choice { precision: Precision::Bf16, ..Choice::default() };
    let (loss, found) = gradient_under(&samples(), 4, &low);
    assert!((loss - plain.0).abs() < 0.02 * plain.0 && apart(&found, &plain.1) < 0.1, "{}", apart(&found, &plain.1));
}

#[test]
fn padding_and_other_utterances_do_not_change_the_output() {
    let model = small().init(&Device::flex(), Key::new(3));
    let output_of = |samples: &[HostSample], fill: f32| {
        let mut batch = HostBatch::collate(samples, 10, &Grid::multiples_of(16.try_into().unwrap())).unwrap();
        for (index, sample) in samples.iter().enumerate() {
            let (frames, references) = (batch.frames * 10, batch.reference_frames * 10);
            batch.features[index * frames + sample.features.len()..(index + 1) * frames].fill(fill);
            batch.references[index * references + sample.reference.len()..(index + 1) * references].fill(fill);
        }
        let output = model.aligned(&TensorBatch::send(&batch, &Device::flex()), &Pass::plain());
        let durations = output.durations().remove(0);
        let frames: Vec<f32> = output.frames.into_data().try_into_vec().unwrap();
        (durations, frames[..samples[0].features.len()].to_vec())
    };
    let all = samples();
    let alone = output_of(&all[1..2], 0.0);
    for (batch, fill) in [(&[all[1].clone(), all[0].clone()][..], 0.0), (&all[1..2], 9.0), (&all[1..3], -4.0)] {
        let (durations, frames) = output_of(batch, fill);
        assert_eq!(durations, alone.0);
        assert!(apart(&frames, &alone.1) < 1e-5, "{}", apart(&frames, &alone.1));
    }
}

#[test]
fn durations_share_all_frames_of_an_utterance() {
    let model = small().init(&Device::flex(), Key::new(3));
    let all = samples();
    let batch = HostBatch::collate(&all, 10, &Grid::default()).unwrap();
    let output = model.aligned(&TensorBatch::send(&batch, &Device::flex()), &Pass::plain());
    for (sample, durations) in all.iter().zip(&output.durations()) {
        assert_eq!(durations.len(), sample.tokens.len() + 1);
        assert_eq!(durations.iter().sum::<u32>() as usize, sample.features.len() / 10);
    }
}

#[test]
fn generation_does_not_depend_on_the_batch_and_follows_the_rate() {
    let model = small().init(&Device::flex(), Key::new(3));
    let all = samples();
    let tokens: Vec<Vec<u32>> = all.iter().map(|sample| sample.tokens.clone()).collect();
    let batch = TensorBatch::send(&HostBatch::collate(&all, 10, &Grid::default()).unwrap(), &Device::flex());
    let references = batch.references.unwrap();
    let voices = model.encode_voice(references.features, &references.lengths, &Pass::plain());
    let generated = model.generate(&tokens, voices.clone(), &usual());
    let frames = |mels: &[f32]| mels.len() / 10;
    for (index, found) in generated.iter().enumerate() {
        let alone = model.generate(&tokens[index..=index], voices.clone().narrow(0, index, 1), &usual());
        assert_eq!((alone[0].ending, &alone[0].detail), (Ending::Stopped, &found.detail));
        assert!(apart(&alone[0].mels, &found.mels) < 1e-5);
        let GenerationDetail::Durations(durations) = &found.detail else { panic!("no durations") };
        assert_eq!(durations.iter().sum::<u32>() as usize, frames(&found.mels));
        assert!(durations.len() == tokens[index].len() + 1 && durations.iter().all(|&frames| frames > 0));
    }
    let slow = model.generate(&tokens, voices.clone(), &GenerationOptions { rate: 0.25, ..usual() });
    assert!(frames(&slow[0].mels) > 2 * frames(&generated[0].mels));
    assert!(model.generate(&[], voices.slice_dim(0, 0..0), &usual()).is_empty());
}

#[test]
fn pitch_and_energy_change_what_is_said_of_a_model_that_knows_them() {
    let voice = |model: &ParallelSynthesizer| {
        model.encode_voice(Tensor::ones([1, 9, 10], &Device::flex()), &[9], &Pass::plain())
    };
    let said = |model: &ParallelSynthesizer, options: GenerationOptions| {
        model.generate(&[vec![5, 6, 7]], voice(model), &options).remove(0)
    };
    let model = small().init(&Device::flex(), Key::new(3));
    let plain = said(&model, usual());
    for options in [GenerationOptions { pitch: 3.0, ..usual() }, GenerationOptions { energy: -6.0, ..usual() }] {
        let changed = said(&model, options);
        // What is predicted from the text alone stays.
        assert_eq!(changed.detail, plain.detail);
        assert!(apart(&changed.mels, &plain.mels) > 1e-3, "{options:?}");
        let mean = |mels: &[f32]| mels.iter().sum::<f32>() / mels.len() as f32;
        let louder = f64::from(mean(&changed.mels) - mean(&plain.mels));
        // Six decibels of a power are a factor of four.
        assert!(options.energy == 0.0 || (louder + 6.0 / 20.0 * 100f64.ln()).abs() < 1e-4, "{louder}");
    }
    for without in
        [ParallelConfig { pitch: None, ..small() }, ParallelConfig { pitch: None, prosody_dim: 0, ..small() }]
    {
        let model = without.init(&Device::flex(), Key::new(3));
        let options = GenerationOptions { pitch: 3.0, energy: 3.0, ..usual() };
        assert_eq!(said(&model, options).mels, said(&model, usual()).mels);
    }
    let only = ParallelConfig { prosody_dim: 0, ..small() };
    assert_eq!((only.prosody_width(), small().prosody_width()), (2, 5));
    assert_ne!(said(&only.init(&Device::flex(), Key::new(3)), usual()).mels, plain.mels);
}

#[test]
fn an_axis_that_is_not_of_the_features_is_refused() {
    assert!(small().check().is_ok());
    let other = MelAxis { n_mels: 11, ..axis() };
    assert!(ParallelConfig { pitch: Some(other), ..small() }.check().is_err());
    let high = MelAxis { f_min: 2000.0, f_max: 8000.0, ..axis() };
    assert!(ParallelConfig { pitch: Some(high), ..small() }.check().is_err());
}

#[test]
fn generation_is_cut_off_at_the_bound() {
    let bounds = LengthBounds { frames_per_token_min: 0.0, frames_per_token_max: 0.01, tokens_max: 9 };
    let model = ParallelConfig { length_bounds: bounds, ..small() }.init(&Device::flex(), Key::new(3));
    let voice = model.encode_voice(Tensor::ones([1, 9, 10], &Device::flex()), &[9], &Pass::plain());
    let long = vec![5; 100];
    let generated = model.generate(&[long], voice, &usual()).remove(0);
    assert_eq!(generated.ending, Ending::CutOff);
    assert_eq!(generated.mels.len() / 10, bounds.frame_bounds(101)[1]);
}

#[test]
fn capture_device_records_a_step_under_every_choice() {
    let operations = |choice: Choice| {
        let device = Device::capture();
        let captured = device.capture_scope(|scope| {
            let device = device.clone().autodiff();
            let model = small().init(&device, Key::new(3));
            let batch = HostBatch::collate(&samples(), 10, &Grid::multiples_of(8.try_into().unwrap())).unwrap();
            let pass = Pass::new(choice, Noise::new(Key::new(4), &batch.ids));
            let loss = model.loss(&TensorBatch::send(&batch, &device), &pass);
            assert!(backward(loss.sum, &model).len() > 40);
            scope.complete([], [])
        });
        captured.unwrap().graph.operations.len()
    };
    let plain = operations(Choice::default());
    assert!(plain > 200, "{plain}");
    assert!(operations(Choice { remat: Remat::All, ..Choice::default() }) > plain);
}

#[test]
fn initial_values_follow_from_the_seed() {
    let values = |seed| collect(&small().init(&Device::flex(), Key::new(seed)));
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
}
