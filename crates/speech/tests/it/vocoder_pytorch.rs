//! A small vocoder gives the sound, gradients and training steps of the same model in PyTorch.

use burn::tensor::{Device, Tensor};
use plimsoll_core::HostBatch;
use plimsoll_speech::audio::{Floor, LogMelConfig, Normalize, Spectrum};
use plimsoll_speech::vocoder::{DiscriminatorConfig, VocoderConfig, VocoderLossConfig, VocoderTask, VocoderTaskConfig};
use plimsoll_tape::{Pass, Task};

use crate::fixture::{Fixture, close};
use crate::pytorch::{TOLERANCE, gradients_agree, ten_steps_agree, with_weights};
use crate::vocoder_task::batch_of;

/// Returns the configuration of the model in `fixtures/vocoder_model.py`.
pub(crate) fn config() -> VocoderTaskConfig {
    let features = LogMelConfig {
        sample_rate: 4_000,
        n_fft: 64,
        win_length: 48,
        hop_length: 16,
        n_mels: 12,
        spectrum: Spectrum::Magnitude,
        floor: Floor::Max(1e-5),
        normalize: Normalize::None,
        ..LogMelConfig::default()
    };
    VocoderTaskConfig {
        vocoder: VocoderConfig { dim: 16, layers: 2, ..VocoderConfig::recommended(features) },
        discriminators: DiscriminatorConfig {
            periods: vec![2, 3],
            period_channels: vec![4, 6],
            resolutions: vec![32, 64],
            resolution_channels: vec![4, 6],
        },
        loss: VocoderLossConfig { mel: 5.0, spectrum: 2.0, adversarial: 0.5, features: 1.0 },
        crop: 256,
    }
}

fn model(fixture: &Fixture) -> VocoderTask {
    with_weights(config().init_unseeded(&Device::flex().autodiff()), fixture)
}

fn batch(fixture: &Fixture) -> HostBatch {
    batch_of(fixture.values("samples").chunks(256).map(<[f32]>::to_vec))
}

#[test]
fn forward_and_gradients_match_pytorch() {
    let fixture = Fixture::read("vocoder_model");
    let (model, batch) = (model(&fixture), batch(&fixture));
    let samples = VocoderTask::send(&batch, &Device::flex().autodiff());
    let (mels, sound) = model.resynthesize(&samples, &Pass::plain());
    close("mels", &mels.into_data().try_into_vec::<f32>().unwrap(), fixture.values("mels"), TOLERANCE);
    close("sound", &sound.into_data().try_into_vec::<f32>().unwrap(), fixture.values("sound"), TOLERANCE);
    let terms = model.losses(&samples, &Pass::plain()).named();
    for ((name, found), &expected) in terms.into_iter().zip(fixture.values("parts")) {
        close(name, &[found.into_scalar::<f32>()], &[expected], TOLERANCE);
    }
    let loss: Tensor<1> = model.loss(&samples, &Pass::plain()).sum / model.weight(&batch);
    gradients_agree(&model, loss, &fixture);
}

#[test]
fn ten_training_steps_match_pytorch() {
    let fixture = Fixture::read("vocoder_model");
    // The gradient of an absolute difference jumps where it is about zero.
    ten_steps_agree(model(&fixture), &batch(&fixture), &fixture, 1e-3);
}
