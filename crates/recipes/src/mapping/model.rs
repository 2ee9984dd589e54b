//! Maps a configuration to a model.

use plimsoll_config::choices::{
    AttentionChoice, DecoderNormChoice, EncoderChoice, FamilyChoice, MelLossChoice, NormChoice, PositionsChoice, Task,
};
use plimsoll_config::{ModelConfig, RunConfig};
use plimsoll_core::counted;
use std::fmt;
use std::num::NonZeroU32;

use plimsoll_core::Choice;
use plimsoll_layers::{Distance, HeadPositions, LengthPolicy, NormKind};
use plimsoll_speech::asr::{DecoderConfig, EncoderKind, RecognizerConfig};
use plimsoll_speech::tts::{
    LengthBounds, LossConfig, MelNormalization, ParallelConfig, ParallelLossConfig, SynthesizerConfig, VoiceConfig,
};
use plimsoll_speech::vocoder::{DiscriminatorConfig, VocoderConfig, VocoderLossConfig, VocoderTaskConfig};
use plimsoll_tape::{count, on_capture_device};
use serde::Serialize;

use super::features::{crop, features as features_of, reference_frames};

/// Configuration of a model of any task.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ModelPlan {
    /// A speech recognizer.
    Recognizer(RecognizerConfig),
    /// An autoregressive speech synthesizer.
    Synthesizer(SynthesizerConfig),
    /// A parallel speech synthesizer.
    Parallel(ParallelConfig),
    /// A vocoder with its discriminators.
    Vocoder(VocoderTaskConfig),
}

/// Evaluates `$body` with `$config` as the configuration in the model `$plan`, whatever its kind.
#[macro_export]
macro_rules! with_model {
    ($plan:expr, $config:ident => $body:expr) => {
        match $plan {
            $crate::mapping::ModelPlan::Recognizer($config) => $body,
            $crate::mapping::ModelPlan::Synthesizer($config) => $body,
            $crate::mapping::ModelPlan::Parallel($config) => $body,
            $crate::mapping::ModelPlan::Vocoder($config) => $body,
        }
    };
}

/// Maps `config` to the configuration of its model, with `features` mel bands and `vocabulary` tokens.
///
/// The statistics of log-mels and the length bounds of a synthesizer come from data and have their defaults here.
pub fn model(config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan {
    match config.task {
        Task::Asr => ModelPlan::Recognizer(recognizer(config, features, vocabulary)),
        Task::Tts => match config.model.family {
            FamilyChoice::Parallel => ModelPlan::Parallel(parallel(config, features, vocabulary)),
            FamilyChoice::Autoregressive => ModelPlan::Synthesizer(synthesizer(config, features, vocabulary)),
        },
        Task::Vocoder => ModelPlan::Vocoder(vocoder(config)),
    }
}

impl fmt::Display for ModelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recognizer(model) => {
                let decoder = match &model.decoder {
                    Some(decoder) => format!("CTC and a decoder of {}", counted(decoder.layers, "block")),
                    None => "CTC".into(),
                };
                let RecognizerConfig { layers, d_model, vocabulary, encoder, .. } = model;
                let encoder = match encoder {
                    EncoderKind::Conformer => "Conformer",
                    EncoderKind::Convolution => "convolutions",
                };
                let (blocks, tokens) = (counted(layers, "block"), counted(vocabulary, "token"));
                write!(f, "{encoder} with {decoder}: {blocks} of width {d_model}, {tokens}")
            }
            Self::Synthesizer(model) => {
                let SynthesizerConfig { text_layers, text_dim, decoder_layers, decoder_dim, .. } = model;
                write!(
                    f,
                    "synthesizer: {text_layers} + {decoder_layers} blocks of width {text_dim} and {decoder_dim}, {} a step, {}",
                    counted(model.reduction, "frame"),
                    counted(model.vocabulary, "token")
                )
            }
            Self::Parallel(model) => {
                let ParallelConfig { text_layers, text_dim, decoder_layers, decoder_dim, vocabulary, .. } = model;
                write!(
                    f,
                    "parallel synthesizer: {text_layers} + {decoder_layers} blocks of width {text_dim} and {decoder_dim}, {}",
                    counted(vocabulary, "token")
                )
            }
            Self::Vocoder(model) => {
                let VocoderConfig { layers, dim, .. } = &model.vocoder;
                let DiscriminatorConfig { periods, resolutions, .. } = &model.discriminators;
                let judges = counted(periods.len() + resolutions.len(), "discriminator");
                write!(f, "vocoder: {} of width {dim}, and {judges}", counted(layers, "block"))
            }
        }
    }
}

