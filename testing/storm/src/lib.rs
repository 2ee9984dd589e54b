//! Accidents of a run under MPI, drawn by a seed: processes are killed, stand still or are slow, the disk is full, memory is
//! refused, and one process cannot read one of the files.
//!
//! After each accident that ends the run it goes on from its last checkpoint. At its end the record must name the same
//! batches in the same order as that of a calm run, and the weights must be the same to the last bit: so no utterance is lost
//! or used twice. No wait may last longer than its limit.
#![cfg(target_os = "linux")]

mod accident;
mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub use crate::accident::{Accident, Dice};
use crate::cluster::{Cluster, Launcher};

/// Time in which a run makes its first step, and in which all end after an accident.
const START: Duration = Duration::from_secs(120);
/// Time in which all processes end after one was killed: `mpirun` waits for a second before it kills the others.
const END: Duration = Duration::from_secs(20);
/// The same after one that hangs: it is missed after a minute.
const END_AFTER_HANG: Duration = Duration::from_secs(90);
/// Memory that a process still gets when it is refused more.
const LAST_MEMORY: u64 = 4 << 20;
/// Steps between two checkpoints.
const CHECKPOINT: u64 = 5;
/// The disturbed run.
const STORMY: &str = "stormy";
/// Starts after which a storm gives up.
const STARTS_MAX: usize = 200;
/// Files that one process cannot read: the end of their paths. Some of them are always its own.
const BROKEN: &str = "7.wav";

/// A storm: a run and its accidents.
#[derive(Clone, Debug)]
pub struct Storm {
    /// The program `plimsoll`, built with MPI.
    pub program: PathBuf,
    /// The library `bad-disk`.
    pub bad_disk: PathBuf,
    /// An empty folder for corpus and runs.
    pub folder: PathBuf,
    /// The launcher and its options, such as `mpirun -n 4`.
    pub launcher: Vec<String>,
    /// Number of processes that the launcher starts.
    pub ranks: usize,
    /// Steps of the run.
    pub steps: u64,
    /// Seed of the accidents.
    pub seed: u64,
    /// Whether a process also hangs for longer than the others wait: a minute each time.
    pub with_hang: bool,
}

/// What a storm came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Accidents by kind, as far as they reached a process.
    pub accidents: BTreeMap<String, usize>,
    /// How often the run was started.
    pub starts: usize,
    /// Longest time from an accident to the end of all processes.
    pub longest_end: Duration,
    /// Steps that were done again, since they came after the last checkpoint.
    pub repeated: u64,
}

impl Storm {
    /// Makes the calm run and the disturbed one, and compares them. `tell` is called with each thing that happens.
    ///
    /// # Errors
    /// If a process waits for longer than its limit, a batch is lost or used twice, or the weights differ.
    pub fn run(&self, tell: &mut dyn FnMut(&str)) -> Result<Report> {
        let launcher = Launcher {
            words: self.launcher.clone(),
            program: self.program.clone(),
            folder: self.folder.clone(),
            bad_disk: self.bad_disk.clone(),
        };
        let corpus = ["corpus", "make", "--out", "corpus", "--utterances", "96", "--speakers", "4"];
        let made = std::process::Command::new(&self.program).args(corpus).current_dir(&self.folder).output()?;
        ensure!(made.status.success(), "no corpus: {}", String::from_utf8_lossy(&made.stderr));
        self.give_orders(&launcher, "")?;

        tell("the calm run");
        let mut calm = launcher.start(&self.train("calm"))?;
        let limit = START + Duration::from_secs(10) * u32::try_from(self.steps)?;
        let status = calm.end(limit)?;
        ensure!(status.success(), "the calm run has failed\n{}", calm.text());

        let report = self.disturb(&launcher, tell)?;
        let (calm, stormy) = (self.positions("calm")?, self.positions(STORMY)?);
        ensure!(calm.steps == stormy.steps, "the batches differ:\n{:?}\n{:?}", calm.steps, stormy.steps);
        let weights = |run: &str| fs::read(self.run_folder(run).join(self.checkpoint(self.steps)));
        ensure!(weights("calm")? == weights(STORMY)?, "the weights differ");
        tell("files that one process cannot read");
        self.break_file(&launcher)?;
        Ok(Report { repeated: stormy.repeated, ..report })
    }

