//! `memtest`, `optimize` and `gpu-info`: verdicts, files, changed configurations, and refused arguments.

use serde_json::Value;

use crate::program::TestFolder;

/// Flags for a small recognizer, so that a debug build is fast.
const TOY: &[&str] = &["--set", "model.vocabulary=40", "--set", "data.max_seconds=8"];

fn verdict(dir: &TestFolder, more: &[&str]) -> (Option<i32>, Value) {
    let output = dir.run(&[&["memtest", "--json"], TOY, more].concat());
    (output.code, serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[test]
fn memtest_prints_plan_for_each_gpu() {
    let dir = TestFolder::new();
    let (code, found) = verdict(&dir, &["--gpu", "rtx 3060", "--gpu", "8GiB"]);
    assert_eq!(code, Some(0));
    let gpus = found["cards"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    for gpu in gpus {
        assert_eq!(gpu["fits"], true);
        let (peak, budget) = (gpu["peak_bytes"].as_u64().unwrap(), gpu["budget_bytes"].as_u64().unwrap());
        assert!(peak <= budget);
        let buckets = gpu["plan"]["buckets"].as_array().unwrap();
        assert_eq!(buckets.len(), 5);
        for bucket in buckets {
            let number = |key: &str| bucket[key].as_u64().unwrap();
            let whole = bucket["bucket"]["utterances"].as_u64().unwrap();
            assert!(number("peak") <= peak && number("micro_batch") * number("accumulation") >= whole, "{bucket}");
        }
        let owners: u64 = gpu["owners"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(owners + gpu["slack_bytes"].as_u64().unwrap(), peak);
        assert!(gpu["phases"]["backward"].is_u64() && gpu["phases"]["optimizer"].is_u64());
    }
}

#[test]
fn memtest_exits_3_and_proposes_change_if_nothing_fits() {
    let dir = TestFolder::new();
    let (code, found) = verdict(&dir, &["--gpu", "560MiB", "--set", "training.micro_batch=8"]);
    assert_eq!(code, Some(3));
    let gpu = &found["cards"][0];
    assert_eq!((&gpu["fits"], &gpu["plan"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(gpu["change"]["kind"], "micro_batch", "{gpu}");
    let output = dir.run(&[&["memtest", "--gpu", "560MiB", "--set", "training.micro_batch=8"], TOY].concat());
    assert!(output.stdout.contains("the cheapest change that would make it fit: compute "), "{output:?}");
}

#[test]
fn memtest_writes_timeline_page_and_trace() {
    let dir = TestFolder::new();
    let args = ["memtest", "--gpu", "t4", "--verbose", "--timeline", "step.html", "--trace", "step.json"];
    let output = dir.run(&[&args, TOY].concat()).success();
    assert!(
        output.stdout.contains("at the peak of the worst length:") && output.stdout.contains("activations"),
        "{output:?}"
    );
    let page = std::fs::read_to_string(dir.path("step.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{}", &page[..40]);
    assert!(page.contains("T4") && !page.contains("http"));
    assert!(dir.json("step.json")["traceEvents"].as_array().unwrap().len() > 20);
}

#[test]
fn wrong_memtest_arguments_are_refused() {
    let dir = TestFolder::new();
    for (args, expected) in [
        (&["memtest", "--gpu", "t44"][..], "no GPU is called `t44`"),
        (&["memtest", "--gpu", "0GiB"], "has no memory to plan"),
        (&["memtest", "--batch", "3"], "--verify"),
        (&["memtest", "--verify", "--batch", "0"], "a case needs utterances, frames and tokens"),
        (&["memtest", "--config", "missing.toml"], "missing.toml"),
        (&["optimize", "--config", "missing.toml", "--output", "o.toml"], "cannot read missing.toml"),
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
}

#[test]
fn predicted_memory_is_near_measured() {
    let dir = TestFolder::new();
    let args =
        ["memtest", "--verify", "--batch", "3", "--frames", "400", "--tokens", "30", "--remat", "half", "--json"];
    let output = dir.run(&[&args, TOY].concat()).success();
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    let case = &found["cases"][0];
    let bytes = |key: &str| case[key].as_f64().unwrap();
    let error = bytes("predicted_bytes") / bytes("measured_bytes") - 1.0;
    // docs/LOG.md has the whole matrix; in a model this small, a larger share of the memory is not tensors.
    assert!(error.abs() < 0.04, "{case}");
    assert!(bytes("fixed_bytes") > 0.0 && bytes("fixed_bytes") < bytes("measured_bytes"));
}

#[test]
fn optimize_writes_configuration_that_fits() {
    let dir = TestFolder::new();
    dir.write(
        "run.toml",
        "# mine\n[data]\nbatch_size = 64\nmax_seconds = 20\n\n[model]\nd_model = 256\nvocabulary = 40\n\n[training]\nepochs = 1\n",
    );
    let output = dir.run(&["optimize", "--config", "run.toml", "--output", "less.toml", "--gpu", "3GiB"]).success();
    assert!(
        output.stdout.contains("effective batch unchanged") && output.stdout.contains("+ micro_batch = "),
        "{output:?}"
    );
    let text = std::fs::read_to_string(dir.path("less.toml")).unwrap();
    assert!(text.starts_with("# mine\n[data]\nbatch_size = 64\n") && text.contains("# optimize: "), "{text}");
    let fits = dir.run(&["memtest", "--config", "less.toml", "--gpu", "3GiB"]);
    assert_eq!(fits.code, Some(0), "{fits:?}");
    let refused = dir.run(&["optimize", "--config", "run.toml", "--output", "none.toml", "--gpu", "530MiB"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!dir.path("none.toml").exists() && refused.stderr.contains("does not fit"), "{refused:?}");
}

#[test]
fn shipped_configurations_fit_their_gpus() {
    let dir = TestFolder::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    for task in ["asr", "tts"] {
        for (tier, gpus) in [
            ("standard", &["rtx 3090", "24GiB"][..]),
            ("memory_optimized", &["t4", "16GiB", "rtx 3060", "12GiB"]),
            ("extreme_memory_optimized", &["rtx 4060", "8GiB"]),
        ] {
            let file = format!("{configs}/{task}/{tier}.toml");
            let mut args = vec!["memtest", "--json", "--config", &file];
            gpus.iter().for_each(|gpu| args.extend(["--gpu", gpu]));
            let output = dir.run(&args);
            assert_eq!(output.code, Some(0), "{task}/{tier}: {output:?}");
        }
    }
}

#[test]
fn auto_selects_configuration_for_local_memory() {
    let dir = TestFolder::new();
    let output = dir.run(&["config", "print", "--config", "auto", "--task", "tts", "--json"]).success();
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(found["config"]["task"], "tts");
    assert!(found["from"]["training.remat"].as_str().unwrap().contains("configs/tts/"), "{}", found["from"]);
}

#[test]
fn verdict_for_a_gpu_does_not_depend_on_other_gpus() {
    let dir = TestFolder::new();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/asr/standard.toml");
    let verdicts = |gpus: &[&str]| {
        let mut args = vec!["memtest", "--json", "--config", config];
        gpus.iter().for_each(|gpu| args.extend(["--gpu", gpu]));
        let found: Value = serde_json::from_str(&dir.run(&args).stdout).unwrap();
        found["cards"].as_array().unwrap().clone()
    };
    // fp32, fp16 and bf16 are the fastest precisions of these.
    let gpus = ["p100", "t4", "rtx 4090"];
    let alone: Vec<Value> = gpus.iter().flat_map(|gpu| verdicts(&[gpu])).collect();
    assert_eq!(verdicts(&gpus), alone);
    let reversed: Vec<Value> = verdicts(&["rtx 4090", "t4", "p100"]).into_iter().rev().collect();
    assert_eq!(reversed, alone);
}

#[test]
fn every_command_accepts_the_cpu_backend() {
    let dir = TestFolder::new();
    for command in [
        "train",
        "transcribe",
        "say",
        "eval",
        "export",
        "runs list",
        "runs show",
        "runs compare",
        "model info",
        "memtest",
        "optimize",
        "gpu-info",
        "data import",
        "data check",
        "data stats",
        "data bench",
        "data cache",
        "corpus make",
        "config print",
        "config validate",
        "config path",
    ] {
        let args: Vec<&str> = command.split(' ').chain(["--backend", "cpu", "--help"]).collect();
        let output = dir.run(&args);
        assert_eq!(output.code, Some(0), "{command}: {output:?}");
    }
    dir.run(&["gpu-info", "--backend", "cpu"]).success();
    dir.run(&["runs", "list", ".", "--backend=cpu"]).success();
}

#[test]
fn gpu_info_prints_host_and_gpus() {
    let dir = TestFolder::new();
    let output = dir.run(&["gpu-info"]).success();
    assert!(output.stdout.contains("host: ") && output.stdout.contains("GPU"), "{output:?}");
    let found: Value = serde_json::from_str(&dir.run(&["gpu-info", "--json"]).success().stdout).unwrap();
    assert!(found["host"]["memory"].as_u64().unwrap() > 0, "{found}");
}
