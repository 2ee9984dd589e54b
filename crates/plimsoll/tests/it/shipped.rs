//! Every configuration that is shipped can be run, and describes the model that its name promises.

use std::path::{Path, PathBuf};

use crate::program::{Place, names};

/// Where the configurations are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").canonicalize().unwrap()
}

/// All of them, as paths from the folder.
fn shipped() -> Vec<String> {
    let of = |inside: &str| -> Vec<String> {
        let files = names(&folder().join(inside)).into_iter().filter(|name| name.ends_with(".toml"));
        files.map(|name| format!("{inside}{name}")).collect()
    };
    [of(""), of("asr/"), of("tts/")].concat()
}

#[test]
fn every_shipped_configuration_passes_a_dry_run() {
    let place = Place::new();
    let shipped = shipped();
    assert!(shipped.len() >= 13, "{shipped:?}");
    for name in shipped {
        let path = folder().join(&name);
        let small = ["--set", "data.corpus_utterances=24", "--set", "data.corpus_speakers=4"];
        let said =
            place.run(&[&["train", "--dry-run", "--config", path.to_str().unwrap()], &small[..]].concat()).fine();
        assert!(said.err.contains("What will happen"), "{name}: {said:?}");
        assert!(!place.path("runs").exists(), "{name} made a folder");
    }
}

#[test]
fn the_families_have_the_sizes_that_their_names_promise() {
    let place = Place::new();
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
        let said = place.run(&["model", "info", "--config", path.to_str().unwrap(), "--json"]).fine();
        let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(found["parameters"], parameters, "{name}: {found}");
    }
}
