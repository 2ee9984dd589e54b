//! A run of 300 steps with all that belongs to one, and what is asked of it afterwards.

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
    Careful, CheckpointStore, Cut, Event, Governor, Limits, Run, RunOptions, Schedule, Score, Trainer, TrainerConfig,
};

use crate::net::{Net, batch};

/// Steps of the run.
pub(crate) const STEPS: u64 = 300;
/// Utterances of a step.
pub(crate) const BATCH: u64 = 16;
/// Batches of an epoch.
const EPOCH: u64 = 30;

/// Where a run takes place.
#[derive(Clone, Debug)]
pub(crate) struct Sea {
    pub(crate) device: Device,
    /// Whether the device tells of failures when it is read.
    pub(crate) tells_late: bool,
    /// Pieces computed at the same time.
    pub(crate) lanes: usize,
    /// Hidden values of a frame.
    pub(crate) width: usize,
    /// Frames of the shortest utterance of a batch; the longest has twice as many.
    pub(crate) frames: u64,
    /// Every so many-th batch is of long utterances, and how many frames the shortest of them has.
    pub(crate) long: Option<(u64, u64)>,
    /// Steps between validations.
    pub(crate) validate_every: u64,
    /// In how many squalls of questions there is one in which pieces fail often, and which of them that is.
    pub(crate) squalls: (u64, u64),
}

impl Sea {
    /// The batch after `position`.
    fn wave(&self, position: Position) -> HostBatch {
        let number = position.epoch * EPOCH + position.batch;
        let frames = match self.long {
            // Of three lengths, so that what is learned of one is not all there is to learn.
            Some((every, frames)) if number % every == every - 1 => frames + frames * (number / every % 3) / 3,
            _ => self.frames,
        };
        batch(number * BATCH..(number + 1) * BATCH, frames)
    }

    /// What a model is judged by: utterances that it never sees, as long as any.
    fn unseen(&self) -> HostBatch {
        batch(1_000_000..1_000_032, self.long.map_or(self.frames, |(_, frames)| frames))
    }
}

/// Batches of new samples, for ever.
struct Waves<'a>(&'a Sea, Position);

impl BatchSource for Waves<'_> {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let Self(sea, at) = self;
        let batch = sea.wave(*at);
        let done = at.batch + 1;
        let position = Position { epoch: at.epoch + done / EPOCH, batch: done % EPOCH, ..Position::default() };
        self.1 = position;
        Some(Ok(DeliveredBatch { batch, position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        EPOCH
    }
}

/// A gate that says so when the budget was passed, and so many times more as if it had been.
#[derive(Clone)]
pub(crate) struct Faults {
    inner: Option<&'static CountingAllocator>,
    squalls: (u64, u64),
    /// Failures that have not been met yet.
    pub(crate) left: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Faults {
    /// None.
    pub(crate) fn none() -> Self {
        Self { inner: None, squalls: (1, 0), left: Arc::default(), asked: Arc::default() }
    }

    /// `count` of them in `sea`, and those of `inner`.
    pub(crate) fn random(sea: &Sea, inner: &'static CountingAllocator, count: usize) -> Self {
        Self { inner: Some(inner), squalls: sea.squalls, left: Arc::new(count.into()), asked: Arc::default() }
    }
}

impl MemoryGate for Faults {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        if let Some(inner) = self.inner {
            inner.check(stage)?;
        }
        let asked = self.asked.fetch_add(1, Relaxed) as u64;
        let key = Key::new(21);
        // Pieces fail in squalls, with calm between them; what is asked seldom fails at any time.
        let (of, which) = self.squalls;
        let is_squall = asked / 150 % of == which;
        let often = match stage {
            Stage::Forward | Stage::Backward | Stage::Accumulate if is_squall => 8,
            Stage::Forward | Stage::Backward | Stage::Accumulate => 1000,
            Stage::Norm => 20,
            Stage::Validation => 3,
            Stage::Checkpoint => 1,
            // Nothing can be taken back there.
            Stage::Update => u64::MAX,
        };
        let hits = key.at(asked).below(often) == 0;
        let take = |left: usize| left.checked_sub(1);
        if hits && self.left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            return Err(OutOfMemory { stage, reason: "so the test wants it".into() });
        }
        Ok(())
    }
}

