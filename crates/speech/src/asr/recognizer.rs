//! The recognizer: subsampling, encoder blocks, a CTC layer, and an attention decoder.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, HostBatch, Key};
use plimsoll_layers::{
    Conformer, ConformerConfig, ConvNext, ConvNextConfig, HeadPositions, LengthPolicy, Lengths, Subsampling,
    SubsamplingConfig, add_sinusoids, apply_layer_norm, ctc_greedy, ctc_loss, infeasible_texts, is_ctc_feasible,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, initialize};
use plimsoll_text::Tokenizer;

use super::decode::{
    BeamOptions, CtcScores, attention_beam, ctc_best_path, ctc_prefix_beam, fused_joint_beam, joint_beam, rescore,
};
use super::decoder::{Decoder, EncodedAudio};
use super::{EncoderKind, LanguageSearch, RecognizerConfig, Search};

// Shapes: b batch, t frames, t' frames after subsampling, f features, d model width, v vocabulary.

/// An encoder of Conformer blocks or of convolutions, with a linear layer for CTC and an optional attention decoder.
///
/// Build it with [`RecognizerConfig::init`]; it is a [`Task`], so `plimsoll_train::Trainer` trains it.
#[derive(Module, Debug)]
pub struct Recognizer {
    subsampling: Option<Subsampling>,
    input: Option<Linear>,
    blocks: Vec<Conformer>,
    convolutions: Vec<ConvNext>,
    /// Ends an encoder of convolutions; a Conformer block ends with a norm of its own.
    norm: Option<LayerNorm>,
    output: Linear,
    decoder: Option<Decoder>,
    #[module(skip)]
    config: RecognizerConfig,
    /// Number of tokens that a search may output, from the first one on.
    #[module(skip)]
    outputs: usize,
}

impl RecognizerConfig {
    /// Makes a recognizer on `device`. Its initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// When the sizes contradict each other, for example when `d_model` is not a multiple of `heads`.
    pub fn init(&self, device: &Device, key: Key) -> Recognizer {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes a recognizer on `device` with Burn's initial weights, which follow no seed. Use it to load weights from a
    /// file or to count parameters.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> Recognizer {
        let &Self { features, d_model, heads, kernel, feed_forward_multiplier, dropout, positions, norm, .. } = self;
        let block = ConformerConfig { d_model, heads, kernel, feed_forward_multiplier, positions, norm, dropout };
        let subsampling =
            SubsamplingConfig { features, d_model, channels: self.subsampling_channels, factor: self.subsampling };
        let convolution = ConvNextConfig { d_model, inner: d_model * feed_forward_multiplier, kernel, dropout };
        let keeps_every_frame = self.subsampling == 1;
        let [conformers, convolutions] = match self.encoder {
            EncoderKind::Conformer => [self.layers, 0],
            EncoderKind::Convolution => [0, self.layers],
        };
        Recognizer {
            subsampling: (!keeps_every_frame).then(|| subsampling.init(device)),
            input: keeps_every_frame.then(|| LinearConfig::new(features, d_model).init(device)),
            blocks: (0..conformers).map(|_| block.init(device)).collect(),
            convolutions: (0..convolutions).map(|_| convolution.init(device)).collect(),
            norm: (convolutions > 0).then(|| LayerNormConfig::new(d_model).init(device)),
            output: LinearConfig::new(d_model, self.vocabulary).init(device),
            decoder: Decoder::init(self, device),
            config: *self,
            outputs: self.vocabulary,
        }
    }
}

impl Recognizer {
    /// Returns the configuration that the recognizer was built from.
    pub fn config(&self) -> &RecognizerConfig {
        &self.config
    }

    /// Lets every search output the first `count` tokens only, which are those of the tokenizer: a vocabulary can be wider
    /// than its texts need. At least one and at most all are kept. Losses do not change.
    #[must_use]
    pub fn with_outputs(mut self, count: usize) -> Self {
        self.outputs = count.clamp(1, self.config.vocabulary);
        self.decoder = self.decoder.map(|decoder| decoder.with_outputs(self.outputs));
        self
    }

