//! Resuming: changed data, foreign checkpoints, complete runs, limits, and plans that write nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::{ProgramOutput, SMALL, TestFolder, names};

/// Makes a corpus of 40 utterances in the folder `c`, with a list `c/list.jsonl` of the first `count`.
fn corpus(dir: &TestFolder, count: usize) {
    if !dir.path("c").exists() {
        dir.run(&["corpus", "make", "--out", "c", "--utterances", "40", "--speakers", "8"]).success();
    }
    let all = fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    let lines: String = all.lines().take(count).map(|line| format!("{line}\n")).collect();
    dir.write("c/list.jsonl", lines);
}

fn resume(dir: &TestFolder, more: &[&str]) -> ProgramOutput {
    dir.run(&[&["train", "--resume", "runs/r"], more].concat())
}

/// Asserts that resuming is refused with exit code 2 and a message that contains `expected`.
fn refused(dir: &TestFolder, more: &[&str], expected: &str) {
    let output = resume(dir, more);
    assert_eq!(output.code, Some(2), "{output:?}");
    // The message is wrapped to the width of the terminal.
    let words: Vec<&str> = output.stderr.split([' ', '\n', '│']).filter(|word| !word.is_empty()).collect();
    assert!(words.join(" ").contains(expected), "{}", output.stderr);
}

/// Returns for each utterance of the run whether it is held out.
fn held_out(dir: &TestFolder) -> BTreeMap<String, bool> {
    let lines = fs::read_to_string(dir.path("runs/r/utterances.jsonl")).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["id"].as_str().unwrap().to_string(), line["held_out"].as_bool().unwrap())
    };
    lines.lines().map(line).collect()
}

#[test]
fn resume_refuses_changed_data_and_goes_on_with_the_flag() {
    let dir = TestFolder::new();
    corpus(&dir, 36);
    dir.train(&["--name", "r", "--steps", "8", "--manifest", "c/list.jsonl"]).success();
    let before = held_out(&dir);
    assert_eq!(before.len(), 36);
    for (more, expected) in [
        (&["--batch-size", "3"][..], "data.batch_size 6 -> 3"),
        (&["--set", "data.shuffle_window=2"], "data.shuffle_window none -> 2"),
        (&["--set", "data.validation_share=0.4"], "moved from training to validation"),
        (&["--set", "augment.time_masks=5"], "augment.time_masks 2 -> 5"),
        (&["--set", "augment.enabled=false"], "augment.enabled true -> false"),
        (&["--set", "data.tokenizer=bpe"], "data.tokenizer char -> bpe of 500"),
        (&["--set", "features.n_mels=20"], "features.n_mels 40 -> 20"),
    ] {
        refused(&dir, &[&["--steps", "9"], more].concat(), expected);
    }
    // A tenth more.
    corpus(&dir, 40);
    refused(&dir, &["--steps", "9"], "4 utterances added");
    refused(&dir, &["--steps", "9", "--dry-run"], "--data-changed restart-epoch");
    let output = resume(&dir, &["--steps", "9", "--data-changed", "restart-epoch"]).success();
    assert!(output.stderr.contains("The current epoch begins again"), "{}", output.stderr);
    let after = held_out(&dir);
    assert_eq!(after.len(), 40);
    assert!(before.iter().all(|(id, held_out)| *held_out || !after[id]), "{before:?} {after:?}");
    // The new data is now the data of the run.
    resume(&dir, &["--steps", "10"]).success();
    dir.run(&["eval", "--run", "runs/r"]).success();
    // New tokens are refused even then.
    refused(&dir, &["--set", "data.tokenizer=bpe", "--data-changed", "restart-epoch"], "char -> bpe of 500");
    corpus(&dir, 39);
    refused(&dir, &["--steps", "11"], "1 utterance removed");
    assert_eq!(dir.run(&["eval", "--run", "runs/r"]).code, Some(2));
}

