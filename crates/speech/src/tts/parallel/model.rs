//! The parallel synthesizer: text encoder, duration predictor and frame decoder.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use plimsoll_core::{HostBatch, Key};
use plimsoll_layers::{ConvNext, ConvNextConfig, Lengths, apply_layer_norm, mel_distance};
use plimsoll_tape::transfer::uploaded;
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, detach, initialize};
use plimsoll_text::Tokenizer;

use super::ParallelConfig;
use super::durations::{LONG_TOKEN, SharedFrames};
use super::prosody::Prosody;
use super::tokens::{EncodedTokens, stack, stack_with};
use super::voice_links::{VoiceLinks, with_pitch_of_voice};
use crate::tts::GenerationOptions;
use crate::tts::voice_encoder::VoiceEncoder;

// Shapes: b texts, k tokens, t frames, f features, d width of the text, v width of a voice.

/// Number of semitones in an octave.
const SEMITONES_IN_OCTAVE: f64 = 12.0;

/// A parallel synthesizer of log-mels: it generates all frames of a text at once.
///
/// A text encoder gives each token a vector. In training, monotonic alignment search finds the frames of each token; a
/// predictor learns their number. The vectors are repeated for their frames, and a decoder of convolutions makes
/// log-mels of them. It never attends and never reads its own output, so it cannot skip, repeat or go on.
///
/// Build it with [`ParallelConfig::init`]; it is a [`Task`], so `plimsoll_train::Trainer` trains it.
#[derive(Module, Debug)]
pub struct ParallelSynthesizer {
    embedding: Embedding,
    text_blocks: Vec<ConvNext>,
    text_norm: LayerNorm,
    voice: VoiceEncoder,
    voice_to_text: Linear,
    voice_links: Option<VoiceLinks>,
    prior: Linear,
    duration_block: ConvNext,
    duration: Linear,
    prosody: Option<Prosody>,
    text_to_frames: Linear,
    place_to_frames: Linear,
    frame_blocks: Vec<ConvNext>,
    frame_norm: LayerNorm,
    output: Linear,
    #[module(skip)]
    config: ParallelConfig,
}

/// Output of a parallel synthesizer that gets the true frames, and with them the durations. All frames are normalized.
#[derive(Clone, Debug)]
pub struct AlignedOutput {
    /// True frames `[utterances, frames, mel bands]`.
    pub target: Tensor<3>,
    /// Frames of the decoder `[utterances, frames, mel bands]`.
    pub frames: Tensor<3>,
    /// Frame that the token of each frame expects, `[utterances, frames, mel bands]`.
    pub prior: Tensor<3>,
    /// Predicted logarithm of each token's duration in frames, `[utterances, tokens]`.
    pub log_durations: Tensor<2>,
    /// Prosody of each token: that of the true frames, and the predicted one, `[utterances, tokens, values]`. `None` for a model without.
    pub prosody: Option<[Tensor<3>; 2]>,
    /// The true frames as they are shared among tokens.
    shared: SharedFrames,
    /// Number of valid frames of each utterance.
    pub frame_lengths: Lengths,
    /// Number of valid tokens of each text, with the start token.
    pub token_lengths: Lengths,
}

impl AlignedOutput {
    /// Reads the durations that fit the true frames best: the number of frames of each token, for each text.
    pub fn durations(&self) -> Vec<Vec<u32>> {
        self.shared.durations(&self.token_lengths)
    }
}

impl ParallelConfig {
    /// Makes a synthesizer on `device`. Its initial weights depend on `key` and the configuration only.
    ///
    /// # Panics
    /// When a kernel is even.
    pub fn init(&self, device: &Device, key: Key) -> ParallelSynthesizer {
        initialize(self.init_unseeded(device), key.with("weights"))
    }

