//! The shipped configurations: those for GPUs of different memory sizes with the choice among them, and all models.

use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;

use super::arguments::ConfigArgs;
use super::choices::Task;
use super::load::load_with;
use super::schema::ModelConfig;

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

macro_rules! shipped {
    ($folder:literal, $name:literal) => {
        include_str!(concat!("../../configs/", $folder, "/", $name, ".toml"))
    };
}

macro_rules! tier {
    ($task:expr, $folder:literal, $name:literal, $memory_min:expr) => {
        Tier { name: $name, task: $task, memory_min: Bytes::gib($memory_min), text: shipped!($folder, $name) }
    };
}

/// The task, name and text of each shipped file in the folder of a task.
const SHIPPED: [(Task, &str, &str); 17] = [
    (Task::Asr, "base", shipped!("asr", "base")),
    (Task::Asr, "extreme_memory_optimized", shipped!("asr", "extreme_memory_optimized")),
    (Task::Asr, "konkani_base", shipped!("asr", "konkani_base")),
    (Task::Asr, "konkani_medium", shipped!("asr", "konkani_medium")),
    (Task::Asr, "konkani_small", shipped!("asr", "konkani_small")),
    (Task::Asr, "medium", shipped!("asr", "medium")),
    (Task::Asr, "memory_optimized", shipped!("asr", "memory_optimized")),
    (Task::Asr, "small", shipped!("asr", "small")),
    (Task::Asr, "standard", shipped!("asr", "standard")),
    (Task::Tts, "big", shipped!("tts", "big")),
    (Task::Tts, "extreme_memory_optimized", shipped!("tts", "extreme_memory_optimized")),
    (Task::Tts, "memory_optimized", shipped!("tts", "memory_optimized")),
    (Task::Tts, "normal", shipped!("tts", "normal")),
    (Task::Tts, "small", shipped!("tts", "small")),
    (Task::Tts, "standard", shipped!("tts", "standard")),
    (Task::Tts, "tiny", shipped!("tts", "tiny")),
    (Task::Tts, "xtts", shipped!("tts", "xtts")),
];

/// Returns the path and the model of each shipped configuration of `task`.
pub(crate) fn shipped_models(task: Task) -> Vec<(String, ModelConfig)> {
    let of_task = SHIPPED.iter().filter(|(shipped, ..)| *shipped == task);
    let model = |&(task, name, text): &(Task, &str, &'static str)| {
        let path = format!("configs/{}/{name}.toml", task.as_str());
        let args = ConfigArgs { config: Some(path.clone().into()), ..ConfigArgs::default() };
        let loaded = load_with(&args, std::iter::empty(), &|_| Ok(text.into()));
        (path, loaded.expect("a shipped configuration is valid").config.model)
    };
    of_task.map(model).collect()
}

/// Every tier; for each task, first the tier that needs the most memory. The smallest memory of a tier is 1 GiB below a
/// size that GPUs are sold with, 20 GiB or 12 GiB, as a GPU reports a little less than its size.
const TIERS: [Tier; 6] = [
    tier!(Task::Asr, "asr", "standard", 19),
    tier!(Task::Asr, "asr", "memory_optimized", 11),
    tier!(Task::Asr, "asr", "extreme_memory_optimized", 0),
    tier!(Task::Tts, "tts", "standard", 19),
    tier!(Task::Tts, "tts", "memory_optimized", 11),
    tier!(Task::Tts, "tts", "extreme_memory_optimized", 0),
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
    fn every_shipped_file_is_a_shipped_model() {
        for task in [Task::Asr, Task::Tts] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(task.as_str());
            let mut files: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|file| format!("configs/{}/{}", task.as_str(), file.unwrap().file_name().display()))
                .collect();
            files.sort();
            let models: Vec<String> = shipped_models(task).into_iter().map(|(path, _)| path).collect();
            assert_eq!(models, files);
        }
    }

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
            for task in [Task::Asr, Task::Tts] {
                assert_eq!(Tier::for_memory(task, Bytes::gib(gib)).name, name, "{gib} GiB");
            }
        }
    }
}
