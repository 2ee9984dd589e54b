//! Options of other systems that have no effect here. A configuration that has them still loads, with a note.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{aliases, keys};

    #[test]
    fn foreign_options_are_no_keys() {
        for option in FOREIGN {
            assert!(keys::find(option.name).is_none() && aliases::find(option.name).is_none(), "{}", option.name);
        }
    }
}
