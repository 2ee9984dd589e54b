//! Runs that begin with a trained model.

use std::collections::HashMap;

use crate::program::{ProgramOutput, TestFolder};
use crate::speaking::SMALL_VOICE;
use crate::using::write_accents;
use plimsoll_train::read_weights;

/// Flags for the built-in corpus of `TestFolder::train`, and for a few short steps.
const CORPUS: &[&str] =
    &["--set", "data.corpus_utterances=24", "--set", "data.corpus_speakers=4", "--batch-size", "6", "--steps", "1"];
/// Settings with which a step changes no weight.
const STILL: &[&str] = &[
    "--set",
    "training.learning_rate=1e-30",
    "--set",
    "training.final_learning_rate=0",
    "--set",
    "training.weight_decay=0",
];

fn begin(dir: &TestFolder, from: &str, more: &[&str]) -> ProgramOutput {
    dir.run(&[&["train", "--from", from], CORPUS, more].concat())
}

fn weights(dir: &TestFolder, run: &str, step: u64) -> HashMap<String, Vec<f32>> {
    let file = dir.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"));
    read_weights(&file).unwrap().into_iter().map(|weight| (weight.name, weight.values)).collect()
}

fn refused(output: &ProgramOutput, expected: &str) {
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
}

#[test]
fn a_run_begins_with_the_weights_of_another() {
    let dir = TestFolder::new();
    dir.train(&["--name", "base", "--steps", "4", "--set", "model.decoder_layers=1"]).success();
    let plan = begin(&dir, "base", &["--dry-run"]).success().stderr;
    assert!(plan.contains("as runs/base: "), "{plan}");
    assert!(plan.contains("follow the model that it begins with"), "{plan}");
    // The built-in corpus is trained as the built-in file says, and not as a corpus of no length.
    let written = dir.run(&["config", "print", "--from", "base"]).success().stdout;
    assert!(written.contains("d_model = 16") && written.contains("epochs = 3 "), "{written}");
    begin(&dir, "base", &[&["--name", "next"], STILL].concat()).success();
    // Another size is refused before the plan, in a dry run too, with the keys that differ.
    for more in [&[][..], &["--dry-run"]] {
        let resume =
            ["train", "--resume", "base", "--steps", "6", "--set", "model.encoder_layers=2", "--d-model", "32"];
        let expected =
            "has `model.d_model` 16, and would go on with 32; `model.encoder_layers` 1, and would go on with 2";
        refused(&dir.run(&[&resume[..], more].concat()), expected);
    }
    let (base, next) = (weights(&dir, "base", 4), weights(&dir, "next", 1));
    assert_eq!(base.len(), next.len());
    for (name, values) in &base {
        assert_eq!(&next[name], values, "{name}");
    }
    // The run is one of its own: it goes on, and is evaluated, without the one that it began with.
    std::fs::remove_dir_all(dir.path("runs/base")).unwrap();
    dir.run(&["train", "--resume", "next", "--steps", "2"]).success();
    assert_eq!(dir.json("runs/next/summary.json")["steps"], 2);
    dir.run(&["eval", "next"]).success();
    dir.run(&["advise", "next"]).success();
    refused(&begin(&dir, "base", &["--dry-run"]), "there is no run in base, and none of that name");
    refused(&begin(&dir, "next", &["--resume", "next"]), "leave one of them out");
    // Some of it stays as it is.
    let parameters = |more: &[&str]| {
        let plan = begin(&dir, "next", &[&["--dry-run"], more].concat()).success().stderr;
        let model = plan.lines().find(|line| line.contains(" parameters") && line.contains("model ")).unwrap();
        let numbers = model.rsplit("tokens, ").next().unwrap().split_whitespace().filter_map(|word| word.parse().ok());
        numbers.collect::<Vec<u64>>()
    };
    let (all, few) = (parameters(&[]), parameters(&["--set", "training.freeze=[\"blocks.*\"]"]));
    assert!(all.len() == 1 && few.len() == 2 && few[0] == all[0] && few[1] < all[0], "{few:?} of {all:?}");
    // Weights that would be used in another way are named.
    let other = begin(&dir, "next", &["--dry-run", "--set", "model.attention_heads=4"]).success().stderr;
    assert!(other.contains("changed: `model.attention_heads` 2 -> 4"), "{other}");
}

