//! How it is said: frames from the frames before them, from the text and from the voice.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_layers::{
    DecoderBlock, DecoderCache, GuidedAttention, Lengths, Prenet, PrenetConfig, TransformerConfig, add_sinusoids,
    apply_layer_norm,
};
use plimsoll_tape::{Noise, Pass, remat};

use super::{EncodedText, SynthesiserConfig};

// Shapes: b utterances, u steps, r frames of a step, f features, k tokens, v width of a voice, d width, h heads.

/// Layers of the prenet (Wang et al. 2017).
const PRENET_LAYERS: usize = 2;

/// A Transformer decoder over steps of several frames.
#[derive(Module, Debug)]
pub struct MelDecoder {
    prenet: Prenet,
    input: Linear,
    condition: Linear,
    blocks: Vec<DecoderBlock>,
    norm: LayerNorm,
    frames: Linear,
    stop: Linear,
    /// The number of its first block in a choice of blocks: those of the text encoder come before.
    first_block: usize,
    reduction: usize,
    dropout: f64,
}

/// What a decoder is asked to say.
#[derive(Clone, Debug)]
pub struct Prompt<'a> {
    /// The texts.
    pub text: &'a EncodedText,
    /// The voices `[b, 1, v]`.
    pub voice: Tensor<3>,
    /// What the prenet forgets follows from this.
    pub forgetting: &'a Noise,
}

/// What a decoder says.
#[derive(Clone, Debug)]
pub struct Said {
    /// Frames `[b, u * r, f]`, in the model's scale.
    pub frames: Tensor<3>,
    /// How sure it is that each step is the last, `[b, u]`: even odds at zero.
    pub stop: Tensor<2>,
    /// How far attention strayed from the diagonal, summed over valid steps, the mean of all blocks and heads.
    pub strayed: Option<Tensor<1>>,
}

/// What a decoder remembers of utterances that grow together.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    caches: Vec<DecoderCache>,
    condition: Tensor<3>,
}

impl Memory {
    /// Keeps the utterances numbered in `rows`, in that order.
    pub(super) fn select(&mut self, rows: &[usize]) {
        self.caches.iter_mut().for_each(|cache| cache.select(rows));
        let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
        let rows = Tensor::from_ints(rows.as_slice(), &self.condition.device());
        self.condition = self.condition.clone().select(0, rows);
    }

    /// Steps that were said.
    fn steps(&self) -> usize {
        self.caches.first().map_or(0, DecoderCache::len)
    }
}

impl MelDecoder {
    /// The decoder that `config` has, on `device`.
    pub(super) fn init(config: &SynthesiserConfig, device: &Device) -> Self {
        let &SynthesiserConfig { features, decoder_dim: d, reduction, dropout, prenet_dim, .. } = config;
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

    /// What it says when the true frames `[b, u * r, f]` come before each step; where `guide` is given, what strays from it
    /// is told.
    pub fn follow(
        &self,
        truth: Tensor<3>,
        steps: &Lengths,
        prompt: Prompt<'_>,
        guide: Option<&GuidedAttention>,
        pass: &Pass,
    ) -> Said {
        let Prompt { text, voice, forgetting } = prompt;
        let x = self.entered(self.previous(truth), self.condition(voice, pass), 0, forgetting, pass);
        let mut x = pass.with("input").dropout(x, self.dropout);
        let mut strayed: Option<Tensor<1>> = None;
        for (index, block) in self.blocks.iter().enumerate() {
            let inputs = (x, text.tokens.clone());
            let (lengths, memory, pass) = (steps.clone(), text.lengths.clone(), pass.with("block").at(index));
            let again = pass.choice().remat.covers(self.first_block + index);
            if let Some(guide) = guide.cloned() {
                let forward = move |block: &DecoderBlock, (x, text): (Tensor<3>, Tensor<3>)| {
                    block.forward_guided(x, &lengths, text, &memory, &guide, &pass)
                };
                let (y, apart) = if again { remat(block, inputs, forward) } else { forward(block, inputs) };
                x = y;
                strayed = Some(strayed.map_or(apart.clone(), |sum| sum + apart));
            } else {
                let forward = move |block: &DecoderBlock, (x, text): (Tensor<3>, Tensor<3>)| {
                    block.forward(x, &lengths, text, &memory, &pass)
                };
                x = if again { remat(block, inputs, forward) } else { forward(block, inputs) };
            }
        }
        let (frames, stop) = self.leave(x, pass);
        Said { frames, stop, strayed: strayed.map(|sum| sum / self.blocks.len() as f64) }
    }

    /// Where each block and head looks while it follows the frames: `[b, h, u, k]` of every block.
    pub fn watch(&self, truth: Tensor<3>, steps: &Lengths, prompt: Prompt<'_>) -> Vec<Tensor<4>> {
        let (Prompt { text, voice, forgetting }, pass) = (prompt, &Pass::plain());
        let mut x = self.entered(self.previous(truth), self.condition(voice, pass), 0, forgetting, pass);
        let look = |block: &DecoderBlock| {
            let (y, weights) = block.forward_with_weights(x.clone(), steps, text.tokens.clone(), &text.lengths, pass);
            x = y;
            weights
        };
        self.blocks.iter().map(look).collect()
    }

    /// What it needs to say texts step by step.
    pub(super) fn begin(&self, text: &EncodedText, voice: Tensor<3>, pass: &Pass) -> Memory {
        let cache = |block: &DecoderBlock| block.cache(text.tokens.clone(), &text.lengths, pass);
        Memory { caches: self.blocks.iter().map(cache).collect(), condition: self.condition(voice, pass) }
    }

    /// The next step after a last frame `[b, 1, f]`, zeros being the first: frames `[b, r, f]`, and the odds that it ends.
    pub(super) fn extend(
        &self,
        last: Tensor<3>,
        memory: &mut Memory,
        forgetting: &Noise,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<2>) {
        let x = self.entered(last, memory.condition.clone(), memory.steps(), forgetting, pass);
        let blocks = self.blocks.iter().zip(&mut memory.caches);
        self.leave(blocks.fold(x, |x, (block, cache)| block.extend(x, cache, pass)), pass)
    }

    /// The last frame before each step: `[b, u * r, f]` to `[b, u, f]`.
    fn previous(&self, frames: Tensor<3>) -> Tensor<3> {
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
        pass.full(pass.dense(&self.condition, voice))
    }

    /// Frames `[b, u, f]`, of which the first comes before step `first`, as the blocks take them.
    fn entered(&self, x: Tensor<3>, condition: Tensor<3>, first: usize, forgetting: &Noise, pass: &Pass) -> Tensor<3> {
        let x = self.prenet.forward(x, first, forgetting, pass);
        add_sinusoids(pass.full(pass.dense(&self.input, x)) + condition, first)
    }

    fn leave(&self, x: Tensor<3>, pass: &Pass) -> (Tensor<3>, Tensor<2>) {
        let x = apply_layer_norm(&self.norm, x, pass);
        let frames = pass.full(pass.dense(&self.frames, x.clone()));
        let [b, u, all] = frames.dims();
        let stop = pass.full(pass.dense(&self.stop, x)).reshape([b, u]);
        (frames.reshape([b, u * self.reduction, all / self.reduction]), stop)
    }
}
