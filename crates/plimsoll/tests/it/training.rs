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
