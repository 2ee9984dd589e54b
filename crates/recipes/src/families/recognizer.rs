//! The family of recognizers: speech becomes text.

use std::num::NonZeroU32;
use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::choices::{
    AttentionChoice, DecoderNormChoice, EncoderChoice, FamilyChoice, NormChoice, PositionsChoice, Task,
};
use plimsoll_config::{ModelConfig, RunConfig};
use plimsoll_core::counted;
use plimsoll_data::{Augment, Noise, SpecAugment};
use plimsoll_layers::{HeadPositions, LengthPolicy, NormKind};
use plimsoll_speech::ModelKind;
use plimsoll_speech::asr::{DecoderConfig, EncoderKind, RecognizerConfig, RecognizerMetadata};
use serde_json::{Value, json};

use super::ModelPlan;
use super::family::{Family, FamilyModel, FrameCount, ModelFacts, quoted, word_of};
use crate::error::{Failure, FailureExt};

/// The family of recognizers.
pub(super) struct RecognizerFamily;

impl Family for RecognizerFamily {
    fn kind(&self) -> &'static str {
        RecognizerConfig::KIND
    }

    fn task(&self) -> Task {
        Task::Asr
    }

    fn trains(&self, config: &RunConfig) -> bool {
        config.task == Task::Asr && config.model.family != FamilyChoice::Whisper
    }

    fn model(&self, config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan {
        ModelPlan::Recognizer(recognizer(config, features, vocabulary))
    }

    fn validates_all(&self) -> bool {
        true
    }

    fn needs_order(&self, config: &RunConfig) -> bool {
        // With several lanes, the statistics of a batch norm would depend on which thread comes first.
        config.model.conv_norm == NormChoice::Batch
    }

    fn aligned_frames(&self, config: &RunConfig) -> Option<FrameCount> {
        // Not each recognizer is trained with CTC. The numbers of features and tokens change no length.
        let model = recognizer(config, 1, 1);
        model.needs_ctc().then(|| Box::new(move |frames| model.frames_after(frames)) as FrameCount)
    }

    fn augment(&self, config: &RunConfig) -> Option<Augment> {
        augment(config)
    }

    fn facts(&self, folder: &Path) -> Result<ModelFacts, Failure> {
        let RecognizerMetadata { run, tokenizer, features, model, .. } = RecognizerMetadata::read(folder).invalid()?;
        let (model, tokenizer) = (ModelPlan::Recognizer(model), Some(tokenizer));
        Ok(ModelFacts { model, run, tokenizer, features, statistics: None })
    }
}

/// Returns how the training utterances of a recognizer are changed; `None` if they stay as they are.
pub(super) fn augment(config: &RunConfig) -> Option<Augment> {
    let augment = &config.augment;
    augment.enabled.then(|| Augment {
        spec: SpecAugment {
            time_masks: augment.time_masks,
            time_mask_frames: augment.time_mask_frames,
            time_mask_share: augment.time_mask_share,
            frequency_masks: augment.frequency_masks,
            frequency_mask_bins: augment.frequency_mask_bins,
        },
        speeds: augment.speeds.iter().map(|&speed| speed as f32).collect(),
        noise: Noise {
            share: augment.noise_share,
            snr_min_db: augment.noise_least_db,
            snr_max_db: augment.noise_most_db,
        },
        gain_db: augment.gain_db,
    })
}

impl FamilyModel for RecognizerConfig {
    fn summary(&self) -> String {
        format!("{}, {}", self.size(), counted(self.vocabulary, "token"))
    }

    fn size(&self) -> String {
        let decoder = match &self.decoder {
            Some(decoder) => format!("CTC and a decoder of {}", counted(decoder.layers, "block")),
            None => "CTC".into(),
        };
        let encoder = match self.encoder {
            EncoderKind::Conformer => "Conformer",
            EncoderKind::Convolution => "convolutions",
        };
        format!("{encoder} with {decoder}: {} of width {}", counted(self.layers, "block"), self.d_model)
    }

    fn blocks(&self) -> u32 {
        self.layers.max(self.decoder.map_or(0, |decoder| decoder.layers)) as u32
    }

    fn tokens_max(&self, frames: u32) -> u32 {
        (frames / self.subsampling.max(1) as u32).saturating_sub(2).max(1)
    }

