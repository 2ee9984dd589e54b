//! The training task: vocoder and discriminators, trained by one loss in one backward pass.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Batch, HostBatch, Key};
use plimsoll_layers::Lengths;
use plimsoll_tape::transfer::{from_host, uploaded};
use plimsoll_tape::{Pass, StepLoss, Task, detach, initialize, is_capturing};

use super::losses::{
    Magnitudes, Resolutions, adversarial_loss, discriminator_loss, feature_loss, spectral_loss, sum_of_means,
};
use super::{Discriminators, Judgment, LogMelTransform, NeuralVocoder, VocoderTaskConfig};

// Shapes: b crops, n samples, t frames, m mel channels.

/// A vocoder with the discriminators that it is trained with.
///
/// The loss is a sum of the vocoder's terms and the discriminators' term. The vocoder's terms see the discriminators with
/// constant weights, and the discriminators' term sees the generated sound as a constant. Each weight therefore gets the
/// gradient of its own terms alone, and one backward pass trains both.
#[derive(Module, Debug)]
pub struct VocoderTask {
    vocoder: NeuralVocoder,
    discriminators: Discriminators,
    #[module(skip)]
    log_mel: LogMelTransform,
    #[module(skip)]
    resolutions: Resolutions,
    #[module(skip)]
    config: VocoderTaskConfig,
}

/// Weighted sums of the terms of a vocoder's loss.
#[derive(Clone, Debug)]
pub struct VocoderLosses {
    /// Difference of log-mels.
    pub mel: Tensor<1>,
    /// Multi-resolution spectral loss.
    pub spectrum: Tensor<1>,
    /// How clearly the discriminators recognize generated sound.
    pub adversarial: Tensor<1>,
    /// Difference of the discriminators' hidden values.
    pub features: Tensor<1>,
    /// Loss of the discriminators themselves.
    pub discriminator: Tensor<1>,
}

impl VocoderLosses {
    /// Returns the sum of the terms that train the vocoder.
    pub fn of_vocoder(&self) -> Tensor<1> {
        self.mel.clone() + self.spectrum.clone() + self.adversarial.clone() + self.features.clone()
    }

    /// Returns the terms with their names.
    pub fn named(&self) -> [(&'static str, Tensor<1>); 5] {
        [
            ("mel", self.mel.clone()),
            ("spectrum", self.spectrum.clone()),
            ("adversarial", self.adversarial.clone()),
            ("features", self.features.clone()),
            ("discriminator", self.discriminator.clone()),
        ]
    }
}

impl VocoderTaskConfig {
    /// Makes vocoder and discriminators on `device`. Their initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// If the configuration does not pass [`check`](Self::check).
    pub fn init(&self, device: &Device, key: Key) -> VocoderTask {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes vocoder and discriminators on `device` with Burn's initial weights, which follow no seed.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> VocoderTask {
        let checked = self.check();
        assert!(checked.is_ok(), "no vocoder can be trained: {checked:?}");
        VocoderTask {
            vocoder: self.vocoder.init_unseeded(device),
            discriminators: self.discriminators.init_unseeded(device),
            log_mel: LogMelTransform::new(&self.vocoder.features).expect("the features were checked"),
            resolutions: Resolutions::new(&self.discriminators.resolutions),
            config: self.clone(),
        }
    }
}

impl VocoderTask {
    /// Returns the configuration that the task was built from.
    pub fn config(&self) -> &VocoderTaskConfig {
        &self.config
    }

    /// Returns the vocoder.
    pub fn vocoder(&self) -> &NeuralVocoder {
        &self.vocoder
    }

    /// Returns the discriminators.
    pub fn discriminators(&self) -> &Discriminators {
        &self.discriminators
    }

    /// Computes the log-mels `[b, t, m]` of the recordings `samples` `[b, n]`, and the sound `[b, n]` that the vocoder makes of
    /// them.
    pub fn resynthesize(&self, samples: &Tensor<2>, pass: &Pass) -> (Tensor<3>, Tensor<2>) {
        let mels = self.log_mel.forward(samples.clone());
        let [b, t, _] = mels.dims();
        let sound = self.vocoder.forward(mels.clone(), &Lengths::new(vec![t as u32; b], t), &pass.with("vocoder"));
        let n = samples.dims()[1];
        (mels, fitted(sound, n))
    }

    /// Computes the terms of the loss for the recordings `samples` `[b, n]`.
    pub fn losses(&self, samples: &Tensor<2>, pass: &Pass) -> VocoderLosses {
        let weights = self.config.loss;
        // A memory plan frees each tensor after its last use, so none is held longer here.
        let (mels, sound) = self.resynthesize(samples, pass);
        let mel = sum_of_means((self.log_mel.forward(sound.clone()) - mels).abs());
        let (truth, found) = (self.resolutions.forward(samples), self.resolutions.forward(&sound));
        let logs = |all: &[Magnitudes]| all.iter().map(|one| one.log.clone()).collect::<Vec<_>>();
        let (true_logs, logs) = (logs(&truth), logs(&found));
        let spectrum = spectral_loss(found, truth);
        let recordings = self.discriminators.forward(samples, true_logs, pass);
        let constants: Vec<Tensor<3>> = logs.iter().cloned().map(detach).collect();
        let generated = self.discriminators.scores(detach(sound.clone()), constants, pass);
        let (true_scores, features): (Vec<_>, Vec<_>) =
            recordings.into_iter().map(|Judgment { scores, features }| (scores, features)).unzip();
        let discriminator = discriminator_loss(true_scores, generated);
        let judged = self.discriminators.frozen().forward(&sound, logs, pass);
        let (scores, judged): (Vec<_>, Vec<_>) =
            judged.into_iter().map(|Judgment { scores, features }| (scores, features)).unzip();
        VocoderLosses {
            mel: mel * weights.mel,
            spectrum: spectrum * weights.spectrum,
            adversarial: adversarial_loss(scores) * weights.adversarial,
            features: feature_loss(features, judged) * weights.features,
            discriminator,
        }
    }
}

/// Cuts the sound to `n` samples, or adds silence where its last frame ends before.
fn fitted(sound: Tensor<2>, n: usize) -> Tensor<2> {
    let [b, length] = sound.dims();
    match length >= n {
        true => sound.narrow(1, 0, n),
        false => {
            let silence = Tensor::<2>::zeros([b, n - length], &sound.device()).cast(sound.dtype());
            Tensor::cat(vec![sound, silence], 1)
        }
    }
}

impl Task for VocoderTask {
    /// Crops: sound with one value in a frame, all of the same length.
    type Batch = HostBatch;
    /// Samples `[b, n]`.
    type Tensors = Tensor<2>;

    fn send(batch: &HostBatch, device: &Device) -> Tensor<2> {
        assert_eq!(batch.feature_width, 1, "sound has one value in a frame");
        let shape = [batch.len(), batch.frames];
        if is_capturing() {
            return from_host(shape, device, || batch.features.clone());
        }
        let mut data = TensorData::new(batch.features.clone(), shape);
        device.staging(std::iter::once(&mut data));
        Tensor::from_data(uploaded(data), device)
    }

    fn loss(&self, samples: &Tensor<2>, pass: &Pass) -> StepLoss {
        let losses = self.losses(samples, pass);
        let sum = losses.of_vocoder() + losses.discriminator.clone();
        StepLoss { parts: losses.named().into(), ..StepLoss::new(sum) }
    }
}
