//! The decoder of a synthesizer: the next frames from the frames before, the text and the voice.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_layers::{
    DecoderBlock, DecoderCache, GuidedAttention, Lengths, Prenet, PrenetConfig, TransformerConfig, add_sinusoids,
    apply_layer_norm,
};
use plimsoll_tape::{Noise, Pass, remat};

use super::{EncodedText, SynthesizerConfig};

// Shapes: b utterances, u steps, r frames of a step, f features, k tokens, v width of a voice, d width, h heads.

/// Number of prenet layers (Wang et al. 2017).
const PRENET_LAYERS: usize = 2;

/// A Transformer decoder that generates log-mel frames, several frames a step.
#[derive(Module, Debug)]
pub struct MelDecoder {
    prenet: Prenet,
    input: Linear,
    condition: Linear,
    blocks: Vec<DecoderBlock>,
    norm: LayerNorm,
    frames: Linear,
    stop: Linear,
    /// Number of the decoder's first block among all blocks of the model. The setting that selects the blocks to
    /// rematerialize counts the text encoder's blocks first.
    first_block: usize,
    reduction: usize,
    dropout: f64,
}

/// Inputs of a synthesizer's decoder besides the frames.
#[derive(Clone, Debug)]
pub struct Conditioning<'a> {
    /// Encoded texts of the utterances.
    pub text: &'a EncodedText,
    /// Voices of the utterances, `[utterances, 1, voice width]`.
    pub voice: Tensor<3>,
    /// Random source of the prenet's dropout, which is active in training and in generation.
    pub prenet_noise: &'a Noise,
}

/// Output of a synthesizer's decoder for all steps.
#[derive(Clone, Debug)]
pub struct MelDecoderOutput {
    /// Normalized frames that the decoder generated, `[utterances, steps * frames of a step, mel bands]`.
    pub frames: Tensor<3>,
    /// Logits that a step is the last step, `[utterances, steps]`.
    pub stop_logits: Tensor<2>,
    /// Guided attention loss, summed over valid steps and averaged over blocks and heads; `None` without guided
    /// attention.
    pub attention_loss: Option<Tensor<1>>,
}

/// The cached keys and values of utterances that are generated together.
#[derive(Clone, Debug)]
pub(super) struct DecoderState {
    caches: Vec<DecoderCache>,
    condition: Tensor<3>,
}

impl DecoderState {
    /// Keeps only the utterances with the indices `rows`, in this order.
    pub(super) fn select(&mut self, rows: &[usize]) {
        self.caches.iter_mut().for_each(|cache| cache.select(rows));
        let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
        let rows = Tensor::from_ints(rows.as_slice(), &self.condition.device());
        self.condition = self.condition.clone().select(0, rows);
    }

    /// Continues as if `steps` steps were generated, without computing them.
    pub(super) fn pad_to(&mut self, steps: usize) {
        self.caches.iter_mut().for_each(|cache| cache.pad_to(steps));
    }

    /// Returns the number of steps generated so far.
    fn steps(&self) -> usize {
        self.caches.first().map_or(0, DecoderCache::len)
    }
}

impl MelDecoder {
    /// Makes the decoder of `config` on `device`.
    pub(super) fn init(config: &SynthesizerConfig, device: &Device) -> Self {
        let &SynthesizerConfig { features, decoder_dim: d, reduction, dropout, prenet_dim, .. } = config;
        let block = TransformerConfig {
            d_memory: config.text_dim,
            inner: d * config.feed_forward_multiplier,
            dropout,
            ..TransformerConfig::new(d, config.decoder_heads)
        };
        let prenet =
            PrenetConfig { features, width: prenet_dim, layers: PRENET_LAYERS, dropout: config.prenet_dropout };
        Self {
            prenet: prenet.init(device),
            input: LinearConfig::new(prenet_dim, d).init(device),
            condition: LinearConfig::new(config.voice.width(), d).init(device),
            blocks: (0..config.decoder_layers).map(|_| block.init_decoder(device)).collect(),
            norm: LayerNormConfig::new(d).init(device),
            frames: LinearConfig::new(d, reduction * features).init(device),
            stop: LinearConfig::new(d, 1).init(device),
            first_block: config.text_layers,
            reduction,
            dropout,
        }
    }