    /// Returns the number of tokens that each frame scores in a search, including the blank.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the attention decoder; `None` if the recognizer has CTC only.
    pub fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// Encodes features `[utterances, frames, mel bands]` to `[utterances, frames after subsampling, model width]`. The
    /// second value of the result lists the indices of the utterances that the length policy truncated.
    ///
    /// A block that the pass rematerializes keeps only its input for the backward pass; the result is the same,
    /// on the CPU to the last bit.
    pub fn encode(&self, features: Tensor<3>, lengths: &Lengths, pass: &Pass) -> (EncodedAudio, Vec<usize>) {
        let pass = &pass.with_choice(self.config.length.apply_to(*pass.choice()));
        let (x, lengths) = match (&self.subsampling, &self.input) {
            (Some(subsampling), _) => subsampling.forward(features, lengths, pass),
            (None, Some(input)) => (pass.dense(input, features), lengths.clone()),
            (None, None) => (features, lengths.clone()),
        };
        let (x, lengths, cut) = self.config.length.truncate(pass.at_least_fp32(x), lengths);
        let x = match self.config.encoder {
            EncoderKind::Conformer => self.placed(x),
            EncoderKind::Convolution => x,
        };
        let x = pass.with("input").dropout(x, self.config.dropout);
        let frames = match &self.norm {
            None => through(&self.blocks, [Conformer::forward, Conformer::forward_rematerialized], x, &lengths, pass),
            Some(norm) => {
                let ways = [ConvNext::forward, ConvNext::forward_rematerialized];
                apply_layer_norm(norm, through(&self.convolutions, ways, x, &lengths, pass), pass)
            }
        };
        (EncodedAudio { frames: pass.at_least_fp32(frames), lengths }, cut)
    }

    /// Adds positions to the frames, as the configuration asks.
    fn placed(&self, x: Tensor<3>) -> Tensor<3> {
        // As in the Transformer: an untrained model has small values, which position vectors of amplitude one would
        // hide.
        let [_, _, d] = x.dims();
        let x = if self.config.scale_input { x * (d as f64).sqrt() } else { x };
        if self.config.positions == HeadPositions::Absolute { add_sinusoids(x, 0) } else { x }
    }

    /// Computes the CTC logits `[utterances, frames, vocabulary]`: a score of every token in every encoder frame,
    /// before the softmax.
    pub fn ctc_logits(&self, encoded: &EncodedAudio, pass: &Pass) -> Tensor<3> {
        pass.at_least_fp32(pass.dense(&self.output, encoded.frames.clone()))
    }

    /// Recognizes the tokens of each utterance with `search`. `features` are `[utterances, frames, mel bands]`;
    /// `frame_lengths` has the number of valid frames of each utterance.
    ///
    /// # Panics
    /// When `search` needs a decoder and the model has none.
    pub fn recognize(&self, features: Tensor<3>, frame_lengths: &[u32], search: &Search) -> Vec<Vec<u32>> {
        let lengths = Lengths::new(frame_lengths.to_vec(), features.dims()[1]);
        let pass = Pass::inference();
        let (encoded, _) = self.encode(features, &lengths, &pass);
        let logits = self.output_logits(self.ctc_logits(&encoded, &pass));
        self.decode(&encoded, logits, search)
    }

    /// Takes the logits of the tokens that a search may output.
    fn output_logits(&self, logits: Tensor<3>) -> Tensor<3> {
        if self.outputs == self.config.vocabulary { logits } else { logits.narrow(2, 0, self.outputs) }
    }

    /// Encodes one utterance, whose features are `[1, frames, mel bands]`, and computes its CTC scores.
    pub(super) fn score_one(&self, features: Tensor<3>) -> (EncodedAudio, CtcScores) {
        let frames = features.dims()[1];
        let (encoded, _) = self.encode(features, &Lengths::new(vec![frames as u32], frames), &Pass::inference());
        let logits = self.output_logits(self.ctc_logits(&encoded, &Pass::inference()));
        let length = encoded.lengths.each()[0] as usize;
        let [_, _, v] = logits.dims();
        let values: Vec<f32> = logits.narrow(1, 0, length).into_data().try_into_vec().expect("logits are in fp32");
        (encoded, CtcScores::from_logits(values, v))
    }

