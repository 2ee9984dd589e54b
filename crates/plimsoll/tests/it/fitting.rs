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
fn memtest_distinguishes_as_written_from_at_best() {
    let dir = TestFolder::new();
    let fixed = ["--gpu", "552MiB", "--set", "training.micro_batch=8"];
    let (code, found) = verdict(&dir, &fixed);
    assert_eq!(code, Some(0));
    let gpu = &found["cards"][0];
    assert_eq!(
        (&gpu["fits"], &gpu["as_written"]["fits"], &gpu["at_best"]["fits"]),
        (&Value::Bool(true), &Value::Bool(false), &Value::Bool(true))
    );
    assert_eq!(gpu["plan"], gpu["at_best"]["plan"]);
    let output = dir.run(&[&["memtest"], &fixed[..], TOY].concat());
    assert!(output.stdout.contains("as written it does not fit: "), "{output:?}");
}

#[test]
fn memtest_exits_3_and_names_what_would_fit() {
    let dir = TestFolder::new();
    let fixed =
        ["--set", "training.optimizer_state=full", "--set", "model.d_model=512", "--set", "model.encoder_layers=12"];
    let (mut advised, mut refused) = (0, 0);
    for size in ["514MiB", "900MiB", "1300MiB"] {
        let args = [&["--gpu", size, "--set", "training.precision=fp32"], &fixed[..]].concat();
        let (code, found) = verdict(&dir, &args);
        let gpu = &found["cards"][0];
        if gpu["fits"] == true {
            assert_eq!(code, Some(0));
            continue;
        }
        assert_eq!((code, &gpu["plan"]), (Some(3), &Value::Null));
        assert!(gpu["reason"].is_string());
        refused += 1;
        advised += usize::from(gpu["remedy"]["changes"][0]["kind"].is_string());
    }
    assert!(refused > 0, "nothing was refused");
    assert!(advised < refused, "less memory than the context of a GPU fits nothing");
    let output = dir.run(&[&["memtest", "--gpu", "514MiB"], &fixed[..], TOY].concat());
    assert!(output.stdout.contains("does not fit: a micro-batch of "), "{output:?}");
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
        (&["optimize", "--gpu", "8GiB", "--output", "o.yaml"], "name a file that ends in .toml"),
    ] {
        let output = dir.run(args);
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(expected), "{args:?}: {output:?}");
    }
}

/// Sizes that no host could trace are refused with the key that decides them. None panics, aborts or takes long.
#[test]
fn sizes_that_cannot_be_planned_are_refused() {
    let dir = TestFolder::new();
    for (task, set, key) in [
        ("asr", "data.max_seconds=1e4", "data.max_seconds"),
        ("asr", "data.max_seconds=86400", "data.max_seconds"),
        ("asr", "data.max_seconds=1e9", "data.max_seconds"),
        ("tts", "data.max_seconds=1e30", "data.max_seconds"),
        ("asr", "data.frame_grid=100000000", "data.frame_grid"),
        ("tts", "data.frame_grid=4294967295", "data.frame_grid"),
        ("asr", "data.batch_size=4294967295", "data.batch_size"),
        ("tts", "data.batch_size=70000", "data.batch_size"),
        ("vocoder", "data.batch_size=4294967295", "data.batch_size"),
        ("asr", "data.batch_seconds=1e30", "data.batch_seconds"),
        ("vocoder", "data.crop_seconds=1e6", "data.crop_seconds"),
        ("asr", "features.n_mels=1", "features"),
    ] {
        for command in [&["memtest", "--gpu", "8GiB"][..], &["optimize", "--gpu", "8GiB", "--output", "o.toml"]] {
            let output = dir.run(&[command, &["--task", task, "--set", set]].concat());
            assert_eq!(output.code, Some(2), "{command:?} {set}: {output:?}");
            assert!(output.stderr.contains(key), "{command:?} {set}: {output:?}");
        }
    }
    assert!(!dir.path("o.toml").exists());
}

#[test]
fn predicted_memory_is_near_measured() {
    let dir = TestFolder::new();
    let args =
        ["memtest", "--verify", "--batch", "3", "--frames", "400", "--tokens", "30", "--remat", "half", "--json"];
    let mut predicted = Vec::new();
    for frozen in ["[]", "['subsampling', 'blocks.0']", "['blocks', 'output']", "['subsampling', 'blocks']"] {
        let frozen = format!("training.freeze={frozen}");
        let output = dir.run(&[&args, TOY, &["--set", &frozen]].concat()).success();
        let found: Value = serde_json::from_str(&output.stdout).unwrap();
        let case = &found["cases"][0];
        let bytes = |key: &str| case[key].as_f64().unwrap();
        let error = bytes("predicted_bytes") / bytes("measured_bytes") - 1.0;
        // The whole matrix is in docs/log/memory-accuracy.md, "What autodiff keeps for an operation". In a model this
        // small, a larger share of the memory is not tensors. A model whose encoder is frozen is planned 6.7 % too large since attention on
        // the CPU makes no tensor of all scores.
        assert!(error > -0.04 && error < 0.08, "{frozen}: {case}");
        assert!(bytes("fixed_bytes") > 0.0 && bytes("fixed_bytes") < bytes("measured_bytes"));
        predicted.push(bytes("predicted_bytes"));
    }
    // What is computed first needs no gradient at all if it is frozen.
    assert!(
        predicted[1..].iter().all(|frozen| *frozen < predicted[0]) && predicted[3] < 0.6 * predicted[0],
        "{predicted:?}"
    );
}