    /// Makes a synthesizer on `device` with Burn's initial weights, which follow no seed. Use it to load weights from a
    /// file or to count parameters.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_unseeded(&self, device: &Device) -> ParallelSynthesizer {
        let &Self { features, text_dim: text, decoder_dim: wide, dropout, .. } = self;
        let block = |d_model: usize, kernel: usize| {
            let inner = d_model * self.feed_forward_multiplier;
            ConvNextConfig { d_model, inner, kernel, dropout }.init(device)
        };
        let linear = |from: usize, to: usize| LinearConfig::new(from, to).init(device);
        ParallelSynthesizer {
            embedding: EmbeddingConfig::new(self.vocabulary, text).init(device),
            text_blocks: (0..self.text_layers).map(|_| block(text, self.text_kernel)).collect(),
            text_norm: LayerNormConfig::new(text).init(device),
            voice: VoiceEncoder::init(features, &self.voice, dropout, device),
            voice_to_text: linear(self.voice.width(), text),
            voice_links: VoiceLinks::init(self, device),
            prior: linear(text, features),
            duration_block: block(text, self.text_kernel),
            duration: linear(text, 1),
            prosody: Prosody::init(self, device),
            text_to_frames: linear(text, wide),
            place_to_frames: linear(2, wide),
            frame_blocks: (0..self.decoder_layers).map(|_| block(wide, self.decoder_kernel)).collect(),
            frame_norm: LayerNormConfig::new(wide).init(device),
            output: linear(wide, features),
            config: *self,
        }
    }
}

impl ParallelSynthesizer {
    /// Returns the configuration that the model was built from.
    pub fn config(&self) -> &ParallelConfig {
        &self.config
    }

    /// Encodes reference log-mels `[references, frames, mel bands]` to voices `[references, 1, voice width]`. `lengths`
    /// has the number of valid frames of each reference.
    pub fn encode_voice(&self, references: Tensor<3>, lengths: &[u32], pass: &Pass) -> Tensor<3> {
        let lengths = Lengths::new(lengths.to_vec(), references.dims()[1]);
        let references = self.config.normalization.normalize(references);
        let voice = self.voice.forward(references.clone(), &lengths, &pass.with("voice"));
        match self.prosody.as_ref().filter(|_| self.config.voice_has_pitch()) {
            Some(prosody) => Tensor::cat(vec![voice, prosody.pitch_of_voice(references, &lengths)], 2),
            None => voice,
        }
    }

    /// Computes the frames of `batch` with the durations of its true frames. A batch without references uses each
    /// utterance as the reference of its voice.
    pub fn aligned(&self, batch: &TensorBatch, pass: &Pass) -> AlignedOutput {
        let target = self.config.normalization.normalize(batch.features.clone());
        let frame_lengths = Lengths::new(batch.frame_lengths.clone(), target.dims()[1]);
        let text = self.encode_text(&batch.tokens, self.batch_voices(batch, pass), pass);
        let prior = pass.at_least_fp32(pass.dense(&self.prior, text.vectors.clone()));
        let shared = SharedFrames::search(prior.clone(), target.clone(), &text.lengths, &frame_lengths);
        let log_durations = self.log_durations(&text, pass);
        let prosody = self
            .prosody
            .as_ref()
            .map(|prosody| [prosody.find(target.clone(), &shared, pass), self.predicted(prosody, &text, pass)]);
        let heard = prosody.as_ref().map(|[found, _]| found.clone());
        let heard = self.prosody.as_ref().zip(heard).map(|(part, found)| part.with_noise(found, pass));
        let spoken = self.with_prosody(text, heard, pass);
        let frames = self.decode(&spoken, &shared, &frame_lengths, pass);
        AlignedOutput {
            frames,
            prosody,
            prior: shared.expansion.clone().matmul(prior),
            log_durations,
            shared,
            frame_lengths,
            token_lengths: spoken.lengths,
            target,
        }
    }