    /// Recognizes tokens as [`recognize`](Self::recognize) does, and computes the loss, with a single pass through the
    /// encoder.
    ///
    /// # Panics
    /// When `search` needs a decoder and the model has none.
    pub fn recognize_with_loss(&self, batch: &TensorBatch, search: &Search) -> (Vec<Vec<u32>>, StepLoss) {
        let (encoded, logits, loss) = self.encode_with_loss(batch);
        (self.decode(&encoded, logits, search), loss)
    }

    /// Computes the part of [`recognize_with_loss`](Self::recognize_with_loss) that runs on the device: encoder output,
    /// CTC logits of the tokens that a search may output, loss.
    pub(crate) fn encode_with_loss(&self, batch: &TensorBatch) -> (EncodedAudio, Tensor<3>, StepLoss) {
        let lengths = Lengths::new(batch.frame_lengths.clone(), batch.features.dims()[1]);
        let pass = Pass::inference();
        let (encoded, cut) = self.encode(batch.features.clone(), &lengths, &pass);
        let logits = self.ctc_logits(&encoded, &pass);
        let loss = self.combined_loss((&encoded, cut), logits.clone(), batch, &pass);
        (encoded, self.output_logits(logits), loss)
    }

    /// Computes the CTC scores of each utterance of `batch`.
    pub fn ctc_scores(&self, batch: &TensorBatch) -> Vec<CtcScores> {
        let lengths = Lengths::new(batch.frame_lengths.clone(), batch.features.dims()[1]);
        let pass = Pass::inference();
        let (encoded, _) = self.encode(batch.features.clone(), &lengths, &pass);
        scores_of_each(&self.output_logits(self.ctc_logits(&encoded, &pass)), &encoded.lengths)
    }

    /// Searches the best tokens of each encoded utterance; `logits` are its CTC logits.
    fn decode(&self, encoded: &EncodedAudio, logits: Tensor<3>, search: &Search) -> Vec<Vec<u32>> {
        if *search == Search::Greedy {
            return ctc_greedy(logits, &encoded.lengths);
        }
        let decode_one = |(place, scores): (usize, CtcScores)| {
            let length = encoded.lengths.each()[place] as usize;
            let frames = encoded.frames.clone().narrow(0, place, 1).narrow(1, 0, length);
            let encoded = EncodedAudio { frames, lengths: Lengths::new(vec![length as u32], length) };
            self.search_one(&scores, Some(&encoded), search, None)
        };
        scores_of_each(&logits, &encoded.lengths).into_iter().enumerate().map(decode_one).collect()
    }

    /// Computes the loss of encoded utterances: the weighted sum of CTC and, with a decoder, the decoder's
    /// cross-entropy. `cut` lists the indices of truncated utterances.
    fn combined_loss(
        &self,
        (encoded, cut): (&EncodedAudio, Vec<usize>),
        logits: Tensor<3>,
        batch: &TensorBatch,
        pass: &Pass,
    ) -> StepLoss {
        // The decoder reads an utterance that is too short for CTC.
        let left_out = match self.config.needs_ctc() {
            true => infeasible_texts(&encoded.lengths, &batch.tokens),
            false => Vec::new(),
        };
        let attention =
            self.decoder.as_ref().map(|decoder| decoder.loss(&batch.tokens, &left_out, encoded, &pass.with("decoder")));
        let ctc = ctc_loss(logits, &encoded.lengths, &batch.tokens);
        let (sum, parts) = match (attention, &self.config.decoder) {
            (Some(attention), Some(config)) => {
                let sum = ctc.sum.clone() * config.ctc_weight + attention.clone() * (1.0 - config.ctc_weight);
                (sum, vec![("ctc", ctc.sum), ("attention", attention)])
            }
            _ => (ctc.sum, Vec::new()),
        };
        StepLoss { parts, left_out, truncated: cut, reads: ctc.reads, ..StepLoss::new(sum) }
    }

