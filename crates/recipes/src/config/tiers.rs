//! The configurations that ship for cards of a size, and which of them suits a card.

use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;

use super::choices::Task;

/// The word that stands for the configuration that suits the card that is here.
pub const AUTO: &str = "auto";

/// A configuration that ships with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name, as in `configs/asr/NAME.toml`.
    pub name: &'static str,
    task: Task,
    /// The memory that a card has at least.
    from: Bytes,
    text: &'static str,
}

macro_rules! tier {
    ($task:expr, $folder:literal, $name:literal, $from:expr) => {
        Tier {
            name: $name,
            task: $task,
            from: Bytes::gib($from),
            text: include_str!(concat!("../../configs/", $folder, "/", $name, ".toml")),
        }
    };
}

/// Every tier, the largest of a task first. Cards are sold by round numbers and have a little less.
const TIERS: [Tier; 6] = [
    tier!(Task::Asr, "asr", "standard", 19),
    tier!(Task::Asr, "asr", "memory_optimized", 11),
    tier!(Task::Asr, "asr", "extreme_memory_optimized", 0),
    tier!(Task::Tts, "tts", "standard", 19),
    tier!(Task::Tts, "tts", "memory_optimized", 11),
    tier!(Task::Tts, "tts", "extreme_memory_optimized", 0),
];

impl Tier {
    /// The tier of `task` for a device with so much memory.
    pub fn of(task: Task, memory: Bytes) -> Self {
        let fits = |tier: &&Self| tier.task == task && memory >= tier.from;
        *TIERS.iter().find(fits).expect("the smallest takes any memory")
    }

    /// Where it stands, as messages name it.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("configs/{}/{}.toml", self.task.word(), self.name))
    }

    /// The text of the tier that stands at `path`.
    pub(super) fn text_of(path: &Path) -> Option<&'static str> {
        TIERS.iter().find(|tier| tier.path() == path).map(|tier| tier.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_gets_the_tier_that_was_made_for_it() {
        for (gib, name) in [
            (80, "standard"),
            (23, "standard"),
            (15, "memory_optimized"),
            (11, "memory_optimized"),
            (10, "extreme_memory_optimized"),
            (7, "extreme_memory_optimized"),
        ] {
            for task in [Task::Asr, Task::Tts] {
                assert_eq!(Tier::of(task, Bytes::gib(gib)).name, name, "{gib} GiB");
            }
        }
    }
}
