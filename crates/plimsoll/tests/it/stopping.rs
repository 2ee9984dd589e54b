//! Signals: the first ends in order, the second at once.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

use crate::program::{Place, SMALL, Said};

/// Long enough for any machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `child` has written `lines` into its record.
fn wait_for_lines(child: &mut Child, record: &Path, lines: usize) {
    let start = Instant::now();
    while !record.exists() || std::fs::read_to_string(record).unwrap().lines().count() < lines {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && start.elapsed() < PATIENCE, "{ended:?}: no {lines} lines in {}", record.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(child: &Child) {
    let status = std::process::Command::new("kill").args([format!("-{SIGINT}"), child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn one_interrupt_saves_and_says_how_to_go_on() {
    let place = Place::new();
    let mut child = place.start(&[&["train"], SMALL, &["--name", "r", "--steps", "100000"]].concat());
    wait_for_lines(&mut child, &place.path("runs/r/metrics.jsonl"), 3);
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let stopped = said.err.lines().find(|line| line.starts_with("Stopped after step")).expect(&said.err).to_string();
    assert!(stopped.ends_with("To go on: cargo xtask train --resume runs/r"), "{stopped}");
    let step: u64 = stopped.split_whitespace().nth(3).unwrap().trim_end_matches('.').parse().unwrap();
    assert!(place.path(&format!("runs/r/checkpoints/step-{step:07}/state.json")).exists());
    let more = (step + 2).to_string();
    let said = place.run(&["train", "--resume", "runs/r", "--steps", &more]).fine();
    assert!(said.err.contains(&format!("Going on after step {step}")), "{}", said.err);
    assert_eq!(place.json("runs/r/summary.json")["steps"], step + 2);
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    let place = Place::new();
    // One step of this takes long enough for two signals to arrive within it.
    let slow = ["--set", "model.d_model=512", "--set", "model.encoder_layers=8", "--set", "data.batch_size=18"];
    let mut child = place.start(&[&["train"], SMALL, &["--steps", "100000", "--name", "r"], &slow].concat());
    wait_for_lines(&mut child, &place.path("runs/r/metrics.jsonl"), 0);
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(100));
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(!said.err.contains("Stopped after step"), "it finished its step first: {}", said.err);
}