impl ModelPlan {
    /// Returns the number of blocks of the longest stack, which is the unit of rematerialization.
    pub fn blocks(&self) -> u32 {
        match self {
            Self::Recognizer(RecognizerConfig { layers, decoder, .. }) => {
                (*layers).max(decoder.map_or(0, |decoder| decoder.layers)) as u32
            }
            Self::Synthesizer(SynthesizerConfig { text_layers, decoder_layers, .. }) => {
                (*text_layers).max(*decoder_layers) as u32
            }
            Self::Parallel(ParallelConfig { text_layers, decoder_layers, .. }) => {
                (*text_layers).max(*decoder_layers) as u32
            }
            Self::Vocoder(model) => model.vocoder.layers as u32,
        }
    }

    /// Returns the maximum number of tokens of an utterance with `frames` feature frames.
    pub(super) fn tokens_max(&self, frames: u32) -> u32 {
        match self {
            Self::Recognizer(model) => (frames / model.subsampling.max(1) as u32).saturating_sub(2).max(1),
            Self::Synthesizer(_) => frames.max(1),
            // The start token has a frame, too.
            Self::Parallel(_) => frames.saturating_sub(1).max(1),
            Self::Vocoder(_) => 1,
        }
    }

    /// Returns the number of mel bands.
    pub(crate) fn features(&self) -> usize {
        match self {
            Self::Recognizer(model) => model.features,
            Self::Synthesizer(model) => model.features,
            Self::Parallel(model) => model.features,
            Self::Vocoder(model) => model.vocoder.features.n_mels,
        }
    }

    /// Returns the number of tokens; 1 for a vocoder, which reads no text.
    pub(crate) fn vocabulary(&self) -> usize {
        match self {
            Self::Recognizer(model) => model.vocabulary,
            Self::Synthesizer(model) => model.vocabulary,
            Self::Parallel(model) => model.vocabulary,
            Self::Vocoder(_) => 1,
        }
    }

    /// Returns the limits on the length of synthesized speech; only those of a synthesizer have a meaning.
    pub(crate) fn length_bounds(&self) -> LengthBounds {
        match self {
            Self::Recognizer(_) | Self::Vocoder(_) => LengthBounds::default(),
            Self::Synthesizer(model) => model.length_bounds,
            Self::Parallel(model) => model.length_bounds,
        }
    }

    /// Counts the parameters.
    pub(crate) fn parameters(&self) -> u64 {
        on_capture_device(|device| with_model!(self, model => count(&model.init_unseeded(device))))
    }

    /// Returns the model with the limits `bounds` on the length of synthesized speech; other models stay as they are.
    pub(crate) fn with_length_bounds(self, bounds: LengthBounds) -> Self {
        match self {
            Self::Synthesizer(model) => Self::Synthesizer(SynthesizerConfig { length_bounds: bounds, ..model }),
            Self::Parallel(model) => Self::Parallel(ParallelConfig { length_bounds: bounds, ..model }),
            model @ (Self::Recognizer(_) | Self::Vocoder(_)) => model,
        }
    }

    /// Returns the model with the statistics of its training data: the normalization of log-mels and the limits `bounds` on
    /// the length of synthesized speech; a recognizer stays as it is.
    pub(crate) fn with_statistics(self, normalization: MelNormalization, bounds: LengthBounds) -> Self {
        match self.with_length_bounds(bounds) {
            Self::Synthesizer(model) => Self::Synthesizer(SynthesizerConfig { normalization, ..model }),
            Self::Parallel(model) => Self::Parallel(ParallelConfig { normalization, ..model }),
            Self::Vocoder(mut model) => {
                (model.vocoder.mel_mean, model.vocoder.mel_std) =
                    (f64::from(normalization.mean), f64::from(normalization.std));
                Self::Vocoder(model)
            }
            model @ Self::Recognizer(_) => model,
        }
    }

