//! A storm of accidents in one run: signals, kills, outputs that break, a second process, a pipe among the audio. The record
//! stays consistent, and the run ends with the weights of a run that nothing disturbed.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use plimsoll_core::Key;
use plimsoll_monitor::RunReport;
use signal_hook::consts::{SIGHUP, SIGKILL, SIGTERM};

use crate::program::{ProgramOutput, SMALL, TestFolder, names};
use crate::stopping::{signal, wait_for_lines};

/// Seed of the accidents.
const SEED: u64 = 22;
/// Limits that no session reaches.
const ENDLESS: &[&str] = &["--steps", "1000000", "--epochs", "1000000"];

/// Something that happens to a session of a run.
#[derive(Clone, Copy, Debug)]
enum Accident {
    /// A signal: SIGHUP, SIGTERM or SIGKILL.
    Signal(i32),
    /// Standard output and standard error are a pipe without a reader; SIGTERM ends the session.
    Pipe,
    /// Standard output and standard error are a full device; SIGTERM ends the session.
    Full,
    /// Another process resumes the same run; SIGTERM ends the session.
    SecondProcess,
    /// A pipe lies among the audio files; SIGTERM ends the session.
    PipeInAudio,
}

const ACCIDENTS: [Accident; 7] = [
    Accident::Signal(SIGHUP),
    Accident::Signal(SIGKILL),
    Accident::SecondProcess,
    Accident::Pipe,
    Accident::Signal(SIGTERM),
    Accident::Full,
    Accident::PipeInAudio,
];

/// Flags of a run on the corpus in `c`, with checkpoints so close that accidents meet them.
fn flags() -> Vec<&'static str> {
    let checkpoints = ["--set", "training.checkpoint_interval=10", "--set", "training.keep_checkpoints=2"];
    [&["--data", "c"], &SMALL[4..], &checkpoints[..]].concat()
}

/// Counts the lines of the run's record.
fn lines(record: &Path) -> usize {
    std::fs::read_to_string(record).map_or(0, |text| text.lines().count())
}

/// Starts a session of the run `k`, new or resumed, with both outputs into `output`.
fn start(dir: &TestFolder, output: impl Fn() -> Stdio) -> Child {
    let is_there = dir.path("runs/k/config.toml").exists();
    let args = match is_there {
        true => [&["train", "--resume", "k"], ENDLESS].concat(),
        false => [&["train", "--name", "k"], &flags()[..], ENDLESS].concat(),
    };
    dir.command(&args).stdout(output()).stderr(output()).spawn().unwrap()
}

/// Runs one session that meets `accident` after a number of events that `key` decides, and asserts how it ends.
fn session(dir: &TestFolder, accident: Accident, key: Key) {
    let record = dir.path("runs/k/metrics.jsonl");
    let fifo = dir.path("c/wavs/pipe.wav");
    if matches!(accident, Accident::PipeInAudio) {
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    }
    let before = lines(&record);
    let mut child = start(dir, || match accident {
        Accident::Pipe => Stdio::from(std::io::pipe().unwrap().1),
        Accident::Full => Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
        _ => Stdio::piped(),
    });
    // Most accidents come among the steps, some before the first.
    match key.at(0).below(5) {
        0 if !matches!(accident, Accident::SecondProcess) => {
            std::thread::sleep(Duration::from_millis(key.at(1).below(300)));
        }
        _ => wait_for_lines(&mut child, &record, before + 1 + key.at(1).below(12) as usize),
    }
    if matches!(accident, Accident::SecondProcess) {
        let second = dir.run(&[&["train", "--resume", "runs/k"], ENDLESS].concat());
        assert_eq!(second.code, Some(2), "{second:?}");
        assert!(second.stderr.contains(&format!("in use by process {} on ", child.id())), "{}", second.stderr);
    }
    let number = if let Accident::Signal(number) = accident { number } else { SIGTERM };
    signal(&child, number);
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    // Before the run begins, a signal ends the process as it ends any other.
    let codes = [None, Some(128 + number)];
    assert!(codes.contains(&output.code) && !output.stderr.contains("panicked"), "{accident:?}: {output:?}");
    if fifo.exists() {
        std::fs::remove_file(&fifo).unwrap();
    }
}

/// Lists the loss of each step of a run, as the record gives them after the rules of resuming.
fn losses(dir: &TestFolder, run: &str) -> Vec<(u64, f64)> {
    let report = RunReport::read(&dir.path(&format!("runs/{run}")), UNIX_EPOCH).unwrap();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    report.history.losses.thinned(usize::MAX).into_iter().map(|point| (point.step, point.loss)).collect()
}

/// Has one run meet `count` accidents, lets it end, and compares it with a run that nothing disturbed.
fn assert_survives(count: u64) {
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "24", "--speakers", "4"]).success();
    for number in 0..count {
        // Each kind in turn at first, then at random.
        let key = Key::new(SEED).at(number);
        let kind = if number < 7 { number } else { key.at(2).below(7) };
        session(&dir, ACCIDENTS[kind as usize], key);
    }
    let end = losses(&dir, "k").last().map_or(0, |(step, _)| *step) + 3;
    let (steps, end) = (end, end.to_string());
    let limits = ["--steps", &end, "--epochs", "1000000"];
    dir.run(&[&["train", "--resume", "k"], &limits[..]].concat()).success();
    dir.run(&[&["train", "--name", "whole"], &flags()[..], &limits].concat()).success();
    let (stormy, whole) = (losses(&dir, "k"), losses(&dir, "whole"));
    assert!(whole.iter().map(|(step, _)| *step).eq(1..=steps), "{whole:?}");
    assert_eq!(stormy, whole, "the record of the stormy run");
    let weights = |run: &str| {
        let checkpoints = dir.path(&format!("runs/{run}/checkpoints"));
        assert!(names(&checkpoints).iter().all(|name| !name.starts_with('.')), "{:?}", names(&checkpoints));
        std::fs::read(checkpoints.join(format!("step-{steps:07}/weights.safetensors"))).unwrap()
    };
    assert!(weights("k") == weights("whole"), "the weights differ");
    eprintln!("{count} accidents, {steps} steps: the same record and the same weights");
}

#[test]
fn run_survives_four_accidents() {
    assert_survives(4);
}

#[test]
fn long_storm_of_thirty_accidents_keeps_record_and_weights() {
    if std::env::var_os("PLIMSOLL_LONG").is_some() {
        assert_survives(30);
    }
}
