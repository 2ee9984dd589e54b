//! Models reach their error rates in real training of minutes: only with `cargo xtask test --long`.
//!
//! The number of steps is limited, not the time. The times that they took are in
//! docs/log/recognition.md, "Four small jobs", and
//! docs/log/synthesis.md, "A synthesizer of digits" and "A vocoder with rounds of Griffin-Lim".

use plimsoll_audio::{VoiceTraits, read_recording};

use crate::program::{TestFolder, names};

pub(crate) fn is_long() -> bool {
    std::env::var_os("PLIMSOLL_LONG").is_some()
}

/// Makes a corpus with the flags `corpus`, trains on it with the flags `training`, and asserts a held-out character
/// error rate of at most `cer_max`.
fn learns(name: &str, corpus: &[&str], training: &[&str], cer_max: f64) {
    let dir = TestFolder::new();
    dir.run(&[&["corpus", "make", "--out", "c"], corpus].concat()).success();
    let output = dir.run(&[&["train", "--manifest", "c/manifest.jsonl", "--name", "r"], training].concat()).success();
    let summary = dir.json("runs/r/summary.json");
    eprintln!("{name}: {}", output.stdout);
    assert!(summary["cer"].as_f64().unwrap() <= cer_max, "{name}: {summary}");
}

/// Reads the lines of the manifest `name` in `dir`.
pub(crate) fn lines_of(dir: &TestFolder, name: &str) -> Vec<String> {
    std::fs::read_to_string(dir.path(name)).unwrap().lines().map(str::to_string).collect()
}

/// Returns the text of the utterance in a line of a manifest.
pub(crate) fn text_of(line: &str) -> String {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().into()
}

/// Divides the corpus in `c` into its first `count` lines, `c/seen.jsonl`, and the first `held_out` further lines whose
/// texts do not occur in the first part, `c/unseen.jsonl`.
pub(crate) fn divide(dir: &TestFolder, count: usize, held_out: usize) {
    let lines = lines_of(dir, "c/manifest.jsonl");
    let (seen, rest) = lines.split_at(count);
    let known: std::collections::HashSet<String> = seen.iter().map(|line| text_of(line)).collect();
    let unseen: Vec<String> =
        rest.iter().filter(|line| !known.contains(&text_of(line))).take(held_out).cloned().collect();
    assert_eq!(unseen.len(), held_out);
    dir.write("c/seen.jsonl", seen.join("\n"));
    dir.write("c/unseen.jsonl", unseen.join("\n"));
}

/// Flags for a recognizer of digits: trained on `c/seen.jsonl`, validated on `c/unseen.jsonl`.
pub(crate) const DIGITS: &str = "--manifest c/seen.jsonl --set data.validation_manifest=c/unseen.jsonl --d-model 64 \
                      --set model.encoder_layers=2 --set training.warmup_steps=150 --set training.learning_rate=2e-3 \
                      --set training.validation_interval=400";

pub(crate) fn run(dir: &TestFolder, command: &str) -> crate::program::ProgramOutput {
    dir.run(&command.split_whitespace().collect::<Vec<_>>()).success()
}

#[test]
fn long_recognizer_learns_digits() {
    if is_long() {
        let dir = TestFolder::new();
        run(&dir, "corpus make --out c --words 10 --utterances 560 --speakers 1");
        divide(&dir, 430, 60);
        let output = run(&dir, &format!("train --name r --epochs 30 {DIGITS}"));
        eprintln!("digits, unseen sentences: {}", output.stdout);
        assert!(dir.json("runs/r/summary.json")["cer"].as_f64().unwrap() <= 0.05);
    }
}

/// Makes a folder with a corpus of digits in `speakers` voices in `c`, divided, and a recognizer of the digits,
/// `runs/judge`.
fn folder_with_judge(speakers: usize, seen: usize, unseen: usize) -> TestFolder {
    let dir = TestFolder::new();
    run(&dir, &format!("corpus make --out c --words 10 --utterances 1600 --speakers {speakers} --studio"));
    divide(&dir, 1200, 60);
    let output = run(&dir, &format!("train --name judge --epochs 18 {DIGITS}"));
    eprintln!("the judge: {}", output.stdout);
    assert!(dir.json("runs/judge/summary.json")["cer"].as_f64().unwrap() <= 0.02);
    divide(&dir, seen, unseen);
    dir
}

/// Evaluates the synthesizer `runs/v` on the utterances of `manifest`, with transcriptions of the recognizer
/// `runs/judge`.
fn evaluate(dir: &TestFolder, manifest: &str) -> serde_json::Value {
    let output =
        run(dir, &format!("eval --run runs/v --judge runs/judge --manifest {manifest} --json --out-dir heard"));
    let found: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let trained = &dir.json("runs/v/summary.json")["train_seconds"];
    eprintln!("after {trained} seconds of training: {found:#}");
    found
}