    /// Computes the sums of the weighted losses by name: `frames` (distance from the true frames), `prior` (distance
    /// between the true frames and what their tokens expect), `duration` and, in a model that has it, `prosody`. Takes the output: what is dropped early need not
    /// be stored on a GPU.
    pub fn losses(&self, output: AlignedOutput) -> Vec<(&'static str, Tensor<1>)> {
        let loss = &self.config.loss;
        let frames = mel_distance(output.frames, output.target.clone(), &output.frame_lengths, loss.distance);
        let expected = output.frame_lengths.clear_padding(output.prior - output.target);
        let prior = expected.square().sum() * (loss.prior_weight / self.config.features as f64);
        let deviance = deviance(output.log_durations, output.shared.logarithms()).unsqueeze_dim::<3>(2);
        let duration = output.token_lengths.clear_padding(deviance).sum() * loss.duration_weight;
        let mut parts = vec![("frames", frames), ("prior", prior), ("duration", duration)];
        if let Some([found, predicted]) = output.prosody {
            let error = output.token_lengths.clear_padding(predicted - detach(found)).square().sum();
            parts.push(("prosody", error * (loss.prosody_weight / self.config.prosody_width() as f64)));
        }
        parts
    }

    /// Encodes `texts`, each a list of tokens, in `voices` `[texts, 1, voice width]`. A start token goes before each text:
    /// it stands for the silence before the first sound.
    pub(super) fn encode_text(&self, texts: &[Vec<u32>], voices: Tensor<3>, pass: &Pass) -> EncodedTokens {
        let pass = &pass.with("text");
        let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32 + 1).collect();
        let width = lengths.iter().copied().max().unwrap_or(1) as usize;
        let row = |text: &Vec<u32>| -> Vec<i32> {
            let tokens = std::iter::once(Tokenizer::START).chain(text.iter().copied());
            tokens.map(|token| token as i32).chain(std::iter::repeat(0)).take(width).collect()
        };
        let rows: Vec<i32> = texts.iter().flat_map(row).collect();
        let weight = self.embedding.weight.val();
        let tokens =
            Tensor::<2, Int>::from_data(uploaded(TensorData::new(rows, [texts.len(), width])), &weight.device());
        let lengths = Lengths::new(lengths, width);
        let x = pass.observe(self.embedding.weight.id, self.embedding.forward(tokens));
        let speaker = match self.config.voice_has_pitch() {
            true => voices.clone().narrow(2, 0, self.config.voice.width()),
            false => voices.clone(),
        };
        let x = x + pass.at_least_fp32(pass.dense(&self.voice_to_text, speaker));
        let x = stack(&self.text_blocks, x, &lengths, pass);
        EncodedTokens { vectors: apply_layer_norm(&self.text_norm, x, pass), voices, lengths }
    }

    /// Predicts the logarithm of each token's duration, `[b, k]`. The text encoder learns nothing from durations.
    pub(super) fn log_durations(&self, text: &EncodedTokens, pass: &Pass) -> Tensor<2> {
        let x = detach(text.vectors.clone());
        let x = match &self.voice_links {
            Some(links) => links.for_duration(x, text, pass),
            None => x,
        };
        let x = stack(std::slice::from_ref(&self.duration_block), x, &text.lengths, &pass.with("duration"));
        pass.at_least_fp32(pass.dense(&self.duration, x)).squeeze_dim::<2>(2)
    }

    /// Predicts the prosody of a text, changes it by `options`, and adds it to its vectors; returns the text as it is for a model without
    /// prosody.
    pub(super) fn with_predicted_prosody(
        &self,
        text: EncodedTokens,
        options: &GenerationOptions,
        pass: &Pass,
    ) -> EncodedTokens {
        let levels = self.levels(options.energy);
        let steered = |part: &Prosody| {
            part.steered(self.predicted(part, &text, pass), options.pitch / SEMITONES_IN_OCTAVE, levels)
        };
        let predicted = self.prosody.as_ref().map(steered);
        self.with_prosody(text, predicted, pass)
    }

    /// Predicts the prosody of a text. The text encoder learns nothing from it.
    fn predicted(&self, part: &Prosody, text: &EncodedTokens, pass: &Pass) -> Tensor<3> {
        let x = detach(text.vectors.clone());
        let x = match &self.voice_links {
            Some(links) => links.for_prosody(x, text, pass),
            None => x,
        };
        let predicted = part.predict(x, &text.lengths, pass);
        match self.config.voice_has_pitch() {
            true => with_pitch_of_voice(predicted, &text.voices),
            false => predicted,
        }
    }

    /// Makes the harmonics of generated log-mels as strong as those of the training data. A decoder that gets the harmonics of each
    /// pitch makes them as strong as the voice has them; there the mean of all voices would take some of each
    /// (docs/log/synthesis.md, "Two hundred voices by reference").
    pub(super) fn sharpen(&self, mels: &mut [f32]) {
        if self.config.pitch_harmonics {
            return;
        }
        let tables = self.prosody.as_ref().and_then(Prosody::pitch_tables);
        if let (Some(tables), Some(harmonics)) = (tables, self.config.normalization.harmonics) {
            tables.sharpen(mels, harmonics);
        }
    }

    /// Returns a change in decibels in deviations of normalized log-mels.
    fn levels(&self, decibels: f64) -> f64 {
        let decibel = self.config.pitch.map_or(0.0, |axis| axis.decibel());
        decibels * decibel / f64::from(self.config.normalization.std)
    }

    fn with_prosody(&self, text: EncodedTokens, prosody: Option<Tensor<3>>, pass: &Pass) -> EncodedTokens {
        match (&self.prosody, prosody) {
            (Some(part), Some(prosody)) => part.add(text, prosody, pass),
            _ => text,
        }
    }

    /// Computes normalized frames `[b, t, f]`: each token's vector is repeated for its frames, and gets the place of each frame in its
    /// token.
    pub(super) fn decode(
        &self,
        text: &EncodedTokens,
        shared: &SharedFrames,
        lengths: &Lengths,
        pass: &Pass,
    ) -> Tensor<3> {
        let pass = &pass.with("decoder");
        let tokens = pass.at_least_fp32(pass.dense(&self.text_to_frames, text.vectors.clone()));
        let x = shared.expansion.clone().matmul(tokens);
        let x = x + pass.at_least_fp32(pass.dense(&self.place_to_frames, shared.places.clone()));
        let x = stack_with(&self.frame_blocks, x, lengths, pass, |index, x| match &self.voice_links {
            Some(links) => links.for_frames(index, x, text, pass),
            None => x,
        });
        pass.at_least_fp32(pass.dense(&self.output, apply_layer_norm(&self.frame_norm, x, pass)))
    }

    /// Encodes the voices of a batch, `[utterances, 1, voice width]`, from its references or, without references, from
    /// its utterances.
    pub(in crate::tts) fn batch_voices(&self, batch: &TensorBatch, pass: &Pass) -> Tensor<3> {
        match &batch.references {
            Some(references) => self.encode_voice(references.features.clone(), &references.lengths, pass),
            None => self.encode_voice(batch.features.clone(), &batch.frame_lengths, pass),
        }
    }
}

/// Computes how far predicted durations are from the true ones, given the logarithms of both: the deviance of Poisson, relative to a long
/// duration. Its best prediction is the mean. That of a difference of logarithms is lower, so that speech would be too short where
/// durations vary, as those of pauses do.
fn deviance(predicted: Tensor<2>, truth: Tensor<2>) -> Tensor<2> {
    let frames = truth.clone().exp();
    (predicted.clone().exp() - frames * (predicted - truth + 1.0)) * (2.0 / f64::from(LONG_TOKEN))
}

impl Task for ParallelSynthesizer {
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
        let output = self.aligned(batch, pass);
        let reads = output.shared.reads;
        let parts = self.losses(output);
        let sum = parts.iter().map(|(_, part)| part.clone()).reduce(|sum, part| sum + part);
        let sum = sum.expect("frames are always compared");
        StepLoss { parts, reads, ..StepLoss::new(sum) }
    }
}
