//! The text encoder: each token in the context of all others.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use plimsoll_layers::{EncoderBlock, Lengths, TransformerConfig, add_sinusoids, apply_layer_norm};
use plimsoll_tape::transfer::uploaded;
use plimsoll_tape::{Pass, remat};

use super::SynthesizerConfig;

// Shapes: b texts, k tokens, d width.

/// A Transformer encoder of texts, which are lists of tokens.
#[derive(Module, Debug)]
pub struct TextEncoder {
    embedding: Embedding,
    blocks: Vec<EncoderBlock>,
    norm: LayerNorm,
    dropout: f64,
}

/// Encoded texts, which a synthesizer's decoder attends to.
#[derive(Clone, Debug)]
pub struct EncodedText {
    /// Encoded tokens `[texts, tokens, width]`.
    pub tokens: Tensor<3>,
    /// Number of valid tokens of each text.
    pub lengths: Lengths,
}

impl TextEncoder {
    /// Makes the text encoder of `config` on `device`.
    pub(super) fn init(config: &SynthesizerConfig, device: &Device) -> Self {
        let &SynthesizerConfig { vocabulary, text_dim: d, text_layers, text_heads, dropout, .. } = config;
        let inner = d * config.feed_forward_multiplier;
        let block = TransformerConfig { inner, dropout, ..TransformerConfig::new(d, text_heads) };
        Self {
            embedding: EmbeddingConfig::new(vocabulary, d).init(device),
            blocks: (0..text_layers).map(|_| block.init_encoder(device)).collect(),
            norm: LayerNormConfig::new(d).init(device),
            dropout,
        }
    }

    /// Encodes `texts`, each a list of tokens, padded to the longest text.
    pub fn forward(&self, texts: &[Vec<u32>], pass: &Pass) -> EncodedText {
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
        let width = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
        let lengths = Lengths::new(lengths, width);
        let row = |text: &Vec<u32>| -> Vec<i32> {
            text.iter().map(|&token| token as i32).chain(std::iter::repeat(0)).take(width).collect()
        };
        let rows: Vec<i32> = texts.iter().flat_map(row).collect();
        let weight = self.embedding.weight.val();
        let [_, d] = weight.dims();
        let tokens =
            Tensor::<2, Int>::from_data(uploaded(TensorData::new(rows, [texts.len(), width])), &weight.device());
        let x = add_sinusoids(self.embedding.forward(tokens) * (d as f64).sqrt(), 0);
        let x = pass.observe(self.embedding.weight.id, x);
        let x = pass.with("embedding").dropout(x, self.dropout);
        let run = |x, (index, block): (usize, &EncoderBlock)| {
            let (lengths, pass) = (lengths.clone(), pass.with("block").at(index));
            let recompute = pass.choice().remat.covers(index);
            let forward = move |block: &EncoderBlock, x: Tensor<3>| block.forward(x, &lengths, &pass);
            if recompute { remat(block, x, forward) } else { forward(block, x) }
        };
        let x = self.blocks.iter().enumerate().fold(x, run);
        EncodedText { tokens: apply_layer_norm(&self.norm, x, pass), lengths }
    }
}