/// What came of a run.
#[derive(Default)]
pub(crate) struct Log {
    /// The weights at the end.
    pub(crate) weights: Vec<NamedTensor>,
    /// The last validation.
    pub(crate) validation: f64,
    /// The most memory in use.
    pub(crate) peak: Bytes,
    /// Where each step's batch was, and its pieces.
    ledger: Vec<(Position, Vec<Cut>)>,
    failures: BTreeMap<Stage, usize>,
    /// The largest piece of each step.
    limits: Vec<usize>,
    /// Pieces of each step that were begun in vain.
    lost: Vec<usize>,
    /// Failures of each step's pieces.
    failed: BTreeMap<u64, usize>,
    safety: f64,
    seconds: f64,
    reads: Vec<u32>,
    unfit: usize,
}

fn trainer(sea: &Sea, memory: &'static CountingAllocator, faults: Faults, governor: Governor) -> Trainer<Net> {
    let (lanes, tells_late) = (sea.lanes, sea.tells_late);
    let config = TrainerConfig { lanes, tells_late, ..TrainerConfig::new(Schedule::constant(2e-3), Key::new(1)) };
    Trainer::new(Net::new(sea.width, &sea.device.clone().autodiff()), config, governor).watched(faults, memory)
}

/// The loss of `net` over what it never sees.
fn judged(sea: &Sea, net: &Net, careful: &mut Careful<'_>) -> Result<Score, String> {
    let net = net.valid();
    let batch = sea.unseen();
    let work = |piece: &HostBatch| {
        let off = net.off(&TensorBatch::send(piece, &sea.device), &Pass::plain());
        f64::from(off.into_scalar::<f32>())
    };
    let sum: f64 = careful.over(&batch, work).map_err(|error| error.to_string())?.iter().sum();
    let frames: f64 = batch.frame_lengths.iter().map(|&n| f64::from(n)).sum();
    Ok(Score { value: sum / frames, all: vec![Measure::number("off", "how far it is off", sum / frames)] })
}

