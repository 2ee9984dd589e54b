//! Signals: the first stops a run in order, the second at once.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use plimsoll_core::{EndKind, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::program::{ProgramOutput, SMALL, TestFolder};

/// Longest time to wait for a run; far longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `child` has written `lines` lines into its record.
pub(crate) fn wait_for_lines(child: &mut Child, record: &Path, lines: usize) {
    let start = Instant::now();
    while !record.exists() || std::fs::read_to_string(record).unwrap().lines().count() < lines {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && start.elapsed() < PATIENCE, "{ended:?}: no {lines} lines in {}", record.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to `child`.
pub(crate) fn signal(child: &Child, signal: i32) {
    let status = std::process::Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Every signal that asks a run to stop saves a checkpoint, from which the run goes on. A terminal that closes sends SIGHUP
/// more than once.
#[test]
fn every_stop_signal_saves() {
    let dir = TestFolder::new();
    for (name, signals, code) in [
        ("int", &[SIGINT][..], 130),
        ("term", &[SIGTERM], 143),
        ("hup", &[SIGHUP], 129),
        ("hups", &[SIGHUP, SIGHUP, SIGHUP], 129),
        ("term-hup", &[SIGTERM, SIGHUP], 129),
    ] {
        let mut child = dir.start(&[&["train"], SMALL, &["--name", name, "--steps", "100000"]].concat());
        wait_for_lines(&mut child, &dir.path(&format!("runs/{name}/metrics.jsonl")), 3);
        signals.iter().for_each(|&number| signal(&child, number));
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        let stopped = output.stderr.lines().find_map(|line| line.strip_prefix("Stopped after step "));
        let step = stopped.unwrap_or_else(|| panic!("{name}: {output:?}")).split('.').next().unwrap().to_string();
        // Signals that come together may arrive in any order.
        assert!(output.code == Some(code) || signals.len() > 1 && output.code > Some(128), "{name}: {output:?}");
        assert!(dir.path(&format!("runs/{name}/checkpoints/step-{step:0>7}/state.json")).exists(), "{name}: {step}");
    }
}

#[test]
fn hangup_is_ignored_under_nohup() {
    let dir = TestFolder::new();
    let program = dir.command(&[]).get_program().to_string_lossy().into_owned();
    let train = [&["train"], SMALL, &["--name", "r", "--steps", "100000"]].concat().join(" ");
    let script = format!("trap '' HUP; exec {program} {train}");
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir.path(""))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let record = dir.path("runs/r/metrics.jsonl");
    wait_for_lines(&mut child, &record, 2);
    signal(&child, SIGHUP);
    let lines = std::fs::read_to_string(&record).unwrap().lines().count();
    wait_for_lines(&mut child, &record, lines + 3);
    signal(&child, SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn first_interrupt_saves_and_prints_resume_command() {
    let dir = TestFolder::new();
    let mut child = dir.start(&[&["train"], SMALL, &["--name", "r", "--steps", "100000"]].concat());
    wait_for_lines(&mut child, &dir.path("runs/r/metrics.jsonl"), 3);
    signal(&child, SIGINT);
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    assert_eq!(output.code, Some(130), "{output:?}");
    let stopped =
        output.stderr.lines().find(|line| line.starts_with("Stopped after step")).expect(&output.stderr).to_string();
    assert!(stopped.ends_with("To continue: plimsoll train --resume runs/r"), "{stopped}");
    let step: u64 = stopped.split_whitespace().nth(3).unwrap().trim_end_matches('.').parse().unwrap();
    assert!(dir.path(&format!("runs/r/checkpoints/step-{step:07}/state.json")).exists());
    let more = (step + 2).to_string();
    let output = dir.run(&["train", "--resume", "runs/r", "--steps", &more]).success();
    assert!(output.stderr.contains(&format!("Going on after step {step}")), "{}", output.stderr);
    assert_eq!(dir.json("runs/r/summary.json")["steps"], step + 2);
}

/// The first micro-batch of a large model takes longer than a person waits. Nothing is lost when the process ends in it.
#[test]
fn a_signal_in_the_first_micro_batch_ends_the_run_in_order() {
    let dir = TestFolder::new();
    let slow = ["--set", "model.d_model=768", "--set", "model.encoder_layers=12", "--set", "data.batch_size=18"];
    let mut child = dir.start(&[&["train"], SMALL, &["--steps", "100000", "--name", "r"], &slow].concat());
    let record = dir.path("runs/r/metrics.jsonl");
    wait_for_lines(&mut child, &record, 0);
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, SIGTERM);
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    assert_eq!(output.code, Some(143), "{output:?}");
    assert!(output.stderr.contains("To continue: plimsoll train --resume runs/r"), "{}", output.stderr);
    let records = plimsoll_monitor::read_records(&record).unwrap();
    let is_stopped = |event: &Event| matches!(event, Event::Ended { end: EndKind::Stopped, .. });
    assert!(records.last().is_some_and(|record| is_stopped(&record.event)), "{records:?}");
    let list = dir.run(&["runs", "list"]).success().stdout;
    assert!(list.contains("stopped"), "{list}");
}

#[test]
fn a_signal_ends_a_trial_while_it_plans() {
    let dir = TestFolder::new();
    for command in ["profile", "stress"] {
        let child = dir.start(&[&[command], SMALL, &["--set", "model.d_model=512"]].concat());
        std::thread::sleep(Duration::from_millis(500));
        signal(&child, SIGINT);
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        assert_eq!(output.code, Some(130), "{command}: {output:?}");
        let runs = dir.path("runs");
        assert!(!runs.exists() || crate::program::names(&runs).is_empty(), "{command}");
    }
}

#[test]
fn second_interrupt_exits_at_once() {
    let dir = TestFolder::new();
    // One step of this model takes long enough for two signals to arrive within it.
    let slow = ["--set", "model.d_model=512", "--set", "model.encoder_layers=8", "--set", "data.batch_size=18"];
    let mut child = dir.start(&[&["train"], SMALL, &["--steps", "100000", "--name", "r"], &slow].concat());
    wait_for_lines(&mut child, &dir.path("runs/r/metrics.jsonl"), 0);
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, SIGINT);
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    assert_eq!(output.code, Some(130), "{output:?}");
    assert!(!output.stderr.contains("Stopped after step"), "it finished its step first: {}", output.stderr);
}
