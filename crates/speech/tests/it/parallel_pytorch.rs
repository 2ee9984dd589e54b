//! A small parallel synthesizer gives the outputs, gradients and training steps of the same model in PyTorch.

use burn::tensor::{Device, Tensor};
use plimsoll_audio::{LogMelConfig, MelAxis, MelScale, Spectrum};
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId};
use plimsoll_speech::tts::{MelNormalization, ParallelConfig, ParallelSynthesizer, VoiceConfig};
use plimsoll_tape::{Pass, Task, TensorBatch};

use crate::fixture::{Fixture, close};
use crate::pytorch::{TOLERANCE, gradients_agree, ten_steps_agree, valid, with_weights};

/// Returns features with magnitudes in 20 bands up to 1.2 kHz.
fn axis() -> MelAxis {
    MelAxis::of(&LogMelConfig {
        sample_rate: 8000,
        n_mels: 20,
        f_max: Some(1200.0),
        mel_scale: MelScale::Slaney,
        spectrum: Spectrum::Magnitude,
        ..LogMelConfig::default()
    })
}

/// Returns the configuration of the model in `fixtures/parallel_model.py`.
fn config() -> ParallelConfig {
    ParallelConfig {
        voice: VoiceConfig {
            layers: 2,
            channels: 12,
            speaker_dim: 8,
            style_tokens: 4,
            style_dim: 8,
            style_heads: 2,
            reference_frames: 20,
        },
        voice_links: true,
        decoder_dim: 24,
        prosody_dim: 3,
        pitch: Some(axis()),
        pitch_harmonics: true,
        prosody_noise: 0.0,
        dropout: 0.0,
        normalization: MelNormalization { mean: -4.0, std: 2.0, harmonics: None },
        ..ParallelConfig::recommended(20, 11, 16, 2)
    }
}

fn model(fixture: &Fixture) -> ParallelSynthesizer {
    with_weights(config().init_unseeded(&Device::flex().autodiff()), fixture)
}

fn batch(fixture: &Fixture) -> HostBatch {
    let rows = |name: &str, lengths: &str, index: usize| {
        let [_, frames, f]: [usize; 3] = fixture.shape(name).unwrap().try_into().unwrap();
        let (from, length) = (index * frames * f, fixture.numbers(lengths)[index] as usize);
        fixture.values(name)[from..from + length * f].to_vec()
    };
    let longest = fixture.shape("texts").unwrap()[1];
    let sample = |index: usize| HostSample {
        id: SampleId(index as u64),
        name: index.to_string(),
        features: rows("features", "lengths", index),
        tokens: fixture.numbers("texts")[index * longest..][..fixture.numbers("text_lengths")[index] as usize].to_vec(),
        reference: rows("references", "reference_lengths", index),
    };
    HostBatch::collate(&[sample(0), sample(1), sample(2)], 20, &Grid::default()).unwrap()
}

#[test]
fn forward_and_gradients_match_pytorch() {
    let fixture = Fixture::read("parallel_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
    let references = tensors.references.clone().unwrap();
    let voice = model.encode_voice(references.features, &references.lengths, &Pass::plain());
    let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
    close("voice", &values(voice), fixture.values("voice"), TOLERANCE);
    let output = model.aligned(&tensors, &Pass::plain());
    let longest = fixture.shape("durations").unwrap()[1];
    for (found, expected) in output.durations().iter().zip(fixture.numbers("durations").chunks(longest)) {
        assert_eq!(found, &expected[..found.len()]);
    }
    for (name, found) in [("frames", &output.frames), ("prior", &output.prior)] {
        close(name, &valid(found.clone(), &batch.frame_lengths), fixture.values(name), TOLERANCE);
    }
    let durations = valid(output.log_durations.clone().unsqueeze_dim::<3>(2), output.token_lengths.each());
    close("durations", &durations, fixture.values("log_durations"), TOLERANCE);
    for ((name, found), &expected) in model.losses(output).into_iter().zip(fixture.values("parts")) {
        close(name, &[found.into_scalar::<f32>()], &[expected], TOLERANCE);
    }
    gradients_agree(&model, model.loss(&tensors, &Pass::plain()).sum / model.weight(&batch), &fixture);
}

#[test]
fn ten_training_steps_match_pytorch() {
    let fixture = Fixture::read("parallel_model");
    // Harmonics of noise are a choice between pitches that fit equally well, so that a rounding error grows.
    ten_steps_agree(model(&fixture), &batch(&fixture), &fixture, 5.0 * TOLERANCE);
}
