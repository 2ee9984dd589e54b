//! Synthesizers that read phonemes, with a program in the place of `espeak-ng` that turns letters.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::program::{ProgramOutput, TestFolder, silence};
use crate::speaking::SMALL_VOICE;

/// Writes a program `espeak-ng` into a folder, which reads lines and writes them with other letters. It has the voice `xx` alone.
fn with_espeak(dir: &TestFolder) -> String {
    let script = "#!/bin/sh\ncase \"$*\" in *xx*) ;; *) exit 1 ;; esac\n\
                  while read -r line; do printf '%s\\n' \"$line\" | tr a-y b-z; done\n";
    fs::create_dir(dir.path("programs")).unwrap();
    dir.write("programs/espeak-ng", script);
    fs::set_permissions(dir.path("programs/espeak-ng"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    format!("{}:{path}", dir.path("programs").display())
}

fn run(dir: &TestFolder, path: &str, args: &[&str]) -> ProgramOutput {
    dir.command(args).env("PATH", path).output().unwrap().into()
}

const PHONEMES: [&str; 6] = ["--set", "data.text=phonemes", "--set", "data.language=xx", "--name", "v"];

#[test]
fn a_voice_that_reads_phonemes_is_trained_speaks_and_goes_on() {
    let dir = TestFolder::new();
    let path = with_espeak(&dir);
    run(&dir, &path, &[&["train", "--steps", "2"], SMALL_VOICE, &PHONEMES].concat()).success();
    let model = dir.json("runs/v/model.json");
    assert_eq!(model["tokenizer"]["phonemes"]["espeak_voice"], "xx");
    // The words are `zero`, `one` and `two`.
    let characters: String =
        serde_json::from_value::<Vec<String>>(model["tokenizer"]["characters"].clone()).unwrap().concat();
    assert_eq!(characters, " fopsuxz");
    let said = run(&dir, &path, &["say", "One, two!", "--run", "runs/v", "--out", "said.wav", "--json"]).success();
    assert!(serde_json::from_str::<Value>(&said.stdout).is_ok(), "{}", said.stdout);
    // Another reading of the same texts is another model.
    let other = run(&dir, &path, &["train", "--resume", "runs/v", "--steps", "4", "--set", "data.text=characters"]);
    assert!(other.code != Some(0) && other.stderr.contains("data.tokenizer"), "{}", other.stderr);
    // A run that begins with the model reads as it does.
    let args = [&["train", "--from", "runs/v", "--steps", "1", "--name", "w"], &SMALL_VOICE[2..]].concat();
    run(&dir, &path, &args).success();
    assert_eq!(dir.json("runs/w/model.json")["tokenizer"]["phonemes"]["espeak_voice"], "xx");
}

#[test]
fn phonemes_that_cannot_be_made_are_named_before_anything_is_done() {
    let dir = TestFolder::new();
    let path = with_espeak(&dir);
    run(&dir, &path, &[&["train", "--steps", "1"], SMALL_VOICE, &PHONEMES].concat()).success();
    fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["train", "--steps", "1"], SMALL_VOICE, more].concat()
    }
    let cases: [(&str, Vec<&str>, &str); 5] = [
        ("", vec!["say", "one", "--run", "runs/v", "--out", "said.wav"], "it is not installed, or not in PATH"),
        ("", train(&PHONEMES[..4]), "it is not installed, or not in PATH"),
        (&path, train(&["--set", "data.text=phonemes"]), "the corpus names no language"),
        (&path, train(&["--set", "data.text=phonemes", "--set", "data.language=yy"]), "has no voice `yy`"),
        (&path, vec!["train", "--steps", "1", "--set", "data.text=phonemes"], "only a synthesizer"),
    ];
    for (path, args, message) in cases {
        let output = run(&dir, path, &args);
        let shown = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace(" │ ", " ");
        assert!(output.code == Some(2) && shown.contains(message), "{args:?}: {:?} {shown}", output.code);
    }
    assert!(!dir.path("said.wav").exists() && !dir.path("runs/tts-1").exists());
}

#[test]
fn the_corpus_chooses_the_settings_of_a_voice_and_a_person_overrides_them() {
    let dir = TestFolder::new();
    let path = with_espeak(&dir);
    let mut list = String::new();
    for number in 0..30 {
        dir.write(&format!("c/{number}.wav"), silence(8000, 16_000));
        list +=
            &format!("{{\"audio_filepath\": \"{number}.wav\", \"text\": \"One {number}\", \"language\": \"xx\"}}\n");
    }
    dir.write("c/manifest.jsonl", list);
    let chosen = |more: &[&str]| {
        let args = ["config", "print", "--task", "tts", "--data", "c", "--json"];
        let output = run(&dir, &path, &[&args, more].concat()).success();
        let config = serde_json::from_str::<Value>(&output.stdout).unwrap()["config"].clone();
        let of = |key: &str| config.pointer(&format!("/{}", key.replace('.', "/"))).unwrap().clone();
        ["features.sample_rate", "features.hop_length", "data.text", "data.language", "data.lowercase"].map(of)
    };
    let [rate, hop, text, language, lowercase] = chosen(&[]);
    assert_eq!((rate, hop), (8000.into(), 100.into()));
    assert_eq!((text, language, lowercase), ("phonemes".into(), "xx".into(), false.into()));
    let [rate, hop, ..] = chosen(&["--set", "features.sample_rate=16000"]);
    assert_eq!((rate, hop), (16_000.into(), 200.into()));
    let [rate, hop, ..] = chosen(&["--set", "features.preset=xtts"]);
    assert_eq!((rate, hop), (Value::Null, Value::Null));
    let [.., text, _, lowercase] = chosen(&["--set", "data.text=characters"]);
    assert_eq!((text, lowercase), ("characters".into(), true.into()));
}