/// A whole run, begun with what `governor` knows.
pub(crate) fn sailed(
    sea: &Sea,
    memory: &'static CountingAllocator,
    faults: Faults,
    governor: Governor,
    told: &mut dyn FnMut(&Event),
) -> Log {
    let folder = tempfile::tempdir().expect("there is room for a checkpoint");
    let mut log = Log::default();
    let mut trainer = trainer(sea, memory, faults, governor);
    let limits = Limits { steps: Some(STEPS), ..Limits::default() };
    let options = RunOptions { validate_every: Some(sea.validate_every), save_every: 15, ..RunOptions::new(limits) };
    let mut position = Position::default();
    let mut note = |event: &Event| match event {
        Event::Step(step) => {
            log.lost.push(step.attempts - step.ledger.len());
            log.ledger.push((position, step.ledger.iter().map(|&part| part.into()).collect()));
            position = step.position;
            log.limits.push(step.ledger.iter().map(|part| part.len as usize).max().unwrap_or(0));
            log.peak = log.peak.max(step.peak_bytes);
            log.safety += step.safety_seconds;
            log.seconds += step.step_seconds;
            log.reads.push(step.reads);
        }
        Event::OutOfMemory { failure, step, .. } => {
            *log.failures.entry(failure.stage).or_default() += 1;
            // Where a device tells late, the norm is where a piece alone in its step shows that it failed.
            let is_piece = matches!(failure.stage, Stage::Forward | Stage::Backward | Stage::Accumulate);
            if is_piece || (sea.tells_late && failure.stage == Stage::Norm) {
                *log.failed.entry(*step).or_default() += 1;
            }
        }
        Event::Unfit { names, .. } => log.unfit += names.len(),
        Event::Validated { peak_bytes, .. } => log.peak = log.peak.max(*peak_bytes),
        Event::Saved { .. } => {}
        other => panic!("{other:?}"),
    };
    let mut watch = |event: &Event| {
        note(event);
        told(event);
    };
    let (mut waves, store) = (Waves(sea, Position::default()), CheckpointStore::new(folder.path(), 2));
    let outcome = Run::new(&mut trainer, &mut waves, &store, &options)
        .with_observer(&mut watch)
        .train(&mut |net: &Net, _, careful: &mut Careful<'_>| judged(sea, net, careful))
        .expect("no run fails for good");
    log.validation = outcome.last_score.expect("it ends with a validation").value;
    log.weights = collect(&trainer.task);
    log
}

/// The model that the ledger of `log` leads to, without any failure.
pub(crate) fn replayed(sea: &Sea, memory: &'static CountingAllocator, log: &Log) -> Net {
    let mut trainer = trainer(sea, memory, Faults::none(), Governor::new(BATCH as usize));
    for (position, cuts) in &log.ledger {
        trainer.replay(&sea.wave(*position), cuts).expect("what fitted once fits again");
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

    /// Proves by the ledger that every sample of every batch was in one piece, and in one only.
    pub(crate) fn each_sample_was_used_once(&self, sea: &Sea, name: &str) {
        assert_eq!(self.unfit, 0, "{name}");
        let mut used = BTreeMap::new();
        for (position, cuts) in &self.ledger {
            let batch = sea.wave(*position);
            for id in cuts.iter().flat_map(|cut| &batch.ids[cut.places()]) {
                *used.entry(id.0).or_insert(0) += 1;
            }
        }
        let expected: BTreeMap<u64, i32> = (0..STEPS * BATCH).map(|id| (id, 1)).collect();
        assert!(used == expected, "{name}: a sample was lost or used twice");
    }

    /// A step computes its pieces, and what failed again: no failure takes more than the piece in which it was.
    pub(crate) fn no_failure_cost_more_than_a_piece(&self) {
        for (step, lost) in (1..).zip(&self.lost) {
            let failed = self.failed.get(&step).copied().unwrap_or(0);
            assert!(*lost <= failed, "step {step} lost {lost} pieces by {failed} failures");
        }
    }

    /// Where nothing failed for a while, pieces are as large again as the budget allows.
    pub(crate) fn limits_grew_back(&self) {
        let rises = self.limits.windows(2).filter(|two| two[1] > two[0]).count();
        assert!(rises >= 3, "pieces grew {rises} times: {:?}", self.limits);
    }
}

/// The table of a storm, for a log.
pub(crate) struct Told<'a> {
    pub(crate) calm: &'a Log,
    pub(crate) storm: &'a Log,
    /// What was held to, and what was in use before, where that is counted.
    pub(crate) budget: Option<(Bytes, Bytes)>,
    pub(crate) injected: usize,
}

impl fmt::Display for Told<'_> {
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
        let pieces = |log: &Log| log.ledger.iter().map(|(_, cuts)| cuts.len()).sum::<usize>();
        let single = |log: &Log| log.reads.iter().filter(|reads| **reads == 1).count();
        writeln!(f, "| pieces | {} | {} |", pieces(calm), pieces(storm))?;
        let lost = |log: &Log| log.lost.iter().sum::<usize>();
        writeln!(f, "| pieces computed in vain | {} | {} |", lost(calm), lost(storm))?;
        writeln!(f, "| steps with exactly one read | {} | {} |", single(calm), single(storm))?;
        writeln!(
            f,
            "| gate, governor, ledger and record, of step time | {:.3} % | {:.3} % |",
            share(calm),
            share(storm)
        )
    }
}