/// Flags with which a synthesizer of digits learns fast: small batches and a high learning rate.
const VOICE: &str = "--task tts --manifest c/seen.jsonl --batch-size 8 --set training.learning_rate=3e-3";

#[test]
fn long_synthesizer_learns_sixteen_sentences() {
    if is_long() {
        let dir = folder_with_judge(1, 16, 16);
        let settings = "--set data.validation_manifest=c/seen.jsonl --set model.dropout=0";
        run(&dir, &format!("train --name v {VOICE} {settings} --epochs 1300"));
        let found = evaluate(&dir, "c/seen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.05, "{found}");
        assert_eq!(found["stopped"], 1.0);
    }
}

#[test]
fn long_synthesizer_speaks_unseen_sentences() {
    if is_long() {
        let dir = folder_with_judge(1, 500, 50);
        let validation = "--set data.validation_manifest=c/unseen.jsonl";
        run(&dir, &format!("train --name v {VOICE} {validation} --epochs 165"));
        let found = evaluate(&dir, "c/unseen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.10, "{found}");
        assert!(found["stopped"].as_f64().unwrap() >= 0.98, "{found}");
        assert!(found["off_length"].as_f64().unwrap() <= 0.10, "{found}");
    }
}

/// Measures pitch and formants of a WAV file.
fn traits(path: &std::path::Path) -> VoiceTraits {
    let audio = read_recording(path).unwrap();
    VoiceTraits::from_samples(&audio.samples, audio.rate).expect("the recording has speech")
}

#[test]
fn long_main_job_speaks_in_reference_voice() {
    if is_long() {
        let dir = folder_with_judge(2, 1200, 60);
        run(&dir, "train --task tts --name v");
        let found = evaluate(&dir, "c/unseen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.10, "{found}");
        // The corpus of the main job has the same voices: same seed, same number.
        let natural = |speaker: &str| -> Vec<VoiceTraits> {
            let all = names(&dir.path("c/wavs")).into_iter().filter(|name| name.starts_with(speaker)).take(40);
            all.map(|name| traits(&dir.path("c/wavs").join(name))).collect()
        };
        let voices = ["s000", "s001"].map(|speaker| (speaker, natural(speaker)));
        let near = |heard: &VoiceTraits, all: &[VoiceTraits]| {
            all.iter().map(|own| heard.distance(own)).sum::<f64>() / all.len() as f64
        };
        let (mut right, mut all) = (0, 0);
        for name in names(&dir.path("heard")) {
            let heard = traits(&dir.path("heard").join(&name));
            let apart = |(_, natural): &&(&str, Vec<VoiceTraits>)| near(&heard, natural);
            let nearest = voices.iter().min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap().0;
            right += usize::from(name.starts_with(nearest));
            all += 1;
        }
        eprintln!("{right} of {all} are nearest to the voice of their reference");
        assert!(right * 10 >= all * 9, "{right} of {all}");
    }
}

#[test]
fn long_vocoder_is_nearer_to_recordings_than_griffin_lim() {
    if is_long() {
        let dir = TestFolder::new();
        run(&dir, "corpus make --out c --utterances 400 --speakers 1 --studio");
        run(&dir, "train --task vocoder --manifest c/manifest.jsonl --steps 1000 --name v");
        let found: serde_json::Value = serde_json::from_str(&run(&dir, "eval --run runs/v --json").stdout).unwrap();
        let distance = |way: &str| found[way]["distance"].as_f64().unwrap();
        eprintln!("{found}");
        assert!(distance("vocoder") < distance("griffin_lim"), "{found}");
    }
}

#[test]
fn long_recognizer_learns_fifty_words_for_unseen_voices() {
    if is_long() {
        let corpus = ["--words", "50", "--utterances", "5400", "--speakers", "300"];
        learns("fifty words, unseen voices", &corpus, &[], 0.10);
    }
}

#[test]
fn long_recognizer_learns_konkani() {
    let installed = std::process::Command::new("espeak-ng").arg("--version").output().is_ok();
    if is_long() && installed {
        let corpus = ["--engine", "espeak-ng", "--language", "kok", "--utterances", "1200", "--speakers", "12"];
        let training = "--epochs 13 --set model.encoder_layers=2 --set training.validation_interval=400";
        learns("Konkani, unseen voices", &corpus, &training.split_whitespace().collect::<Vec<_>>(), 0.10);
    }
}
