//! The models of all shipped configurations.

use super::arguments::ConfigArgs;
use super::choices::Task;
use super::load::load_with;
use super::schema::ModelConfig;

macro_rules! shipped {
    ($folder:literal, $name:literal) => {
        include_str!(concat!("../configs/", $folder, "/", $name, ".toml"))
    };
}

/// The task, name and text of each shipped file in the folder of a task.
const SHIPPED: [(Task, &str, &str); 23] = [
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
    (Task::Tts, "voice_large", shipped!("tts", "voice_large")),
    (Task::Tts, "voice_medium", shipped!("tts", "voice_medium")),
    (Task::Tts, "voice_small", shipped!("tts", "voice_small")),
    (Task::Tts, "xtts", shipped!("tts", "xtts")),
    (Task::Vocoder, "extreme_memory_optimized", shipped!("vocoder", "extreme_memory_optimized")),
    (Task::Vocoder, "memory_optimized", shipped!("vocoder", "memory_optimized")),
    (Task::Vocoder, "standard", shipped!("vocoder", "standard")),
];

/// Returns the path and the model of each shipped configuration of `task`.
pub fn shipped_models(task: Task) -> Vec<(String, ModelConfig)> {
    let of_task = SHIPPED.iter().filter(|(shipped, ..)| *shipped == task);
    let model = |&(task, name, text): &(Task, &str, &'static str)| {
        let path = format!("configs/{}/{name}.toml", task.as_str());
        let args = ConfigArgs { config: Some(path.clone().into()), ..ConfigArgs::default() };
        let loaded = load_with(&args, std::iter::empty(), &|_| Ok(text.into()));
        (path, loaded.expect("a shipped configuration is valid").config.model)
    };
    of_task.map(model).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_shipped_file_is_a_shipped_model() {
        for &task in Task::ALL {
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
}