    /// Lets the last process fail to read some files: from the start, which is refused, and from the first step on, where their
    /// utterances are left out and named.
    fn break_file(&self, launcher: &Launcher) -> Result<()> {
        let orders = format!("{} broken {BROKEN}\n", self.ranks - 1);
        self.give_orders(launcher, &orders)?;
        let mut refused = launcher.start(&self.train("refused"))?;
        let status = refused.end(START)?;
        let says = refused.text();
        ensure!(!status.success() && says.contains("the data differs on rank"), "a start was not refused\n{says}");

        self.give_orders(launcher, "")?;
        let mut broken = launcher.start(&self.train("broken"))?;
        let is_running = broken.wait_until(START, || self.last_step("broken").is_some())?;
        self.give_orders(launcher, &orders)?;
        let status = broken.end(START + Duration::from_secs(self.steps))?;
        let record = fs::read_to_string(self.run_folder("broken").join("metrics.jsonl"))?;
        let is_named = record.lines().any(|line| line.contains("left_out") && line.contains("Input/output error"));
        ensure!(is_running && status.success() && is_named, "an utterance is lost without a word\n{}", broken.text());
        ensure!(self.last_step("broken") == Some(self.steps), "the run with a broken file is not complete");
        Ok(())
    }

    /// Starts the disturbed run again and again, until it is complete.
    fn disturb(&self, launcher: &Launcher, tell: &mut dyn FnMut(&str)) -> Result<Report> {
        let (mut dice, mut report, mut row) = (Dice::new(self.seed), Report::default(), Vec::new());
        loop {
            ensure!(report.starts < STARTS_MAX, "the run does not come to its end in {STARTS_MAX} starts");
            let mut cluster = launcher.start(&self.arguments(report.starts))?;
            report.starts += 1;
            let first = self.last_step(STORMY);
            let begins = |step: Option<u64>| step.is_some() && step != first;
            let goes_on = cluster.wait_until(START, || begins(self.last_step(STORMY)))?;
            let mut ended = !goes_on;
            while !ended {
                if row.is_empty() {
                    row = dice.accidents(self.ranks, self.with_hang);
                }
                let (accident, rank) = row.pop().context("a row of accidents is never empty")?;
                std::thread::sleep(dice.time(50, 1500));
                ended = self.happen(accident, rank, launcher, &mut cluster, &mut report, tell)?;
            }
            let status = cluster.end(END)?;
            self.give_orders(launcher, "")?;
            tell(&format!("step {}: {}", self.last_step(STORMY).unwrap_or(0), last_words(&cluster.text())));
            if status.success() && self.last_step(STORMY) == Some(self.steps) {
                return Ok(report);
            }
        }
    }

    /// Lets an accident happen. Returns whether the run has ended.
    fn happen(
        &self,
        accident: Accident,
        rank: usize,
        launcher: &Launcher,
        cluster: &mut Cluster,
        report: &mut Report,
        tell: &mut dyn FnMut(&str),
    ) -> Result<bool> {
        let began = Instant::now();
        let reached = cluster.process(rank).is_some();
        let reached = reached
            && match accident {
                Accident::Kill => cluster.signal(rank, "KILL")?,
                Accident::Stop(time) => {
                    let stopped = cluster.signal(rank, "STOP")?;
                    std::thread::sleep(time);
                    cluster.signal(rank, "CONT")? && stopped
                }
                Accident::Hang => cluster.signal(rank, "STOP")?,
                Accident::Slow(time) => cluster.slow(rank, time).map(|()| true)?,
                Accident::FullDisk(time) => {
                    self.give_orders(launcher, "0 full /runs/\n")?;
                    std::thread::sleep(time);
                    self.give_orders(launcher, "").map(|()| true)?
                }
                Accident::NoMemory => cluster.limit_memory(rank, LAST_MEMORY)?,
            };
        if !reached {
            // It has just ended by itself.
            return Ok(true);
        }
        let kind = format!("{accident:?}");
        *report.accidents.entry(kind.split('(').next().unwrap_or_default().into()).or_default() += 1;
        tell(&format!("step {}: process {rank} {accident}", self.last_step(STORMY).unwrap_or(0)));
        if accident.is_survived() {
            return Ok(false);
        }
        let limit = if accident == Accident::Hang { END_AFTER_HANG } else { END + END };
        cluster.end(limit)?;
        report.longest_end = report.longest_end.max(began.elapsed());
        Ok(true)
    }

