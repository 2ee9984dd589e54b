//! A whole small synthesiser beside PyTorch: what it says, the gradients, and where ten steps of training lead.

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId};
use plimsoll_layers::Lengths;
use plimsoll_speech::tts::{Scale, Synthesiser, SynthesiserConfig, VoiceConfig};
use plimsoll_tape::{Noise, Pass, Task, TensorBatch};

use crate::fixture::{Fixture, close};
use crate::pytorch::{TOLERANCE, gradients_agree, ten_steps_agree, valid, with_weights};

/// The model of `fixtures/tts_model.py`.
fn config() -> SynthesiserConfig {
    SynthesiserConfig {
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
        scale: Scale { centre: -4.0, spread: 2.0 },
        ..SynthesiserConfig::recommended(20, 11, 16, 1)
    }
}

fn model(fixture: &Fixture) -> Synthesiser {
    with_weights(config().bare(&Device::flex().autodiff()), fixture)
}

fn batch(fixture: &Fixture) -> HostBatch {
    let rows = |name: &str, lengths: &str, place: usize| {
        let [_, frames, f]: [usize; 3] = fixture.shape(name).unwrap().try_into().unwrap();
        let (from, length) = (place * frames * f, fixture.numbers(lengths)[place] as usize);
        fixture.values(name)[from..from + length * f].to_vec()
    };
    let longest = fixture.shape("texts").unwrap()[1];
    let sample = |place: usize| HostSample {
        id: SampleId(place as u64),
        name: place.to_string(),
        features: rows("features", "lengths", place),
        tokens: fixture.numbers("texts")[place * longest..][..fixture.numbers("text_lengths")[place] as usize].to_vec(),
        reference: rows("references", "reference_lengths", place),
    };
    HostBatch::collate(&[sample(0), sample(1), sample(2)], 20, &Grid::default()).unwrap()
}

#[test]
fn what_a_synthesiser_says_and_its_gradients_are_those_of_pytorch() {
    let fixture = Fixture::read("tts_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
    let references = tensors.references.clone().unwrap();
    let voice = model.hear(references.features, &references.lengths, &Pass::plain());
    let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
    close("voice", &values(voice), fixture.values("voice"), TOLERANCE);
    let said = model.follow(&tensors, true, &Noise::off(), &Pass::plain());
    close("rough frames", &valid(said.rough.clone(), &batch.frame_lengths), fixture.values("before"), TOLERANCE);
    close("fine frames", &valid(said.fine.clone(), &batch.frame_lengths), fixture.values("after"), TOLERANCE);
    let stop = valid(said.stop.clone().unsqueeze_dim::<3>(2), said.steps.each());
    close("stops", &stop, fixture.values("stop"), TOLERANCE);
    let r = config().reduction as f32;
    let parts = fixture.values("parts");
    let expected = [("rough", parts[0]), ("fine", parts[1]), ("stop", r * parts[2]), ("attention", r * parts[3])];
    let losses = model.losses(&said);
    for (name, expected) in expected {
        let (_, found) = losses.iter().find(|(found, _)| *found == name).unwrap();
        close(name, &[found.clone().into_scalar::<f32>()], &[expected], TOLERANCE);
    }
    gradients_agree(&model, model.loss(&tensors, &Pass::plain()).sum / model.weight(&batch), &fixture);
}

#[test]
fn ten_steps_of_a_synthesiser_go_where_those_of_pytorch_go() {
    let fixture = Fixture::read("tts_model");
    ten_steps_agree(model(&fixture), &batch(&fixture), &fixture);
}

#[test]
fn an_utterance_says_the_same_alone() {
    let fixture = Fixture::read("tts_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    for place in 0..3 {
        let alone = HostBatch::collate(&[batch.sample(place)], 20, &Grid::default()).unwrap();
        let tensors = TensorBatch::send(&alone, &Device::flex().autodiff());
        let said = model.follow(&tensors, true, &Noise::off(), &Pass::plain());
        let frames = batch.frame_lengths[place] as usize;
        let from = place * batch.frames * 20;
        let found: Vec<f32> = said.fine.into_data().try_into_vec().unwrap();
        close("alone", &found, &fixture.values("after")[from..from + frames * 20], TOLERANCE);
        assert_eq!(Lengths::new(alone.frame_lengths.clone(), frames), said.frames);
    }
}
