//! Tests of the commands that train for a trial: `profile`, `advise`, `stress` and `prove`.

use serde_json::Value;

use crate::learning::is_long;
use crate::program::{SMALL, TestFolder, names};

/// Sums up numbers of a JSON object.
fn sum(object: &Value) -> f64 {
    object.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum()
}

/// Returns the flags of the test corpus and `more`.
fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [SMALL, more].concat()
}

#[test]
fn a_profile_adds_up_and_leaves_nothing_behind() {
    let dir = TestFolder::new();
    let args = |more: &[&'static str]| [&["profile"], &flags(more)[..]].concat();
    let output = dir.run(&args(&["--steps", "6", "--json", "--trace", "steps.json"])).success();
    let profile: Value = serde_json::from_str(&output.stdout).unwrap();
    let (steps, mean) = (profile["steps"].as_f64().unwrap(), profile["seconds_per_step"].as_f64().unwrap());
    assert_eq!((steps, profile["left_out"].as_u64()), (4.0, Some(2)), "{profile}");
    // Each owner's time is rounded to a microsecond.
    let rounding = 0.5e-6 * profile["times"].as_object().unwrap().len() as f64 + 1e-9;
    assert!((sum(&profile["times"]) - steps * mean).abs() <= rounding, "{profile}");
    assert!(profile["placement"]["parameters"].as_u64().unwrap() > 10, "{profile}");
    let layers = profile["layers"].as_array().unwrap();
    assert_eq!(layers.last().unwrap()["name"], "loss");
    assert!(layers.iter().all(|layer| layer["forward"].as_f64().unwrap() > 0.0), "{profile}");
    let shares: f64 = profile["operations"].as_array().unwrap().iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{profile}");
    let shapes = profile["shapes"].as_array().unwrap();
    assert_eq!(shapes.iter().map(|row| row["steps"].as_u64().unwrap()).sum::<u64>(), 6);
    assert!(profile["loading"]["audio_seconds_per_second"].as_f64().unwrap() > 0.0, "{profile}");

    // The slices of the trace add up to the times of all steps, of which the profile shows the last.
    let trace: Value = serde_json::from_slice(&std::fs::read(dir.path("steps.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let steps = events.iter().filter(|event| event["name"].as_str().is_some_and(|name| name.starts_with("step ")));
    assert_eq!(steps.count(), 6);
    let owned: f64 =
        events.iter().filter(|event| event["args"]["owner"].is_string()).map(|e| e["dur"].as_f64().unwrap()).sum();
    assert!(owned > (sum(&profile["times"]) - rounding) * 1e6, "{owned}");

    assert_eq!(names(&dir.path("runs")), Vec::<String>::new());
    let again = dir.run(&args(&["--steps", "6", "--trace", "steps.json"]));
    assert!(again.code == Some(2) && again.stderr.contains("--force"), "{}", again.stderr);
    let text = dir.run(&args(&["--steps", "4"])).success().stdout;
    for part in ["computing", "planned for the run", "Padded shapes", "blocks.*.attention", "matrix product"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn advice_is_an_exact_change_that_a_trial_can_prove() {
    let dir = TestFolder::new();
    let suffers = ["--steps", "34", "--set", "training.validation_interval=1", "--verify", "20", "--json"];
    let args = [&["advise"], &flags(&suffers)[..], &["--output", "better.toml"]].concat();
    let is_wanted = |found: &Value| found["rule"] == "validation-heavy";
    let has = |advice: &Value, list: &str| advice[list].as_array().is_some_and(|all| all.iter().any(is_wanted));
    // Other processes of the machine can take so much of the time that little of it is validation.
    let tries = (0..4).map(|_| {
        let _ = std::fs::remove_file(dir.path("better.toml"));
        serde_json::from_str::<Value>(&dir.run(&args).success().stdout).unwrap()
    });
    let advice = tries.into_iter().find(|advice| has(advice, "findings") && has(advice, "verified"));
    let advice = advice.expect("a run that validates after each step is advised to validate less often");
    let findings = advice["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| is_wanted(finding)).unwrap();
    let to: u64 = finding["change"]["to"].as_str().unwrap().parse().unwrap();
    assert_eq!((&finding["change"]["from"], to > 1), (&"1".into(), true), "{finding}");
    let verified = advice["verified"].as_array().unwrap();
    let proof = verified.iter().find(|proof| is_wanted(proof)).unwrap();
    assert_eq!(proof["settings"][0], format!("training.validation_interval={to}"), "{proof}");
    let interval = proof["interval"].as_array().unwrap();
    let (low, high) = (interval[0].as_f64().unwrap(), interval[1].as_f64().unwrap());
    let brought = proof["brought"].as_f64().unwrap();
    assert!(low <= brought && brought <= high, "{proof}");
    assert_eq!(proof["is_kept"], low > 0.0, "{proof}");
    // What was proven is written, and the flags of the trial with it.
    let expected = if low > 0.0 { to } else { 1 };
    let printed = dir.run(&["config", "print", "--config", "better.toml"]).success().stdout;
    assert!(printed.contains(&format!("validation_interval = {expected} ")), "{printed}");
    assert_eq!(names(&dir.path("runs")), Vec::<String>::new());
}

/// Runs that suffer, by the rule that finds it and the setting that it must change.
const SUFFERING: &[(&str, &str, &[&str])] = &[
    ("validation-heavy", "training.validation_interval", &["training.validation_interval=2"]),
    ("padding-waste", "data.frame_grid", &["data.frame_grid=1024"]),
    ("padding-waste", "data.shuffle_window", &["data.shuffle_window=1", "data.corpus_utterances=200"]),
    ("padding-waste", "data.shapes", &["data.shapes=1", "data.corpus_utterances=200"]),
    ("launch-bound", "training.micro_batch", &["training.micro_batch=1", "data.batch_size=12"]),
    ("memory-unused", "training.remat", &["training.remat=all", "model.d_model=96", "model.encoder_layers=3"]),
    ("optimizer-bound", "training.optimizer_state", &["training.optimizer_state=8bit", "data.batch_size=1"]),
];

#[test]
fn each_change_that_is_advised_brings_half_of_what_it_promises() {
    if !is_long() {
        return;
    }
    let dir = TestFolder::new();
    for (rule, key, settings) in SUFFERING {
        let set = settings.iter().flat_map(|setting| ["--set", *setting]);
        let args: Vec<&str> =
            ["advise", "--steps", "40", "--verify", "40", "--json"].into_iter().chain(SMALL.iter().copied()).collect();
        let args: Vec<&str> = args.into_iter().chain(set).collect();
        let advice: Value = serde_json::from_str(&dir.run(&args).success().stdout).unwrap();
        let is_wanted = |found: &&Value| found["rule"] == *rule;
        let finding = advice["findings"].as_array().unwrap().iter().find(is_wanted);
        let finding = finding.unwrap_or_else(|| panic!("{rule}, {settings:?}: {advice:#}"));
        assert_eq!(finding["change"]["key"], *key, "{finding:#}");
        let proof = advice["verified"].as_array().unwrap().iter().find(is_wanted).unwrap();
        if let Some(promised) = proof["promised"].as_f64() {
            let most = proof["interval"][1].as_f64().unwrap();
            assert!(most >= promised / 2.0, "{proof:#}");
        }
    }
}

#[test]
fn advice_for_a_short_run_abstains_and_changes_nothing() {
    let dir = TestFolder::new();
    dir.train(&["--steps", "3"]).success();
    let output = dir.run(&["advise", "--run", "asr-1", "--json"]).success();
    let advice: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(advice["findings"], Value::Array(Vec::new()), "{advice}");
    assert!(advice["abstained"].as_array().unwrap().len() > 10, "{advice}");
    for wrong in [
        &["advise", "--run", "none"][..],
        &["advise", "--run", "asr-1", "--config", "run.toml"],
        &["advise", "--run", "asr-1", "--apply"],
        &["advise", "--verify", "3"],
        &["profile", "--steps", "0"],
        &["stress", "--seconds", "0"],
    ] {
        let output = dir.run(wrong);
        assert_eq!(output.code, Some(2), "{wrong:?}: {}", output.stderr);
    }
}

#[test]
fn stress_judges_a_run_at_its_limit() {
    let dir = TestFolder::new();
    let args = [&["stress", "--seconds", "30", "--json"], &flags(&["--steps", "12"])[..]].concat();
    let output = dir.run(&args);
    assert!(matches!(output.code, Some(0 | 1)), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let status = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap()["status"].clone();
    for (id, expected) in [("errors", "pass"), ("memory", "pass"), ("out-of-memory", "pass"), ("utilization", "skip")] {
        assert_eq!(status(id), expected, "{id}: {report}");
    }
    assert_eq!(names(&dir.path("runs")), Vec::<String>::new());
}

#[test]
fn the_configuration_of_a_run_can_be_tried_whatever_its_name() {
    let dir = TestFolder::new();
    dir.train(&["--steps", "3", "--name", "named"]).success();
    let kept = names(&dir.path("runs"));
    for args in [
        &["profile", "--run", "named", "--steps", "3"][..],
        &["advise", "--run", "named", "--output", "other.toml"],
        &["stress", "--run", "named", "--steps", "3"],
    ] {
        let output = dir.run(args);
        assert!(matches!(output.code, Some(0 | 1)) && !output.stdout.is_empty(), "{args:?}: {}", output.stderr);
    }
    assert_eq!(names(&dir.path("runs")), kept);
    // A new run of the written configuration has a name of its own.
    let written = std::fs::read_to_string(dir.path("other.toml")).unwrap();
    assert!(!written.lines().any(|line| line.starts_with("name ")), "{written}");
    let missing = dir.run(&["profile", "--run", "none"]);
    assert!(missing.stderr.contains("runs list") && !missing.stderr.contains("--resume"), "{}", missing.stderr);
    let yaml = dir.run(&["advise", "--run", "named", "--output", "other.yaml"]);
    assert_eq!(yaml.code, Some(2), "{}", yaml.stderr);
}

#[test]
fn a_lost_output_leaves_no_folder_of_a_trial() {
    let dir = TestFolder::new();
    for command in ["profile", "stress", "advise", "prove"] {
        let more: &[&str] = if command == "prove" { &["--only", "speed", "--minutes", "1"] } else { &[] };
        let args = [&[command, "--json"], more, &flags(&["--steps", "3"])[..]].concat();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = dir.command(&args).stdout(full).status().unwrap();
        assert_eq!(status.code(), Some(1), "{command}");
        assert_eq!(names(&dir.path("runs")), Vec::<String>::new(), "{command}");
    }
}

#[test]
fn prove_trains_repeats_kills_and_resumes_within_budgets() {
    let dir = TestFolder::new();
    let args = [&["prove", "--minutes", "1"], &flags(&["--steps", "12"])[..]].concat();
    let output = dir.run(&args);
    assert!(matches!(output.code, Some(0 | 1)), "{output:?}");
    let report = dir.json("proof.json");
    let checks = report["checks"].as_array().unwrap();
    let found = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap();
    for id in ["speed", "repeat", "budgets-1", "budgets-2", "budgets-3", "budgets-4", "budgets-5"] {
        assert_eq!(found(id)["status"], "pass", "{id}: {report:#}");
    }
    let text = |id: &str| found(id)["finding"].as_str().unwrap();
    assert!(text("repeat").contains("the same weights to the last bit"), "{report:#}");
    // On a fast machine the run may end before it is killed.
    let is_resumed = text("resume").contains("killed after") && text("resume").contains("to the last bit");
    assert!(is_resumed || text("resume").contains("before it could be killed"), "{report:#}");
    // Twelve steps may be too few to learn, a busy machine may warn, and there is no GPU.
    for (id, other) in [
        ("training", "warn"),
        ("doctor", "warn"),
        ("start-1", "skip"),
        ("values", "skip"),
        ("ballast", "skip"),
        ("replicas-1", "skip"),
    ] {
        assert!(["pass", other].contains(&found(id)["status"].as_str().unwrap()), "{id}: {report:#}");
    }
    let page = std::fs::read_to_string(dir.path("proof.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Configuration"), "{page}");
    assert_eq!(names(&dir.path("runs")), Vec::<String>::new());
    for (more, expected) in [(&[][..], "--force"), (&["--only", "magic"], "the parts are doctor, start, speed")] {
        let refused = dir.run(&[&args[..], more].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

#[test]
fn stress_judges_a_run_that_fails() {
    let dir = TestFolder::new();
    let args =
        [&["stress", "--seconds", "30", "--json"], &flags(&["--set", "training.learning_rate=1000"])[..]].concat();
    let output = dir.run(&args);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&report["checks"][0]["id"], &report["checks"][0]["status"]), (&"errors".into(), &"fail".into()));
}
