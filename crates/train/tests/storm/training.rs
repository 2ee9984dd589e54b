//! A run of 300 steps with injected failures, its log, and the checks on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{
    BatchSource, Bytes, CountingAllocator, DeliveredBatch, HostBatch, Key, Measure, MemoryGate, OutOfMemory, Position,
    SourceError, Stage,
};
use plimsoll_tape::{NamedTensor, Pass, TensorBatch, collect};
use plimsoll_train::{
    CheckpointStore, Event, Governor, InferenceRunner, Limits, MicroBatch, Run, RunOptions, Schedule, Score, Trainer,
    TrainerConfig,
};

use crate::net::{Net, batch};

/// Number of steps in the run.
pub(crate) const STEPS: u64 = 300;
/// Number of utterances per step.
pub(crate) const BATCH: u64 = 16;
/// Number of batches per epoch.
pub(crate) const EPOCH: u64 = 30;

/// Settings of a test run with injected failures.
#[derive(Clone, Debug)]
pub(crate) struct StormSetup {
    pub(crate) device: Device,
    /// Whether the device reports failures only at a read.
    pub(crate) async_errors: bool,
    /// Number of micro-batches computed at the same time.
    pub(crate) lanes: usize,
    /// Hidden width of the model.
    pub(crate) width: usize,
    /// Frames of the shortest utterance of a batch; the longest has up to twice as many.
    pub(crate) frames: u64,
    /// Batches with long utterances, as `(n, frames)`: every n-th batch has them, and its shortest utterance has
    /// `frames` frames. `None`: no such batches.
    pub(crate) long: Option<(u64, u64)>,
    /// Number of steps between validations.
    pub(crate) validate_every: u64,
    /// Bursts of injected failures, `(n, i)`: of every n bursts of 150 memory checks, burst i has frequent failures.
    pub(crate) bursts: (u64, u64),
    /// Largest number of utterances that validation computes at once.
    pub(crate) validation_batch: usize,
}

impl StormSetup {
    /// Makes the batch after `position`.
    pub(crate) fn batch_at(&self, position: Position) -> HostBatch {
        let number = position.epoch * EPOCH + position.batch;
        let frames = match self.long {
            // Three lengths, so that limits for several lengths are learned.
            Some((every, frames)) if number % every == every - 1 => frames + frames * (number / every % 3) / 3,
            _ => self.frames,
        };
        batch(number * BATCH..(number + 1) * BATCH, frames)
    }

    /// Makes the validation data: unseen utterances of the greatest length.
    fn unseen(&self) -> HostBatch {
        batch(1_000_000..1_000_032, self.long.map_or(self.frames, |(_, frames)| frames))
    }
}

/// Endless source of batches with new samples.
struct Batches<'a>(&'a StormSetup, Position);

impl BatchSource for Batches<'_> {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let Self(setup, at) = self;
        let batch = setup.batch_at(*at);
        let done = at.batch + 1;
        let position = Position { epoch: at.epoch + done / EPOCH, batch: done % EPOCH, ..Position::default() };
        self.1 = position;
        Some(Ok(DeliveredBatch { batch, position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        EPOCH
    }
}

/// Memory gate that reports failures of the memory budget and injects more failures.
#[derive(Clone)]
pub(crate) struct Faults {
    inner: Option<&'static dyn MemoryGate>,
    bursts: (u64, u64),
    /// Number of failures still to be injected.
    pub(crate) left: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Faults {
    /// Makes a gate without failures.
    pub(crate) fn none() -> Self {
        Self { inner: None, bursts: (1, 0), left: Arc::default(), asked: Arc::default() }
    }

    /// Makes a memory gate with `count` injected failures, and with the failures that `inner` reports.
    pub(crate) fn random(setup: &StormSetup, inner: &'static dyn MemoryGate, count: usize) -> Self {
        Self { inner: Some(inner), bursts: setup.bursts, left: Arc::new(count.into()), asked: Arc::default() }
    }
}

impl MemoryGate for Faults {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        if let Some(inner) = self.inner {
            inner.check(stage)?;
        }
        let asked = self.asked.fetch_add(1, Relaxed) as u64;
        let key = Key::new(21);
        // Micro-batches fail in bursts; rare checks fail at any time.
        let (of, which) = self.bursts;
        let is_burst = asked / 150 % of == which;
        let often = match stage {
            Stage::Forward | Stage::Backward | Stage::Accumulate if is_burst => 8,
            Stage::Forward | Stage::Backward | Stage::Accumulate => 1000,
            Stage::Norm => 20,
            Stage::Validation => 3,
            Stage::Checkpoint => 1,
            // A failure in the update cannot be undone.
            Stage::Update => u64::MAX,
        };
        let hits = key.at(asked).below(often) == 0;
        let take = |left: usize| left.checked_sub(1);
        if hits && self.left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            return Err(OutOfMemory { stage, reason: "injected by the test".into() });
        }
        Ok(())
    }

    fn cleaned_up(&self) {
        if let Some(inner) = self.inner {
            inner.cleaned_up();
        }
    }
}

