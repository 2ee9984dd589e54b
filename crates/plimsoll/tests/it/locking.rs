//! One process for each run: a second one is refused, and a dead one keeps nothing.

use signal_hook::consts::SIGTERM;

use crate::program::{ProgramOutput, SMALL, TestFolder};
use crate::stopping::{signal, wait_for_lines};

const LONG: &[&str] = &["--steps", "100000", "--epochs", "100000"];

fn refused(dir: &TestFolder, args: &[&str], expected: &str) {
    let output = dir.run(args);
    assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
    assert!(output.stderr.contains(expected), "{args:?}: {}", output.stderr);
    // It is refused before the plan.
    assert!(!output.stderr.contains("What will happen"), "{args:?}: {}", output.stderr);
}

#[test]
fn second_process_on_run_is_refused_until_first_ends() {
    let dir = TestFolder::new();
    let mut child = dir.start(&[&["train"], SMALL, &["--name", "r"], LONG].concat());
    wait_for_lines(&mut child, &dir.path("runs/r/metrics.jsonl"), 2);
    let holder = format!("in use by process {} on ", child.id());
    let config = std::fs::read(dir.path("runs/r/config.toml")).unwrap();
    for run in ["runs/r", "r", "./runs/r"] {
        refused(&dir, &["train", "--resume", run, "--seed", "5"], &holder);
    }
    refused(&dir, &[&["train"], SMALL, &["--name", "r"]].concat(), "there is a run in runs/r already");
    assert_eq!(std::fs::read(dir.path("runs/r/config.toml")).unwrap(), config);
    // A plan alone writes nothing, and needs no lock.
    dir.run(&["train", "--resume", "runs/r", "--dry-run"]).success();
    assert!(dir.run(&["runs", "list"]).success().stdout.contains("running"));
    signal(&child, SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(dir.run(&["runs", "list"]).success().stdout.contains("stopped"));
    dir.run(&["train", "--resume", "r", "--steps", "1"]).success();
}

#[test]
fn killed_run_is_stopped_and_free_at_once() {
    let dir = TestFolder::new();
    let mut child = dir.start(&[&["train"], SMALL, &["--name", "r"], LONG].concat());
    wait_for_lines(&mut child, &dir.path("runs/r/metrics.jsonl"), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(dir.run(&["runs", "list"]).success().stdout.contains("stopped"));
    dir.run(&["train", "--resume", "runs/r", "--steps", "1", "--epochs", "1"]).success();
}

#[test]
fn runs_with_one_name_started_together_do_not_mix() {
    let dir = TestFolder::new();
    dir.train(&["--name", "warm", "--steps", "1"]).success();
    let args = [&["train"], SMALL, &["--name", "r", "--steps", "3"]].concat();
    let children: Vec<_> = (0..4).map(|_| dir.start(&args)).collect();
    let outputs: Vec<ProgramOutput> =
        children.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect();
    let done = outputs.iter().filter(|output| output.code == Some(0)).count();
    assert_eq!(done, 1, "{outputs:?}");
    for output in outputs.iter().filter(|output| output.code != Some(0)) {
        assert_eq!(output.code, Some(2), "{output:?}");
        let is_known =
            ["in use by", "there is a run in runs/r already"].iter().any(|text| output.stderr.contains(text));
        assert!(is_known, "{}", output.stderr);
    }
    let record = std::fs::read_to_string(dir.path("runs/r/metrics.jsonl")).unwrap();
    assert_eq!(record.lines().filter(|line| line.contains("\"event\":\"step\"")).count(), 3, "{record}");
    // Without a name, each gets a number of its own.
    let args = [&["train"], SMALL, &["--steps", "1"]].concat();
    let children: Vec<_> = (0..4).map(|_| dir.start(&args)).collect();
    for child in children {
        ProgramOutput::from(child.wait_with_output().unwrap()).success();
    }
    assert!((1..=4).all(|number| dir.path(&format!("runs/asr-{number}/summary.json")).exists()));
}

#[test]
fn impossible_resume_is_refused_before_the_plan() {
    let dir = TestFolder::new();
    dir.train(&["--name", "r", "--steps", "1"]).success();
    refused(&dir, &["train", "--resume", "r", "--seed", "5"], "the run began with seed 17, and would go on with 5");
    refused(&dir, &["train", "--resume", "r", "--d-model", "24"], "`model.d_model` 16, and would go on with 24");
    refused(&dir, &[&["train"], SMALL, &["--name", "r"]].concat(), "there is a run in runs/r already");
    refused(&dir, &["train", "--resume", "nowhere"], "there is no run in nowhere");
}