#[test]
fn optimize_writes_configuration_that_fits() {
    let dir = TestFolder::new();
    let model = "[model]\nd_model = 256\nvocabulary = 40\n\n[training]\nepochs = 1\n";
    dir.write(
        "run.toml",
        format!("# mine\n[data]\nbatch_size = 64\nmax_seconds = 20\n\n{model}micro_batch = 64\nremat = \"none\"\n"),
    );
    let output = dir.run(&["optimize", "--config", "run.toml", "--output", "less.toml", "--gpu", "3GiB"]).success();
    assert!(
        output.stdout.contains("effective batch unchanged") && output.stdout.contains(" = \"auto\"  # optimize: "),
        "{output:?}"
    );
    let text = std::fs::read_to_string(dir.path("less.toml")).unwrap();
    assert!(text.starts_with("# mine\n[data]\nbatch_size = 64\n") && text.contains("# optimize: "), "{text}");
    let fits = dir.run(&["memtest", "--json", "--config", "less.toml", "--gpu", "3GiB"]).success();
    let fits: Value = serde_json::from_str(&fits.stdout).unwrap();
    assert_eq!(fits["cards"][0]["as_written"]["fits"], true, "{fits}");
    let again = dir.run(&["optimize", "--config", "less.toml", "--output", "same.toml", "--gpu", "3GiB"]).success();
    assert!(again.stdout.contains("no change is needed"), "{again:?}");
    let refused = dir.run(&["optimize", "--config", "run.toml", "--output", "none.toml", "--gpu", "530MiB"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!dir.path("none.toml").exists() && refused.stderr.contains("does not fit"), "{refused:?}");
}

#[test]
fn memtest_and_dry_run_plan_the_same() {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "speech", "--utterances", "24", "--speakers", "4"]).success();
    for (gpu, more) in [
        ("1GiB", &[][..]),
        ("t4", &["--set", "training.remat=2"]),
        ("700MiB", &["--set", "training.micro_batch=8", "--max-memory", "90%"]),
    ] {
        let flags = [&["--manifest", "speech/manifest.jsonl"], more].concat();
        let found = dir.run(&[&["memtest", "--json", "--gpu", gpu], &flags[..]].concat()).success();
        let found: Value = serde_json::from_str(&found.stdout).unwrap();
        let peak = found["cards"][0]["peak_bytes"].as_u64().unwrap();
        let plan = dir.run(&[&["train", "--dry-run", "--gpu", gpu], &flags[..]].concat()).success();
        let peak = plimsoll_core::Bytes(peak).to_string();
        assert!(plan.stderr.contains(&format!("about {peak}")), "{gpu}: {peak}: {plan:?}");
        assert!(plan.stderr.contains("device"), "{plan:?}");
    }
    assert!(!dir.path("runs").exists());
}

/// Returns the number of MiB after `before` in `text`, if it is there.
fn mebibytes_after(before: &str, text: &str) -> Option<f64> {
    let mut words = text.split_once(before)?.1.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    Some(number * if words.next()?.starts_with("GiB") { 1024.0 } else { 1.0 })
}

/// On the CPU the process needs memory beside the model, so small limits show whether all commands count it.
#[test]
fn commands_plan_the_same_on_the_cpu() {
    let (fitting, refused) = plan_with_all_commands(&[
        ("toy_asr", &["40MiB", "160MiB"], &[]),
        ("toy_asr", &["70MiB"], &["--set", "model.conv_norm=batch"]),
        ("toy_tts", &["150MiB"], &["--set", "training.micro_batch=4"]),
    ]);
    assert!(fitting > 1 && refused > 0, "{fitting} fit and {refused} do not");
}

#[test]
fn long_commands_plan_the_same_on_the_cpu() {
    let (fitting, refused) = plan_with_all_commands(&[
        ("toy_asr", &["40MiB", "160MiB"], &[]),
        ("toy_asr", &["70MiB"], &["--set", "model.conv_norm=batch"]),
        ("toy_asr", &["110MiB"], &["--set", "device.replicas=2"]),
        ("toy_asr", &["100MiB"], &["--set", "training.micro_batch=4"]),
        ("toy_tts", &["150MiB", "300MiB"], &[]),
        ("toy_vocoder", &["300MiB"], &[]),
    ]);
    assert!(fitting > 7 && refused > 0, "{fitting} fit and {refused} do not");
}