    fn features(&self) -> usize {
        self.features
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn keys(&self, _: &LogMelConfig) -> Vec<(&'static str, String)> {
        let number = |n: usize| n.to_string();
        let groups = if let NormKind::Group(groups) = self.norm { groups as u32 } else { 1 };
        let mut keys = vec![
            ("model.d_model", number(self.d_model)),
            ("model.encoder", word_of(EncoderChoice::ALL, |choice| encoder(choice) == self.encoder)),
            ("model.encoder_layers", number(self.layers)),
            ("model.attention_heads", number(self.heads)),
            ("model.conv_kernel", number(self.kernel)),
            ("model.feed_forward_multiplier", number(self.feed_forward_multiplier)),
            ("model.subsampling", number(self.subsampling)),
            ("model.subsampling_channels", number(self.subsampling_channels)),
            ("model.positions", word_of(PositionsChoice::ALL, |choice| positions(choice) == self.positions)),
            ("model.conv_norm", word_of(NormChoice::ALL, |choice| norm(choice, groups) == self.norm)),
            ("model.scale_input", self.scale_input.to_string()),
            ("model.dropout", self.dropout.to_string()),
            ("model.decoder_layers", number(self.decoder.map_or(0, |decoder| decoder.layers))),
        ];
        if let NormKind::Group(groups) = self.norm {
            keys.push(("model.conv_norm_groups", groups.to_string()));
        }
        if let Some(decoder) = self.decoder {
            let norm = if decoder.norm_first { DecoderNormChoice::Pre } else { DecoderNormChoice::Post };
            keys.push(("model.decoder_feed_forward_multiplier", number(decoder.feed_forward_multiplier)));
            keys.push(("model.decoder_norm", quoted(norm)));
            keys.push(("model.ctc_weight", decoder.ctc_weight.to_string()));
            keys.push(("model.label_smoothing", decoder.label_smoothing.to_string()));
        }
        keys.extend(length_keys(self.length));
        keys
    }

    fn token_axis(&self, name: &str) -> Option<usize> {
        match name {
            "output.weight" | "decoder.output.weight" => Some(1),
            "output.bias" | "decoder.output.bias" | "decoder.embedding.weight" => Some(0),
            _ => None,
        }
    }

    fn positions(&self, frames: u32) -> u32 {
        self.frames_after(frames)
    }

    fn positions_label(&self) -> &'static str {
        "after subsampling"
    }

    fn sizes(&self) -> Value {
        json!({
            "d_model": self.d_model,
            "layers": self.layers,
            "decoder_layers": self.decoder.map_or(0, |decoder| decoder.layers),
            "subsampling": self.subsampling,
        })
    }

    fn length_policy(&mut self) -> Option<&mut LengthPolicy> {
        Some(&mut self.length)
    }

    fn has_statistics(&self) -> bool {
        false
    }
}

/// Maps `config` to the configuration of its recognizer, with `features` mel bands and `vocabulary` tokens.
fn recognizer(config: &RunConfig, features: usize, vocabulary: usize) -> RecognizerConfig {
    let model = &config.model;
    let decoder_layers = model.decoder_layers.unwrap_or(0);
    RecognizerConfig {
        features,
        vocabulary,
        d_model: model.d_model as usize,
        encoder: encoder(model.encoder),
        layers: model.encoder_layers as usize,
        heads: model.attention_heads as usize,
        kernel: model.conv_kernel as usize,
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        subsampling: model.subsampling as usize,
        subsampling_channels: model.subsampling_channels as usize,
        positions: positions(model.positions),
        norm: norm(model.conv_norm, model.conv_norm_groups),
        scale_input: model.scale_input,
        length: length(model),
        dropout: model.dropout,
        decoder: (decoder_layers > 0).then(|| DecoderConfig {
            layers: decoder_layers as usize,
            feed_forward_multiplier: model.decoder_feed_forward_multiplier as usize,
            norm_first: model.decoder_norm == DecoderNormChoice::Pre,
            ctc_weight: model.ctc_weight,
            label_smoothing: model.label_smoothing,
        }),
    }
}

fn encoder(choice: EncoderChoice) -> EncoderKind {
    match choice {
        EncoderChoice::Conformer => EncoderKind::Conformer,
        EncoderChoice::Convolution => EncoderKind::Convolution,
    }
}

fn positions(choice: PositionsChoice) -> HeadPositions {
    match choice {
        PositionsChoice::Absolute => HeadPositions::Absolute,
        PositionsChoice::Relative => HeadPositions::Relative,
        PositionsChoice::Rotary => HeadPositions::Rotary,
    }
}

fn norm(choice: NormChoice, groups: u32) -> NormKind {
    match choice {
        NormChoice::Layer => NormKind::Layer,
        NormChoice::Group => NormKind::Group(groups as usize),
        NormChoice::Batch => NormKind::Batch,
    }
}

/// Returns the policy of attention for long utterances.
pub(super) fn length(model: &ModelConfig) -> LengthPolicy {
    let number = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    match (model.attention, model.max_attention_sequence_length) {
        (AttentionChoice::Truncate, Some(most)) => LengthPolicy::Truncate(number(most)),
        (AttentionChoice::Chunked, _) => LengthPolicy::Chunked(number(model.attention_chunk)),
        (AttentionChoice::Auto | AttentionChoice::Exact | AttentionChoice::Truncate, _) => LengthPolicy::Exact,
    }
}

/// Returns the keys of [`length`].
pub(super) fn length_keys(policy: LengthPolicy) -> Vec<(&'static str, String)> {
    let attention = "model.attention";
    match policy {
        LengthPolicy::Truncate(most) => {
            let limit = ("model.max_attention_sequence_length", most.to_string());
            vec![(attention, quoted(AttentionChoice::Truncate)), limit]
        }
        LengthPolicy::Chunked(chunk) => {
            vec![(attention, quoted(AttentionChoice::Chunked)), ("model.attention_chunk", chunk.to_string())]
        }
        // What the planner may choose is no part of a model.
        _ => Vec::new(),
    }
}
