//! The synthesiser: a text encoder, a voice encoder, a decoder that speaks, and what makes its frames finer.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{HostBatch, Key};
use plimsoll_layers::{Guide, Lengths, Postnet, PostnetConfig, mel_distance, stop_loss};
use plimsoll_tape::{Noise, Pass, StepLoss, Task, TensorBatch, initialise};

use super::decoder::{MelDecoder, Prompt};
use super::text_encoder::{EncodedText, TextEncoder};
use super::voice::VoiceEncoder;
use super::{Scale, SynthesiserConfig};

// Shapes: b utterances, t frames, u steps, r frames of a step, f features, v width of a voice.

/// Frames under each convolution of the postnet (Shen et al. 2018).
const KERNEL: usize = 5;

/// An autoregressive synthesiser of log-mels, of the family of Tacotron and XTTS.
#[derive(Module, Debug)]
pub struct Synthesiser {
    text: TextEncoder,
    voice: VoiceEncoder,
    pub(super) decoder: MelDecoder,
    pub(super) postnet: Option<Postnet>,
    #[module(skip)]
    config: SynthesiserConfig,
}

/// What a synthesiser says where it is told the true frames before each step. All frames are in its own scale.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The true frames `[b, t, f]`.
    pub truth: Tensor<3>,
    /// Frames as the decoder said them, `[b, t, f]`.
    pub rough: Tensor<3>,
    /// Frames as the postnet left them.
    pub fine: Tensor<3>,
    /// How sure it is that each step is the last, `[b, u]`.
    pub stop: Tensor<2>,
    /// Frames of each utterance.
    pub frames: Lengths,
    /// Steps of each utterance.
    pub steps: Lengths,
    /// How far attention strayed from the diagonal, where that was asked for.
    pub strayed: Option<Tensor<1>>,
}

impl SynthesiserConfig {
    /// A synthesiser on `device`, its first values drawn from `key`.
    ///
    /// # Panics
    /// Where the sizes contradict each other, as the layers say.
    pub fn init(&self, device: &Device, key: Key) -> Synthesiser {
        initialise(self.bare(device), key.with("weights"))
    }

    /// The same without first values of its own, for weights that come from elsewhere, and for counting.
    pub fn bare(&self, device: &Device) -> Synthesiser {
        let postnet = PostnetConfig {
            features: self.features,
            channels: self.postnet_channels,
            kernel: KERNEL,
            layers: self.postnet_layers,
            dropout: self.dropout,
        };
        Synthesiser {
            text: TextEncoder::init(self, device),
            voice: VoiceEncoder::init(self, device),
            decoder: MelDecoder::init(self, device),
            postnet: (self.postnet_layers > 0).then(|| postnet.init(device)),
            config: *self,
        }
    }
}

impl Scale {
    /// Log-mels in the model's scale.
    pub(super) fn inward(self, x: Tensor<3>) -> Tensor<3> {
        (x - self.centre) / self.spread
    }
}

impl Synthesiser {
    /// What it was built from.
    pub fn config(&self) -> &SynthesiserConfig {
        &self.config
    }

    /// Texts as the decoder looks at them.
    pub fn read(&self, texts: &[Vec<u32>], pass: &Pass) -> EncodedText {
        self.text.forward(texts, &self.by(pass).with("text"))
    }

    /// The voices `[b, 1, v]` of references, which are log-mels `[b, r, f]`.
    pub fn hear(&self, references: Tensor<3>, lengths: &[u32], pass: &Pass) -> Tensor<3> {
        let lengths = Lengths::new(lengths.to_vec(), references.dims()[1]);
        self.voice.forward(self.config.scale.inward(references), &lengths, &pass.with("voice"))
    }

    /// What it says of `batch` where it is told the true frames; an utterance without a reference is its own.
    ///
    /// What the prenet forgets follows from `forgetting`, in training and elsewhere.
    pub fn follow(&self, batch: &TensorBatch, guided: bool, forgetting: &Noise, pass: &Pass) -> Followed {
        let voice = self.voice_of(batch, pass);
        let text = self.read(&batch.tokens, pass);
        let (truth, frames, steps) = self.paced(batch);
        let sigma = self.config.loss.guide_sigma;
        let guide = guided.then(|| Guide::new(sigma, &steps, &text.lengths, &truth.device()));
        let pass = &self.by(pass).with("decoder");
        let prompt = Prompt { text: &text, voice, forgetting };
        let said = self.decoder.follow(truth.clone(), &steps, prompt, guide.as_ref(), pass);
        let width = frames.width();
        let rough = said.frames.narrow(1, 0, width);
        let fine = self.finer(rough.clone(), &frames, pass);
        let truth = truth.narrow(1, 0, width);
        Followed { truth, rough, fine, stop: said.stop, frames, steps, strayed: said.strayed }
    }

