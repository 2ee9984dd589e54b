//! Kills at any moment, full disks, damaged and foreign checkpoints, and NaN in the data lose no progress.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use plimsoll_core::Key;
use plimsoll_train::{read_weights, write_weights};

use crate::program::{ProgramOutput, SMALL, TestFolder, names};

/// Flags that write a checkpoint after every step, so that many kills come during a write.
const CHECKPOINT_EVERY_STEP: &[&str] =
    &["--set", "training.checkpoint_interval=1", "--set", "training.keep_checkpoints=2"];

fn weights(dir: &TestFolder, run: &str, step: u64) -> Vec<u8> {
    std::fs::read(dir.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
}

/// Finds the newest step of a run with a complete checkpoint; `None` if there is none.
fn newest(dir: &TestFolder, run: &str) -> Option<u64> {
    let folder = dir.path(&format!("runs/{run}/checkpoints"));
    let names = if folder.is_dir() { names(&folder) } else { Vec::new() };
    names.iter().filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max()
}

/// Kills a run `kills` times at random moments, lets it end, and compares its weights with a run that was not killed.
fn assert_survives(kills: u64) {
    let dir = TestFolder::new();
    dir.train(&["--name", "warm", "--steps", "1"]).success();
    let long = ["--steps", "100000", "--epochs", "100000"];
    let first = [&["train"], SMALL, &["--name", "k"], &long, CHECKPOINT_EVERY_STEP].concat();
    let resume = [&["train", "--resume", "runs/k"][..], &long].concat();
    let mut partial = 0;
    for kill in 0..kills {
        let is_there = dir.path("runs/k/config.toml").exists();
        let mut child = dir.start(if is_there { &resume } else { &first });
        // From before the folder of the run exists to the middle of its steps.
        let millis = Key::new(77).at(kill).below(if kill.is_multiple_of(5) { 120 } else { 700 });
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        assert_eq!(output.code, None, "it ended before the kill: {output:?}");
        let checkpoints = dir.path("runs/k/checkpoints");
        partial += usize::from(checkpoints.is_dir() && names(&checkpoints).iter().any(|name| name.starts_with('.')));
    }
    let end = (newest(&dir, "k").unwrap_or(0) + 3).to_string();
    // On a slow machine every kill can come before the run has a folder; then it starts here.
    let start = [&["train"], SMALL, &["--name", "k", "--steps", &end], CHECKPOINT_EVERY_STEP].concat();
    let resume = ["train", "--resume", "runs/k", "--steps", &end];
    let output = dir.run(if dir.path("runs/k/config.toml").exists() { &resume } else { &start }).success();
    dir.train(&[&["--name", "whole", "--steps", &end, "--epochs", "100000"], CHECKPOINT_EVERY_STEP].concat()).success();
    let end: u64 = end.parse().unwrap();
    assert!(weights(&dir, "k", end) == weights(&dir, "whole", end), "the weights differ: {}", output.stderr);
    eprintln!("{kills} kills, {partial} of them while a checkpoint was written, {end} steps: the same weights");
}

#[test]
fn killed_run_resumes_to_same_weights() {
    assert_survives(8);
}

#[test]
fn long_run_killed_fifty_times_resumes_to_same_weights() {
    if std::env::var_os("PLIMSOLL_LONG").is_some() {
        assert_survives(50);
    }
}

#[test]
fn run_without_checkpoint_starts_over() {
    let dir = TestFolder::new();
    dir.train(&["--name", "a", "--steps", "2"]).success();
    dir.train(&["--name", "b", "--steps", "2"]).success();
    for gone in ["checkpoints", "model.json", "plan.toml"] {
        let path = dir.path(&format!("runs/b/{gone}"));
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    let output = dir.run(&["train", "--resume", "runs/b"]).success();
    assert!(output.stderr.contains("runs/b has no checkpoint yet: it begins again"), "{}", output.stderr);
    assert!(weights(&dir, "a", 2) == weights(&dir, "b", 2));
    assert!(dir.path("runs/b/plan.toml").exists());
}

/// Runs the program in a shell that limits the size of each file to `kib` KiB.
fn with_full_disk(dir: &TestFolder, kib: u32, args: &[&str]) -> ProgramOutput {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let script = format!("trap '' XFSZ; ulimit -f {}; exec {program} {}", kib * 2, args.join(" "));
    // Only the environment of this command is used: variables of the user must not change the tests.
    let clean = dir.command(&[]);
    let mut shell = Command::new("sh");
    for (name, value) in clean.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["-c", &script]).current_dir(dir.path("")).output().unwrap().into()
}

#[test]
fn commands_say_which_checkpoint_they_use_in_place_of_a_damaged_one() {
    let dir = TestFolder::new();
    let kept = ["--set", "training.checkpoint_interval=1"];
    let output = dir.train(&[&["--name", "r", "--steps", "3"], &kept[..]].concat()).success();
    assert!(!output.stderr.contains("warning: a newer"), "{}", output.stderr);
    dir.write("runs/r/checkpoints/step-0000003/weights.safetensors", "nonsense");
    let corpus = "corpus/formant-24x4-seed1";
    let wav = format!("{corpus}/wavs/{}", names(&dir.path(&format!("{corpus}/wavs")))[0]);
    let commands: [&[&str]; 3] = [
        &["transcribe", &wav, "--run", "r"],
        &["eval", "--run", "r", "--limit", "1", "--json"],
        &["export", "--run", "r", "--out", "exported"],
    ];
    for command in commands {
        let output = dir.run(command).success();
        for part in ["warning: a newer checkpoint cannot be read", "up to step 2", "step-0000003"] {
            assert!(output.stderr.contains(part), "{command:?}: {}", output.stderr);
        }
        if command[0] == "eval" {
            let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
            assert!(report["warnings"][0].as_str().unwrap().contains("up to step 2"), "{report}");
        }
    }
    // An exported model has no other checkpoints.
    let output = dir.run(&["transcribe", &wav, "--run", "exported"]).success();
    assert!(!output.stderr.contains("warning"), "{}", output.stderr);
}

#[test]
fn full_disk_keeps_earlier_checkpoints() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    let before = names(&dir.path("runs/r/checkpoints"));
    // Enough for the weights, not for the optimizer state.
    let more = ["train", "--resume", "runs/r", "--steps", "6", "--set", "training.checkpoint_interval=2"];
    let output = with_full_disk(&dir, 120, &more);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("warning: the checkpoint of step 4 is not written: cannot access"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("cannot write a checkpoint") && !output.stderr.contains("panicked"),
        "{}",
        output.stderr
    );
    assert_eq!(names(&dir.path("runs/r/checkpoints")), before);
    let output = dir.run(&["train", "--resume", "runs/r", "--steps", "6"]).success();
    assert!(output.stderr.contains("Going on after step 2"), "{}", output.stderr);
}

