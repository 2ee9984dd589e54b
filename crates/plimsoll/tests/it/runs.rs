//! Runs on the built-in corpus, small enough for every day.

use plimsoll_core::{Event, Measure, Record, SCHEMA_VERSION};
use serde_json::{Value, json};

use crate::program::{Place, SMALL, names};

fn weights(place: &Place, run: &str, step: u64) -> Vec<u8> {
    std::fs::read(place.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
}

#[test]
fn a_run_leaves_all_that_it_promises() {
    let place = Place::new();
    let said = place.train(&["--epochs", "2"]).fine();
    assert!(said.err.contains("What will happen") && said.err.contains("held out by voices"), "{}", said.err);
    assert!(said.out.contains("CER") && said.out.matches("truth").count() == 3, "{}", said.out);
    let folder = place.path("runs/asr-1");
    let expected = [
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
        "model.json",
        "plan.toml",
        "summary.json",
        "summary.md",
        "tensorboard",
    ];
    assert_eq!(names(&folder), expected);
    let summary = place.json("runs/asr-1/summary.json");
    for key in ["cer", "wer", "train_seconds", "peak_bytes"] {
        assert!(summary[key].as_f64().unwrap() > 0.0, "{key}: {summary}");
    }
    let plan: toml::Table = std::fs::read_to_string(folder.join("plan.toml")).unwrap().parse().unwrap();
    assert_eq!(plan["data"]["training_utterances"].as_integer(), Some(18));
    let wav = names(&place.path("corpus/formant-24x4-seed1/wavs"))[0].clone();
    let wav = format!("corpus/formant-24x4-seed1/wavs/{wav}");
    place.run(&["transcribe", &wav, "--run", "runs/asr-1"]).fine();
    let said = place.run(&["transcribe", "corpus/formant-24x4-seed1/wavs", "--run", "runs/asr-1", "--json"]).fine();
    assert_eq!(said.out.lines().count(), 24);
    let line: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert_eq!(line["file"], wav);
}

#[test]
fn a_resumed_run_equals_one_that_never_stopped_to_the_last_bit() {
    let place = Place::new();
    place.train(&["--name", "whole", "--steps", "7"]).fine();
    place.train(&["--name", "cut", "--steps", "4"]).fine();
    let said = place.run(&["train", "--resume", "runs/cut", "--steps", "7"]).fine();
    assert!(said.err.contains("Going on after step 4"), "{}", said.err);
    assert!(weights(&place, "cut", 7) == weights(&place, "whole", 7), "the weights differ");
}

#[test]
fn the_number_of_loader_threads_changes_nothing() {
    let place = Place::new();
    place.train(&["--name", "one", "--steps", "4"]).fine();
    place.train(&["--name", "three", "--steps", "4", "--set", "data.num_workers=3"]).fine();
    assert!(weights(&place, "one", 4) == weights(&place, "three", 4), "the weights differ");
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_is_used() {
    let place = Place::new();
    place.train(&["--name", "a", "--steps", "4", "--set", "training.checkpoint_interval=2"]).fine();
    place.write("runs/a/checkpoints/step-0000004/weights.safetensors", "nonsense");
    let said = place.run(&["train", "--resume", "runs/a", "--steps", "5"]).fine();
    assert!(said.err.contains("is damaged") && said.err.contains("Going on after step 2"), "{}", said.err);
}

#[test]
fn a_dry_run_shows_the_plan_and_leaves_no_folder() {
    let place = Place::new();
    let said = place.train(&["--epochs", "1", "--dry-run"]).fine();
    assert!(said.err.contains("after 3 steps (1.0 epochs)"), "{}", said.err);
    assert!(!place.path("runs").exists());
}

#[test]
fn a_memory_budget_cuts_the_batch_and_is_told() {
    let place = Place::new();
    let said = place.train(&["--steps", "4", "--max-memory", "17MiB"]).fine();
    assert!(said.err.contains("of at most 17 MiB, the longest batches in 6 micro-batches"), "{}", said.err);
    let peak = place.json("runs/asr-1/summary.json")["peak_bytes"].as_u64().unwrap();
    assert!(peak <= 17 << 20, "{peak} bytes");
    let said = place.train(&["--steps", "4", "--max-memory", "6MiB"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("the run does not fit"), "{}", said.err);
}

#[test]
fn runs_are_listed_shown_and_compared() {
    let place = Place::new();
    place.train(&["--name", "one", "--steps", "4"]).fine();
    place.train(&["--name", "two", "--steps", "4", "--set", "training.ema_decay=0.9", "--set", "seed=3"]).fine();
    let listed = place.run(&["runs", "list"]).fine().out;
    assert!(listed.contains("one") && listed.contains("two") && listed.contains("complete"), "{listed}");
    let shown = place.run(&["runs", "show", "two"]).fine().out;
    assert!(shown.contains("CER") || shown.contains("cer"), "{shown}");
    let compared = place.run(&["runs", "compare", "one", "runs/two"]).fine().out;
    assert!(compared.contains("training.ema_decay") && compared.contains("seed"), "{compared}");
    let json = place.run(&["runs", "compare", "one", "two", "--json"]).fine().out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["runs"][1]["name"], "two");
    let said = place.run(&["runs", "show", "three"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("no run in three"), "{}", said.err);
}

/// Whether two values are equal, numbers but for the last bits: serde_json rounds on reading.
fn close(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| close(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| close(one, other)))
        }
        (Value::Number(one), Value::Number(other)) => {
            let [one, other] = [one, other].map(|number| number.as_f64().unwrap());
            (one - other).abs() <= 1e-14 * one.abs()
        }
        (one, other) => one == other,
    }
}

