//! Small runs on the built-in corpus.

use plimsoll_core::{Event, Measure, Record, SCHEMA_VERSION};
use serde_json::{Value, json};

use crate::program::{SMALL, TestFolder, names};

fn weights(dir: &TestFolder, run: &str, step: u64) -> Vec<u8> {
    std::fs::read(dir.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
}

#[test]
fn run_writes_all_files() {
    let dir = TestFolder::new();
    let output = dir.train(&["--epochs", "2"]).success();
    assert!(
        output.stderr.contains("What will happen") && output.stderr.contains("held out by voices"),
        "{}",
        output.stderr
    );
    assert!(output.stdout.contains("CER") && output.stdout.matches("truth").count() == 3, "{}", output.stdout);
    let folder = dir.path("runs/asr-1");
    let expected = [
        ".lock",
        "checkpoints",
        "config.toml",
        "evaluation.json",
        "metrics.jsonl",
        "model.json",
        "plan.toml",
        "report.html",
        "search.json",
        "spelling.lm",
        "summary.json",
        "summary.md",
        "tensorboard",
        "texts.lm",
        "utterances.jsonl",
    ];
    assert_eq!(names(&folder), expected);
    let summary = dir.json("runs/asr-1/summary.json");
    for key in ["cer", "wer", "train_seconds", "peak_bytes"] {
        assert!(summary[key].as_f64().unwrap() > 0.0, "{key}: {summary}");
    }
    let plan: toml::Table = std::fs::read_to_string(folder.join("plan.toml")).unwrap().parse().unwrap();
    assert_eq!(plan["data"]["training_utterances"].as_integer(), Some(18));
    let wav = names(&dir.path("corpus/formant-24x4-seed1/wavs"))[0].clone();
    let wav = format!("corpus/formant-24x4-seed1/wavs/{wav}");
    dir.run(&["transcribe", &wav, "--run", "runs/asr-1"]).success();
    let output = dir.run(&["transcribe", "corpus/formant-24x4-seed1/wavs", "--run", "runs/asr-1", "--json"]).success();
    assert_eq!(output.stdout.lines().count(), 24);
    let line: Value = serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(line["file"], wav);
}

#[test]
fn resumed_run_equals_uninterrupted_run_to_the_last_bit() {
    let dir = TestFolder::new();
    dir.train(&["--name", "whole", "--steps", "7"]).success();
    dir.train(&["--name", "cut", "--steps", "4"]).success();
    let output = dir.run(&["train", "--resume", "runs/cut", "--steps", "7"]).success();
    assert!(output.stderr.contains("Going on after step 4"), "{}", output.stderr);
    assert!(weights(&dir, "cut", 7) == weights(&dir, "whole", 7), "the weights differ");
}

#[test]
fn number_of_loader_threads_keeps_weights() {
    let dir = TestFolder::new();
    dir.train(&["--name", "one", "--steps", "4"]).success();
    dir.train(&["--name", "three", "--steps", "4", "--set", "data.num_workers=3"]).success();
    assert!(weights(&dir, "one", 4) == weights(&dir, "three", 4), "the weights differ");
}

#[test]
fn resume_skips_damaged_checkpoint_and_names_it() {
    let dir = TestFolder::new();
    dir.train(&["--name", "a", "--steps", "4", "--set", "training.checkpoint_interval=2"]).success();
    dir.write("runs/a/checkpoints/step-0000004/weights.safetensors", "nonsense");
    let output = dir.run(&["train", "--resume", "runs/a", "--steps", "5"]).success();
    assert!(
        output.stderr.contains("is damaged") && output.stderr.contains("Going on after step 2"),
        "{}",
        output.stderr
    );
}

#[test]
fn dry_run_prints_plan_and_makes_no_folder() {
    let dir = TestFolder::new();
    let output = dir.train(&["--epochs", "1", "--dry-run"]).success();
    assert!(output.stderr.contains("after 3 steps (1.0 epochs)"), "{}", output.stderr);
    assert!(!dir.path("runs").exists());
}

#[test]
fn memory_limit_splits_batch() {
    let dir = TestFolder::new();
    // What the process takes beside the model depends on its threads.
    dir.train(&["--steps", "1", "--name", "one"]).success();
    let plan: toml::Table = std::fs::read_to_string(dir.path("runs/one/plan.toml")).unwrap().parse().unwrap();
    let beside = plan["memory"]["around"].as_integer().unwrap();
    let limit = format!("{}KiB", beside / 1024 + (9 << 10));
    let output = dir.train(&["--steps", "4", "--max-memory", &limit]).success();
    assert!(output.stderr.contains("the longest batches in 6 micro-batches"), "{}", output.stderr);
    let peak = dir.json("runs/asr-1/summary.json")["peak_bytes"].as_i64().unwrap();
    assert!(peak <= beside + (9 << 20), "{peak} bytes");
    let output = dir.train(&["--steps", "4", "--max-memory", "6MiB"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("the run does not fit"), "{}", output.stderr);
}

#[test]
fn runs_can_be_listed_shown_and_compared() {
    let dir = TestFolder::new();
    dir.train(&["--name", "one", "--steps", "4"]).success();
    dir.train(&["--name", "two", "--steps", "4", "--set", "training.ema_decay=0.9", "--set", "seed=3"]).success();
    let listed = dir.run(&["runs", "list"]).success().stdout;
    assert!(listed.contains("one") && listed.contains("two") && listed.contains("complete"), "{listed}");
    let shown = dir.run(&["runs", "show", "two"]).success().stdout;
    assert!(shown.contains("CER") || shown.contains("cer"), "{shown}");
    let compared = dir.run(&["runs", "compare", "one", "runs/two"]).success().stdout;
    assert!(compared.contains("training.ema_decay") && compared.contains("seed"), "{compared}");
    let json = dir.run(&["runs", "compare", "one", "two", "--json"]).success().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["runs"][1]["name"], "two");
    let output = dir.run(&["runs", "show", "three"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("no run in three"), "{}", output.stderr);
}

/// Returns whether two values are equal, except for the last bits of numbers: serde_json rounds on reading.
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

/// The report shows all events in the record of a real run; other tests read hand-made records.
#[test]
fn report_has_all_recorded_events() {
    let dir = TestFolder::new();
    // A rate too low to change a score, so that every validation after the first lowers it.
    let plateau = [
        "training.schedule=plateau",
        "training.plateau_patience=1",
        "training.validation_interval=1",
        "training.learning_rate=1e-12",
        "training.final_learning_rate=0",
    ];
    let plateau: Vec<&str> = plateau.into_iter().flat_map(|value| ["--set", value]).collect();
    dir.train(&[&["--name", "r", "--steps", "8"][..], &plateau].concat()).success();

    let records: Vec<Record> = plimsoll_monitor::read_records(&dir.path("runs/r/metrics.jsonl")).unwrap();
    let known = |record: &Record| record.schema_version == SCHEMA_VERSION && record.event != Event::Unknown;
    assert!(records.iter().all(known), "{records:?}");
    let shown = dir.run(&["runs", "show", "r", "--json"]).success().stdout;
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

    let plan: toml::Table = std::fs::read_to_string(dir.path("runs/r/plan.toml")).unwrap().parse().unwrap();
    for key in ["task", "device", "seed", "commit", "parameters", "total_steps", "hop_seconds"] {
        assert!(close(&setup[key], &json!(plan[key])), "{key}: {setup}");
    }
    assert_eq!((&setup["task"], &setup["total_steps"]), (&json!("asr"), &json!(8)));
    // The tables of the plan repeat the values of its header.
    assert_eq!(plan["training"]["total_steps"], plan["total_steps"]);
    assert_eq!(plan["config"]["seed"], plan["seed"]);

    let summary = dir.json("runs/r/summary.json");
    assert_eq!(shown["standing"], "complete");
    assert!(close(&shown["verdict"], &summary["scores"]), "{shown}: {summary}");
    let scores: Vec<Measure> = serde_json::from_value(summary["scores"].clone()).unwrap();
    assert!(scores.iter().all(|score| summary[&*score.name] == score.value), "{summary}");
    let page = dir.run(&["runs", "show", "r"]).success().stdout;
    assert!(page.contains(&format!("lowered after validations that did not improve: {lowered}")), "{page}");
}

#[test]
fn frozen_parameters_keep_values() {
    let dir = TestFolder::new();
    let every = ["--set", "training.checkpoint_interval=1"];
    dir.train(
        &[&["--name", "f", "--steps", "2", "--set", "training.freeze=[\"blocks.0\", \"subsampling\"]"][..], &every]
            .concat(),
    )
    .success();
    let read = |step: u64| {
        let path = dir.path(&format!("runs/f/checkpoints/step-{step:07}/weights.safetensors"));
        plimsoll_train::read_weights(&path).unwrap()
    };
    let (first, second) = (read(1), read(2));
    let changed: Vec<bool> = first.iter().zip(&second).map(|(a, b)| a.values != b.values).collect();
    for (tensor, changed) in first.iter().zip(changed) {
        let is_frozen = ["blocks.0.", "subsampling."].iter().any(|part| tensor.name.starts_with(part));
        assert_eq!(changed, !is_frozen, "{}", tensor.name);
    }
    let output = dir.train(&["--steps", "2", "--set", "training.freeze=[\"encoder\"]"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("no parameter of this model has a name that begins with"), "{}", output.stderr);
    assert!(output.stderr.contains("`blocks`") && !dir.path("runs/asr-1").exists(), "{}", output.stderr);
}

#[test]
fn parts_learn_at_rates_of_their_own() {
    let dir = TestFolder::new();
    let set = |rates: &str| format!("training.rates={rates}");
    let rates = set(r#"["blocks=0.001"]"#);
    let every = ["--steps", "2", "--set", "training.checkpoint_interval=1", "--set"];
    dir.train(&[&["--name", "r"][..], &every, &[&rates]].concat()).success();
    let read = |step: u64| {
        let path = dir.path(&format!("runs/r/checkpoints/step-{step:07}/weights.safetensors"));
        plimsoll_train::read_weights(&path).unwrap()
    };
    let (first, second) = (read(1), read(2));
    // How far a parameter moved at most: AdamW moves it by about the learning rate.
    let moved = |name: &str| {
        let of = first.iter().zip(&second).filter(|(one, _)| one.name.starts_with(name));
        let each = of.flat_map(|(one, other)| one.values.iter().zip(&other.values).map(|(a, b)| (a - b).abs()));
        each.fold(0.0, f32::max)
    };
    assert!(moved("blocks.") > 0.0 && moved("blocks.") < 0.01 * moved("subsampling."), "{}", moved("blocks."));
    for (rates, said) in [
        (r#"["encoder=0.1"]"#, "no parameter of this model has a name that begins with `encoder`"),
        (r#"["blocks"]"#, "expected PART=FACTOR"),
        (r#"["blocks=0"]"#, "`training.freeze` keeps a part as it is"),
        (r#"["blocks=nan"]"#, "expected PART=FACTOR"),
    ] {
        let output = dir.train(&["--steps", "2", "--set", &set(rates)]);
        assert!(output.code == Some(2) && output.stderr.contains(said), "{rates}: {}", output.stderr);
    }
    let frozen = ["--steps", "2", "--set", r#"training.freeze=["blocks"]"#, "--set", &rates];
    let output = dir.train(&frozen);
    assert!(output.code == Some(2) && output.stderr.contains("and is not trained"), "{}", output.stderr);
}

#[test]
fn export_averages_checkpoints() {
    let dir = TestFolder::new();
    dir.train(&["--name", "a", "--steps", "4", "--set", "training.checkpoint_interval=1"]).success();
    let output = dir.run(&["export", "--run", "runs/a", "--out", "mean", "--average", "last:3"]).success();
    assert!(output.stderr.contains("the mean of the checkpoints of steps 4, 3, 2"), "{}", output.stderr);
    // A run keeps three checkpoints by default.
    // The language model of the training texts belongs to the model.
    assert_eq!(std::fs::read(dir.path("mean/texts.lm")).unwrap(), std::fs::read(dir.path("runs/a/texts.lm")).unwrap());
    let output = dir.run(&["export", "--run", "runs/a", "--out", "other", "--average", "last:9"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("and not 9") && !dir.path("other").exists(), "{}", output.stderr);
    let output = dir.run(&["export", "--run", "mean", "--out", "other"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("mean is an exported model already"), "{}", output.stderr);
    let output = dir.run(&["export", "--run", "runs/a", "--out", "other", "--average", "worst:3"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("expected last:N or best:N"), "{}", output.stderr);
}

#[test]
fn own_corpus_trains() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "mine", "--utterances", "12", "--speakers", "3", "--seed", "9"]).success();
    let args = [&["train"], SMALL, &["--steps", "2", "--manifest", "mine/metadata.csv"]].concat();
    let output = dir.run(&args).success();
    assert!(output.stderr.contains("held out by utterances"), "{}", output.stderr);
}

#[test]
fn unknown_held_out_characters_are_named() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "8", "--speakers", "2"]).success();
    let manifest = std::fs::read_to_string(dir.path("c/manifest.jsonl")).unwrap();
    let line = manifest.lines().next().unwrap();
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["text"] = "घर ßß".into();
    dir.write("c/other.jsonl", format!("{line}\n"));
    let other = ["--manifest", "c/manifest.jsonl", "--set", "data.validation_manifest=c/other.jsonl", "--steps", "1"];
    let output = dir.train(&other).success();
    let warning = "warning: 3 characters of the validation texts are in no training text";
    assert!(output.stderr.contains(warning) && output.stderr.contains("`ß` 2 times in "), "{}", output.stderr);
}

#[test]
fn rematerialization_keeps_weights_to_the_last_bit() {
    let dir = TestFolder::new();
    dir.train(&["--name", "kept", "--steps", "3"]).success();
    // The name of the key in older systems.
    let output =
        dir.train(&["--name", "again", "--steps", "3", "--set", "model.enable_gradient_checkpointing=true"]).success();
    assert!(output.stderr.contains("training.remat"), "{}", output.stderr);
    assert!(weights(&dir, "again", 3) == weights(&dir, "kept", 3), "the weights differ");
}

#[test]
fn replicas_train_as_one_resumable_run() {
    let dir = TestFolder::new();
    let two = ["--set", "device.replicas=2"];
    let output = dir.train(&[&["--name", "whole", "--steps", "7"][..], &two].concat()).success();
    assert!(output.stderr.contains("together  2 replicas"), "{}", output.stderr);
    assert_eq!(dir.json("runs/whole/summary.json")["held_out"], 6);
    dir.train(&[&["--name", "cut", "--steps", "4"][..], &two].concat()).success();
    dir.run(&["train", "--resume", "runs/cut", "--steps", "7"]).success();
    assert!(weights(&dir, "cut", 7) == weights(&dir, "whole", 7), "the weights differ");
    // It also resumes without replicas.
    let output = dir.run(&["train", "--resume", "runs/cut", "--steps", "9", "--set", "device.replicas=1"]).success();
    assert!(output.stderr.contains("Going on after step 7"), "{}", output.stderr);
    let losses = |run: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(dir.path(&format!("runs/{run}/metrics.jsonl"))).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "step").map(|event| event["loss"].as_f64().unwrap()).collect()
    };
    dir.train(&["--name", "single", "--steps", "7"]).success();
    for (two, one) in losses("whole").iter().zip(losses("single")) {
        assert!((two / one - 1.0).abs() < 1e-3, "{two} and {one}");
    }
}
