//! The synthesizer: text encoder, voice encoder, decoder and postnet.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{HostBatch, Key};
use plimsoll_layers::{GuidedAttention, Lengths, Postnet, PostnetConfig, mel_distance, stop_loss};
use plimsoll_tape::{Noise, Pass, StepLoss, Task, TensorBatch, initialize};

use super::decoder::{Conditioning, MelDecoder};
use super::text_encoder::{EncodedText, TextEncoder};
use super::voice_encoder::VoiceEncoder;
use super::{MelNormalization, SynthesizerConfig};

// Shapes: b utterances, t frames, u steps, r frames of a step, f features, v width of a voice.

/// Width in frames of each convolution of the postnet (Shen et al. 2018).
const KERNEL: usize = 5;

/// An autoregressive synthesizer of log-mels, like Tacotron and XTTS.
///
/// Build it with [`SynthesizerConfig::init`]; it is a [`Task`], so `plimsoll_train::Trainer` trains it.
#[derive(Module, Debug)]
pub struct Synthesizer {
    text: TextEncoder,
    voice: VoiceEncoder,
    pub(super) decoder: MelDecoder,
    pub(super) postnet: Option<Postnet>,
    #[module(skip)]
    config: SynthesizerConfig,
}

/// Output of a synthesizer that predicts each step from the true frames before it. All frames are normalized.
#[derive(Clone, Debug)]
pub struct TeacherForcedOutput {
    /// True frames `[utterances, frames, mel bands]`.
    pub target: Tensor<3>,
    /// Frames of the decoder `[utterances, frames, mel bands]`.
    pub before_postnet: Tensor<3>,
    /// Frames after the postnet's correction `[utterances, frames, mel bands]`.
    pub after_postnet: Tensor<3>,
    /// Logits that a step is the last step, `[utterances, steps]`.
    pub stop_logits: Tensor<2>,
    /// Number of valid frames of each utterance.
    pub frame_lengths: Lengths,
    /// Number of valid steps of each utterance.
    pub step_lengths: Lengths,
    /// Guided attention loss, summed over valid steps; `None` without guided attention.
    pub attention_loss: Option<Tensor<1>>,
}

impl SynthesizerConfig {
    /// Makes a synthesizer on `device`. Its initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// When the sizes contradict each other, for example when `text_dim` is not a multiple of `text_heads`.
    pub fn init(&self, device: &Device, key: Key) -> Synthesizer {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes a synthesizer on `device` with Burn's initial weights, which follow no seed. Use it to load weights from a
    /// file or to count parameters.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> Synthesizer {
        let postnet = PostnetConfig {
            features: self.features,
            channels: self.postnet_channels,
            kernel: KERNEL,
            layers: self.postnet_layers,
            dropout: self.dropout,
        };
        Synthesizer {
            text: TextEncoder::init(self, device),
            voice: VoiceEncoder::init(self.features, &self.voice, self.dropout, device),
            decoder: MelDecoder::init(self, device),
            postnet: (self.postnet_layers > 0).then(|| postnet.init(device)),
            config: *self,
        }
    }
}

impl MelNormalization {
    /// Normalizes log-mels with the mean and the standard deviation of the training data.
    pub(super) fn normalize(self, x: Tensor<3>) -> Tensor<3> {
        (x - self.mean) / self.std
    }
}

impl Synthesizer {
    /// Returns the configuration that the model was built from.
    pub fn config(&self) -> &SynthesizerConfig {
        &self.config
    }

    /// Encodes texts, each a list of tokens.
    pub fn encode_text(&self, texts: &[Vec<u32>], pass: &Pass) -> EncodedText {
        self.text.forward(texts, &self.with_length_policy(pass).with("text"))
    }

    /// Encodes reference log-mels `[references, frames, mel bands]` to voices `[references, 1, voice width]`. `lengths`
    /// has the number of valid frames of each reference.
    pub fn encode_voice(&self, references: Tensor<3>, lengths: &[u32], pass: &Pass) -> Tensor<3> {
        let lengths = Lengths::new(lengths.to_vec(), references.dims()[1]);
        self.voice.forward(self.config.normalization.normalize(references), &lengths, &pass.with("voice"))
    }

    /// Predicts every step of `batch` from the true frames before it. A batch without references uses each utterance as
    /// the reference of its voice.
    ///
    /// `guided` adds the guided attention loss. `prenet_noise` is the randomness of the prenet's dropout, which is also
    /// active outside training.
    pub fn teacher_forced(
        &self,
        batch: &TensorBatch,
        guided: bool,
        prenet_noise: &Noise,
        pass: &Pass,
    ) -> TeacherForcedOutput {
        let voice = self.batch_voices(batch, pass);
        let text = self.encode_text(&batch.tokens, pass);
        let (target, frame_lengths, step_lengths) = self.padded_target(batch);
        let sigma = self.config.loss.guide_sigma;
        let guide = guided.then(|| GuidedAttention::new(sigma, &step_lengths, &text.lengths, &target.device()));
        let pass = &self.with_length_policy(pass).with("decoder");
        let conditioning = Conditioning { text: &text, voice, prenet_noise };
        let output = self.decoder.forward(target.clone(), &step_lengths, conditioning, guide.as_ref(), pass);
        let width = frame_lengths.width();
        let before_postnet = output.frames.narrow(1, 0, width);
        let after_postnet = self.apply_postnet(before_postnet.clone(), &frame_lengths, pass);
        let target = target.narrow(1, 0, width);
        TeacherForcedOutput {
            target,
            before_postnet,
            after_postnet,
            stop_logits: output.stop_logits,
            frame_lengths,
            step_lengths,
            attention_loss: output.attention_loss,
        }
    }

