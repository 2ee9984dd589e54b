//! The shipped configurations for GPUs of different memory sizes, and the choice among them.

use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;

use super::choices::Task;

/// Value of `--config` that selects the shipped configuration for the local GPU.
pub const AUTO_FILE: &str = "auto";

/// A shipped configuration for GPUs with at least some amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Name of the tier's file, as in `configs/asr/NAME.toml`.
    pub name: &'static str,
    task: Task,
    /// Smallest memory of a GPU for which this tier is chosen.
    memory_min: Bytes,
    text: &'static str,
}

macro_rules! tier {
    ($task:expr, $folder:literal, $name:literal, $memory_min:expr) => {
        Tier {
            name: $name,
            task: $task,
            memory_min: Bytes::gib($memory_min),
            text: include_str!(concat!("../configs/", $folder, "/", $name, ".toml")),
        }
    };
}

/// Every tier; for each task, first the tier that needs the most memory. The smallest memory of a tier is 1 GiB below a
/// size that GPUs are sold with, 20 GiB or 12 GiB, as a GPU reports a little less than its size.
const TIERS: [Tier; 9] = [
    tier!(Task::Asr, "asr", "standard", 19),
    tier!(Task::Asr, "asr", "memory_optimized", 11),
    tier!(Task::Asr, "asr", "extreme_memory_optimized", 0),
    tier!(Task::Tts, "tts", "standard", 19),
    tier!(Task::Tts, "tts", "memory_optimized", 11),
    tier!(Task::Tts, "tts", "extreme_memory_optimized", 0),
    tier!(Task::Vocoder, "vocoder", "standard", 19),
    tier!(Task::Vocoder, "vocoder", "memory_optimized", 11),
    tier!(Task::Vocoder, "vocoder", "extreme_memory_optimized", 0),
];

impl Tier {
    /// Returns the largest tier of `task` that fits a device with this much memory.
    pub fn for_memory(task: Task, memory: Bytes) -> Self {
        let fits = |tier: &&Self| tier.task == task && memory >= tier.memory_min;
        *TIERS.iter().find(fits).expect("the smallest tier fits any memory")
    }

    /// Returns the path of the tier's file, as messages show it.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("configs/{}/{}.toml", self.task.as_str(), self.name))
    }

    /// Returns the text of the shipped file at `path`; `None` for any other file.
    pub(super) fn text_at(path: &Path) -> Option<&'static str> {
        TIERS.iter().find(|tier| tier.path() == path).map(|tier| tier.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_selects_the_tier() {
        for (gib, name) in [
            (80, "standard"),
            (23, "standard"),
            (15, "memory_optimized"),
            (11, "memory_optimized"),
            (10, "extreme_memory_optimized"),
            (7, "extreme_memory_optimized"),
        ] {
            for &task in Task::ALL {
                assert_eq!(Tier::for_memory(task, Bytes::gib(gib)).name, name, "{gib} GiB");
            }
        }
    }
}