/// Results of a run with or without injected failures.
#[derive(Default)]
pub(crate) struct Log {
    /// Weights of the model after the last step.
    pub(crate) weights: Vec<NamedTensor>,
    /// Score of the last validation: the mean squared error of a frame.
    pub(crate) validation: f64,
    /// Peak memory of the run.
    pub(crate) peak: Bytes,
    /// Position in the data before each step, and the micro-batches of the step.
    ledger: Vec<(Position, Vec<MicroBatch>)>,
    failures: BTreeMap<Stage, usize>,
    /// Number of utterances in the largest micro-batch of each step.
    limits: Vec<usize>,
    /// Number of failed micro-batches of each step.
    lost: Vec<usize>,
    /// Number of failures of micro-batches, by step.
    failed: BTreeMap<u64, usize>,
    safety: f64,
    seconds: f64,
    reads: Vec<u32>,
    unfit: usize,
}

fn trainer(setup: &StormSetup, memory: &'static CountingAllocator, faults: Faults, governor: Governor) -> Trainer<Net> {
    let (lanes, async_errors) = (setup.lanes, setup.async_errors);
    let config = TrainerConfig { lanes, async_errors, ..TrainerConfig::new(Schedule::constant(2e-3), Key::new(1)) };
    Trainer::new(Net::new(setup.width, &setup.device.clone().autodiff()), config, governor).with_memory(faults, memory)
}

/// Computes the validation loss of `net`.
fn evaluate(setup: &StormSetup, net: &Net, runner: &mut InferenceRunner<'_>) -> Result<Score, String> {
    let net = net.valid();
    let batch = setup.unseen();
    let work = |part: &HostBatch| {
        let off = net.off(&TensorBatch::send(part, &setup.device), &Pass::plain());
        f64::from(off.into_scalar::<f32>())
    };
    let sum: f64 = runner.run(&batch, work).map_err(|error| error.to_string())?.iter().sum();
    let frames: f64 = batch.frame_lengths.iter().map(|&n| f64::from(n)).sum();
    Ok(Score { value: sum / frames, tie: 0.0, all: vec![Measure::number("off", "how far it is off", sum / frames)] })
}