    /// Searches the best tokens of one utterance, with a language if it is given. Only a search with a decoder reads
    /// `encoded`.
    ///
    /// # Panics
    /// When `search` needs a decoder and the model has none, or `encoded` is missing.
    pub(super) fn search_one(
        &self,
        scores: &CtcScores,
        encoded: Option<&EncodedAudio>,
        search: &Search,
        language: Option<&LanguageSearch>,
    ) -> Vec<u32> {
        let decoder = || {
            let decoder = self.decoder.as_ref().expect("such a search is only run on a model with a decoder");
            decoder.incremental(encoded.expect("a search with a decoder reads the encoder's frames"))
        };
        let options = |width, ctc_weight, length_bonus| BeamOptions {
            width,
            ctc_weight,
            length_bonus,
            ..BeamOptions::new(Tokenizer::START, Tokenizer::END, scores.frames())
        };
        let hypotheses = match (*search, language) {
            (Search::Joint { width, ctc_weight, length_bonus }, Some(language)) => {
                let options = options(width, ctc_weight, length_bonus);
                fused_joint_beam(scores, &mut decoder(), &options, language.scorer())
            }
            (_, Some(language)) => return language.best(scores),
            (Search::Greedy, None) => return ctc_best_path(scores),
            (Search::PrefixBeam { width }, None) => ctc_prefix_beam(scores, width),
            (Search::Attention { width, length_bonus }, None) => {
                attention_beam(&mut decoder(), &options(width, 0.0, length_bonus))
            }
            (Search::Joint { width, ctc_weight, length_bonus }, None) => {
                joint_beam(scores, &mut decoder(), &options(width, ctc_weight, length_bonus))
            }
            (Search::Rescore { width, ctc_weight }, None) => {
                rescore(ctc_prefix_beam(scores, width), &mut decoder(), &options(width, ctc_weight, 0.0))
            }
        };
        hypotheses.into_iter().next().map(|best| best.tokens).unwrap_or_default()
    }
}

/// A way to apply a block.
type Way<B> = fn(&B, Tensor<3>, &Lengths, &Pass) -> Tensor<3>;

/// Applies `blocks` one after another, each in the second of two ways if the pass rematerializes it.
fn through<B>(blocks: &[B], [plain, again]: [Way<B>; 2], x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
    let run = |x, (index, block): (usize, &B)| {
        let pass = pass.with("block").at(index);
        let way = if pass.choice().remat.covers(index) { again } else { plain };
        way(block, x, lengths, &pass)
    };
    blocks.iter().enumerate().fold(x, run)
}

/// Reads the CTC scores of each utterance from its valid frames in `logits`.
fn scores_of_each(logits: &Tensor<3>, lengths: &Lengths) -> Vec<CtcScores> {
    let [_, _, v] = logits.dims();
    let one = |(place, &length): (usize, &u32)| {
        let part = logits.clone().narrow(0, place, 1).narrow(1, 0, length as usize);
        CtcScores::from_logits(part.into_data().try_into_vec().expect("scores are in fp32"), v)
    };
    lengths.each().iter().enumerate().map(one).collect()
}

impl RecognizerConfig {
    /// Computes the number of encoder frames of an utterance of `frames` input frames, after subsampling and
    /// truncation.
    pub fn frames_after(&self, frames: u32) -> u32 {
        let left = SubsamplingConfig::frames_after(self.subsampling, frames);
        match self.length {
            LengthPolicy::Truncate(most) => left.min(most.get()),
            LengthPolicy::Exact | LengthPolicy::Chunked(_) => left,
        }
    }
}

impl Task for Recognizer {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    /// Returns the number by which the loss of the batch is divided: the number of tokens of all utterances that have
    /// enough frames for CTC, with at least 1 for each such utterance. Shorter utterances are left out of the loss. A
    /// model that trains without CTC leaves out none.
    fn weight(&self, batch: &HostBatch) -> f64 {
        let frames = |index: usize| self.config.frames_after(batch.frame_lengths[index]) as usize;
        let tokens = |index: usize| batch.tokens_of(index);
        let counts =
            (0..batch.len()).filter(|&index| !self.config.needs_ctc() || is_ctc_feasible(frames(index), tokens(index)));
        counts.map(|index| tokens(index).len().max(1) as f64).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let lengths = Lengths::new(batch.frame_lengths.clone(), batch.features.dims()[1]);
        let (encoded, cut) = self.encode(batch.features.clone(), &lengths, pass);
        let logits = self.ctc_logits(&encoded, pass);
        self.combined_loss((&encoded, cut), logits, batch, pass)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Choice, Grid, HostSample, Precision, Remat, SampleId};
    use plimsoll_tape::{Noise, backward, collect};

