//! Older names of keys, which keep working: options of the systems that Plimsoll re-creates, each with its present key.

use config::ValueKind;

use super::kind::Kind;

/// An older name of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// Older name of the key, with its section.
    pub old: &'static str,
    /// Present name of the key.
    pub key: &'static str,
    conversion: Conversion,
}

/// Conversion of a value under an older name to a value of the present key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Conversion {
    /// Keeps the value.
    None,
    /// Converts true to `auto` and false to `fp32`.
    BoolToPrecision,
    /// Converts true to `all` and false to `none`.
    BoolToRemat,
    /// Converts a number to an amount in GiB.
    Gibibytes,
}

/// Older names of all keys.
pub const ALIASES: &[Alias] = &[
    same("training.seed", "seed"),
    same("data.train_manifest", "data.manifest"),
    same("data.val_manifest", "data.validation_manifest"),
    same("training.batch_size", "data.batch_size"),
    same("training.num_workers", "data.num_workers"),
    same("data.prefetch_factor", "data.prefetch_buffer_size"),
    same("data.sample_rate", "features.sample_rate"),
    same("data.n_fft", "features.n_fft"),
    same("data.win_length", "features.win_length"),
    same("data.hop_length", "features.hop_length"),
    same("data.num_mels", "features.n_mels"),
    same("data.n_mels", "features.n_mels"),
    same("model.num_heads", "model.attention_heads"),
    same("model.num_encoder_layers", "model.encoder_layers"),
    same("model.speaker_embedding_dim", "model.speaker_dim"),
    same("model.max_text_length", "data.max_text_length"),
    same("training.num_epochs", "training.epochs"),
    same("training.max_steps", "training.steps"),
    same("training.lr", "training.learning_rate"),
    same("training.max_grad_norm", "training.clip_norm"),
    same("training.gradient_clip_norm", "training.clip_norm"),
    same("training.enable_eager_debug", "training.debug"),
    Alias { old: "model.enable_gradient_checkpointing", key: "training.remat", conversion: Conversion::BoolToRemat },
    Alias { old: "training.max_memory_gb", key: "training.max_memory", conversion: Conversion::Gibibytes },
    Alias { old: "training.mixed_precision", key: "training.precision", conversion: Conversion::BoolToPrecision },
    Alias { old: "data.mixed_precision", key: "training.precision", conversion: Conversion::BoolToPrecision },
];

/// Makes an alias whose older name takes the same values as the key.
const fn same(old: &'static str, key: &'static str) -> Alias {
    Alias { old, key, conversion: Conversion::None }
}

/// Finds the alias with the older name `name`; `None` if `name` is no older name.
pub(super) fn find(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.old == name)
}

impl Alias {
    /// Returns the kind of values that is accepted under the older name. `present` is the kind of values that the key
    /// accepts under its present name.
    pub(super) fn kind(&self, present: Kind) -> Kind {
        match self.conversion {
            Conversion::None => present,
            Conversion::BoolToPrecision | Conversion::BoolToRemat => Kind::Bool,
            Conversion::Gibibytes => Kind::Number(super::kind::Interval::POSITIVE),
        }
    }

    /// Returns the value of the present key that stands for true under the older name; `None` if it takes no truth value.
    pub(super) fn word_for_true(&self) -> Option<&'static str> {
        match self.conversion {
            Conversion::BoolToPrecision => Some("auto"),
            Conversion::BoolToRemat => Some("all"),
            Conversion::None | Conversion::Gibibytes => None,
        }
    }

    /// Converts `value` for the present key. A value of another type stays as it is, and the check of the key reports
    /// it.
    pub(super) fn translate(&self, value: ValueKind) -> ValueKind {
        match (self.conversion, value) {
            (Conversion::BoolToPrecision, ValueKind::Boolean(true)) => "auto".into(),
            (Conversion::BoolToPrecision, ValueKind::Boolean(false)) => "fp32".into(),
            (Conversion::BoolToRemat, ValueKind::Boolean(true)) => "all".into(),
            (Conversion::BoolToRemat, ValueKind::Boolean(false)) => "none".into(),
            (Conversion::Gibibytes, ValueKind::I64(n)) => format!("{n}GiB").into(),
            (Conversion::Gibibytes, ValueKind::Float(n)) => format!("{n}GiB").into(),
            (_, value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn every_older_name_has_a_key_and_is_not_a_key() {
        for alias in ALIASES {
            assert!(keys::find(alias.key).is_some(), "{}", alias.key);
            assert!(keys::find(alias.old).is_none(), "{}", alias.old);
        }
    }
}