/// Reports are tested on hand-made records elsewhere; here the record is the program's own.
#[test]
fn a_report_has_all_that_a_real_run_recorded() {
    let place = Place::new();
    // A rate that moves no weight: scores do not keep improving, and every validation without an improvement lowers it.
    let plateau = [
        "training.schedule=plateau",
        "training.plateau_patience=1",
        "training.validation_interval=1",
        "training.learning_rate=1e-12",
        "training.final_learning_rate=0",
    ];
    let plateau: Vec<&str> = plateau.into_iter().flat_map(|value| ["--set", value]).collect();
    place.train(&[&["--name", "r", "--steps", "8"][..], &plateau].concat()).fine();

    let records: Vec<Record> = plimsoll_monitor::read_records(&place.path("runs/r/metrics.jsonl")).unwrap();
    let known = |record: &Record| record.schema_version == SCHEMA_VERSION && record.event != Event::Unknown;
    assert!(records.iter().all(known), "{records:?}");
    let shown = place.run(&["runs", "show", "r", "--json"]).fine().out;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let (history, setup) = (&shown["course"], &shown["outline"]);

    let lowered = records.iter().filter(|record| matches!(record.event, Event::RateLowered { .. })).count();
    assert!(lowered > 0, "{records:?}");
    assert_eq!(history["rate_lowered"], lowered);
    let steps =
        records.iter().filter_map(|record| if let Event::Step(step) = &record.event { Some(step) } else { None });
    let steps: Vec<_> = steps.collect();
    assert_eq!((steps.len(), &history["steps"]), (8, &json!(8)));
    let losses: Vec<Value> = steps.iter().map(|step| json!({"step": step.step, "loss": step.loss})).collect();
    assert!(close(&history["losses"], &json!(losses)), "{history}: {losses:?}");
    let validations = records.iter().filter_map(|record| match &record.event {
        Event::Validated { step, epoch, scores, best, .. } => {
            Some(json!({"step": step, "epoch": epoch, "scores": scores, "best": best}))
        }
        _ => None,
    });
    let validations = json!(validations.collect::<Vec<_>>());
    assert!(close(&history["validations"], &validations), "{history}: {validations}");
    assert!(history["audio_seconds_per_second"].as_f64().unwrap() > 0.0, "{history}");

    let plan: toml::Table = std::fs::read_to_string(place.path("runs/r/plan.toml")).unwrap().parse().unwrap();
    for key in ["task", "device", "seed", "commit", "parameters", "total_steps", "hop_seconds"] {
        assert!(close(&setup[key], &json!(plan[key])), "{key}: {setup}");
    }
    assert_eq!((&setup["task"], &setup["total_steps"]), (&json!("asr"), &json!(8)));
    // The plan below the header is still whole.
    assert_eq!(plan["training"]["total_steps"], plan["total_steps"]);
    assert_eq!(plan["config"]["seed"], plan["seed"]);

    let summary = place.json("runs/r/summary.json");
    assert_eq!(shown["standing"], "complete");
    assert!(close(&shown["verdict"], &summary["scores"]), "{shown}: {summary}");
    let scores: Vec<Measure> = serde_json::from_value(summary["scores"].clone()).unwrap();
    assert!(scores.iter().all(|score| summary[&*score.name] == score.value), "{summary}");
    let page = place.run(&["runs", "show", "r"]).fine().out;
    assert!(page.contains(&format!("lowered after validations that did not improve: {lowered}")), "{page}");
}