#[test]
fn new_letters_and_exported_models_are_taken() {
    let dir = TestFolder::new();
    dir.train(&["--name", "base", "--steps", "2"]).success();
    dir.run(&["export", "base", "--out", "model"]).success();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    write_accents(&dir, "c/manifest.jsonl");
    let data = ["--data", "c/manifest.jsonl", "--steps", "1", "--name"];
    for (from, name) in [("base", "by_run"), ("model", "by_export")] {
        let output = dir.run(&[&["train", "--from", from], &data[..], &[name], STILL].concat()).success();
        assert!(output.stderr.contains("1 new token: é"), "{}", output.stderr);
    }
    let (base, next) = (weights(&dir, "base", 2), weights(&dir, "by_run", 1));
    assert_eq!(next, weights(&dir, "by_export", 1));
    for (name, values) in &base {
        let found = &next[name];
        match name.starts_with("output.") {
            // The letter comes behind the others.
            true => assert!(found.len() > values.len(), "{name}"),
            false => assert_eq!(found, values, "{name}"),
        }
    }
    let (bias, old) = (&next["output.bias"], &base["output.bias"]);
    assert_eq!(&bias[..old.len()], &old[..]);
    let mean = old[4..].iter().sum::<f32>() / (old.len() - 4) as f32;
    assert!((bias[old.len()] - mean).abs() < 1e-6, "{bias:?}");
    dir.run(&["eval", "by_export"]).success();
}

#[test]
fn voices_and_vocoders_begin_with_others_and_mistakes_are_named() {
    let dir = TestFolder::new();
    dir.run(&[&["train"], SMALL_VOICE, &["--name", "voice", "--steps", "1"]].concat()).success();
    let vocoder =
        ["train", "--task", "vocoder", "--set", "data.corpus_utterances=24", "--set", "model.vocoder_layers=1"];
    let small = ["--d-model", "16", "--set", "model.discriminator_channels=2", "--set", "data.crop_seconds=0.1"];
    dir.run(&[&vocoder[..], &small[..], &["--name", "sound", "--steps", "1"]].concat()).success();
    dir.train(&["--name", "text", "--steps", "1"]).success();
    for (run, folder) in [("voice", "voice-x"), ("sound", "sound-x")] {
        dir.run(&["export", run, "--out", folder]).success();
    }
    let other = ["--set", "model.family=autoregressive", "--name", "slow", "--steps", "1"];
    dir.run(&[&["train"], SMALL_VOICE, &other].concat()).success();
    // An exported vocoder has no discriminators: they begin at random.
    let plan = begin(&dir, "sound-x", &["--dry-run"]).success().stderr;
    assert!(plan.contains("begin at random: discriminators."), "{plan}");
    assert!(!plan.contains("new token"), "{plan}");
    for name in ["voice", "sound", "slow", "voice-x"] {
        let plan = begin(&dir, name, &["--dry-run"]).success().stderr;
        let line = plan.lines().find(|line| line.contains("begins ")).unwrap();
        let numbers: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers.len() >= 2 && numbers[0] == numbers[1] && numbers[0] > 10, "{line}");
        begin(&dir, name, &["--name", &format!("{name}-2")]).success();
    }
    // The task follows the model, and another one is a mistake.
    refused(
        &begin(&dir, "voice", &["--task", "asr", "--dry-run"]),
        "holds a model of the task `tts`, and not of `asr`",
    );
    refused(&begin(&dir, "text", &["--d-model", "32", "--dry-run"]), "leave out the keys of [model]");
    for (file, text, expected) in [
        ("model.json", "{\"kind\": \"vocodor\"}", "the nearest kind is `vocoder`"),
        ("model.json", "{}", "names no kind of model"),
        ("model.json", "no JSON", "does not describe"),
    ] {
        std::fs::create_dir_all(dir.path("odd")).unwrap();
        dir.write(&format!("odd/{file}"), text);
        refused(&begin(&dir, "odd", &["--dry-run"]), expected);
    }
    let checkpoint = dir.path("runs/text/checkpoints/step-0000001/weights.safetensors");
    std::fs::write(&checkpoint, vec![0; 4000]).unwrap();
    let damaged = begin(&dir, "text", &["--dry-run"]);
    assert_eq!(damaged.code, Some(2), "{damaged:?}");
    assert!(damaged.stderr.contains("step-0000001"), "{}", damaged.stderr);
}

/// A configuration file says more than the model, and a run without corpus of its own keeps the sizes, too.
#[test]
fn a_file_is_stronger_than_the_model() {
    let dir = TestFolder::new();
    dir.train(&["--name", "base", "--steps", "1"]).success();
    dir.write(
        "mine.toml",
        "[training]\nlearning_rate = 2e-4\nsteps = 1\n[data]\nbatch_seconds = 9\n[model]\ndropout = 0.3\n",
    );
    let config = ["--config", "mine.toml", "--name", "next", "--set", "data.corpus_utterances=24"];
    dir.run(&[&["train", "--from", "base"], &config[..]].concat()).success();
    let written = std::fs::read_to_string(dir.path("runs/next/config.toml")).unwrap();
    for expected in ["learning_rate = 0.0002", "dropout = 0.3", "d_model = 16", "from = \"base\""] {
        assert!(written.contains(expected), "{expected}: {written}");
    }
}
