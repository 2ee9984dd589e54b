//! A small synthesizer gives the outputs, gradients and training steps of the same model in PyTorch.

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId};
use plimsoll_layers::Lengths;
use plimsoll_speech::tts::{MelNormalization, Synthesizer, SynthesizerConfig, VoiceConfig};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};

use crate::fixture::{Fixture, close};
use crate::pytorch::{TOLERANCE, gradients_agree, ten_steps_agree, valid, with_weights};

/// Returns the configuration of the model in `fixtures/tts_model.py`.
fn config() -> SynthesizerConfig {
    SynthesizerConfig {
        text_dim: 16,
        text_layers: 1,
        text_heads: 2,
        voice: VoiceConfig {
            layers: 2,
            channels: 12,
            speaker_dim: 8,
            style_tokens: 4,
            style_dim: 8,
            style_heads: 2,
            reference_frames: 20,
        },
        decoder_dim: 24,
        decoder_layers: 2,
        decoder_heads: 2,
        prenet_dim: 12,
        prenet_dropout: 0.0,
        postnet_layers: 3,
        postnet_channels: 12,
        reduction: 2,
        dropout: 0.0,
        normalization: MelNormalization { mean: -4.0, std: 2.0, harmonics: None },
        ..SynthesizerConfig::recommended(20, 11, 16, 1)
    }
}

fn model(fixture: &Fixture) -> Synthesizer {
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
    let fixture = Fixture::read("tts_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
    let references = tensors.references.clone().unwrap();
    let voice = model.encode_voice(references.features, &references.lengths, &Pass::plain());
    let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
    close("voice", &values(voice), fixture.values("voice"), TOLERANCE);
    let output = model.teacher_forced(&tensors, true, &Noise::off(), &Pass::plain());
    close(
        "rough frames",
        &valid(output.before_postnet.clone(), &batch.frame_lengths),
        fixture.values("before"),
        TOLERANCE,
    );
    close(
        "fine frames",
        &valid(output.after_postnet.clone(), &batch.frame_lengths),
        fixture.values("after"),
        TOLERANCE,
    );
    let stop = valid(output.stop_logits.clone().unsqueeze_dim::<3>(2), output.step_lengths.each());
    close("stops", &stop, fixture.values("stop"), TOLERANCE);
    let r = config().reduction as f32;
    let parts = fixture.values("parts");
    let expected = [("rough", parts[0]), ("fine", parts[1]), ("stop", r * parts[2]), ("attention", r * parts[3])];
    let losses = model.losses(output);
    for (name, expected) in expected {
        let (_, found) = losses.iter().find(|(found, _)| *found == name).unwrap();
        close(name, &[found.clone().into_scalar::<f32>()], &[expected], TOLERANCE);
    }
    gradients_agree(&model, model.loss(&tensors, &Pass::plain()).sum / model.weight(&batch), &fixture);
}

#[test]
fn ten_training_steps_match_pytorch() {
    let fixture = Fixture::read("tts_model");
    ten_steps_agree(model(&fixture), &batch(&fixture), &fixture, TOLERANCE);
}

#[test]
fn other_utterances_do_not_change_the_output() {
    let fixture = Fixture::read("tts_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    for index in 0..3 {
        let alone = HostBatch::collate(&[batch.sample(index)], 20, &Grid::default()).unwrap();
        let tensors = TensorBatch::send(&alone, &Device::flex().autodiff());
        let output = model.teacher_forced(&tensors, true, &Noise::off(), &Pass::plain());
        let frames = batch.frame_lengths[index] as usize;
        let from = index * batch.frames * 20;
        let found: Vec<f32> = output.after_postnet.into_data().try_into_vec().unwrap();
        close("alone", &found, &fixture.values("after")[from..from + frames * 20], TOLERANCE);
        assert_eq!(Lengths::new(alone.frame_lengths.clone(), frames), output.frame_lengths);
    }
}
