//! Notes about a configuration that loads, but may not do what its author thinks.

use super::choices::{AttentionChoice, EncoderChoice, FamilyChoice, NormChoice, Task};
use super::file::is_built_in;
use super::key::Key;
use super::keys::keys;
use super::origin::{Provenance, ValueOrigin};
use super::schema::RunConfig;

/// A note about a configuration that loads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigNote {
    /// A setting uses an older name of a key, which still works.
    #[error("{origin}: `{old}` is an older name of `{key}`")]
    OlderName {
        /// Place where the older name is used first.
        origin: String,
        /// Older name of the key.
        old: &'static str,
        /// Present name of the key.
        key: &'static str,
    },
    /// A setting is an option of another system, or of another setting, and has no effect.
    #[error("{origin}: `{name}` has no effect: {reason}")]
    NoEffect {
        /// Place of the setting.
        origin: String,
        /// Name of the setting.
        name: &'static str,
        /// What is done instead.
        reason: &'static str,
    },
    /// An environment variable sets nothing, and may be that of another program.
    #[error("{origin} is no setting and has no effect{}", nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name}?")))]
    NoSetting {
        /// The variable.
        origin: String,
        /// Variable with the most similar name that is a setting.
        nearest: Option<String>,
    },
    /// The batch size is that of a micro-batch, because the number of micro-batches is set too.
    #[error(
        "{origin}: with `training.gradient_accumulation_steps`, `data.batch_size` is the size of a micro-batch: a step has \
         {micro_batches} x {utterances} = {whole} utterances"
    )]
    EffectiveBatch {
        /// Place of the number of micro-batches.
        origin: String,
        /// Number of micro-batches of a step.
        micro_batches: u32,
        /// Number of utterances of a micro-batch.
        utterances: u32,
        /// Number of utterances of a step.
        whole: u32,
    },
    /// Nothing says when training ends.
    #[error(
        "{origin}: no limit of training is written, so it ends after {epochs} passes over the data (`training.epochs`), as in \
         the shipped configurations for the task `{task}`"
    )]
    DefaultLimit {
        /// Name of the configuration file.
        origin: String,
        /// Number of passes after which training ends.
        epochs: u32,
        /// Task of the run.
        task: Task,
    },
}

/// Lists the notes about combinations of values in `config`.
pub(super) fn of_values(config: &RunConfig, provenance: &Provenance) -> Vec<ConfigNote> {
    let mut notes = Vec::new();
    let micro_batches = config.training.gradient_accumulation_steps.filter(|&count| count > 1);
    if let (Some(micro_batches), Some(utterances), Some(whole)) =
        (micro_batches, config.fixed_micro_batch(), config.effective_utterances())
    {
        let origin = provenance.origin("training.gradient_accumulation_steps").to_string();
        notes.push(ConfigNote::EffectiveBatch { origin, micro_batches, utterances, whole });
    }
    let is_cut = config.model.attention == AttentionChoice::Truncate;
    if config.model.max_attention_sequence_length.is_some() && !is_cut {
        let name = "model.max_attention_sequence_length";
        let origin = provenance.origin(name);
        if *origin != ValueOrigin::Default {
            let reason = "attention over long utterances is computed in chunks, without cutting them; \
                          `model.attention` = \"truncate\" cuts";
            notes.push(ConfigNote::NoEffect { origin: origin.to_string(), name, reason });
        }
    }
    notes.extend(other_model(config, provenance));
    notes
}

/// Keys of the model that all tasks have, a vocoder too.
const VOCODER_SIZES: [&str; 2] = ["model.d_model", "model.feed_forward_multiplier"];

/// Keys of a recognizer that Whisper has, too.
const WHISPER_SIZES: [&str; 1] = ["model.encoder_layers"];