    /// Computes the decoder's attention weights over the text with teacher forcing on `batch`. Each block gives a
    /// tensor `[utterances, heads, steps, tokens]`.
    pub fn attention_weights(&self, batch: &TensorBatch, prenet_noise: &Noise) -> Vec<Tensor<4>> {
        self.attention_weights_in(batch, self.batch_voices(batch, &Pass::plain()), prenet_noise)
    }

    /// Computes the decoder's attention weights over the text with teacher forcing, in the given voices
    /// `[utterances, 1, voice width]`. Each block gives a tensor `[utterances, heads, steps, tokens]`.
    pub(super) fn attention_weights_in(
        &self,
        batch: &TensorBatch,
        voice: Tensor<3>,
        prenet_noise: &Noise,
    ) -> Vec<Tensor<4>> {
        let text = self.encode_text(&batch.tokens, &Pass::plain());
        let (target, _, step_lengths) = self.padded_target(batch);
        self.decoder.attention_weights(target, &step_lengths, Conditioning { text: &text, voice, prenet_noise })
    }

    /// Computes the sums of the weighted losses by name: `rough` (frames before the postnet), `fine` (after the
    /// postnet), `stop` and `attention`. A step's loss counts once for each of its frames, so all sums are per frame. Takes
    /// the output: what is dropped early need not be stored on a GPU.
    pub fn losses(&self, output: TeacherForcedOutput) -> Vec<(&'static str, Tensor<1>)> {
        let (loss, r) = (&self.config.loss, self.config.reduction as f64);
        let TeacherForcedOutput { before_postnet, after_postnet, target, frame_lengths, .. } = output;
        let distance = |found, target| mel_distance(found, target, &frame_lengths, loss.distance);
        let stop = stop_loss(output.stop_logits, &output.step_lengths, loss.stop_positive) * (r * loss.stop_weight);
        let mut losses = vec![("rough", distance(before_postnet, target.clone())), ("stop", stop)];
        if self.postnet.is_some() {
            losses.push(("fine", distance(after_postnet, target)));
        }
        losses.extend(output.attention_loss.map(|sum| ("attention", sum * (r * loss.guide_weight))));
        losses
    }

    /// Adds the postnet's correction to the frames `x`; returns them unchanged if the model has no postnet.
    pub(super) fn apply_postnet(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        match &self.postnet {
            Some(postnet) => x.clone() + postnet.forward(x, lengths, &pass.with("postnet")),
            None => x,
        }
    }

    /// Returns `pass`, with chunked attention if the model's length policy asks for it.
    pub(super) fn with_length_policy(&self, pass: &Pass) -> Pass {
        pass.with_choice(self.config.length.apply_to(*pass.choice()))
    }

    /// Encodes the voices of a batch, `[utterances, 1, voice width]`, from its references or, without references, from
    /// its utterances.
    pub(super) fn batch_voices(&self, batch: &TensorBatch, pass: &Pass) -> Tensor<3> {
        match &batch.references {
            Some(references) => self.encode_voice(references.features.clone(), &references.lengths, pass),
            None => self.encode_voice(batch.features.clone(), &batch.frame_lengths, pass),
        }
    }

    /// Returns the normalized true frames, padded to a whole number of decoder steps, the number of valid frames of
    /// each utterance, and the number of valid decoder steps of each utterance.
    fn padded_target(&self, batch: &TensorBatch) -> (Tensor<3>, Lengths, Lengths) {
        let target = self.config.normalization.normalize(batch.features.clone());
        let [b, t, f] = target.dims();
        let frame_lengths = Lengths::new(batch.frame_lengths.clone(), t);
        let u = self.config.steps(t as u32) as usize;
        let step_lengths = batch.frame_lengths.iter().map(|&frames| self.config.steps(frames)).collect();
        let missing = u * self.config.reduction - t;
        let target = match missing {
            0 => target,
            _ => {
                let device = target.device();
                Tensor::cat(vec![target, Tensor::zeros([b, missing, f], &device)], 1)
            }
        };
        (target, frame_lengths, Lengths::new(step_lengths, u))
    }
}

impl Task for Synthesizer {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    /// Returns the number by which the loss of the batch is divided: the number of frames of all utterances.
    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.frame_lengths.iter().map(|&frames| f64::from(frames)).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let guided = self.config.loss.guide_weight > 0.0;
        let parts = self.losses(self.teacher_forced(batch, guided, pass.noise(), pass));
        let sum = parts.iter().map(|(_, part)| part.clone()).reduce(|sum, part| sum + part);
        StepLoss { parts, ..StepLoss::new(sum.expect("frames and stops are always compared")) }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