/// The lists stay as they are, and other recordings lie under the same names.
#[test]
fn resume_refuses_changed_audio() {
    let dir = TestFolder::new();
    corpus(&dir, 24);
    dir.train(&["--name", "r", "--steps", "4", "--manifest", "c/list.jsonl"]).success();
    let utterances = dir.path("runs/r/utterances.jsonl");
    let with_audio = fs::read_to_string(&utterances).unwrap();
    assert!(with_audio.lines().all(|line| line.contains("\"audio\":")), "{with_audio}");
    let wav = |n: usize| dir.path("c/wavs").join(&names(&dir.path("c/wavs"))[n]);
    let before: Vec<Vec<u8>> = (0..3).map(|n| fs::read(wav(n)).unwrap()).collect();
    // The same bytes with another time.
    fs::write(wav(0), &before[0]).unwrap();
    resume(&dir, &["--steps", "5"]).success();
    // Another recording of the same length: half as loud.
    for (n, bytes) in before.iter().take(2).enumerate() {
        let softer = |pair: &[u8]| (i16::from_le_bytes([pair[0], pair[1]]) / 2).to_le_bytes();
        fs::write(wav(n), [bytes[..44].to_vec(), bytes[44..].chunks(2).flat_map(softer).collect()].concat()).unwrap();
    }
    refused(&dir, &["--steps", "6"], "the audio of 2 utterances changed");
    refused(&dir, &["--steps", "6"], "--data-changed restart-epoch");
    refused(&dir, &["--steps", "6", "--dry-run"], "the audio of 2 utterances changed");
    for (n, bytes) in before.iter().take(2).enumerate() {
        fs::write(wav(n), bytes).unwrap();
    }
    resume(&dir, &["--steps", "6"]).success();
    fs::write(wav(2), [&before[2][..], b"more"].concat()).unwrap();
    refused(&dir, &["--steps", "7"], "the audio of 1 utterance changed");
    resume(&dir, &["--steps", "7", "--data-changed", "restart-epoch"]).success();
    resume(&dir, &["--steps", "8"]).success();
}

/// Runs of a version that recorded neither audio nor augmentation go on, and have both from then on.
#[test]
fn runs_without_a_record_of_audio_go_on() {
    let dir = TestFolder::new();
    corpus(&dir, 24);
    let checkpoint = |step: u32| format!("runs/r/checkpoints/step-{step:07}");
    dir.train(&["--name", "r", "--steps", "4", "--manifest", "c/list.jsonl"]).success();
    forget(&dir, &checkpoint(4), &["audio", "augment", "data.cache_half"]);
    let lines: String =
        fs::read_to_string(dir.path("runs/r/utterances.jsonl")).unwrap().lines().map(without_audio).collect();
    dir.write("runs/r/utterances.jsonl", lines);
    let output = resume(&dir, &["--steps", "5", "--set", "augment.time_masks=5"]).success();
    assert!(!output.stderr.contains("begins again"), "{}", output.stderr);
    let state = dir.json(&format!("{}/state.json", checkpoint(5)));
    assert!(state["fingerprint"]["audio"].is_string() && state["fingerprint"]["augment"].is_string(), "{state}");
    let lines = fs::read_to_string(dir.path("runs/r/utterances.jsonl")).unwrap();
    assert!(lines.lines().all(|line| line.contains("\"audio\":")), "{lines}");
    refused(&dir, &["--steps", "6", "--set", "augment.time_masks=2"], "augment.time_masks 5 -> 2");
}

/// Returns a line of `utterances.jsonl` as older versions wrote it.
fn without_audio(line: &str) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    line.as_object_mut().unwrap().remove("audio");
    format!("{line}\n")
}

/// Removes values from the fingerprint of a checkpoint, as if an older version had written it: of the format without the sum of
/// the whole checkpoint, and without the identity of its run.
fn forget(dir: &TestFolder, checkpoint: &str, values: &[&str]) {
    let mut state = dir.json(&format!("{checkpoint}/state.json"));
    state["format"] = 2.into();
    for value in values {
        state["fingerprint"].as_object_mut().unwrap().remove(*value).unwrap();
    }
    let text = serde_json::to_vec_pretty(&state).unwrap();
    let mut sums = dir.json(&format!("{checkpoint}/sums.json"));
    sums.as_object_mut().unwrap().remove("checkpoint");
    sums["state.json"] = sha256(dir, &text).into();
    dir.write(&format!("{checkpoint}/state.json"), text);
    dir.write(&format!("{checkpoint}/sums.json"), serde_json::to_vec(&sums).unwrap());
}

