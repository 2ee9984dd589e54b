//! The main job as it is shipped: minutes long, and only with `cargo xtask test --long`.

use std::collections::HashMap;
use std::path::Path;

use crate::program::Place;
use plimsoll_speech::score::ErrorCounts;

/// The held-out error rate that the main job must reach, and that of voices from another seed.
const CER_MAX: f64 = 0.10;
const FRESH_CER_MAX: f64 = 0.15;

#[test]
fn long_the_main_job_reads_fresh_voices() {
    if std::env::var_os("PLIMSOLL_LONG").is_none() {
        return;
    }
    let place = Place::new();
    let said = place.run(&["train"]).fine();
    eprintln!("{}", said.out);
    let summary = place.json("runs/asr-1/summary.json");
    let cer = summary["cer"].as_f64().unwrap();
    assert!(cer <= CER_MAX, "{summary}");
    let make = ["corpus", "make", "--out", "fresh", "--utterances", "50", "--speakers", "5", "--seed", "4711"];
    place.run(&make).fine();
    let said = place.run(&["transcribe", "fresh/wavs", "--run", "runs/asr-1", "--json"]).fine();
    let texts = std::fs::read_to_string(place.path("fresh/metadata.csv")).unwrap();
    let truths: HashMap<&str, &str> = texts
        .lines()
        .filter_map(|line| line.split_once('|').map(|(id, rest)| (id, rest.split('|').next().unwrap())))
        .collect();
    let mut counts = ErrorCounts::default();
    for line in said.out.lines() {
        let heard: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = Path::new(heard["file"].as_str().unwrap()).file_stem().unwrap().to_str().unwrap();
        counts = counts + ErrorCounts::characters(truths[id], heard["text"].as_str().unwrap());
    }
    eprintln!("held-out CER {cer:.4}, fresh voices {:.4} over {} characters", counts.rate(), counts.reference_length());
    assert!(counts.reference_length() > 500 && counts.rate() <= FRESH_CER_MAX, "{counts:?}");
}
