//! Culprits outside of the program: a slow disk, and another process that takes the processors. Each is named first.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

use plimsoll_core::{Event, Record, TimeOwner, TimeShares};
use serde_json::Value;

use crate::program::{SMALL, TestFolder};
use crate::tool::build_library;

/// Returns the times of the run by owner, and its number of steps.
fn times(dir: &TestFolder) -> (TimeShares, u64) {
    let (mut times, mut steps) = (TimeShares::default(), 0);
    for line in std::fs::read_to_string(dir.path("runs/asr-1/metrics.jsonl")).unwrap().lines() {
        let record: Record = serde_json::from_str(line).unwrap();
        if let Event::Step(step) = &record.event {
            times.add_all(&step.times);
            steps += 1;
        }
        if let Event::Ended { times: last, .. } = &record.event {
            times.add_all(last);
        }
    }
    (times, steps)
}

/// Checks that `owner` has most of the time, that the views of the run name it first, and that hardly any time is unknown.
fn check_first(dir: &TestFolder, times: &TimeShares, owner: TimeOwner) {
    assert_eq!(times.largest().map(|(owner, _)| owner), Some(owner), "{times:?}");
    assert!(times.share(TimeOwner::Unknown) <= 0.05, "{times:?}");
    let seen = dir.run(&["monitor", "--once", "--json", "--interval", "0.2", "--run", "asr-1"]).success();
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!(seen["verdict"]["owner"], owner.name(), "{seen}");
}

#[test]
fn long_a_slow_disk_is_named_first() {
    const DELAY_MS: u32 = 80;
    const BATCH: f64 = 6.0;
    let dir = TestFolder::new();
    dir.run(&["corpus", "make", "--out", "c", "--utterances", "40", "--speakers", "4"]).success();
    let flags = ["--data", "c", "--steps", "12", "--set", "data.num_workers=1", "--set", "data.cache_memory=0"];
    let mut train = dir.command(&[&["train"], SMALL, &flags, &["--set", "training.validation_interval=12"]].concat());
    train.env("LD_PRELOAD", build_library("bad-disk")).env("SLOW_DISK_MS", DELAY_MS.to_string());
    let output = train.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (times, steps) = times(&dir);
    check_first(&dir, &times, TimeOwner::Data);
    // While the disk is slow, the run does other work.
    let delayed = f64::from(DELAY_MS) / 1e3 * BATCH * steps as f64;
    let beside = times.total() - times.get(TimeOwner::Data);
    assert!(times.get(TimeOwner::Data) >= 0.8 * (delayed - beside), "{delayed}: {times:?}");
}

/// A process that computes until it is dropped.
struct Burner(Child);

impl Burner {
    fn start() -> Self {
        let mut command = Command::new("sh");
        Self(command.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn long_other_processes_that_take_the_cores_are_named_first() {
    /// Processes for each processor. The run gets at most a share of one in five.
    const EACH: usize = 4;
    let dir = TestFolder::new();
    let burners: Vec<Burner> = (0..EACH * available_parallelism().unwrap().get()).map(|_| Burner::start()).collect();
    dir.train(&["--steps", "150", "--set", "training.validation_interval=150"]).success();
    drop(burners);
    let (times, _) = times(&dir);
    check_first(&dir, &times, TimeOwner::OtherProcess);
    // The first second is not measured: the system's counts need an interval.
    let taken = EACH as f64 / (EACH + 1) as f64 * (times.total() - 1.5);
    assert!(times.get(TimeOwner::OtherProcess) >= 0.8 * taken, "{taken}: {times:?}");
}