    /// Where each block and head of the decoder looks while it follows `batch`: `[b, h, u, k]` of every block.
    pub fn watch(&self, batch: &TensorBatch, forgetting: &Noise) -> Vec<Tensor<4>> {
        self.watch_in(batch, self.voice_of(batch, &Pass::plain()), forgetting)
    }

    /// The same in voices `[b, 1, v]`.
    pub(super) fn watch_in(&self, batch: &TensorBatch, voice: Tensor<3>, forgetting: &Noise) -> Vec<Tensor<4>> {
        let text = self.read(&batch.tokens, &Pass::plain());
        let (truth, _, steps) = self.paced(batch);
        self.decoder.watch(truth, &steps, Prompt { text: &text, voice, forgetting })
    }

    /// The sums of the losses of what was said, by name: `rough` and `fine` frames, `stop`, and `attention`. Each counts
    /// a frame as one, and weighs what the configuration says.
    pub fn losses(&self, said: &Followed) -> Vec<(&'static str, Tensor<1>)> {
        let (loss, r) = (&self.config.loss, self.config.reduction as f64);
        let apart = |found: &Tensor<3>| mel_distance(found.clone(), said.truth.clone(), &said.frames, loss.distance);
        let stop = stop_loss(said.stop.clone(), &said.steps, loss.stop_positive) * (r * loss.stop_weight);
        let mut losses = vec![("rough", apart(&said.rough)), ("stop", stop)];
        if self.postnet.is_some() {
            losses.push(("fine", apart(&said.fine)));
        }
        losses.extend(said.strayed.clone().map(|strayed| ("attention", strayed * (r * loss.guide_weight))));
        losses
    }

    /// Frames with the postnet's correction.
    pub(super) fn finer(&self, rough: Tensor<3>, frames: &Lengths, pass: &Pass) -> Tensor<3> {
        match &self.postnet {
            Some(postnet) => rough.clone() + postnet.forward(rough, frames, &pass.with("postnet")),
            None => rough,
        }
    }

    /// The pass with chunks where the length policy asks for them.
    pub(super) fn by(&self, pass: &Pass) -> Pass {
        pass.by(self.config.length.applied(*pass.choice()))
    }

    /// The voices `[b, 1, v]` of a batch; an utterance without a reference is its own.
    pub(super) fn voice_of(&self, batch: &TensorBatch, pass: &Pass) -> Tensor<3> {
        match &batch.references {
            Some(references) => self.hear(references.features.clone(), &references.lengths, pass),
            None => self.hear(batch.features.clone(), &batch.frame_lengths, pass),
        }
    }

    /// The true frames, padded to whole steps, with how many frames and steps are valid.
    fn paced(&self, batch: &TensorBatch) -> (Tensor<3>, Lengths, Lengths) {
        let truth = self.config.scale.inward(batch.features.clone());
        let [b, t, f] = truth.dims();
        let frames = Lengths::new(batch.frame_lengths.clone(), t);
        let u = self.config.steps(t as u32) as usize;
        let steps = batch.frame_lengths.iter().map(|&frames| self.config.steps(frames)).collect();
        let missing = u * self.config.reduction - t;
        let truth = match missing {
            0 => truth,
            _ => {
                let device = truth.device();
                Tensor::cat(vec![truth, Tensor::zeros([b, missing, f], &device)], 1)
            }
        };
        (truth, frames, Lengths::new(steps, u))
    }
}

impl Task for Synthesiser {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    /// The frames of all utterances.
    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.frame_lengths.iter().map(|&frames| f64::from(frames)).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let guided = self.config.loss.guide_weight > 0.0;
        let parts = self.losses(&self.follow(batch, guided, pass.noise(), pass));
        let sum = parts.iter().map(|(_, part)| part.clone()).reduce(|sum, part| sum + part);
        StepLoss { parts, ..StepLoss::of(sum.expect("frames and stops are always compared")) }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