/// Changes a file of a checkpoint with `change`, and writes the new checksum of that file.
fn change_file(folder: &Path, file: &str, change: impl FnOnce(&Path)) {
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
fn resume_refuses_foreign_checkpoint() {
    let dir = TestFolder::new();
    for (name, width) in [("narrow", "model.d_model=16"), ("wide", "model.d_model=24")] {
        dir.train(&["--name", name, "--steps", "1", "--set", width]).success();
    }
    let folder = dir.path("runs/narrow/checkpoints/step-0000001");
    let resume = || {
        let output = dir.run(&["train", "--resume", "runs/narrow", "--steps", "2"]);
        assert_eq!(output.code, Some(2), "{output:?}");
        output.stderr
    };
    change_file(&folder, "weights.safetensors", |path| {
        let mut tensors = read_weights(path).unwrap();
        tensors.retain(|tensor| tensor.name != "output.weight");
        write_weights(path, &tensors).unwrap();
    });
    let message = resume();
    assert!(message.contains("sums.json is damaged") && message.contains("restore one from a copy"), "{message}");
    for file in names(&folder) {
        std::fs::copy(dir.path(&format!("runs/wide/checkpoints/step-0000001/{file}")), folder.join(file)).unwrap();
    }
    let message = resume();
    assert!(message.contains("does not belong there"), "{message}");
}

#[test]
fn resume_refuses_changed_seed_and_texts() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    for (flags, expected) in [
        (&["--seed", "5"][..], "the run began with seed 17, and would go on with 5"),
        (&["--set", "data.lowercase=true", "--set", "data.corpus_words=3"], "changed since the last checkpoint"),
    ] {
        let output = dir.run(&[&["train", "--resume", "runs/r", "--steps", "3"], flags].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    // Other changes are kept in the configuration of the run.
    dir.run(&["train", "--resume", "runs/r", "--steps", "3", "--set", "training.ema_decay=0.9"]).success();
    let output = dir.run(&["train", "--resume", "runs/r", "--steps", "4"]).success();
    assert!(output.stderr.contains("Going on after step 3"), "{}", output.stderr);
    assert!(dir.path("runs/r/checkpoints/step-0000004/ema.safetensors").exists());
}

#[test]
fn nan_audio_is_named_and_run_continues() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    let wav = names(&dir.path("c/wavs"))[3].clone();
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let mut writer = hound::WavWriter::create(dir.path(&format!("c/wavs/{wav}")), spec).unwrap();
    (0..40_000).for_each(|index| writer.write_sample(if index == 20_000 { f32::NAN } else { 0.1 }).unwrap());
    writer.finalize().unwrap();
    let small = &SMALL[4..];
    let args = [&["train", "--manifest", "c/manifest.jsonl", "--steps", "8"], small].concat();
    let output = dir.run(&args).success();
    let name = wav.trim_end_matches(".wav");
    assert!(output.stderr.contains(name), "{}", output.stderr);
    assert_eq!(dir.json("runs/asr-1/summary.json")["steps"], 8);
}
