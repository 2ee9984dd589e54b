//! The attention decoder: the next token from the tokens before it and from the encoder's frames.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use plimsoll_layers::{
    DecoderBlock, DecoderCache, Lengths, TransformerConfig, add_sinusoids, apply_layer_norm, cross_entropy,
};
use plimsoll_tape::transfer::uploaded;
use plimsoll_tape::{Pass, remat};
use plimsoll_text::Tokenizer;

use super::RecognizerConfig;
use super::decode::NextToken;

// Shapes: b utterances, u tokens, t frames, d model width, v vocabulary.

/// A Transformer decoder that attends to the encoder's frames.
#[derive(Module, Debug)]
pub struct Decoder {
    embedding: Embedding,
    blocks: Vec<DecoderBlock>,
    norm: Option<LayerNorm>,
    output: Linear,
    /// Number of the decoder's first block among all blocks of the model. The setting that selects the blocks to
    /// rematerialize counts the encoder's blocks first.
    first_block: usize,
    smoothing: f64,
    dropout: f64,
    /// Number of tokens that a search may output, from the first one on.
    outputs: usize,
}

/// Output of a recognizer's encoder for a batch.
#[derive(Clone, Debug)]
pub struct EncodedAudio {
    /// Encoder frames `[utterances, frames, model width]`.
    pub frames: Tensor<3>,
    /// Number of valid frames of each utterance.
    pub lengths: Lengths,
}

impl Decoder {
    /// Makes the decoder of `config` on `device`; `None` when the configuration has no decoder.
    pub(super) fn init(config: &RecognizerConfig, device: &Device) -> Option<Self> {
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
            outputs: v,
        })
    }

    /// Lets a search output the first `count` tokens only.
    pub(super) fn with_outputs(self, count: usize) -> Self {
        Self { outputs: count, ..self }
    }

    /// Computes the logits of the next token at every position of `texts`, `[utterances, positions, vocabulary]`.
    /// Position 0 predicts the first token, and the position after the last token predicts the end.
    pub fn forward(&self, texts: &[Vec<u32>], encoded: &EncodedAudio, pass: &Pass) -> Tensor<3> {
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32 + 1).collect();
        let width = lengths.iter().copied().max().unwrap_or(1) as usize;
        let row = |text: &Vec<u32>| -> Vec<u32> {
            let row = std::iter::once(Tokenizer::START).chain(text.iter().copied());
            row.chain(std::iter::repeat(Tokenizer::BLANK)).take(width).collect()
        };
        let x = self.embed(texts.iter().flat_map(row).collect(), width, 0, &encoded.frames.device());
        let x = pass.observe(self.embedding.weight.id, x);
        let x = pass.with("embedding").dropout(x, self.dropout);
        let lengths = Lengths::new(lengths, width);
        // Each block projects the frames: they are cast once, and so is the sum of their gradients.
        let frames = pass.to_compute_dtype(encoded.frames.clone());
        let run = |x, (index, block): (usize, &DecoderBlock)| {
            let (lengths, memory, pass) = (lengths.clone(), encoded.lengths.clone(), pass.with("block").at(index));
            let recompute = pass.choice().remat.covers(self.first_block + index);
            let forward = move |block: &DecoderBlock, (x, frames): (Tensor<3>, Tensor<3>)| {
                block.forward(x, &lengths, frames, &memory, &pass)
            };
            let inputs = (x, frames.clone());
            if recompute { remat(block, inputs, forward) } else { forward(block, inputs) }
        };
        let x = self.blocks.iter().enumerate().fold(x, run);
        self.logits(x, pass)
    }

    /// Computes the sum of the cross-entropies of all tokens of `texts` and of their end tokens. Texts whose index is
    /// in `left_out` do not count.
    pub(super) fn loss(
        &self,
        texts: &[Vec<u32>],
        left_out: &[usize],
        encoded: &EncodedAudio,
        pass: &Pass,
    ) -> Tensor<1> {
        let target = |(index, text): (usize, &Vec<u32>)| -> Vec<u32> {
            let included = !left_out.contains(&index);
            let whole = text.iter().copied().chain(std::iter::once(Tokenizer::END));
            whole.filter(|_| included).collect()
        };
        let targets: Vec<Vec<u32>> = texts.iter().enumerate().map(target).collect();
        cross_entropy(self.forward(texts, encoded, pass), &targets, self.smoothing)
    }

    /// Prepares decoding of one encoded utterance token by token, with the keys and values cached.
    pub(super) fn incremental(&self, encoded: &EncodedAudio) -> IncrementalDecoder<'_> {
        let pass = Pass::plain();
        let cache = |block: &DecoderBlock| block.cache(encoded.frames.clone(), &encoded.lengths, &pass);
        IncrementalDecoder {
            decoder: self,
            caches: self.blocks.iter().map(cache).collect(),
            device: encoded.frames.device(),
        }
    }

    fn embed(&self, tokens: Vec<u32>, width: usize, first: usize, device: &Device) -> Tensor<3> {
        let rows = tokens.len() / width;
        let tokens: Vec<i32> = tokens.into_iter().map(|token| token as i32).collect();
        let tokens = Tensor::<2, Int>::from_data(uploaded(TensorData::new(tokens, [rows, width])), device);
        let x = self.embedding.forward(tokens);
        let [_, _, d] = x.dims();
        add_sinusoids(x * (d as f64).sqrt(), first)
    }

    fn logits(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let x = match &self.norm {
            Some(norm) => apply_layer_norm(norm, x, pass),
            None => x,
        };
        pass.at_least_fp32(pass.dense(&self.output, x))
    }
}

/// A decoder that scores the hypotheses of one utterance token by token. It caches the attention keys and values of
/// each hypothesis, so a step computes only the newest token.
pub(super) struct IncrementalDecoder<'a> {
    decoder: &'a Decoder,
    caches: Vec<DecoderCache>,
    device: Device,
}

impl NextToken for IncrementalDecoder<'_> {
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
        self.caches.iter_mut().for_each(|cache| cache.select(parents));
        let first = self.caches.first().map_or(0, DecoderCache::len);
        let pass = Pass::plain();
        let x = self.decoder.embed(tokens.to_vec(), 1, first, &self.device);
        let blocks = self.decoder.blocks.iter().zip(&mut self.caches);
        let x = blocks.fold(x, |x, (block, cache)| block.extend(x, cache, &pass));
        let logits = self.decoder.logits(x, &pass).narrow(2, 0, self.decoder.outputs);
        let log_probs = log_softmax(logits, 2);
        let [_, _, v] = log_probs.dims();
        let values: Vec<f32> = log_probs.into_data().try_into_vec().expect("log-probabilities are in fp32");
        values.chunks_exact(v).map(<[f32]>::to_vec).collect()
    }
}