/// Trains for a whole run that starts with the limits of `governor`, and returns the results. `observe` receives every
/// event.
pub(crate) fn run_training(
    setup: &StormSetup,
    memory: &'static CountingAllocator,
    faults: Faults,
    governor: Governor,
    observe: &mut dyn FnMut(&Event),
) -> Log {
    let folder = tempfile::tempdir().expect("there is room for a checkpoint");
    let mut log = Log::default();
    let mut trainer = trainer(setup, memory, faults, governor);
    let limits = Limits { steps: Some(STEPS), ..Limits::default() };
    let options = RunOptions {
        validate_every: Some(setup.validate_every),
        save_every: 15,
        validation_batch: setup.validation_batch,
        ..RunOptions::new(limits)
    };
    let mut position = Position::default();
    let mut note = |event: &Event| match event {
        Event::Step(step) => {
            log.lost.push(step.attempts - step.ledger.len());
            log.ledger.push((position, step.ledger.clone()));
            position = step.position;
            log.limits.push(step.ledger.iter().map(|part| part.len as usize).max().unwrap_or(0));
            log.peak = log.peak.max(step.peak_bytes);
            log.safety += step.safety_seconds;
            log.seconds += step.step_seconds;
            log.reads.push(step.reads);
        }
        Event::OutOfMemory { failure, step, .. } => {
            *log.failures.entry(failure.stage).or_default() += 1;
            // On an asynchronous device the failure of a step's only micro-batch shows at the norm.
            let is_piece = matches!(failure.stage, Stage::Forward | Stage::Backward | Stage::Accumulate);
            if is_piece || (setup.async_errors && failure.stage == Stage::Norm) {
                *log.failed.entry(*step).or_default() += 1;
            }
        }
        Event::Unfit { names, .. } => log.unfit += names.len(),
        Event::Validated { peak_bytes, .. } => log.peak = log.peak.max(*peak_bytes),
        Event::Saved { .. } | Event::Ended { .. } => {}
        other => panic!("{other:?}"),
    };
    let mut watch = |event: &Event| {
        note(event);
        observe(event);
    };
    let (mut batches, store) = (Batches(setup, Position::default()), CheckpointStore::new(folder.path(), 2));
    let outcome = Run::new(&mut trainer, &mut batches, &store, &options)
        .with_observer(&mut watch)
        .train(&mut |net: &Net, _, runner: &mut InferenceRunner<'_>| evaluate(setup, net, runner))
        .expect("the run recovers from every failure");
    log.validation = outcome.last_score.expect("it ends with a validation").value;
    log.weights = collect(&trainer.task);
    log
}

/// Trains a new model by the ledger of `log`, without failures, and returns it.
pub(crate) fn replayed(setup: &StormSetup, memory: &'static CountingAllocator, log: &Log) -> Net {
    let mut trainer = trainer(setup, memory, Faults::none(), Governor::new(BATCH as usize));
    for (position, micro_batches) in &log.ledger {
        trainer.replay(&setup.batch_at(*position), micro_batches).expect("these micro-batches fitted in the run");
    }
    trainer.task
}

impl Log {
    pub(crate) fn steps(&self) -> u64 {
        self.ledger.len() as u64
    }

    pub(crate) fn failures(&self) -> usize {
        self.failures.values().sum()
    }

    pub(crate) fn failures_in(&self, stage: Stage) -> usize {
        self.failures.get(&stage).copied().unwrap_or(0)
    }

    /// Checks by the ledger that every sample was in exactly one micro-batch. `name` names the run in messages.
    pub(crate) fn each_sample_was_used_once(&self, setup: &StormSetup, name: &str) {
        assert_eq!(self.unfit, 0, "{name}");
        let mut used = BTreeMap::new();
        for (position, micro_batches) in &self.ledger {
            let batch = setup.batch_at(*position);
            for id in micro_batches.iter().flat_map(|micro_batch| &batch.ids[micro_batch.range()]) {
                *used.entry(id.0).or_insert(0) += 1;
            }
        }
        let expected: BTreeMap<u64, i32> = (0..STEPS * BATCH).map(|id| (id, 1)).collect();
        assert!(used == expected, "{name}: a sample was lost or used twice");
    }

    /// Checks that a failure repeats only the micro-batch in which it occurred.
    pub(crate) fn no_failure_costs_more_than_a_micro_batch(&self) {
        for (step, lost) in (1..).zip(&self.lost) {
            let failed = self.failed.get(&step).copied().unwrap_or(0);
            assert!(*lost <= failed, "step {step} lost {lost} micro-batches to {failed} failures");
        }
    }

    /// Checks that micro-batches grow again after failures.
    pub(crate) fn limits_grew_back(&self) {
        let rises = self.limits.windows(2).filter(|two| two[1] > two[0]).count();
        assert!(rises >= 3, "micro-batches grew {rises} times: {:?}", self.limits);
    }
}

/// Table that compares a run with failures to a run without failures.
pub(crate) struct StormTable<'a> {
    pub(crate) calm: &'a Log,
    pub(crate) storm: &'a Log,
    /// Memory budget, and memory in use before the run; `None` if they are not measured.
    pub(crate) budget: Option<(Bytes, Bytes)>,
    pub(crate) injected: usize,
}

impl fmt::Display for StormTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calm, storm, budget, injected } = self;
        writeln!(f, "{STEPS} steps of {BATCH} utterances, {injected} failures injected")?;
        writeln!(f, "| | calm | storm |\n|---|---|---|")?;
        if let Some((budget, before)) = budget {
            let above = |bytes: Bytes| Bytes(bytes.0.saturating_sub(before.0));
            let (calm, storm, budget) = (above(calm.peak), above(storm.peak), above(*budget));
            writeln!(f, "| peak above the start | {calm} | {storm} (budget {budget}) |")?;
        }
        writeln!(f, "| validation loss | {:.6} | {:.6} |", calm.validation, storm.validation)?;
        for (stage, count) in &storm.failures {
            writeln!(f, "| failures in the {stage} | 0 | {count} |")?;
        }
        let share = |log: &Log| log.safety / log.seconds * 100.0;
        let parts = |log: &Log| log.ledger.iter().map(|(_, micro_batches)| micro_batches.len()).sum::<usize>();
        let single = |log: &Log| log.reads.iter().filter(|reads| **reads == 1).count();
        writeln!(f, "| micro-batches | {} | {} |", parts(calm), parts(storm))?;
        let lost = |log: &Log| log.lost.iter().sum::<usize>();
        writeln!(f, "| failed micro-batches | {} | {} |", lost(calm), lost(storm))?;
        writeln!(f, "| steps with exactly one read | {} | {} |", single(calm), single(storm))?;
        writeln!(
            f,
            "| gate, governor, ledger and record, of step time | {:.3} % | {:.3} % |",
            share(calm),
            share(storm)
        )
    }
}