    use super::*;
    use crate::asr::DecoderConfig;
    use crate::testing::{self, apart};
    use plimsoll_layers::NormKind;

    /// Returns the configuration of a tiny recognizer for tests: it has every part of a real recognizer, and a training
    /// step takes only milliseconds.
    fn small() -> RecognizerConfig {
        RecognizerConfig {
            features: 20,
            heads: 2,
            kernel: 5,
            subsampling_channels: 4,
            dropout: 0.2,
            ..RecognizerConfig::recommended(16, 2, 1, 9)
        }
    }

    /// Returns [`small`] with each kind of encoder.
    fn each_encoder() -> [RecognizerConfig; 2] {
        [EncoderKind::Conformer, EncoderKind::Convolution].map(|encoder| RecognizerConfig { encoder, ..small() })
    }

    fn sample(name: &str, frames: usize, tokens: &[u32]) -> HostSample {
        let key = Key::new(1).with(name);
        let features = (0..frames * 20).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
        let (id, name, tokens) = (SampleId::from_name(name), name.into(), tokens.to_vec());
        HostSample { id, name, features, tokens, reference: Vec::new() }
    }

    fn samples() -> Vec<HostSample> {
        vec![sample("a", 60, &[5, 6, 7]), sample("b", 41, &[8, 8]), sample("c", 77, &[4]), sample("d", 9, &[5, 5, 6])]
    }

    /// Computes the loss of `samples`, and the gradients of all parameters in one vector, in micro-batches of at most
    /// `pieces` utterances.
    fn gradient(config: &RecognizerConfig, pieces: usize) -> (f64, Vec<f32>) {
        gradient_under(config, pieces, &Choice::default())
    }

    fn gradient_under(config: &RecognizerConfig, pieces: usize, choice: &Choice) -> (f64, Vec<f32>) {
        let model = config.init(&Device::flex().autodiff(), Key::new(3));
        testing::gradient_under(&model, &samples(), 20, pieces, choice)
    }

    #[test]
    fn gradient_does_not_depend_on_the_split_even_with_dropout() {
        for config in each_encoder() {
            let (whole, expected) = gradient(&config, 4);
            for pieces in [1, 2, 3] {
                let (loss, found) = gradient(&config, pieces);
                assert!((loss - whole).abs() < 1e-4 * whole, "{loss} {whole}");
                assert!(apart(&found, &expected) < 1e-5, "{pieces}");
            }
        }
    }

    #[test]
    fn rematerialization_keeps_every_bit_of_the_gradient() {
        for config in each_encoder() {
            let plain = gradient(&config, 4);
            for remat in [Remat::All, Remat::Half, Remat::First(1)] {
                let choice = Choice { remat, ..Choice::default() };
                assert_eq!(gradient_under(&config, 4, &choice), plain, "{remat:?}");
            }
        }
    }

    #[test]
    fn padding_does_not_change_logits() {
        each_encoder().iter().for_each(check_padding);
    }

