//! Options of other systems: those that have no effect here, with which a configuration still loads, with a note, and hints for
//! those that are written as flags.

use super::aliases::ALIASES;
use super::key::split_name;
use super::keys;

/// An option of another system that has no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignOption {
    /// Name of the option, with its section.
    pub name: &'static str,
    /// What is done instead, as the end of a note.
    pub reason: &'static str,
}

const COMPILED: &str = "kernels are always fused and compiled for the device";

/// Options of other systems that have no effect here.
const FOREIGN: &[ForeignOption] = &[
    foreign("data.enable_xla", COMPILED),
    foreign("training.enable_xla", COMPILED),
    foreign("training.enable_xla_compilation", COMPILED),
    foreign("training.enable_graph_mode", COMPILED),
    foreign("data.pin_memory", "the next batch is sent to the device while a step computes"),
    foreign("training.pin_memory", "the next batch is sent to the device while a step computes"),
    foreign("data.persistent_workers", "the threads that load always stay from one epoch to the next"),
    foreign("data.shuffle_buffer_multiplier", "each epoch is shuffled as a whole"),
];

const fn foreign(name: &'static str, reason: &'static str) -> ForeignOption {
    ForeignOption { name, reason }
}

/// Finds the option `name` of another system.
pub(super) fn find(name: &str) -> Option<&'static ForeignOption> {
    FOREIGN.iter().find(|option| option.name == name)
}

/// Returns what to do instead of a flag `--NAME` that is an option of another system, or the name of a key without its
/// section; `None` for any other name. `name` has underscores.
pub fn flag_hint(name: &str) -> Option<String> {
    if let Some(option) = FOREIGN.iter().find(|option| split_name(option.name).1 == name) {
        return Some(format!("leave it out: {}", option.reason));
    }
    if let Some(key) = keys().find(|key| key.leaf() == name) {
        return Some(format!("`--set {}=VALUE` sets the key of that name", key.name));
    }
    let alias = ALIASES.iter().find(|alias| split_name(alias.old).1 == name)?;
    Some(match alias.word_for_true() {
        Some(word) => format!("`--set {}={word}` does that", alias.key),
        None => format!("`--set {}=VALUE` sets the key that it stands for", alias.key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{aliases, keys};

    #[test]
    fn foreign_options_are_no_keys() {
        for option in FOREIGN {
            assert!(keys::find(option.name).is_none() && aliases::find(option.name).is_none(), "{}", option.name);
        }
    }
}
