//! Notes about a configuration that loads, but may not do what its author thinks.

use super::choices::{AttentionChoice, FamilyChoice, Task};
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
    notes.extend(other_family(config, provenance));
    notes
}

/// Keys that only the autoregressive family of synthesizers uses.
const AUTOREGRESSIVE_KEYS: &[&str] = &[
    "model.text_encoder_heads",
    "model.decoder_heads",
    "model.prenet_dim",
    "model.prenet_dropout",
    "model.postnet_layers",
    "model.postnet_channels",
    "model.reduction_factor",
    "model.stop_loss_weight",
    "model.stop_positive_weight",
    "model.guided_attention_weight",
    "model.guided_attention_sigma",
];
/// Keys that only the parallel family of synthesizers uses.
const PARALLEL_KEYS: &[&str] =
    &["model.text_encoder_kernel", "model.decoder_kernel", "model.prior_loss_weight", "model.duration_loss_weight"];

/// Lists the keys of the other family of synthesizers that were given another value than their default.
fn other_family(config: &RunConfig, provenance: &Provenance) -> Vec<ConfigNote> {
    let (keys, reason) = match (config.task, config.model.family) {
        (Task::Tts, FamilyChoice::Parallel) => {
            (AUTOREGRESSIVE_KEYS, "it belongs to `model.family` = \"autoregressive\"; the family is \"parallel\"")
        }
        (Task::Tts, FamilyChoice::Autoregressive) => {
            (PARALLEL_KEYS, "it belongs to `model.family` = \"parallel\"; the family is \"autoregressive\"")
        }
        (Task::Asr, _) => return Vec::new(),
    };
    let value = |config: &RunConfig, name: &str| {
        let config = serde_json::to_value(config).unwrap_or_default();
        config.pointer(&format!("/{}", name.replace('.', "/"))).cloned()
    };
    // The configuration in the folder of a run has all keys.
    let changed = keys.iter().filter(|name| value(config, name) != value(&RunConfig::default(), name));
    let given = changed.map(|&name| (name, provenance.origin(name)));
    let given = given.filter(|(_, origin)| **origin != ValueOrigin::Default);
    given.map(|(name, origin)| ConfigNote::NoEffect { origin: origin.to_string(), name, reason }).collect()
}