/// Computes a checksum with the tool of the system.
fn sha256(dir: &TestFolder, bytes: &[u8]) -> String {
    dir.write("bytes", bytes);
    let output = Command::new("sha256sum").arg(dir.path("bytes")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().into()
}

#[test]
fn moved_corpus_and_moved_run_are_no_change() {
    let dir = TestFolder::new();
    corpus(&dir, 24);
    dir.train(&["--name", "r", "--steps", "4", "--manifest", "c/list.jsonl"]).success();
    dir.train(&["--name", "whole", "--steps", "6", "--manifest", "c/list.jsonl"]).success();
    fs::rename(dir.path("c"), dir.path("elsewhere")).unwrap();
    fs::create_dir(dir.path("other")).unwrap();
    fs::rename(dir.path("runs/r"), dir.path("other/r")).unwrap();
    let moved = ["train", "--resume", "other/r", "--steps", "6", "--manifest", "elsewhere/list.jsonl"];
    let lost = dir.run(&moved[..5]);
    assert!(lost.code == Some(2) && lost.stderr.contains("`--data PATH` names the place"), "{lost:?}");
    dir.run(&moved).success();
    let weights =
        |run: &str| fs::read(dir.path(&format!("{run}/checkpoints/step-0000006/weights.safetensors"))).unwrap();
    assert!(weights("other/r") == weights("runs/whole"), "the weights differ");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn checkpoints_of_another_run_and_renamed_checkpoints_are_refused() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    dir.train(&["--name", "other", "--steps", "3"]).success();
    let wav = format!("corpus/formant-24x4-seed1/wavs/{}", names(&dir.path("corpus/formant-24x4-seed1/wavs"))[0]);
    let transcribe = ["transcribe", &wav, "--run", "runs/r"];
    dir.run(&transcribe).success();
    let foreign = dir.path("runs/r/checkpoints/step-0000003");
    copy_folder(&dir.path("runs/other/checkpoints/step-0000003"), &foreign);
    refused(&dir, &["--steps", "5"], "it was written by another run");
    for command in [&transcribe[..], &["export", "--run", "runs/r", "--out", "model"], &["eval", "--run", "runs/r"]] {
        assert_eq!(dir.run(command).code, Some(2), "{command:?}");
    }
    fs::remove_dir_all(&foreign).unwrap();
    let own = dir.path("runs/r/checkpoints/step-0000002");
    copy_folder(&own, &dir.path("runs/r/checkpoints/step-0000007"));
    refused(&dir, &["--steps", "9"], "it was written at step 2");
    fs::remove_dir_all(dir.path("runs/r/checkpoints/step-0000007")).unwrap();
    resume(&dir, &["--steps", "3"]).success();
    // A description that no program wrote.
    let text = fs::read_to_string(dir.path("runs/r/model.json")).unwrap();
    for (from, to) in [("\"heads\": 2", "\"heads\": 0"), ("\"subsampling\": 4", "\"subsampling\": 3")] {
        assert!(text.contains(from), "{text}");
        dir.write("runs/r/model.json", text.replace(from, to));
        let output = dir.run(&transcribe);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains("expected"), "{}", output.stderr);
    }
}

/// Turns the checkpoint of step 2 of the run into one of a version that recorded neither run nor data.
fn make_old(dir: &TestFolder) {
    let change = |name: &str, edit: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut value = dir.json(name);
        edit(value.as_object_mut().unwrap());
        dir.write(name, value.to_string());
    };
    let folder = "runs/r/checkpoints/step-0000002";
    change("runs/r/model.json", &|fields| assert!(fields.remove("run").is_some()));
    change(&format!("{folder}/state.json"), &|fields| {
        fields.insert("format".into(), 2.into());
        ["run", "fingerprint", "extra_steps"].iter().for_each(|name| assert!(fields.remove(*name).is_some()));
    });
    let sum = Command::new("sha256sum").arg(dir.path(&format!("{folder}/state.json"))).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap().split_whitespace().next().unwrap().to_string();
    change(&format!("{folder}/sums.json"), &|fields| {
        assert!(fields.remove("checkpoint").is_some());
        fields.insert("state.json".into(), sum.clone().into());
    });
    fs::remove_file(dir.path("runs/r/utterances.jsonl")).unwrap();
}

#[test]
fn checkpoint_of_an_older_version_is_accepted_with_a_note() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "2"]).success();
    make_old(&dir);
    // Its held-out utterances are not known.
    assert_eq!(dir.run(&["eval", "--run", "runs/r"]).code, Some(2));
    let output = resume(&dir, &["--steps", "4"]).success();
    assert!(output.stderr.contains("note: the checkpoint is of an older version"), "{}", output.stderr);
    let output = resume(&dir, &["--steps", "5"]).success();
    assert!(!output.stderr.contains("older version"), "{}", output.stderr);
    refused(&dir, &["--steps", "6", "--batch-size", "3"], "data.batch_size 6 -> 3");
}

