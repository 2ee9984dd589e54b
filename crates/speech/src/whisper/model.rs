//! The modules of Whisper, and its loss.

use std::sync::{Arc, OnceLock};

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use plimsoll_core::{Batch, HostBatch, Key};
use plimsoll_layers::{
    Activation, DecoderBlock, EncoderBlock, LearnedPositions, Lengths, TransformerConfig, WindowConvolution,
    WindowConvolutionConfig, apply_layer_norm, cross_entropy,
};
use plimsoll_tape::epilogue::Epilogue;
use plimsoll_tape::transfer::{from_host, uploaded};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, activation, initialize, remat};

use super::WhisperConfig;
use super::config::RESERVED;

// Shapes: b utterances, t frames, p positions of the encoder, f mel bands, u tokens, d model width, v tokens of the file.

/// An encoder of sound and a decoder of text.
///
/// The encoder reads a window of fixed length, 30 s in the published sizes; [`windows`](Whisper::windows) fills utterances up with
/// the features of silence. The tokens of an utterance are the whole sequence of the decoder: what begins a text, the text, and its end.
///
/// Build it with [`WhisperConfig::init`]; it is a [`Task`], so `plimsoll_train::Trainer` trains it.
#[derive(Module, Debug)]
pub struct Whisper {
    encoder: Encoder,
    pub(super) decoder: Decoder,
    #[module(skip)]
    config: WhisperConfig,
    /// Values of the positions of the encoder, once they are needed.
    #[module(skip)]
    sines: Arc<OnceLock<Vec<f32>>>,
}

/// Two convolutions over time, the second of which halves the frames, then blocks.
#[derive(Module, Debug)]
pub(super) struct Encoder {
    first: WindowConvolution,
    second: WindowConvolution,
    blocks: Vec<EncoderBlock>,
    norm: LayerNorm,
}

/// Blocks over a table of tokens, which is also the last layer.
#[derive(Module, Debug)]
pub(super) struct Decoder {
    pub(super) embedding: Embedding,
    pub(super) positions: LearnedPositions,
    pub(super) blocks: Vec<DecoderBlock>,
    norm: LayerNorm,
}

impl WhisperConfig {
    /// Makes a model on `device`. Its initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// When `d_model` is not a multiple of `heads`.
    pub fn init(&self, device: &Device, key: Key) -> Whisper {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes a model on `device` with Burn's initial weights, which follow no seed. Use it to load weights from a file or to count
    /// parameters.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> Whisper {
        let d = self.d_model;
        let block = TransformerConfig {
            inner: d * self.feed_forward_multiplier,
            activation: Activation::Gelu,
            dropout: self.dropout,
            ..TransformerConfig::new(d, self.heads)
        };
        let convolution = |inputs, stride| {
            let (kernel, stride, padding) = ([3, 1], [stride, 1], [1, 0]);
            WindowConvolutionConfig { inputs, outputs: d, kernel, stride, padding }.init(device)
        };
        let encoder = Encoder {
            first: convolution(self.features, 1),
            second: convolution(d, 2),
            blocks: (0..self.encoder_layers).map(|_| block.init_encoder(device)).collect(),
            norm: LayerNormConfig::new(d).init(device),
        };
        let decoder = Decoder {
            embedding: EmbeddingConfig::new(self.rows(), d).init(device),
            positions: LearnedPositions::init(self.text_positions, d, device),
            blocks: (0..self.decoder_layers).map(|_| block.init_decoder(device)).collect(),
            norm: LayerNormConfig::new(d).init(device),
        };
        Whisper { encoder, decoder, config: *self, sines: Arc::default() }
    }
}

impl Whisper {
    /// Returns the configuration that the model was built from.
    pub fn config(&self) -> &WhisperConfig {
        &self.config
    }

