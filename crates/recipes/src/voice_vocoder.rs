//! The vocoder that a run trains after its voice: whether there is one, its share of the time, and its settings.

use std::path::Path;

use plimsoll_config::RunConfig;
use plimsoll_config::choices::Task;
use plimsoll_core::Seconds;
use plimsoll_speech::ModelFolder;
use serde_json::Value;

use crate::features::{feature_keys, features};

/// Keys of a voice that its vocoder shares, beside all of `[features]` and `[device]`: the recordings and the memory.
const SHARED: &[&str] = &[
    "seed",
    "data.manifest",
    "data.audio_root",
    "data.unusable_share",
    "data.corpus_dir",
    "data.corpus_utterances",
    "data.corpus_speakers",
    "data.corpus_words",
    "data.corpus_studio",
    "data.corpus_seed",
    "data.validation_manifest",
    "data.validation_share",
    "data.num_workers",
    "data.min_seconds",
    "data.max_seconds",
    "data.too_long",
    "data.crop_seconds",
    "data.unpack_dir",
    "data.unpack_size",
    "device",
    "training.max_memory",
    "training.max_memory_fraction",
    "training.precision",
    "training.samples",
];

/// Keys among them that the built-in vocoder sets, and that must not stay so where the voice leaves them out.
const UNSET: &[&str] = &["data.corpus_words"];

/// Returns the share of the training time of `config` that the vocoder has after its voice; 0 without one.
pub fn vocoder_share(config: &RunConfig) -> f64 {
    if config.task == Task::Tts { config.training.vocoder_share } else { 0.0 }
}

/// Returns the limit on the training time of the model of `config`, without that of its vocoder; `None` without a limit.
pub(crate) fn own_time(config: &RunConfig) -> Option<Seconds> {
    config.training.max_time.map(|time| Seconds(time.0 * (1.0 - vocoder_share(config))))
}

/// Lists the settings of the vocoder of the voice in `folder`, as arguments of `--set`, over the built-in vocoder: what both share, and
/// the share of the time. The voice was, or will be, trained with `config` for so many `seconds`.
pub fn vocoder_settings(config: &RunConfig, folder: &Path, seconds: f64) -> Vec<String> {
    let share = vocoder_share(config);
    let whole = config.training.max_time.map_or(seconds / (1.0 - share), |time| time.0);
    let values = serde_json::to_value(config).expect("a configuration holds plain values");
    let shared = SHARED.iter().flat_map(|name| settings(name, &values));
    let features = feature_keys(&features(&config.features)).expect("the features come from keys");
    let features = features.into_iter().map(|(key, value)| format!("{key}={value}"));
    let runs_dir = Value::from(folder.display().to_string());
    let own = [format!("training.max_time={:.1}s", (whole * share).max(1.0)), format!("runs_dir={runs_dir}")];
    shared.chain(features).chain(own).collect()
}

/// Returns the name of the run of a vocoder beside its voice: that of its folder.
pub fn vocoder_name() -> String {
    let folder = ModelFolder(Path::new("")).vocoder();
    folder.display().to_string()
}

/// Lists the settings of a key, or of all keys of a section, in `values`.
fn settings(name: &str, values: &Value) -> Vec<String> {
    match name.split('.').fold(values, |value, part| &value[part]) {
        Value::Null if UNSET.contains(&name) => vec![format!("{name}=auto")],
        Value::Null => Vec::new(),
        Value::Object(keys) => keys.keys().flat_map(|key| settings(&format!("{name}.{key}"), values)).collect(),
        value => vec![format!("{name}={value}")],
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_config::ConfigArgs;

    use super::*;
    use crate::load;

    fn vocoder(voice: &RunConfig, seconds: f64) -> RunConfig {
        let set = vocoder_settings(voice, Path::new("runs/my voice"), seconds);
        let args =
            ConfigArgs { task: Some("vocoder".into()), name: Some(vocoder_name()), set, ..ConfigArgs::default() };
        load(&args, std::iter::empty()).unwrap().config
    }

    fn voice(config: Option<&str>, set: &[&str]) -> RunConfig {
        let set = set.iter().map(ToString::to_string).collect();
        let config = config.map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name));
        let args = ConfigArgs {
            config,
            task: Some("tts".into()),
            manifest: Some("my list".into()),
            set,
            ..ConfigArgs::default()
        };
        load(&args, std::iter::empty()).unwrap().config
    }

    #[test]
    fn a_vocoder_hears_the_recordings_and_the_features_of_its_voice() {
        let files = ["tts/voice_small.toml", "tts/voice_medium.toml", "tts/voice_large.toml", "toy_tts.toml"];
        let rates = [&[][..], &["features.sample_rate=8000", "features.hop_length=100", "features.n_mels=60"]];
        for file in files.map(Some).into_iter().chain([None]) {
            for set in rates {
                let more = ["training.vocoder_share=0.25", "data.too_long=split", "device.backend=cpu", "seed=5"];
                let voice = voice(file, &[set, &more].concat());
                let found = vocoder(&voice, 900.0);
                assert_eq!((found.task, found.name.as_deref(), found.seed), (Task::Vocoder, Some("vocoder"), 5));
                assert_eq!(found.runs_dir, Path::new("runs/my voice"));
                assert_eq!(features(&found.features), features(&voice.features), "{file:?} {set:?}");
                assert_eq!((&found.device, &found.data.manifest), (&voice.device, &voice.data.manifest));
                assert_eq!(found.data.corpus_words, voice.data.corpus_words, "{file:?}");
                assert_eq!(found.data.too_long, voice.data.too_long);
            }
        }
    }

    #[test]
    fn both_have_their_share_of_one_time() {
        let with = |set: &[&str]| voice(None, &[set, &["training.vocoder_share=0.25"]].concat());
        let timed = with(&["training.max_time=20min"]);
        assert_eq!(own_time(&timed), Some(Seconds(900.0)));
        assert_eq!(vocoder(&timed, 77.0).training.max_time, Some(Seconds(300.0)));
        // Without a limit it takes its share of what the voice took.
        assert_eq!(own_time(&with(&[])), None);
        assert_eq!(vocoder(&with(&[]), 900.0).training.max_time, Some(Seconds(300.0)));
        // Only a voice has a vocoder.
        let recognizer = RunConfig { task: Task::Asr, ..timed };
        assert_eq!((vocoder_share(&recognizer), own_time(&recognizer)), (0.0, Some(Seconds(1200.0))));
    }
}