/// Compares what `memtest`, `train` and `optimize` plan: for each configuration its memory limits, and further flags. Returns
/// how many limits are enough and how many are not.
fn plan_with_all_commands(cases: &[(&str, &[&str], &[&str])]) -> (usize, usize) {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "speech", "--utterances", "24", "--speakers", "4"]).success();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let (mut fitting, mut refused) = (0, 0);
    for &(config, limits, more) in cases {
        let config = format!("{configs}/{config}.toml");
        // The toys without a limit, too.
        for limit in limits.iter().map(Some).chain(more.is_empty().then_some(None)) {
            let limit: Vec<&str> = limit.map_or(vec![], |limit| vec!["--max-memory", limit]);
            let flags = [&["--config", &config, "--manifest", "speech/manifest.jsonl"], &limit[..], more].concat();
            let memtest = dir.run(&[&["memtest", "--gpu", "cpu"], &flags[..]].concat());
            let planned = dir.run(&[&["train", "--dry-run", "--gpu", "cpu"], &flags[..]].concat());
            let optimized =
                dir.run(&[&["optimize", "--force", "--output", "new.toml", "--gpu", "cpu"], &flags[..]].concat());
            let fits = mebibytes_after("fits, ", &memtest.stdout);
            assert_eq!(fits.is_some(), memtest.code == Some(0), "{memtest:?}");
            let all = [mebibytes_after("about ", &planned.stderr), mebibytes_after("threads: ", &optimized.stdout)];
            match fits {
                Some(peak) => {
                    fitting += 1;
                    // Each process has a little more or less in use, and its memory counts in whole MiB. `optimize` may change
                    // the configuration, and then fits otherwise.
                    let is_near = |found: Option<f64>| found.is_some_and(|found| (found - peak).abs() < 1.6);
                    assert!(is_near(all[0]), "{flags:?}: {memtest:?} and {planned:?}");
                    let is_kept = optimized.stdout.contains("no change is needed");
                    assert!(if is_kept { is_near(all[1]) } else { all[1].is_some() }, "{flags:?}: {optimized:?}");
                }
                None => {
                    refused += 1;
                    let codes = (memtest.code, planned.code, optimized.code);
                    assert_eq!(codes, (Some(3), Some(2), Some(3)), "{flags:?}: {memtest:?} and {planned:?}");
                }
            }
        }
    }
    (fitting, refused)
}

#[test]
fn optimize_keeps_the_effective_batch_of_accumulated_micro_batches() {
    let dir = TestFolder::new();
    dir.write(
        "run.toml",
        "[data]\nbatch_size = 16\nmax_seconds = 20\n[model]\nd_model = 256\nvocabulary = 40\n[training]\n\
         epochs = 1\ngradient_accumulation_steps = 4\nremat = \"all\"\n",
    );
    let output = dir.run(&["optimize", "--config", "run.toml", "--output", "less.toml", "--gpu", "850MiB"]).success();
    assert!(output.stdout.contains("+ batch_size = 64") && output.stdout.contains("\"auto\""), "{output:?}");
    let found = dir.run(&["memtest", "--json", "--config", "less.toml", "--gpu", "850MiB"]).success();
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["cards"][0]["plan"]["buckets"][0]["bucket"]["utterances"], 64, "{found}");
}

#[test]
fn optimize_and_memtest_name_the_same_smaller_model() {
    let dir = TestFolder::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/tts/normal.toml");
    let advice = |command: &[&str]| {
        let output = dir.run(&[command, &["--config", file, "--gpu", "4GiB"]].concat());
        let text = format!("{}{}", output.stdout, output.stderr);
        let line = text.lines().find(|line| line.contains("use the model of ")).map(str::to_string);
        let line = line.unwrap_or_else(|| panic!("{text}"));
        line.split_once("use the model of ").unwrap().1.to_string()
    };
    assert_eq!(advice(&["optimize", "--output", "less.toml"]), advice(&["memtest"]));
}

/// Checks that each shipped configuration of `task` for a size of memory fits the GPUs of that size.
fn check_shipped(task: &str, tiers: &[(&str, &[&str])]) {
    let dir = TestFolder::new();
    let configs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    for (tier, gpus) in tiers {
        let file = format!("{configs}/{task}/{tier}.toml");
        let mut args = vec!["memtest", "--json", "--config", &file];
        gpus.iter().for_each(|gpu| args.extend(["--gpu", gpu]));
        let output = dir.run(&args);
        assert_eq!(output.code, Some(0), "{task}/{tier}: {output:?}");
    }
}

#[test]
fn shipped_recognizers_fit_their_gpus() {
    check_shipped("asr", &[("memory_optimized", &["12GiB"]), ("extreme_memory_optimized", &["8GiB"])]);
}

#[test]
fn long_shipped_configurations_fit_all_their_gpus() {
    for task in ["asr", "tts"] {
        check_shipped(
            task,
            &[
                ("standard", &["rtx 3090", "24GiB"]),
                ("memory_optimized", &["t4", "16GiB", "rtx 3060", "12GiB"]),
                ("extreme_memory_optimized", &["rtx 4060", "8GiB"]),
            ],
        );
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
    let verdicts = |gpus: &[&str]| {
        let mut args = [&["memtest", "--json"], TOY].concat();
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