    /// Encodes features `[b, t, f]` of whole windows to `[b, p, d]`.
    ///
    /// # Panics
    /// When there are not as many frames as a window has.
    pub fn encode(&self, features: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with_choice(self.config.length.apply_to(*pass.choice()));
        let Encoder { first, second, blocks, norm } = &self.encoder;
        let [b, t, _] = features.dims();
        assert_eq!(t, self.config.frames(), "the encoder reads whole windows");
        let gelu = Epilogue { activation: Some(activation::Activation::Gelu), ..Epilogue::default() };
        let activated = |x: Tensor<4>| pass.end(x.squeeze_dim::<3>(2), gelu.clone());
        let x = activated(first.forward(features.unsqueeze_dim(2), pass));
        let x = activated(second.forward(x.unsqueeze_dim(2), pass));
        let x = pass.at_least_fp32(x);
        let WhisperConfig { positions, d_model, dropout, .. } = self.config;
        let table = from_host([1, positions, d_model], &x.device(), || {
            self.sines.get_or_init(|| sinusoid_values(positions, d_model)).clone()
        });
        let x = pass.with("input").dropout(x + table, dropout);
        let lengths = Lengths::new(vec![positions as u32; b], positions);
        let run = |x, (index, block): (usize, &EncoderBlock)| {
            let (lengths, pass) = (lengths.clone(), pass.with("block").at(index));
            let recompute = pass.choice().remat.covers(index);
            let forward = move |block: &EncoderBlock, x: Tensor<3>| block.forward(x, &lengths, &pass);
            if recompute { remat(block, x, forward) } else { forward(block, x) }
        };
        pass.at_least_fp32(apply_layer_norm(norm, blocks.iter().enumerate().fold(x, run), pass))
    }

    /// Fills the features of `batch` up to whole windows `[b, t, f]` with the features of silence behind each utterance: the quietest
    /// value beside its loudest. Longer utterances are cut.
    pub fn windows(&self, batch: &TensorBatch) -> Tensor<3> {
        let frames = self.config.frames();
        let features = batch.features.clone();
        let [b, t, f] = features.dims();
        let features = if t > frames { features.narrow(1, 0, frames) } else { features };
        let heard: Vec<u32> = batch.frame_lengths.iter().map(|&length| length.min(frames as u32)).collect();
        let Some(padding) = Lengths::new(heard.clone(), frames).padding(&features.device()) else { return features };
        // The padding of a batch is zero, and so is a loud feature: only what is heard counts.
        let inside = t.min(frames);
        let loudest = match Lengths::new(heard, inside).padding(&features.device()) {
            Some(outside) => features.clone().mask_fill(outside.unsqueeze_dim::<3>(2).expand([b, inside, f]), -1e9),
            None => features.clone(),
        };
        let silence = (loudest.max_dim(1).max_dim(2) - RANGE).clamp_min(NOTHING).expand([b, frames, f]);
        let whole = match frames - inside {
            0 => features,
            missing => {
                let rest = Tensor::zeros([b, missing, f], &features.device());
                Tensor::cat(vec![features, rest], 1)
            }
        };
        whole.mask_where(padding.unsqueeze_dim::<3>(2).expand([b, frames, f]), silence)
    }

    /// Computes the logits of the token after each of `texts`, `[b, u, v]`, over encoded windows `[b, p, d]`.
    ///
    /// # Panics
    /// When a text has more tokens than the decoder has positions.
    pub fn logits(&self, texts: &[Vec<u32>], encoded: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with("decoder");
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
        let width = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
        let row = |text: &Vec<u32>| text.iter().copied().chain(std::iter::repeat(0)).take(width).collect::<Vec<u32>>();
        let x = self.embed(texts.iter().flat_map(row).collect(), width, 0, &encoded.device());
        let x = pass.observe(self.decoder.embedding.weight.id, x);
        let x = pass.with("embedding").dropout(x, self.config.dropout);
        let lengths = Lengths::new(lengths, width);
        let [b, positions, _] = encoded.dims();
        let heard = Lengths::new(vec![positions as u32; b], positions);
        // Each block projects the frames: they are cast once, and so is the sum of their gradients.
        let encoded = pass.to_compute_dtype(encoded);
        let run = |x, (index, block): (usize, &DecoderBlock)| {
            let (lengths, heard, pass) = (lengths.clone(), heard.clone(), pass.with("block").at(index));
            let recompute = pass.choice().remat.covers(self.config.encoder_layers + index);
            let forward = move |block: &DecoderBlock, (x, encoded): (Tensor<3>, Tensor<3>)| {
                block.forward(x, &lengths, encoded, &heard, &pass)
            };
            let inputs = (x, encoded.clone());
            if recompute { remat(block, inputs, forward) } else { forward(block, inputs) }
        };
        self.scores(self.decoder.blocks.iter().enumerate().fold(x, run), pass)
    }

