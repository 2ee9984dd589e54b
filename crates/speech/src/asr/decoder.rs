//! The attention decoder: letters from letters, and from what the encoder heard.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use plimsoll_layers::{
    DecoderBlock, DecoderCache, Lengths, TransformerConfig, add_sinusoids, apply_layer_norm, cross_entropy,
};
use plimsoll_tape::{Pass, remat};
use plimsoll_text::Tokenizer;

use super::RecogniserConfig;
use super::decode::NextToken;

// Shapes: b utterances, u tokens, t frames, d model width, v vocabulary.

/// A Transformer decoder over the encoder's frames.
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Embedding,
    blocks: Vec<DecoderBlock>,
    norm: Option<LayerNorm>,
    output: Linear,
    /// The number of its first block in a choice of blocks: those of the encoder come before.
    first_block: usize,
    smoothing: f64,
    dropout: f64,
}

/// What the encoder heard.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its frames `[b, t, d]`.
    pub frames: Tensor<3>,
    /// How many of them are valid.
    pub lengths: Lengths,
}

impl Decoder {
    /// The decoder that `config` has, on `device`.
    pub(super) fn init(config: &RecogniserConfig, device: &Device) -> Option<Self> {
        let decoder = config.decoder?;
        let (d, v) = (config.d_model, config.vocabulary);
        let block = TransformerConfig {
            inner: d * decoder.feed_forward_multiplier,
            norm_first: decoder.norm_first,
            dropout: config.dropout,
            ..TransformerConfig::new(d, config.heads)
        };
        Some(Self {
            embedding: EmbeddingConfig::new(v, d).init(device),
            blocks: (0..decoder.layers).map(|_| block.init_decoder(device)).collect(),
            norm: decoder.norm_first.then(|| LayerNormConfig::new(d).init(device)),
            output: LinearConfig::new(d, v).init(device),
            first_block: config.layers,
            smoothing: decoder.label_smoothing,
            dropout: config.dropout,
        })
    }

    /// The scores `[b, u, v]` of every token after each place of `texts`, the first place being before the first token.
    pub fn forward(&self, texts: &[Vec<u32>], heard: &Encoded, pass: &Pass) -> Tensor<3> {
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32 + 1).collect();
        let width = lengths.iter().copied().max().unwrap_or(1) as usize;
        let row = |text: &Vec<u32>| -> Vec<u32> {
            let row = std::iter::once(Tokenizer::START).chain(text.iter().copied());
            row.chain(std::iter::repeat(Tokenizer::BLANK)).take(width).collect()
        };
        let x = self.embedded(texts.iter().flat_map(row).collect(), width, 0, &heard.frames.device());
        let x = pass.with("embedding").dropout(x, self.dropout);
        let lengths = Lengths::new(lengths, width);
        let run = |x, (index, block): (usize, &DecoderBlock)| {
            let (lengths, memory, pass) = (lengths.clone(), heard.lengths.clone(), pass.with("block").at(index));
            let again = pass.choice().remat.covers(self.first_block + index);
            let forward = move |block: &DecoderBlock, (x, frames): (Tensor<3>, Tensor<3>)| {
                block.forward(x, &lengths, frames, &memory, &pass)
            };
            let inputs = (x, heard.frames.clone());
            if again { remat(block, inputs, forward) } else { forward(block, inputs) }
        };
        let x = self.blocks.iter().enumerate().fold(x, run);
        self.scores(x, pass)
    }

    /// The sum of the cross-entropies of `texts`, their ends included.
    pub(super) fn loss(&self, texts: &[Vec<u32>], left_out: &[usize], heard: &Encoded, pass: &Pass) -> Tensor<1> {
        let target = |(place, text): (usize, &Vec<u32>)| -> Vec<u32> {
            let counts = !left_out.contains(&place);
            let whole = text.iter().copied().chain(std::iter::once(Tokenizer::END));
            whole.filter(|_| counts).collect()
        };
        let targets: Vec<Vec<u32>> = texts.iter().enumerate().map(target).collect();
        cross_entropy(self.forward(texts, heard, pass), &targets, self.smoothing)
    }

    /// Reads on token by token from what was heard of one utterance.
    pub(super) fn reader(&self, heard: &Encoded) -> Reader<'_> {
        let pass = Pass::plain();
        let cache = |block: &DecoderBlock| block.cache(heard.frames.clone(), &heard.lengths, &pass);
        Reader { decoder: self, caches: self.blocks.iter().map(cache).collect(), device: heard.frames.device() }
    }

    fn embedded(&self, tokens: Vec<u32>, width: usize, first: usize, device: &Device) -> Tensor<3> {
        let rows = tokens.len() / width;
        let tokens: Vec<i32> = tokens.into_iter().map(|token| token as i32).collect();
        let x = self.embedding.forward(Tensor::<2, Int>::from_data(TensorData::new(tokens, [rows, width]), device));
        let [_, _, d] = x.dims();
        add_sinusoids(x * (d as f64).sqrt(), first)
    }

    fn scores(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let x = match &self.norm {
            Some(norm) => apply_layer_norm(norm, x, pass),
            None => x,
        };
        pass.full(pass.dense(&self.output, x))
    }
}

/// A decoder in the middle of several readings of one utterance.
pub(super) struct Reader<'a> {
    decoder: &'a Decoder,
    caches: Vec<DecoderCache>,
    device: Device,
}

impl NextToken for Reader<'_> {
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
        self.caches.iter_mut().for_each(|cache| cache.select(parents));
        let first = self.caches.first().map_or(0, DecoderCache::len);
        let pass = Pass::plain();
        let x = self.decoder.embedded(tokens.to_vec(), 1, first, &self.device);
        let blocks = self.decoder.blocks.iter().zip(&mut self.caches);
        let x = blocks.fold(x, |x, (block, cache)| block.extend(x, cache, &pass));
        let scores = log_softmax(self.decoder.scores(x, &pass), 2);
        let [_, _, v] = scores.dims();
        let values: Vec<f32> = scores.into_data().try_into_vec().expect("scores are in fp32");
        values.chunks_exact(v).map(<[f32]>::to_vec).collect()
    }
}