    fn check_padding(config: &RecognizerConfig) {
        let model = config.init(&Device::flex(), Key::new(3));
        let logits = |samples: &[HostSample], fill: f32| {
            let mut batch = HostBatch::collate(samples, 20, &Grid::multiples_of(16.try_into().unwrap())).unwrap();
            let width = batch.frames * 20;
            for (index, &length) in batch.frame_lengths.iter().enumerate() {
                batch.features[index * width + length as usize * 20..(index + 1) * width].fill(fill);
            }
            let tensors = TensorBatch::send(&batch, &Device::flex());
            let lengths = Lengths::new(batch.frame_lengths.clone(), batch.frames);
            let (encoded, _) = model.encode(tensors.features, &lengths, &Pass::plain());
            let valid = encoded.lengths.each()[0] as usize;
            let y = model.ctc_logits(&encoded, &Pass::plain());
            y.slice([0..1, 0..valid, 0..9]).into_data().try_into_vec::<f32>().unwrap()
        };
        let all = samples();
        let alone = logits(&all[1..2], 0.0);
        for (batch, fill) in [(&[all[1].clone(), all[2].clone()][..], 0.0), (&all[1..2], 9.0)] {
            let found = logits(batch, fill);
            let apart = found.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == alone.len() && apart < 1e-5, "{apart}");
        }
    }

    #[test]
    fn weight_counts_the_utterances_in_the_loss() {
        let model = small().init(&Device::flex().autodiff(), Key::new(3));
        let batch = HostBatch::collate(&samples(), 20, &Grid::default()).unwrap();
        // After subsampling "d" has one frame, and CTC needs four: three tokens, and a blank between the equal ones.
        assert_eq!(model.weight(&batch), 6.0);
        let tensors = TensorBatch::send(&batch, &Device::flex().autodiff());
        assert_eq!(model.loss(&tensors, &Pass::plain()).left_out, [3]);
    }

    #[test]
    fn model_without_ctc_learns_from_utterances_that_are_too_short_for_it() {
        let config = small();
        let decoder = config.decoder.map(|decoder| DecoderConfig { ctc_weight: 0.0, ..decoder });
        let device = Device::flex().autodiff();
        let model = RecognizerConfig { decoder, ..config }.init(&device, Key::new(3));
        let batch = HostBatch::collate(&samples(), 20, &Grid::default()).unwrap();
        assert_eq!(model.weight(&batch), 9.0);
        let loss = model.loss(&TensorBatch::send(&batch, &device), &Pass::plain());
        assert_eq!(loss.left_out, Vec::<usize>::new());
        let sum: f32 = loss.sum.into_scalar::<f32>();
        assert!(sum.is_finite() && sum > 0.0, "{sum}");
    }

    #[test]
    fn low_precision_gradient_is_close_to_fp32() {
        for config in each_encoder() {
            let (exact, expected) = gradient(&config, 4);
            for precision in [Precision::Bf16, Precision::Fp16] {
                let choice = Choice { precision, ..Choice::default() };
                let (loss, found) = gradient_under(&config, 4, &choice);
                assert!((loss - exact).abs() < 0.02 * exact, "{precision:?}: {loss} {exact}");
                assert!(apart(&found, &expected) < 0.05, "{precision:?}");
            }
        }
    }

    #[test]
    fn capture_device_records_a_step_under_every_choice() {
        let operations = |choice: Choice, norm: NormKind| {
            let device = Device::capture();
            let captured = device.capture_scope(|scope| {
                let device = device.clone().autodiff();
                let model = RecognizerConfig { norm, ..small() }.init(&device, Key::new(3));
                let batch =
                    HostBatch::collate(&samples()[..3], 20, &Grid::multiples_of(8.try_into().unwrap())).unwrap();
                let pass = Pass::new(choice, Noise::new(Key::new(4), &batch.ids));
                let loss = model.loss(&TensorBatch::send(&batch, &device), &pass);
                assert!(backward(loss.sum, &model).len() > 50);
                scope.complete([], [])
            });
            captured.unwrap().graph.operations.len()
        };
        let plain = operations(Choice::default(), NormKind::Layer);
        assert!(plain > 500, "{plain}");
        assert!(operations(Choice { remat: Remat::All, ..Choice::default() }, NormKind::Layer) > plain);
        let chunk = std::num::NonZeroU32::new(4);
        assert!(operations(Choice { attention_chunk: chunk, ..Choice::default() }, NormKind::Layer) > plain);
        let low = Choice { precision: Precision::Bf16, remat: Remat::Half, ..Choice::default() };
        assert!(operations(low, NormKind::Batch) > plain);
    }

    #[test]
    fn initial_values_follow_from_the_seed() {
        let values = |seed| collect(&small().init(&Device::flex(), Key::new(seed)));
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
    }
}