    /// Returns the model for planning: without attention chunks of its own, because a plan says for each length whether
    /// attention is chunked.
    pub(crate) fn for_planning(mut self) -> Self {
        let length = match &mut self {
            Self::Recognizer(model) => &mut model.length,
            Self::Synthesizer(model) => &mut model.length,
            // They have no attention over frames.
            Self::Parallel(_) | Self::Vocoder(_) => return self,
        };
        if let LengthPolicy::Chunked(_) = length {
            *length = LengthPolicy::Exact;
        }
        self
    }

    /// Returns the choice that computes a micro-batch of this model as `choice` says for a model without attention
    /// chunks of its own.
    pub(crate) fn with_own_chunks(&self, choice: Choice) -> Choice {
        match (self.attention_chunk(), choice.attention_chunk) {
            // Only a chunk that is longer than any text makes this model compute all queries at once.
            (Some(_), None) => Choice { attention_chunk: Some(NonZeroU32::MAX), ..choice },
            _ => choice,
        }
    }

    /// Returns the number of queries per chunk of chunked attention; `None` if the model computes attention at once.
    pub(super) fn attention_chunk(&self) -> Option<NonZeroU32> {
        let length = match self {
            Self::Recognizer(model) => model.length,
            Self::Synthesizer(model) => model.length,
            Self::Parallel(_) | Self::Vocoder(_) => return None,
        };
        match length {
            LengthPolicy::Chunked(chunk) => Some(chunk),
            _ => None,
        }
    }
}

