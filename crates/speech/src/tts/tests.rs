//! What must hold of a synthesiser whatever its weights are.

use burn::module::Module;
use plimsoll_core::{Choice, Grid, HostSample, Precision, Remat, SampleId};
use plimsoll_tape::{backward, collect};

use super::super::{Pace, VoiceConfig};
use super::*;
use crate::testing::{self, apart};

/// Small enough for a step in milliseconds, with everything that a synthesiser can have.
fn small() -> SynthesiserConfig {
    SynthesiserConfig {
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
        scale: Scale { centre: -1.0, spread: 2.0 },
        pace: Pace { fewest: 2.0, most: 8.0, longest: 9 },
        ..SynthesiserConfig::recommended(10, 9, 16, 2)
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

fn gradient_under(samples: &[HostSample], pieces: usize, choice: &Choice) -> (f64, Vec<f32>) {
    let model = small().init(&Device::flex().autodiff(), Key::new(3));
    testing::gradient_under(&model, samples, 10, pieces, choice)
}

#[test]
fn any_split_gives_the_same_loss_and_gradient_dropout_included() {
    let (whole, expected) = gradient_under(&samples(), 4, &Choice::default());
    for pieces in [1, 2, 3] {
        let (loss, found) = gradient_under(&samples(), pieces, &Choice::default());
        assert!((loss - whole).abs() < 1e-5 * whole, "{loss} {whole}");
        assert!(apart(&found, &expected) < 1e-5, "{pieces}: {}", apart(&found, &expected));
    }
}

#[test]
fn rematerialised_and_in_chunks_it_gives_the_same_gradient() {
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
fn what_stands_in_padding_and_who_is_beside_change_nothing() {
    let model = small().init(&Device::flex(), Key::new(3));
    let said = |samples: &[HostSample], fill: f32| {
        let mut batch = HostBatch::collate(samples, 10, &Grid::multiples_of(16.try_into().unwrap())).unwrap();
        for (place, sample) in samples.iter().enumerate() {
            let (frames, references) = (batch.frames * 10, batch.reference_frames * 10);
            batch.features[place * frames + sample.features.len()..(place + 1) * frames].fill(fill);
            batch.references[place * references + sample.reference.len()..(place + 1) * references].fill(fill);
        }
        let forgetting = Noise::new(Key::new(4), &batch.ids);
        let said = model.follow(&TensorBatch::send(&batch, &Device::flex()), false, &forgetting, &Pass::plain());
        let fine: Vec<f32> = said.fine.into_data().try_into_vec().unwrap();
        fine[..samples[0].features.len()].to_vec()
    };
    let all = samples();
    let alone = said(&all[1..2], 0.0);
    for (batch, fill) in [(&[all[1].clone(), all[0].clone()][..], 0.0), (&all[1..2], 9.0), (&all[1..3], -4.0)] {
        let found = said(batch, fill);
        assert!(found.len() == alone.len() && apart(&found, &alone) < 1e-5, "{}", apart(&found, &alone));
    }
}

#[test]
fn a_frame_knows_nothing_of_those_that_come_after_it() {
    let model = SynthesiserConfig { postnet_layers: 0, ..small() }.init(&Device::flex(), Key::new(3));
    let said = |sample: HostSample| {
        let batch = HostBatch::collate(&[sample], 10, &Grid::default()).unwrap();
        let forgetting = Noise::new(Key::new(4), &batch.ids);
        let said = model.follow(&TensorBatch::send(&batch, &Device::flex()), false, &forgetting, &Pass::plain());
        said.fine.into_data().try_into_vec::<f32>().unwrap()
    };
    let whole = sample("a", 31, &[5, 6, 7]);
    let mut other = whole.clone();
    // Steps of three frames: those up to frame 15 are said before frame 15 is known.
    other.features[15 * 10..].fill(3.0);
    let (whole, other) = (said(whole), said(other));
    assert_eq!(whole[..18 * 10], other[..18 * 10]);
    assert_ne!(whole[18 * 10..], other[18 * 10..]);
}

#[test]
fn it_says_the_same_with_a_memory_as_without_and_alone_as_in_company() {
    let model = small().init(&Device::flex(), Key::new(3));
    let all = samples();
    let tokens: Vec<Vec<u32>> = all.iter().map(|sample| sample.tokens.clone()).collect();
    let ids: Vec<SampleId> = all.iter().map(|sample| sample.id).collect();
    let batch = TensorBatch::send(&HostBatch::collate(&all, 10, &Grid::default()).unwrap(), &Device::flex());
    let references = batch.references.unwrap();
    let voices = model.hear(references.features, &references.lengths, &Pass::plain());
    let key = Key::new(8);
    let spoken = model.speak(&tokens, &ids, voices.clone(), key);
    for (place, spoken) in spoken.iter().enumerate() {
        let [fewest, most] = small().pace.guards(tokens[place].len());
        let frames = spoken.mels.len() / 10;
        assert!((fewest..=most + 2).contains(&frames) && frames.is_multiple_of(3), "{frames}");
        let alone = model.speak(&tokens[place..=place], &ids[place..=place], voices.clone().narrow(0, place, 1), key);
        assert!(apart(&alone[0].mels, &spoken.mels) < 1e-5 && alone[0].ending == spoken.ending);
        // All at once, being told what it said.
        let told = HostSample { features: spoken.rough.clone(), ..all[place].clone() };
        let batch = HostBatch::collate(&[told], 10, &Grid::default()).unwrap();
        let forgetting = Noise::new(key, &batch.ids);
        let said = model.follow(&TensorBatch::send(&batch, &Device::flex()), false, &forgetting, &Pass::plain());
        let fine = (said.fine * 2.0 - 1.0).into_data().try_into_vec::<f32>().unwrap();
        assert!(apart(&fine, &spoken.mels) < 1e-4, "{place}: {}", apart(&fine, &spoken.mels));
        let watched = model.watch(&TensorBatch::send(&batch, &Device::flex()), &forgetting);
        assert_eq!(watched.len(), 2);
        let sums: Vec<f32> = watched[1].clone().sum_dim(3).into_data().try_into_vec().unwrap();
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
    }
    assert_ne!(model.speak(&tokens, &ids, voices, Key::new(9))[0].mels, spoken[0].mels);
}

#[test]
fn the_recording_device_sees_a_step_under_every_choice() {
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
fn the_first_values_follow_from_the_seed() {
    let values = |seed| collect(&small().init(&Device::flex(), Key::new(seed)));
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
    assert!(small().init(&Device::flex(), Key::new(1)).valid().config() == &small());
}
