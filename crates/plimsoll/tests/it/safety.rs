//! Nothing is lost: kills at any moment, full disks, damaged and foreign checkpoints, data that is no number.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use plimsoll_core::Key;
use plimsoll_train::{read_weights, write_weights};

use crate::program::{Place, SMALL, Said, names};

/// A checkpoint after every step, so that many a kill comes amid the writing of one.
const OFTEN: &[&str] = &["--set", "training.checkpoint_interval=1", "--set", "training.keep_checkpoints=2"];

fn weights(place: &Place, run: &str, step: u64) -> Vec<u8> {
    std::fs::read(place.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
}

/// The newest step that has a checkpoint under its own name.
fn newest(place: &Place, run: &str) -> Option<u64> {
    let folder = place.path(&format!("runs/{run}/checkpoints"));
    let names = if folder.is_dir() { names(&folder) } else { Vec::new() };
    names.iter().filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max()
}

/// Trains, kills it `kills` times wherever it is, lets it come to an end, and compares with a run that nobody killed.
fn survives(kills: u64) {
    let place = Place::new();
    place.train(&["--name", "warm", "--steps", "1"]).fine();
    let long = ["--steps", "100000", "--epochs", "100000"];
    let first = [&["train"], SMALL, &["--name", "k"], &long, OFTEN].concat();
    let on = [&["train", "--resume", "runs/k"][..], &long].concat();
    let mut partial = 0;
    for kill in 0..kills {
        let is_there = place.path("runs/k/config.toml").exists();
        let mut child = place.start(if is_there { &on } else { &first });
        // Anywhere from before the run has a folder to amid its steps.
        let millis = Key::new(77).at(kill).below(if kill.is_multiple_of(5) { 120 } else { 700 });
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!(said.code, None, "it ended by itself: {said:?}");
        let checkpoints = place.path("runs/k/checkpoints");
        partial += usize::from(checkpoints.is_dir() && names(&checkpoints).iter().any(|name| name.starts_with('.')));
    }
    let end = (newest(&place, "k").unwrap_or(0) + 3).to_string();
    // On a machine so slow that every kill came before the run had begun, it begins now.
    let begin = [&["train"], SMALL, &["--name", "k", "--steps", &end], OFTEN].concat();
    let on = ["train", "--resume", "runs/k", "--steps", &end];
    let said = place.run(if place.path("runs/k/config.toml").exists() { &on } else { &begin }).fine();
    place.train(&[&["--name", "whole", "--steps", &end, "--epochs", "100000"], OFTEN].concat()).fine();
    let end: u64 = end.parse().unwrap();
    assert!(weights(&place, "k", end) == weights(&place, "whole", end), "the weights differ: {}", said.err);
    eprintln!("{kills} kills, {partial} of them amid a checkpoint, {end} steps: the same weights");
}

#[test]
fn a_run_that_is_killed_goes_on_to_the_same_weights() {
    survives(8);
}

#[test]
fn long_a_run_that_is_killed_fifty_times_goes_on_to_the_same_weights() {
    if std::env::var_os("PLIMSOLL_LONG").is_some() {
        survives(50);
    }
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_again() {
    let place = Place::new();
    place.train(&["--name", "a", "--steps", "2"]).fine();
    place.train(&["--name", "b", "--steps", "2"]).fine();
    for gone in ["checkpoints", "model.json", "plan.toml"] {
        let path = place.path(&format!("runs/b/{gone}"));
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    let said = place.run(&["train", "--resume", "runs/b"]).fine();
    assert!(said.err.contains("runs/b has no checkpoint yet: it begins again"), "{}", said.err);
    assert!(weights(&place, "a", 2) == weights(&place, "b", 2));
    assert!(place.path("runs/b/plan.toml").exists());
}

/// The program in a shell that lets no file grow beyond so many KiB.
fn with_full_disk(place: &Place, kib: u32, args: &[&str]) -> Said {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let script = format!("trap '' XFSZ; ulimit -f {}; exec {program} {}", kib * 2, args.join(" "));
    // The environment of a command that is never run: the person's own must not reach the tests.
    let clean = place.command(&[]);
    let mut shell = Command::new("sh");
    for (name, value) in clean.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["-c", &script]).current_dir(place.path("")).output().unwrap().into()
}

#[test]
fn a_disk_that_is_full_amid_a_checkpoint_costs_no_other() {
    let place = Place::new();
    place.train(&["--name", "r", "--steps", "2"]).fine();
    let before = names(&place.path("runs/r/checkpoints"));
    // Room for the weights, and none for the optimizer.
    let more = ["train", "--resume", "runs/r", "--steps", "6", "--set", "training.checkpoint_interval=2"];
    let said = with_full_disk(&place, 120, &more);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("warning: the checkpoint of step 4 is not written: cannot access"), "{}", said.err);
    assert!(said.err.contains("cannot write a checkpoint") && !said.err.contains("panicked"), "{}", said.err);
    assert_eq!(names(&place.path("runs/r/checkpoints")), before);
    let said = place.run(&["train", "--resume", "runs/r", "--steps", "6"]).fine();
    assert!(said.err.contains("Going on after step 2"), "{}", said.err);
}

/// Changes a file of a checkpoint, and its sum with it.
fn changed(folder: &Path, file: &str, change: impl FnOnce(&Path)) {
    let path = folder.join(file);
    change(&path);
    let sum = Command::new("sha256sum").arg(&path).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap().split_whitespace().next().unwrap().to_string();
    let sums = folder.join("sums.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&sums).unwrap()).unwrap();
    json[file] = sum.into();
    std::fs::write(sums, json.to_string()).unwrap();
}

#[test]
fn checkpoints_that_do_not_belong_are_refused_by_name() {
    let place = Place::new();
    for (name, width) in [("narrow", "model.d_model=16"), ("wide", "model.d_model=24")] {
        place.train(&["--name", name, "--steps", "1", "--set", width]).fine();
    }
    let folder = place.path("runs/narrow/checkpoints/step-0000001");
    let resumed = || {
        let said = place.run(&["train", "--resume", "runs/narrow", "--steps", "2"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        said.err
    };
    changed(&folder, "weights.safetensors", |path| {
        let mut tensors = read_weights(path).unwrap();
        tensors.retain(|tensor| tensor.name != "output.weight");
        write_weights(path, &tensors).unwrap();
    });
    let told = resumed();
    assert!(told.contains("the weights have no `output.weight`"), "{told}");
    for file in names(&folder) {
        std::fs::copy(place.path(&format!("runs/wide/checkpoints/step-0000001/{file}")), folder.join(file)).unwrap();
    }
    let told = resumed();
    assert!(told.contains("in the weights and"), "{told}");
}

#[test]
fn a_run_goes_on_as_the_run_that_it_was() {
    let place = Place::new();
    place.train(&["--name", "r", "--steps", "2"]).fine();
    for (flags, told) in [
        (&["--seed", "5"][..], "the run began with seed 17, and would go on with 5"),
        (&["--set", "data.lowercase=true", "--set", "data.corpus_words=3"], "no longer those that the run began with"),
    ] {
        let said = place.run(&[&["train", "--resume", "runs/r", "--steps", "3"], flags].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(told), "{}", said.err);
    }
    // Other flags belong to it from then on.
    place.run(&["train", "--resume", "runs/r", "--steps", "3", "--set", "training.ema_decay=0.9"]).fine();
    let said = place.run(&["train", "--resume", "runs/r", "--steps", "4"]).fine();
    assert!(said.err.contains("Going on after step 3"), "{}", said.err);
    assert!(place.path("runs/r/checkpoints/step-0000004/ema.safetensors").exists());
}

#[test]
fn sound_that_is_no_number_is_named_and_the_run_goes_on() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).fine();
    let wav = names(&place.path("c/wavs"))[3].clone();
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let mut writer = hound::WavWriter::create(place.path(&format!("c/wavs/{wav}")), spec).unwrap();
    (0..40_000).for_each(|index| writer.write_sample(if index == 20_000 { f32::NAN } else { 0.1 }).unwrap());
    writer.finalize().unwrap();
    let small = &SMALL[4..];
    let args = [&["train", "--manifest", "c/manifest.jsonl", "--steps", "8"], small].concat();
    let said = place.run(&args).fine();
    let name = wav.trim_end_matches(".wav");
    assert!(said.err.contains(name), "{}", said.err);
    assert_eq!(place.json("runs/asr-1/summary.json")["steps"], 8);
}