/// Maps `config` to the configuration of its recognizer, with `features` mel bands and `vocabulary` tokens.
pub fn recognizer(config: &RunConfig, features: usize, vocabulary: usize) -> RecognizerConfig {
    let model = &config.model;
    let decoder_layers = model.decoder_layers.unwrap_or(0);
    RecognizerConfig {
        features,
        vocabulary,
        d_model: model.d_model as usize,
        encoder: match model.encoder {
            EncoderChoice::Conformer => EncoderKind::Conformer,
            EncoderChoice::Convolution => EncoderKind::Convolution,
        },
        layers: model.encoder_layers as usize,
        heads: model.attention_heads as usize,
        kernel: model.conv_kernel as usize,
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        subsampling: model.subsampling as usize,
        subsampling_channels: model.subsampling_channels as usize,
        positions: match model.positions {
            PositionsChoice::Absolute => HeadPositions::Absolute,
            PositionsChoice::Relative => HeadPositions::Relative,
            PositionsChoice::Rotary => HeadPositions::Rotary,
        },
        norm: match model.conv_norm {
            NormChoice::Layer => NormKind::Layer,
            NormChoice::Group => NormKind::Group(model.conv_norm_groups as usize),
            NormChoice::Batch => NormKind::Batch,
        },
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

/// Returns the policy of attention for long utterances.
fn length(model: &ModelConfig) -> LengthPolicy {
    let number = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    match (model.attention, model.max_attention_sequence_length) {
        (AttentionChoice::Truncate, Some(most)) => LengthPolicy::Truncate(number(most)),
        (AttentionChoice::Chunked, _) => LengthPolicy::Chunked(number(model.attention_chunk)),
        (AttentionChoice::Auto | AttentionChoice::Exact | AttentionChoice::Truncate, _) => LengthPolicy::Exact,
    }
}

/// Default number of decoder blocks of a synthesizer.
const DECODER_LAYERS: u32 = 3;

/// Maps `config` to the configuration of its synthesizer, with `features` mel bands and `vocabulary` tokens.
/// Normalization and length bounds come from data and have their defaults here.
pub fn synthesizer(config: &RunConfig, features: usize, vocabulary: usize) -> SynthesizerConfig {
    let model = &config.model;
    let or = |given: Option<u32>, otherwise: u32| given.unwrap_or(otherwise) as usize;
    let decoder_dim = model.decoder_dim.unwrap_or(model.d_model);
    SynthesizerConfig {
        features,
        vocabulary,
        text_dim: or(model.text_encoder_dim, model.d_model),
        text_layers: model.text_encoder_layers as usize,
        text_heads: or(model.text_encoder_heads, model.attention_heads),
        voice: voice(config),
        decoder_dim: decoder_dim as usize,
        decoder_layers: or(model.decoder_layers, DECODER_LAYERS),
        decoder_heads: or(model.decoder_heads, model.attention_heads),
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        prenet_dim: or(model.prenet_dim, decoder_dim),
        prenet_dropout: model.prenet_dropout,
        postnet_layers: model.postnet_layers as usize,
        postnet_channels: or(model.postnet_channels, decoder_dim),
        reduction: model.reduction_factor as usize,
        length: length(model),
        dropout: model.dropout,
        loss: LossConfig {
            distance: distance(model),
            stop_weight: model.stop_loss_weight,
            stop_positive: model.stop_positive_weight,
            guide_weight: model.guided_attention_weight,
            guide_sigma: model.guided_attention_sigma,
        },
        normalization: MelNormalization::default(),
        length_bounds: LengthBounds::default(),
    }
}

/// Default number of decoder blocks of a parallel synthesizer.
const PARALLEL_DECODER_LAYERS: u32 = 6;

/// Maps `config` to the configuration of its parallel synthesizer, with `features` mel bands and `vocabulary` tokens.
/// Normalization and length bounds come from data and have their defaults here.
pub(super) fn parallel(config: &RunConfig, features: usize, vocabulary: usize) -> ParallelConfig {
    let model = &config.model;
    let or = |given: Option<u32>, otherwise: u32| given.unwrap_or(otherwise) as usize;
    ParallelConfig {
        features,
        vocabulary,
        text_dim: or(model.text_encoder_dim, model.d_model),
        text_layers: model.text_encoder_layers as usize,
        text_kernel: model.text_encoder_kernel as usize,
        voice: voice(config),
        decoder_dim: or(model.decoder_dim, model.d_model),
        decoder_layers: or(model.decoder_layers, PARALLEL_DECODER_LAYERS),
        decoder_kernel: model.decoder_kernel as usize,
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        dropout: model.dropout,
        loss: ParallelLossConfig {
            distance: distance(model),
            prior_weight: model.prior_loss_weight,
            duration_weight: model.duration_loss_weight,
        },
        normalization: MelNormalization::default(),
        length_bounds: LengthBounds::default(),
    }
}

/// Maps `config` to the encoder of the voice of a synthesizer.
fn voice(config: &RunConfig) -> VoiceConfig {
    let model = &config.model;
    VoiceConfig {
        layers: model.audio_encoder_layers as usize,
        channels: model.audio_encoder_dim.unwrap_or(model.d_model) as usize,
        speaker_dim: model.speaker_dim as usize,
        style_tokens: model.style_tokens as usize,
        style_dim: model.speaker_dim as usize,
        style_heads: if model.speaker_dim.is_multiple_of(4) { 4 } else { 1 },
        reference_frames: reference_frames(config).0 as usize,
    }
}

fn distance(model: &ModelConfig) -> Distance {
    match model.mel_loss {
        MelLossChoice::L1 => Distance::L1,
        MelLossChoice::Huber => Distance::Huber,
    }
}

/// Maps `config` to the configuration of its vocoder with its discriminators. The statistics of log-mels come from data and
/// have their defaults here.
pub fn vocoder(config: &RunConfig) -> VocoderTaskConfig {
    let model = &config.model;
    let task = VocoderTaskConfig::recommended(features_of(&config.features));
    let channels = |multiples: &[usize]| multiples.iter().map(|n| n * model.discriminator_channels as usize).collect();
    VocoderTaskConfig {
        vocoder: VocoderConfig {
            dim: model.d_model as usize,
            layers: model.vocoder_layers as usize,
            kernel: model.vocoder_kernel as usize,
            feed_forward_multiplier: model.feed_forward_multiplier as usize,
            ..task.vocoder
        },
        discriminators: DiscriminatorConfig {
            period_channels: channels(&[1, 2, 4, 8]),
            resolution_channels: channels(&[1, 2, 2]),
            ..task.discriminators
        },
        loss: VocoderLossConfig {
            mel: model.mel_loss_weight,
            spectrum: model.spectrum_loss_weight,
            adversarial: model.adversarial_loss_weight,
            features: model.feature_loss_weight,
        },
        crop: crop(config).0 as usize,
    }
}