/// Returns why a key has no effect in the run of `config`, if it belongs to another task or family. The help text of such
/// a key begins with what it belongs to.
fn belongs_elsewhere(key: &Key, config: &RunConfig) -> Option<&'static str> {
    let owner = key.about.split_once(':').map_or("", |(owner, _)| owner);
    if owner == "LoRA" && config.training.lora_rank.is_none() {
        return Some("it belongs to `training.lora_rank`, which is not set: all weights are trained");
    }
    match (config.task, config.model.family, owner) {
        (Task::Asr, _, "Vocoder") => Some("it belongs to vocoders; the task is \"asr\""),
        // It has an effect on the vocoder that follows the voice.
        (Task::Tts, _, "Vocoder") if key.name == "data.crop_seconds" && config.training.vocoder_share > 0.0 => None,
        (Task::Tts, _, "Vocoder") => Some("it belongs to vocoders; the task is \"tts\""),
        (Task::Vocoder, _, "Vocoder") => None,
        (Task::Vocoder, _, "TTS") if key.section() == "training" => {
            Some("it belongs to synthesizers; the task is \"vocoder\"")
        }
        (Task::Vocoder, ..) if key.section() == "model" && !VOCODER_SIZES.contains(&key.name) => {
            Some("it belongs to recognizers and synthesizers; the task is \"vocoder\"")
        }
        (Task::Vocoder, ..) if key.section() == "augment" => Some("a vocoder's audio is never changed"),
        (Task::Tts, _, "ASR") => Some("it belongs to recognizers; the task is \"tts\""),
        (Task::Asr, _, "TTS" | "Parallel TTS" | "Autoregressive TTS") => {
            Some("it belongs to synthesizers; the task is \"asr\"")
        }
        (Task::Tts, FamilyChoice::Parallel, "Autoregressive TTS") => {
            Some("it belongs to `model.family` = \"autoregressive\"; the family is \"parallel\"")
        }
        (Task::Tts, FamilyChoice::Autoregressive, "Parallel TTS") => {
            Some("it belongs to `model.family` = \"parallel\"; the family is \"autoregressive\"")
        }
        (Task::Asr, FamilyChoice::Whisper, "ASR") if key.section() == "model" && !WHISPER_SIZES.contains(&key.name) => {
            Some("it belongs to recognizers with CTC; `model.family` is \"whisper\"")
        }
        (Task::Asr, FamilyChoice::Whisper, _) => None,
        (_, _, "Whisper") => Some("it belongs to `model.family` = \"whisper\""),
        (Task::Tts, ..) if key.section() == "augment" => Some("a synthesizer's audio is never changed"),
        _ => None,
    }
}

/// Returns why a key has no effect beside the other choices for the recognizer of `config`.
fn idle_beside(key: &Key, config: &RunConfig) -> Option<&'static str> {
    let model = &config.model;
    if model.family == FamilyChoice::Whisper {
        return None;
    }
    let has_decoder = model.decoder_layers.is_some_and(|layers| layers > 0);
    let is_convolution = model.encoder == EncoderChoice::Convolution;
    match key.name {
        "model.positions" | "model.conv_norm" | "model.conv_norm_groups" | "model.scale_input" if is_convolution => {
            Some("it belongs to `model.encoder` = \"conformer\"")
        }
        "model.attention_heads" | "model.attention_chunk" if is_convolution && !has_decoder => {
            Some("blocks of convolutions have no attention, and the model has no decoder")
        }
        "model.conv_norm_groups" if model.conv_norm != NormChoice::Group => {
            Some("it belongs to `model.conv_norm` = \"group\"")
        }
        "model.decoder_feed_forward_multiplier"
        | "model.decoder_norm"
        | "model.ctc_weight"
        | "model.label_smoothing"
            if !has_decoder =>
        {
            Some("the model has no decoder (`model.decoder_layers`)")
        }
        _ => None,
    }
}

/// Lists the keys of another task, family or kind of model that were given another value than their default.
fn other_model(config: &RunConfig, provenance: &Provenance) -> Vec<ConfigNote> {
    let default = serde_json::to_value(RunConfig::default()).unwrap_or_default();
    let own = serde_json::to_value(config).unwrap_or_default();
    let pointer = |name: &str| format!("/{}", name.replace('.', "/"));
    // The configuration in the folder of a run has all keys.
    let is_changed = |key: &&Key| own.pointer(&pointer(key.name)) != default.pointer(&pointer(key.name));
    // What a recipe or a built-in file sets, no person asked for.
    let is_given = |key: &&Key| match provenance.origin(key.name) {
        ValueOrigin::Default => false,
        ValueOrigin::File(file, _) => !is_built_in(file),
        _ => true,
    };
    let note = |key: &Key| {
        let beside = || if config.task == Task::Asr { idle_beside(key, config) } else { None };
        let reason = belongs_elsewhere(key, config).or_else(beside)?;
        let origin = provenance.origin(key.name).to_string();
        Some(ConfigNote::NoEffect { origin, name: key.name, reason })
    };
    keys().filter(is_changed).filter(is_given).filter_map(note).collect()
}