#[test]
fn limits_of_a_person_replace_defaults_and_complete_runs_stay() {
    let dir = TestFolder::new();
    // The three epochs of the built-in file are of three steps each.
    let output = dir.train(&["--name", "r", "--steps", "11"]).success();
    assert!(output.stderr.contains("ends      after 11 steps (3.7 epochs)\n"), "{}", output.stderr);
    let summary = || fs::read_to_string(dir.path("runs/r/summary.json")).unwrap();
    let record = || fs::read_to_string(dir.path("runs/r/metrics.jsonl")).unwrap();
    let (first, events, config) = (summary(), record(), fs::read(dir.path("runs/r/config.toml")).unwrap());
    assert_eq!(dir.json("runs/r/summary.json")["steps"], 11);
    for more in [&[][..], &["--steps", "5"], &["--steps", "11"], &["--epochs", "1"]] {
        let output = resume(&dir, more).success();
        assert!(output.stderr.contains("runs/r is complete"), "{more:?}: {}", output.stderr);
        assert_eq!((summary(), record()), (first.clone(), events.clone()), "{more:?}");
        assert_eq!(fs::read(dir.path("runs/r/config.toml")).unwrap(), config, "{more:?}");
    }
    // A complete run that was killed before its summary gets it, with the numbers of its record.
    fs::remove_file(dir.path("runs/r/summary.json")).unwrap();
    resume(&dir, &[]).success();
    let again = dir.json("runs/r/summary.json");
    assert!(again["peak_bytes"].as_u64().unwrap() > 0 && again["steps"] == 11, "{again}");
    resume(&dir, &["--steps", "12"]).success();
    assert_eq!(dir.json("runs/r/summary.json")["steps"], 12);
    // A run that ended by epochs goes on by steps.
    dir.train(&["--name", "e", "--epochs", "1"]).success();
    dir.run(&["train", "--resume", "runs/e", "--steps", "5"]).success();
    assert_eq!(dir.json("runs/e/summary.json")["steps"], 5);
    let both = dir.train(&["--epochs", "2", "--steps", "100", "--dry-run"]).success().stderr;
    assert!(both.contains("by training.epochs: it comes before training.steps = 100"), "{both}");
    // A small corpus is read more often.
    let least = dir.train(&["--dry-run"]).success().stderr;
    assert!(least.contains("by training.min_steps = 1900: 3 epochs would have fewer"), "{least}");
}

/// Returns the plan in the output of `train`, without its memory, which depends on the process.
fn plan(output: &ProgramOutput) -> Vec<String> {
    let lines = output.stderr.lines().skip_while(|line| !line.contains("What will happen"));
    lines
        .take_while(|line| line.contains("What") || line.starts_with("  "))
        .filter(|line| !line.starts_with("  memory"))
        .map(String::from)
        .collect()
}

#[test]
fn dry_run_writes_nothing_and_plans_what_runs() {
    for flags in [
        &["--steps", "1"][..],
        &["--steps", "1", "--set", "data.corpus_words=10", "--set", "data.batch_seconds=20s"],
        &["--steps", "1", "--set", "data.tokenizer=bpe", "--set", "data.shapes=4", "--set", "data.cache_dir=cache"],
        &["--task", "tts", "--steps", "1", "--set", "model.text_encoder_layers=1", "--set", "model.decoder_layers=1"],
    ] {
        let dir = TestFolder::new();
        // The last batch size counts.
        let args = [&["train"], &SMALL[..4], &SMALL[6..], flags].concat();
        let dry = dir.run(&[&args[..], &["--dry-run"]].concat()).success();
        assert_eq!(names(&dir.path("")), Vec::<String>::new(), "{flags:?}");
        let whole = plan(&dry);
        assert!(whole.len() > 4, "{}", dry.stderr);
        assert_eq!(plan(&dir.run(&args).success()), whole, "{flags:?}");
        assert_eq!(plan(&dir.run(&[&args[..], &["--dry-run"]].concat()).success()), whole, "{flags:?}");
    }
}

#[test]
fn ctc_needs_frames_for_tokens_and_not_for_characters() {
    let dir = TestFolder::new();
    let left_out = |flags: &[&str]| {
        let all = [&["--steps", "1", "--dry-run", "--set", "model.subsampling=8"], flags].concat();
        let output = dir.train(&all);
        output.stderr.lines().find(|line| line.contains("too little audio")).map(String::from)
    };
    assert!(left_out(&[]).is_some());
    assert_eq!(left_out(&["--set", "data.tokenizer=bpe", "--set", "data.bpe_size=400"]), None);
    assert_eq!(left_out(&["--set", "model.decoder_layers=1", "--set", "model.ctc_weight=0"]), None);
    assert!(left_out(&["--set", "model.decoder_layers=1", "--set", "model.ctc_weight=0.1"]).is_some());
}

/// An empty configuration is a valid one, the built-in, but not that of a run.
#[test]
fn a_run_whose_configuration_was_emptied_is_refused() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "1"]).success();
    dir.write("runs/r/config.toml", "\n");
    for command in [&["train", "--resume", "runs/r", "--steps", "2"][..], &["eval", "--run", "runs/r"]] {
        let refused = dir.run(command);
        assert!(refused.code == Some(2) && refused.stderr.contains("config.toml is empty"), "{refused:?}");
    }
}
