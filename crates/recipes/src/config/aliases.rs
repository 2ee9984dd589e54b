//! Older names that keep working: options of the systems Plimsoll re-creates, each with the key it means today.

use config::ValueKind;

use super::kind::Kind;

/// An older name of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// The older name, section included.
    pub old: &'static str,
    /// The key it means.
    pub key: &'static str,
    change: Change,
}

/// What happens to a value on its way from the older name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// Nothing.
    Same,
    /// True becomes `auto`, false `fp32`.
    SwitchToPrecision,
    /// True becomes `all`, false `none`.
    SwitchToRemat,
    /// A number is so many GiB.
    Gibibytes,
}

/// Every older name.
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
    Alias { old: "model.enable_gradient_checkpointing", key: "training.remat", change: Change::SwitchToRemat },
    Alias { old: "training.max_memory_gb", key: "training.max_memory", change: Change::Gibibytes },
    Alias { old: "training.mixed_precision", key: "training.precision", change: Change::SwitchToPrecision },
    Alias { old: "data.mixed_precision", key: "training.precision", change: Change::SwitchToPrecision },
];

const fn same(old: &'static str, key: &'static str) -> Alias {
    Alias { old, key, change: Change::Same }
}

/// What `name` is an older name for.
pub(super) fn find(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.old == name)
}

impl Alias {
    /// What the older name took, given what its key takes today.
    pub(super) fn kind(&self, today: Kind) -> Kind {
        match self.change {
            Change::Same => today,
            Change::SwitchToPrecision | Change::SwitchToRemat => Kind::Switch,
            Change::Gibibytes => Kind::Number(super::kind::Interval::POSITIVE),
        }
    }

    /// The value that means today what `value` meant; one that meant nothing stays, to be refused under today's key.
    pub(super) fn translate(&self, value: ValueKind) -> ValueKind {
        match (self.change, value) {
            (Change::SwitchToPrecision, ValueKind::Boolean(true)) => "auto".into(),
            (Change::SwitchToPrecision, ValueKind::Boolean(false)) => "fp32".into(),
            (Change::SwitchToRemat, ValueKind::Boolean(true)) => "all".into(),
            (Change::SwitchToRemat, ValueKind::Boolean(false)) => "none".into(),
            (Change::Gibibytes, ValueKind::I64(n)) => format!("{n}GiB").into(),
            (Change::Gibibytes, ValueKind::Float(n)) => format!("{n}GiB").into(),
            (_, value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn every_older_name_leads_to_a_key_and_shadows_none() {
        for alias in ALIASES {
            assert!(keys::find(alias.key).is_some(), "{}", alias.key);
            assert!(keys::find(alias.old).is_none(), "{}", alias.old);
        }
    }
}
