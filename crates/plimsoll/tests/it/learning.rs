//! The real trainer learns real things in minutes: only with `cargo xtask test --long`.
//!
//! What is limited is the number of steps, never the time: docs/LOG.md has how long they took, and where.

use plimsoll_audio::{VoiceTraits, read_recording};

use crate::program::{Place, names};

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

/// The lines of a manifest.
fn lines_of(place: &Place, name: &str) -> Vec<String> {
    std::fs::read_to_string(place.path(name)).unwrap().lines().map(str::to_string).collect()
}

/// The text of a line of a manifest.
fn text_of(line: &str) -> String {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().into()
}

/// Divides the corpus in `c` into its first `count` lines, `c/seen.jsonl`, and the first `held_out` of the others that say
/// what none of these says, `c/unseen.jsonl`.
fn divide(place: &Place, count: usize, held_out: usize) {
    let lines = lines_of(place, "c/manifest.jsonl");
    let (seen, rest) = lines.split_at(count);
    let known: std::collections::HashSet<String> = seen.iter().map(|line| text_of(line)).collect();
    let unseen: Vec<String> =
        rest.iter().filter(|line| !known.contains(&text_of(line))).take(held_out).cloned().collect();
    assert_eq!(unseen.len(), held_out);
    place.write("c/seen.jsonl", seen.join("\n"));
    place.write("c/unseen.jsonl", unseen.join("\n"));
}

/// The recogniser of digits: trained on `c/seen.jsonl`, judged on `c/unseen.jsonl`.
const DIGITS: &str = "--manifest c/seen.jsonl --set data.validation_manifest=c/unseen.jsonl --d-model 64 \
                      --set model.encoder_layers=2 --set training.warmup_steps=150 --set training.learning_rate=2e-3 \
                      --set training.validation_interval=400";

fn run(place: &Place, command: &str) -> crate::program::Said {
    place.run(&command.split_whitespace().collect::<Vec<_>>()).fine()
}

#[test]
fn long_digits_are_learned_in_a_minute() {
    if is_long() {
        let place = Place::new();
        run(&place, "corpus make --out c --words 10 --utterances 560 --speakers 1");
        divide(&place, 430, 60);
        let said = run(&place, &format!("train --name r --epochs 30 {DIGITS}"));
        eprintln!("digits, unseen sentences: {}", said.out);
        assert!(place.json("runs/r/summary.json")["cer"].as_f64().unwrap() <= 0.05);
    }
}

/// A place with digits read aloud in so many voices in `c`, divided, and a recogniser of them, `runs/judge`.
fn judged(speakers: usize, seen: usize, unseen: usize) -> Place {
    let place = Place::new();
    run(&place, &format!("corpus make --out c --words 10 --utterances 1600 --speakers {speakers} --studio"));
    divide(&place, 1200, 60);
    let said = run(&place, &format!("train --name judge --epochs 18 {DIGITS}"));
    eprintln!("the judge: {}", said.out);
    assert!(place.json("runs/judge/summary.json")["cer"].as_f64().unwrap() <= 0.02);
    divide(&place, seen, unseen);
    place
}

/// How `runs/v` says the utterances of `manifest`, as the judge reads it.
fn hearing(place: &Place, manifest: &str) -> serde_json::Value {
    let said =
        run(place, &format!("eval --run runs/v --judge runs/judge --manifest {manifest} --json --out-dir heard"));
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let trained = &place.json("runs/v/summary.json")["train_seconds"];
    eprintln!("after {trained} seconds of training: {found:#}");
    found
}

/// What made a voice of digits learn fast: small steps in time, and a prenet that lets little through.
const VOICE: &str = "--task tts --manifest c/seen.jsonl --batch-size 8 --set training.learning_rate=3e-3";

#[test]
fn long_sixteen_sentences_are_spoken_after_two_minutes() {
    if is_long() {
        let place = judged(1, 16, 16);
        let heart = "--set data.validation_manifest=c/seen.jsonl --set model.dropout=0";
        run(&place, &format!("train --name v {VOICE} {heart} --epochs 1300"));
        let found = hearing(&place, "c/seen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.05, "{found}");
        assert_eq!(found["stopped"], 1.0);
    }
}

#[test]
fn long_unseen_sentences_are_spoken_after_ten_minutes() {
    if is_long() {
        let place = judged(1, 500, 50);
        let validation = "--set data.validation_manifest=c/unseen.jsonl";
        run(&place, &format!("train --name v {VOICE} {validation} --epochs 165"));
        let found = hearing(&place, "c/unseen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.10, "{found}");
        assert!(found["stopped"].as_f64().unwrap() >= 0.98, "{found}");
        assert!(found["off_length"].as_f64().unwrap() <= 0.10, "{found}");
    }
}

/// Pitch and formants of a WAV file.
fn traits(path: &std::path::Path) -> VoiceTraits {
    let audio = read_recording(path).unwrap();
    VoiceTraits::from_samples(&audio.samples, audio.rate).expect("somebody speaks in it")
}

#[test]
fn long_the_main_job_speaks_in_the_voice_of_its_reference() {
    if is_long() {
        let place = judged(2, 1200, 60);
        run(&place, "train --task tts --name v");
        let found = hearing(&place, "c/unseen.jsonl");
        assert!(found["cer"].as_f64().unwrap() <= 0.10, "{found}");
        // The corpus of the main job has the voices of this one: the same seed, and as many.
        let natural = |speaker: &str| -> Vec<VoiceTraits> {
            let all = names(&place.path("c/wavs")).into_iter().filter(|name| name.starts_with(speaker)).take(40);
            all.map(|name| traits(&place.path("c/wavs").join(name))).collect()
        };
        let voices = ["s000", "s001"].map(|speaker| (speaker, natural(speaker)));
        let near = |heard: &VoiceTraits, all: &[VoiceTraits]| {
            all.iter().map(|own| heard.distance(own)).sum::<f64>() / all.len() as f64
        };
        let (mut right, mut all) = (0, 0);
        for name in names(&place.path("heard")) {
            let heard = traits(&place.path("heard").join(&name));
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
