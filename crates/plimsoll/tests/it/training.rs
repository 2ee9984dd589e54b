//! The built-in job with its defaults: takes minutes, only with `cargo xtask test --long`.

use std::collections::HashMap;
use std::path::Path;

use crate::program::TestFolder;
use plimsoll_speech::score::ErrorCounts;

/// Highest accepted character error rate on held-out utterances.
const CER_MAX: f64 = 0.10;
/// Highest accepted character error rate on voices from another seed.
const NEW_VOICES_CER_MAX: f64 = 0.15;

#[test]
fn long_main_job_recognizes_new_voices() {
    if std::env::var_os("PLIMSOLL_LONG").is_none() {
        return;
    }
    let dir = TestFolder::new();
    let output = dir.run(&["train"]).success();
    eprintln!("{}", output.stdout);
    let summary = dir.json("runs/asr-1/summary.json");
    let cer = summary["cer"].as_f64().unwrap();
    assert!(cer <= CER_MAX, "{summary}");
    let make = ["corpus", "make", "--out", "new", "--utterances", "50", "--speakers", "5", "--seed", "4711"];
    dir.run(&make).success();
    let output = dir.run(&["transcribe", "new/wavs", "--run", "runs/asr-1", "--json"]).success();
    let texts = std::fs::read_to_string(dir.path("new/metadata.csv")).unwrap();
    let truths: HashMap<&str, &str> = texts
        .lines()
        .filter_map(|line| line.split_once('|').map(|(id, rest)| (id, rest.split('|').next().unwrap())))
        .collect();
    let mut counts = ErrorCounts::default();
    for line in output.stdout.lines() {
        let transcript: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = Path::new(transcript["file"].as_str().unwrap()).file_stem().unwrap().to_str().unwrap();
        counts = counts + ErrorCounts::characters(truths[id], transcript["text"].as_str().unwrap());
    }
    eprintln!("held-out CER {cer:.4}, new voices {:.4} over {} characters", counts.rate(), counts.reference_length());
    assert!(counts.reference_length() > 500 && counts.rate() <= NEW_VOICES_CER_MAX, "{counts:?}");
}

/// The blocks of another system's configuration, each alone and without a limit of training.
#[test]
fn configurations_of_another_system_are_planned_without_a_limit() {
    let dir = TestFolder::new();
    for (name, block) in [
        (
            "model",
            "model: {text_encoder_dim: 256, audio_encoder_dim: 512, decoder_dim: 768, max_attention_sequence_length: 256}",
        ),
        (
            "data",
            "data: {batch_size: 2, prefetch_buffer_size: 4, shuffle_buffer_multiplier: 20, enable_xla: true, pin_memory: true}",
        ),
        (
            "training",
            "training: {gradient_accumulation_steps: 16, max_memory_fraction: 0.85, enable_graph_mode: true, batch_size: 2}",
        ),
    ] {
        dir.write(&format!("{name}.yaml"), block);
        let config = format!("{name}.yaml");
        let small = ["--set", "data.corpus_utterances=40", "--set", "data.corpus_speakers=4"];
        let output = dir.run(&[&["train", "--dry-run", "--config", &config], &small[..]].concat()).success();
        let words = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let note = "no limit of training is written, so it ends after 70 passes over the data";
        assert!(words.contains(note), "{name}: {}", output.stderr);
    }
}
