//! Properties that hold for a synthesizer with any weights.

use burn::module::Module;
use plimsoll_core::{Choice, Grid, HostSample, Precision, Remat, SampleId};
use plimsoll_tape::{backward, collect};

use super::super::{GeneratedMels, GenerationDetail, LengthBounds, VoiceConfig};
use super::*;
use crate::testing::{self, apart};

/// Returns a configuration that is small enough for a step in milliseconds and has every part.
fn small() -> SynthesizerConfig {
    SynthesizerConfig {
        text_heads: 2,
        decoder_dim: 24,
        decoder_heads: 2,
        voice: VoiceConfig {
            layers: 2,
            channels: 8,
            speaker_dim: 6,
            style_tokens: 3,
            style_dim: 8,
            style_heads: 2,
            reference_frames: 20,
        },
        reduction: 3,
        dropout: 0.2,
        normalization: MelNormalization { mean: -1.0, std: 2.0, harmonics: None },
        length_bounds: LengthBounds { frames_per_token_min: 2.0, frames_per_token_max: 8.0, tokens_max: 9 },
        ..SynthesizerConfig::recommended(10, 9, 16, 2)
    }
}

fn sample(name: &str, frames: usize, tokens: &[u32]) -> HostSample {
    let key = Key::new(1).with(name);
    let values = |key: Key, frames: usize| (0..frames * 10).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
    let features = values(key, frames);
    let reference = values(key.with("reference"), 7 + frames % 5);
    HostSample { id: SampleId::from_name(name), name: name.into(), features, tokens: tokens.to_vec(), reference }
}

fn samples() -> Vec<HostSample> {
    vec![sample("a", 31, &[5, 6, 7]), sample("b", 20, &[8, 8]), sample("c", 18, &[4, 5, 6, 7, 8]), sample("d", 4, &[5])]
}

fn before_postnet(generated: &GeneratedMels) -> Vec<f32> {
    match &generated.detail {
        GenerationDetail::BeforePostnet(frames) => frames.clone(),
        GenerationDetail::Durations(_) => panic!("an autoregressive model has no durations"),
    }
}

fn gradient_under(samples: &[HostSample], pieces: usize, choice: &Choice) -> (f64, Vec<f32>) {
    let model = small().init(&Device::flex().autodiff(), Key::new(3));
    testing::gradient_under(&model, samples, 10, pieces, choice)
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
fn gradient_is_the_same_rematerialized_chunked_and_in_bf16() {
    let plain = gradient_under(&samples(), 4, &Choice::default());
    for remat in [Remat::All, Remat::Half, Remat::First(1)] {
        let choice = Choice { remat, ..Choice::default() };
        assert_eq!(gradient_under(&samples(), 4, &choice), plain, "{remat:?}");
    }
    let choice = Choice { attention_chunk: std::num::NonZeroU32::new(4), ..Choice::default() };
    let (loss, found) = gradient_under(&samples(), 4, &choice);
    assert!((loss - plain.0).abs() < 1e-5 * plain.0 && apart(&found, &plain.1) < 1e-5);
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
        let prenet_noise = Noise::new(Key::new(4), &batch.ids);
        let output =
            model.teacher_forced(&TensorBatch::send(&batch, &Device::flex()), false, &prenet_noise, &Pass::plain());
        let frames: Vec<f32> = output.after_postnet.into_data().try_into_vec().unwrap();
        frames[..samples[0].features.len()].to_vec()
    };
    let all = samples();
    let alone = output_of(&all[1..2], 0.0);
    for (batch, fill) in [(&[all[1].clone(), all[0].clone()][..], 0.0), (&all[1..2], 9.0), (&all[1..3], -4.0)] {
        let found = output_of(batch, fill);
        assert!(found.len() == alone.len() && apart(&found, &alone) < 1e-5, "{}", apart(&found, &alone));
    }
}