    /// Orders what the disks of the processes do.
    fn give_orders(&self, launcher: &Launcher, orders: &str) -> Result<()> {
        let (file, new) = (launcher.orders(), self.folder.join("new-orders.txt"));
        fs::write(&new, orders)?;
        fs::rename(new, file).context("cannot order the disk")
    }

    /// Returns the arguments of start `start` of the disturbed run.
    fn arguments(&self, start: usize) -> Vec<&'static str> {
        let has_checkpoint =
            self.run_folder(STORMY).join("checkpoints").read_dir().is_ok_and(|mut all| all.next().is_some());
        match start > 0 && has_checkpoint {
            true => vec!["train", "--resume", "runs/stormy"],
            false => self.train(STORMY),
        }
    }

    /// Returns the arguments that begin a run.
    fn train(&self, name: &'static str) -> Vec<&'static str> {
        // Each value that is not text here is leaked once for a run, which is nothing.
        let steps = format!("training.steps={}", self.steps).leak();
        let interval = format!("training.checkpoint_interval={CHECKPOINT}").leak();
        let _ = fs::remove_dir_all(self.run_folder(name));
        let mut args = vec!["train", "--name", name, "--data", "corpus", "--set", steps, "--set", interval];
        for value in [
            "data.batch_size=24",
            "data.cache_memory=0",
            "data.unusable_share=0.5",
            "model.d_model=192",
            "model.encoder_layers=6",
            "training.schedule=constant",
            "training.warmup_steps=3",
            "training.validation_interval=25",
        ] {
            args.extend(["--set", value]);
        }
        args
    }

    fn run_folder(&self, run: &str) -> PathBuf {
        self.folder.join("runs").join(run)
    }

    /// Returns the path of the weights of a step within a run's folder.
    fn checkpoint(&self, step: u64) -> PathBuf {
        Path::new("checkpoints").join(format!("step-{step:07}")).join("weights.safetensors")
    }

    /// Returns the last step that a run has recorded.
    fn last_step(&self, run: &str) -> Option<u64> {
        self.positions(run).ok()?.steps.last_key_value().map(|(&step, _)| step)
    }

    /// Reads which batch each step of a run had. A step that was done again counts as it was done last.
    fn positions(&self, run: &str) -> Result<Positions> {
        let text = fs::read_to_string(self.run_folder(run).join("metrics.jsonl"))?;
        let mut found = Positions::default();
        for line in text.lines() {
            // The last line may be written just now, or be cut off by an accident.
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            if value["event"] == "step" {
                let step = value["step"].as_u64().context("a step without a number")?;
                let what = format!("{} {} {}", value["position"], value["loss"], value["frames"]);
                found.repeated += u64::from(found.steps.insert(step, what).is_some());
            }
        }
        Ok(found)
    }
}

/// The steps of a record.
#[derive(Default)]
struct Positions {
    /// Batch, loss and frames of each step.
    steps: BTreeMap<u64, String>,
    /// Steps that were done more than once.
    repeated: u64,
}

/// Returns the sentence with which a run ended.
fn last_words(text: &str) -> &str {
    let is_reason = |line: &&str| line.contains("replica") || line.starts_with("error") || line.contains("signal");
    text.lines().rev().find(is_reason).or_else(|| text.lines().last()).unwrap_or("").trim()
}