    /// Predicts every step from the true frames before it (teacher forcing). `target` are the true frames,
    /// `[utterances, steps * frames of a step, mel bands]`. With `guide`, also computes the guided attention loss.
    pub(super) fn forward(
        &self,
        target: Tensor<3>,
        steps: &Lengths,
        conditioning: Conditioning<'_>,
        guide: Option<&GuidedAttention>,
        pass: &Pass,
    ) -> MelDecoderOutput {
        let Conditioning { text, voice, prenet_noise } = conditioning;
        let x = self.embed(self.previous_frames(target), self.condition(voice, pass), 0, prenet_noise, pass);
        let mut x = pass.with("input").dropout(x, self.dropout);
        let mut attention_loss: Option<Tensor<1>> = None;
        // Each block projects the tokens: they are cast once, and so is the sum of their gradients.
        let tokens = pass.to_compute_dtype(text.tokens.clone());
        for (index, block) in self.blocks.iter().enumerate() {
            let inputs = (x, tokens.clone());
            let (lengths, memory, pass) = (steps.clone(), text.lengths.clone(), pass.with("block").at(index));
            let recompute = pass.choice().remat.covers(self.first_block + index);
            if let Some(guide) = guide.cloned() {
                let forward = move |block: &DecoderBlock, (x, text): (Tensor<3>, Tensor<3>)| {
                    block.forward_guided(x, &lengths, text, &memory, &guide, &pass)
                };
                let (y, loss) = if recompute { remat(block, inputs, forward) } else { forward(block, inputs) };
                x = y;
                attention_loss = Some(attention_loss.map_or(loss.clone(), |sum| sum + loss));
            } else {
                let forward = move |block: &DecoderBlock, (x, text): (Tensor<3>, Tensor<3>)| {
                    block.forward(x, &lengths, text, &memory, &pass)
                };
                x = if recompute { remat(block, inputs, forward) } else { forward(block, inputs) };
            }
        }
        let (frames, stop_logits) = self.outputs(x, pass);
        let attention_loss = attention_loss.map(|sum| sum / self.blocks.len() as f64);
        MelDecoderOutput { frames, stop_logits, attention_loss }
    }

    /// Computes the attention weights of every block over the text with teacher forcing, one tensor
    /// `[utterances, heads, steps, tokens]` for each block.
    pub(super) fn attention_weights(
        &self,
        target: Tensor<3>,
        steps: &Lengths,
        conditioning: Conditioning<'_>,
    ) -> Vec<Tensor<4>> {
        let (Conditioning { text, voice, prenet_noise }, pass) = (conditioning, &Pass::plain());
        let mut x = self.embed(self.previous_frames(target), self.condition(voice, pass), 0, prenet_noise, pass);
        let weights_of = |block: &DecoderBlock| {
            let (y, weights) = block.forward_with_weights(x.clone(), steps, text.tokens.clone(), &text.lengths, pass);
            x = y;
            weights
        };
        self.blocks.iter().map(weights_of).collect()
    }

    /// Prepares generation step by step: computes the keys and values of `text`, and the condition by `voice`, which
    /// are the same in every step.
    pub(super) fn start(&self, text: &EncodedText, voice: Tensor<3>, pass: &Pass) -> DecoderState {
        let cache = |block: &DecoderBlock| block.cache(text.tokens.clone(), &text.lengths, pass);
        DecoderState { caches: self.blocks.iter().map(cache).collect(), condition: self.condition(voice, pass) }
    }

    /// Generates one step from `last`, the frame before it (zeros before the first step), `[utterances, 1, mel bands]`.
    /// Returns the frames of the step and its stop logits `[utterances, 1]`.
    pub(super) fn step(
        &self,
        last: Tensor<3>,
        state: &mut DecoderState,
        prenet_noise: &Noise,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<2>) {
        let x = self.embed(last, state.condition.clone(), state.steps(), prenet_noise, pass);
        let blocks = self.blocks.iter().zip(&mut state.caches);
        self.outputs(blocks.fold(x, |x, (block, cache)| block.extend(x, cache, pass)), pass)
    }

    /// Selects the last true frame before each step, with zeros before the first step: one frame for each step.
    fn previous_frames(&self, frames: Tensor<3>) -> Tensor<3> {
        let [b, t, f] = frames.dims();
        let (r, u) = (self.reduction, t / self.reduction);
        let last: Tensor<3> = frames.reshape([b, u, r, f]).narrow(2, r - 1, 1).reshape([b, u, f]);
        let start = Tensor::zeros([b, 1, f], &last.device());
        match u {
            1 => start,
            _ => Tensor::cat(vec![start, last.narrow(1, 0, u - 1)], 1),
        }
    }

    fn condition(&self, voice: Tensor<3>, pass: &Pass) -> Tensor<3> {
        pass.at_least_fp32(pass.dense(&self.condition, voice))
    }

    /// Computes the input of the Transformer blocks for consecutive decoder steps from `x`, the frame before each step.
    /// `first` is the number of the first of these steps; dropout and position encoding depend on it.
    fn embed(&self, x: Tensor<3>, condition: Tensor<3>, first: usize, prenet_noise: &Noise, pass: &Pass) -> Tensor<3> {
        let x = self.prenet.forward(x, first, prenet_noise, pass);
        add_sinusoids(pass.at_least_fp32(pass.dense(&self.input, x)) + condition, first)
    }

    fn outputs(&self, x: Tensor<3>, pass: &Pass) -> (Tensor<3>, Tensor<2>) {
        let x = apply_layer_norm(&self.norm, x, pass);
        let frames = pass.at_least_fp32(pass.dense(&self.frames, x.clone()));
        let [b, u, all] = frames.dims();
        let stop = pass.at_least_fp32(pass.dense(&self.stop, x)).reshape([b, u]);
        (frames.reshape([b, u * self.reduction, all / self.reduction]), stop)
    }
}