#[test]
fn frames_do_not_depend_on_later_frames() {
    let model = SynthesizerConfig { postnet_layers: 0, ..small() }.init(&Device::flex(), Key::new(3));
    let output_of = |sample: HostSample| {
        let batch = HostBatch::collate(&[sample], 10, &Grid::default()).unwrap();
        let prenet_noise = Noise::new(Key::new(4), &batch.ids);
        let output =
            model.teacher_forced(&TensorBatch::send(&batch, &Device::flex()), false, &prenet_noise, &Pass::plain());
        output.after_postnet.into_data().try_into_vec::<f32>().unwrap()
    };
    let whole = sample("a", 31, &[5, 6, 7]);
    let mut other = whole.clone();
    // A step has three frames: frames 0 to 17 are generated before frame 15 is an input.
    other.features[15 * 10..].fill(3.0);
    let (whole, other) = (output_of(whole), output_of(other));
    assert_eq!(whole[..18 * 10], other[..18 * 10]);
    assert_ne!(whole[18 * 10..], other[18 * 10..]);
}

#[test]
fn generation_matches_teacher_forcing_and_does_not_depend_on_the_batch() {
    let model = small().init(&Device::flex(), Key::new(3));
    let all = samples();
    let tokens: Vec<Vec<u32>> = all.iter().map(|sample| sample.tokens.clone()).collect();
    let ids: Vec<SampleId> = all.iter().map(|sample| sample.id).collect();
    let batch = TensorBatch::send(&HostBatch::collate(&all, 10, &Grid::default()).unwrap(), &Device::flex());
    let references = batch.references.unwrap();
    let voices = model.encode_voice(references.features, &references.lengths, &Pass::plain());
    let key = Key::new(8);
    let generated = model.generate(&tokens, &ids, voices.clone(), key);
    for (index, generated) in generated.iter().enumerate() {
        let [frames_min, frames_max] = small().length_bounds.frame_bounds(tokens[index].len());
        let frames = generated.mels.len() / 10;
        assert!((frames_min..=frames_max + 2).contains(&frames) && frames.is_multiple_of(3), "{frames}");
        let alone =
            model.generate(&tokens[index..=index], &ids[index..=index], voices.clone().narrow(0, index, 1), key);
        assert!(apart(&alone[0].mels, &generated.mels) < 1e-5 && alone[0].ending == generated.ending);
        // Teacher forcing with the generated frames as target.
        let own_frames = HostSample { features: before_postnet(generated), ..all[index].clone() };
        let batch = HostBatch::collate(&[own_frames], 10, &Grid::default()).unwrap();
        let prenet_noise = Noise::new(key, &batch.ids);
        let output =
            model.teacher_forced(&TensorBatch::send(&batch, &Device::flex()), false, &prenet_noise, &Pass::plain());
        let frames = (output.after_postnet * 2.0 - 1.0).into_data().try_into_vec::<f32>().unwrap();
        assert!(apart(&frames, &generated.mels) < 1e-4, "{index}: {}", apart(&frames, &generated.mels));
        let weights = model.attention_weights(&TensorBatch::send(&batch, &Device::flex()), &prenet_noise);
        assert_eq!(weights.len(), 2);
        let sums: Vec<f32> = weights[1].clone().sum_dim(3).into_data().try_into_vec().unwrap();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
    }
    assert_ne!(model.generate(&tokens, &ids, voices, Key::new(9))[0].mels, generated[0].mels);
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
            assert!(backward(loss.sum, &model).len() > 80);
            scope.complete([], [])
        });
        captured.unwrap().graph.operations.len()
    };
    let plain = operations(Choice::default());
    assert!(plain > 500, "{plain}");
    assert!(operations(Choice { remat: Remat::All, ..Choice::default() }) > plain);
    let low = Choice { precision: Precision::Bf16, remat: Remat::Half, ..Choice::default() };
    assert!(operations(low) > plain);
}

#[test]
fn initial_values_follow_from_the_seed() {
    let values = |seed| collect(&small().init(&Device::flex(), Key::new(seed)));
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
    assert!(small().init(&Device::flex(), Key::new(1)).valid().config() == &small());
}