#[test]
fn what_is_frozen_keeps_its_values() {
    let place = Place::new();
    let every = ["--set", "training.checkpoint_interval=1"];
    place
        .train(
            &[&["--name", "f", "--steps", "2", "--set", "training.freeze=[\"blocks.0\", \"subsampling\"]"][..], &every]
                .concat(),
        )
        .fine();
    let read = |step: u64| {
        let path = place.path(&format!("runs/f/checkpoints/step-{step:07}/weights.safetensors"));
        plimsoll_train::read_weights(&path).unwrap()
    };
    let (first, second) = (read(1), read(2));
    let moved: Vec<bool> = first.iter().zip(&second).map(|(a, b)| a.values != b.values).collect();
    for (tensor, moved) in first.iter().zip(moved) {
        let is_frozen = ["blocks.0.", "subsampling."].iter().any(|part| tensor.name.starts_with(part));
        assert_eq!(moved, !is_frozen, "{}", tensor.name);
    }
    let said = place.train(&["--steps", "2", "--set", "training.freeze=[\"encoder\"]"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("no parameter of this model has a name that begins with"), "{}", said.err);
    assert!(said.err.contains("`blocks`") && !place.path("runs/asr-1").exists(), "{}", said.err);
}

#[test]
fn the_mean_of_checkpoints_is_exported() {
    let place = Place::new();
    place.train(&["--name", "a", "--steps", "4", "--set", "training.checkpoint_interval=1"]).fine();
    let said = place.run(&["export", "--run", "runs/a", "--out", "mean", "--average", "last:3"]).fine();
    assert!(said.err.contains("the mean of the checkpoints of steps 4, 3, 2"), "{}", said.err);
    let said = place.run(&["export", "--run", "runs/a", "--out", "other", "--average", "worst:3"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("expected last:N or best:N"), "{}", said.err);
}

#[test]
fn a_persons_own_recordings_are_read_like_ours() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "mine", "--utterances", "12", "--speakers", "3", "--seed", "9"]).fine();
    let args = [&["train"], SMALL, &["--steps", "2", "--manifest", "mine/metadata.csv"]].concat();
    let said = place.run(&args).fine();
    assert!(said.err.contains("held out by utterances"), "{}", said.err);
}

#[test]
fn letters_that_were_never_trained_on_are_counted() {
    let place = Place::new();
    place.run(&["corpus", "make", "--out", "c", "--utterances", "8", "--speakers", "2"]).fine();
    let manifest = std::fs::read_to_string(place.path("c/manifest.jsonl")).unwrap();
    let line = manifest.lines().next().unwrap();
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["text"] = "घर ßß".into();
    place.write("c/other.jsonl", format!("{line}\n"));
    let other = ["--manifest", "c/manifest.jsonl", "--set", "data.validation_manifest=c/other.jsonl", "--steps", "1"];
    let said = place.train(&other).fine();
    assert!(said.err.contains("warning: 4 characters of the validation texts"), "{}", said.err);
}

#[test]
fn rematerialised_blocks_change_no_bit_of_the_weights() {
    let place = Place::new();
    place.train(&["--name", "kept", "--steps", "3"]).fine();
    // The documented name of older systems.
    let said =
        place.train(&["--name", "again", "--steps", "3", "--set", "model.enable_gradient_checkpointing=true"]).fine();
    assert!(said.err.contains("training.remat"), "{}", said.err);
    assert!(weights(&place, "again", 3) == weights(&place, "kept", 3), "the weights differ");
}

#[test]
fn replicas_train_as_one_run_that_can_be_stopped_and_repeated() {
    let place = Place::new();
    let two = ["--set", "device.replicas=2"];
    let said = place.train(&[&["--name", "whole", "--steps", "7"][..], &two].concat()).fine();
    assert!(said.err.contains("together  2 replicas"), "{}", said.err);
    assert_eq!(place.json("runs/whole/summary.json")["held_out"], 6);
    place.train(&[&["--name", "cut", "--steps", "4"][..], &two].concat()).fine();
    place.run(&["train", "--resume", "runs/cut", "--steps", "7"]).fine();
    assert!(weights(&place, "cut", 7) == weights(&place, "whole", 7), "the weights differ");
    // And alone it goes on as well.
    let said = place.run(&["train", "--resume", "runs/cut", "--steps", "9", "--set", "device.replicas=1"]).fine();
    assert!(said.err.contains("Going on after step 7"), "{}", said.err);
    let losses = |run: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(place.path(&format!("runs/{run}/metrics.jsonl"))).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "step").map(|event| event["loss"].as_f64().unwrap()).collect()
    };
    place.train(&["--name", "alone", "--steps", "7"]).fine();
    for (together, alone) in losses("whole").iter().zip(losses("alone")) {
        assert!((together / alone - 1.0).abs() < 1e-3, "{together} beside {alone}");
    }
}
