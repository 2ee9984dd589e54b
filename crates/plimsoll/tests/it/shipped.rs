//! Every shipped configuration can run, and its model has the documented size.

use std::path::{Path, PathBuf};

use crate::program::{TestFolder, names};

/// Returns the folder of the shipped configurations.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").canonicalize().unwrap()
}

/// Lists all shipped configurations, as paths from their folder.
fn shipped() -> Vec<String> {
    let in_folder = |inside: &str| -> Vec<String> {
        let files = names(&folder().join(inside)).into_iter().filter(|name| name.ends_with(".toml"));
        files.map(|name| format!("{inside}{name}")).collect()
    };
    [in_folder(""), in_folder("asr/"), in_folder("tts/")].concat()
}

#[test]
fn toys_and_small_recognizers_pass_dry_run() {
    let small = |name: &String| ["toy_", "_small.", "/small."].iter().any(|part| name.contains(part));
    let names: Vec<String> = shipped().into_iter().filter(|name| !name.starts_with("tts/") && small(name)).collect();
    assert!(names.len() >= 5, "{names:?}");
    pass_dry_run(&names);
}

/// The large synthesizers are planned for half a minute.
#[test]
fn long_shipped_configurations_pass_dry_run() {
    let shipped = shipped();
    assert!(shipped.len() >= 13, "{shipped:?}");
    pass_dry_run(&shipped);
}

fn pass_dry_run(names: &[String]) {
    let dir = TestFolder::new();
    for name in names {
        let path = folder().join(name);
        let small = ["--set", "data.corpus_utterances=24", "--set", "data.corpus_speakers=4"];
        let output =
            dir.run(&[&["train", "--dry-run", "--config", path.to_str().unwrap()], &small[..]].concat()).success();
        assert!(output.stderr.contains("What will happen"), "{name}: {output:?}");
        assert!(!dir.path("runs").exists(), "{name} made a folder");
    }
}

#[test]
fn model_families_have_documented_sizes() {
    let dir = TestFolder::new();
    for (name, parameters) in [
        ("asr/konkani_base", 24_770_704),
        ("asr/konkani_medium", 9_381_712),
        ("asr/konkani_small", 3_189_136),
        ("asr/base", 27_381_136),
        ("asr/medium", 10_699_024),
        ("asr/small", 3_739_152),
        ("tts/tiny", 79_342_066),
        ("tts/small", 210_139_378),
        ("tts/normal", 610_231_026),
        ("tts/big", 1_369_920_242),
        ("tts/xtts", 509_993_362),
    ] {
        let path = folder().join(format!("{name}.toml"));
        let output = dir.run(&["model", "info", "--config", path.to_str().unwrap(), "--json"]).success();
        let found: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(found["parameters"], parameters, "{name}: {found}");
    }
}
