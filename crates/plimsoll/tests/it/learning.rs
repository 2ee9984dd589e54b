//! The real trainer learns real things in minutes: only with `cargo xtask test --long`.
//!
//! What is limited is the number of steps, never the time: docs/LOG.md has how long they took, and where.

use crate::program::Place;

fn is_long() -> bool {
    std::env::var_os("PLIMSOLL_LONG").is_some()
}

/// Makes a corpus, trains on it, and holds the held-out error rate to `most`.
fn learns(name: &str, corpus: &[&str], training: &[&str], most: f64) {
    let place = Place::new();
    place.run(&[&["corpus", "make", "--out", "c"], corpus].concat()).fine();
    let said = place.run(&[&["train", "--manifest", "c/manifest.jsonl", "--name", "r"], training].concat()).fine();
    let summary = place.json("runs/r/summary.json");
    eprintln!("{name}: {}", said.out);
    assert!(summary["cer"].as_f64().unwrap() <= most, "{name}: {summary}");
}

#[test]
fn long_digits_are_learned_in_a_minute() {
    if is_long() {
        let corpus = ["--words", "10", "--utterances", "450", "--speakers", "1"];
        let training = "--epochs 30 --d-model 64 --set model.encoder_layers=2 --set training.warmup_steps=150 \
                        --set training.learning_rate=2e-3 --set training.validation_interval=400";
        learns("digits, unseen sentences", &corpus, &training.split_whitespace().collect::<Vec<_>>(), 0.05);
    }
}

#[test]
fn long_fifty_words_are_learned_for_voices_never_heard() {
    if is_long() {
        let corpus = ["--words", "50", "--utterances", "5400", "--speakers", "300"];
        learns("fifty words, unseen voices", &corpus, &[], 0.10);
    }
}

#[test]
fn long_konkani_is_learned_in_devanagari() {
    let installed = std::process::Command::new("espeak-ng").arg("--version").output().is_ok();
    if is_long() && installed {
        let corpus = ["--engine", "espeak-ng", "--language", "kok", "--utterances", "1200", "--speakers", "12"];
        let training = "--epochs 13 --set model.encoder_layers=2 --set training.validation_interval=400";
        learns("Konkani, unseen voices", &corpus, &training.split_whitespace().collect::<Vec<_>>(), 0.10);
    }
}