    /// Looks up `tokens` `[b, width]`, whose first column has the position `first`: `[b, width, d]`.
    pub(super) fn embed(&self, tokens: Vec<u32>, width: usize, first: usize, device: &Device) -> Tensor<3> {
        let rows = tokens.len() / width;
        let tokens: Vec<i32> = tokens.into_iter().map(|token| token.saturating_sub(RESERVED as u32) as i32).collect();
        let tokens = Tensor::<2, Int>::from_data(uploaded(TensorData::new(tokens, [rows, width])), device);
        self.decoder.positions.add(self.decoder.embedding.forward(tokens), first)
    }

    /// Normalizes the result `[b, u, d]` of the last block, and multiplies it by the table of tokens: `[b, u, v]`.
    pub(super) fn scores(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let x = apply_layer_norm(&self.decoder.norm, x, pass);
        let [b, u, d] = x.dims();
        let (x, table) = (x.reshape([b * u, d]), self.decoder.embedding.weight.val());
        // With few rows, a product reads the table as it lies in memory, and on all threads.
        let scores = match b * u <= FEW_ROWS {
            true => pass.matmul(table, x.transpose()).transpose(),
            false => pass.matmul(x, table.transpose()),
        };
        pass.at_least_fp32(scores).reshape([b, u, self.config.rows()])
    }

    /// Takes of each text what the decoder has positions for. The second value lists the texts that were cut.
    fn fitting(&self, texts: &[Vec<u32>]) -> (Vec<Vec<u32>>, Vec<usize>) {
        let most = self.config.text_positions + 1;
        let cut = (0..texts.len()).filter(|&index| texts[index].len() > most).collect();
        (texts.iter().map(|text| text[..text.len().min(most)].to_vec()).collect(), cut)
    }

    /// Computes the loss of texts over encoded windows.
    pub(super) fn text_loss(&self, encoded: Tensor<3>, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let (texts, mut truncated) = self.fitting(&batch.tokens);
        let inputs: Vec<Vec<u32>> =
            texts.iter().map(|text| text[..text.len().saturating_sub(1).max(1).min(text.len())].to_vec()).collect();
        let target = |text: &Vec<u32>| text.iter().skip(1).map(|token| token.saturating_sub(RESERVED as u32)).collect();
        let targets: Vec<Vec<u32>> = texts.iter().map(target).collect();
        let too_long = |index: &usize| batch.frame_lengths[*index] as usize > self.config.frames() + SILENT_FRAMES;
        truncated.extend((0..texts.len()).filter(too_long));
        truncated.sort_unstable();
        truncated.dedup();
        let logits = self.logits(&inputs, encoded, pass);
        StepLoss { truncated, ..StepLoss::new(cross_entropy(logits, &targets, 0.0)) }
    }
}

/// Frames of silence behind a recording, which may be cut unseen.
const SILENT_FRAMES: usize = 2;

/// Rows up to which the table of tokens is the left side of its product.
const FEW_ROWS: usize = 4;

/// Computes the positions `[p, d]` of Whisper's encoder: the sines of all frequencies, then their cosines.
pub(super) fn sinusoid_values(positions: usize, d: usize) -> Vec<f32> {
    let half = d / 2;
    let step = 1e4_f64.ln() / (half - 1).max(1) as f64;
    let frequencies: Vec<f64> = (0..half).map(|index| (-step * index as f64).exp()).collect();
    let mut values = Vec::with_capacity(positions * d);
    for position in 0..positions {
        let angles = || frequencies.iter().map(|frequency| position as f64 * frequency);
        values.extend(angles().map(|angle| angle.sin() as f32));
        values.extend(angles().map(|angle| angle.cos() as f32));
    }
    values
}

/// Difference of the loudest and the quietest feature: 8 powers of ten in power, and features are a quarter of those.
const RANGE: f64 = 2.0;
/// Feature of no sound at all.
const NOTHING: f64 = -1.5;

impl Task for Whisper {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    /// Returns the number by which the loss of the batch is divided: the number of tokens that are predicted, which is one less than
    /// the tokens of each utterance.
    fn weight(&self, batch: &HostBatch) -> f64 {
        let most = self.config.text_positions;
        (0..batch.len()).map(|index| batch.tokens_of(index).len().saturating_sub(1).min(most) as f64).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let encoded = self.encode(self.windows(batch), pass);
        self.text_loss(encoded, batch, pass)
    }
}
