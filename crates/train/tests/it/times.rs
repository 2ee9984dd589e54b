//! Tests that the time of a run belongs to the owner that took it, and that no time is lost or counted twice.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{
    BatchList, BatchSource, DeliveredBatch, HostBatch, Key, Position, SourceError, StepEvent, TimeOwner, TimeShares,
    timing,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch};
use plimsoll_train::{
    CheckpointStore, Disk, Event, Governor, InferenceRunner, Limits, RealDisk, Run, RunOptions, Schedule, Score,
    Trainer, TrainerConfig,
};

use crate::net::{Net, batch};

/// Steps of a run.
const STEPS: usize = 12;
/// Time that a culprit takes in each step: many times that of the step itself.
const DELAY: Duration = Duration::from_millis(15);

/// Part of a run that takes most of its time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Culprit {
    Loader,
    Copy,
    Model,
    Operations,
    Read,
    Optimizer,
    Update,
    Disk,
    Validation,
    Observer,
    OutOfMemory,
}

thread_local! {
    static CULPRIT: Cell<Culprit> = const { Cell::new(Culprit::Loader) };
}

/// Number of writes that a slow disk delayed. Another thread writes.
static WRITES: AtomicU32 = AtomicU32::new(0);

fn delay_if(culprit: Culprit) {
    if CULPRIT.get() == culprit {
        std::thread::sleep(DELAY);
    }
}

#[derive(Module, Debug)]
struct Slow {
    net: Net,
    late: Late,
}

/// Part of a model without parameters, which an optimizer waits for when it updates the model.
#[derive(Clone, Debug)]
struct Late;

impl Module for Late {
    fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
        delay_if(Culprit::Update);
        self
    }
    fn visit<V: ModuleVisitor>(&self, _: &mut V) {}
    fn collect_devices(&self, devices: Devices) -> Devices {
        devices
    }
    fn fork(self, _: &Device) -> Self {
        self
    }
    fn to_device(self, _: &Device) -> Self {
        self
    }
    fn train(self) -> Self {
        self
    }
    fn valid(&self) -> Self {
        Self
    }
    fn materialize(self) -> Self {
        self
    }
}

impl ModuleDisplayDefault for Late {
    fn content(&self, content: Content) -> Option<Content> {
        Some(content)
    }
}

impl ModuleDisplay for Late {}

impl Task for Slow {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        delay_if(Culprit::Copy);
        TensorBatch::send(batch, device)
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        delay_if(Culprit::Model);
        if CULPRIT.get() == Culprit::Operations {
            let mut x = Tensor::<1>::ones([1], &batch.features.device());
            (0..10_000).for_each(|_| x = x.clone() + 1.0);
        }
        if CULPRIT.get() == Culprit::Read {
            // A loss that is computed on the host names its reads.
            timing::measure(TimeOwner::Read, || std::thread::sleep(DELAY));
        }
        if batch.frame_lengths.len() > 2 {
            delay_if(Culprit::OutOfMemory);
            assert!(CULPRIT.get() != Culprit::OutOfMemory, "out of memory");
        }
        StepLoss::new(self.net.off(batch, pass))
    }
}

/// Writes as slowly as a disk over a network does.
#[derive(Debug)]
struct SlowDisk;

impl Disk for SlowDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        std::thread::sleep(DELAY);
        WRITES.fetch_add(1, Ordering::Relaxed);
        RealDisk.write(path, bytes)
    }
}

struct SlowSource(BatchList<HostBatch>);

impl BatchSource for SlowSource {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        delay_if(Culprit::Loader);
        self.0.next_batch()
    }

    fn batches_in_epoch(&self) -> u64 {
        self.0.batches_in_epoch()
    }
}

/// Runs steps that `culprit` makes slow. Returns the times of the whole run and its wall time in seconds.
fn times_with(culprit: Culprit) -> (TimeShares, f64) {
    CULPRIT.set(culprit);
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path(), 1);
    let store = if culprit == Culprit::Disk { store.with_disk(SlowDisk) } else { store };
    // With one short utterance, a large model is updated for longer than it is computed.
    let (width, utterances, frames, steps) = match culprit {
        Culprit::Optimizer => (100_000, 1, 1, 5 * STEPS as u64),
        _ => (8, 4, 10, STEPS as u64),
    };
    let batches = (0..steps).map(|step| batch(4 * step..4 * step + utterances, frames)).collect();
    let mut source = SlowSource(BatchList::new(batches, Position::default()));
    let mut times = TimeShares::default();
    let mut watch = |event: &Event| {
        delay_if(Culprit::Observer);
        if let Event::Step(StepEvent { times: new, .. }) | Event::Ended { times: new, .. } = event {
            times.add_all(new);
        }
    };
    let mut validate = |_: &Slow, _: u64, _: &mut InferenceRunner<'_>| {
        delay_if(Culprit::Validation);
        Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() })
    };
    let limits = Limits { steps: Some(steps), ..Limits::default() };
    // A validation keeps its checkpoint, so it writes one.
    let (validate_every, save_every) = match culprit {
        Culprit::Optimizer | Culprit::Operations => (steps, steps),
        Culprit::Disk => (1, 1),
        _ => (1, 5),
    };
    let options = RunOptions { validate_every: Some(validate_every), save_every, ..RunOptions::new(limits) };
    let config = TrainerConfig::new(Schedule::constant(1e-3), Key::new(1));
    let task = Slow { net: Net::new(width, &Device::flex().autodiff()), late: Late };
    let mut trainer = Trainer::new(task, config, Governor::new(4));
    let start = Instant::now();
    Run::new(&mut trainer, &mut source, &store, &options).with_observer(&mut watch).train(&mut validate).unwrap();
    (times, start.elapsed().as_secs_f64())
}

/// Repeats a check that other processes of the machine can disturb until it holds: they add time and take none away.
fn undisturbed(check: impl Fn()) {
    for _ in 0..4 {
        if catch_unwind(AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}

#[test]
fn each_culprit_has_its_time_and_hardly_any_is_unknown() {
    for (culprit, owner) in [
        (Culprit::Loader, TimeOwner::Data),
        (Culprit::Copy, TimeOwner::Transfer),
        (Culprit::Model, TimeOwner::Compute),
        (Culprit::Read, TimeOwner::Read),
        (Culprit::Update, TimeOwner::Optimizer),
        (Culprit::Validation, TimeOwner::Validation),
        (Culprit::Observer, TimeOwner::Record),
    ] {
        undisturbed(|| {
            let (times, wall) = times_with(culprit);
            let delayed = DELAY.as_secs_f64() * STEPS as f64;
            assert_eq!(times.largest().map(|(owner, _)| owner), Some(owner), "{culprit:?}: {times:?}");
            // Of the last event the observer's own time comes after its times.
            assert!(times.get(owner) >= 0.8 * delayed, "{culprit:?}: {times:?}");
            check_sums(culprit, &times, wall);
        });
    }
}

/// Checks that hardly any time is unknown, and that the times are those of the run.
fn check_sums(culprit: Culprit, times: &TimeShares, wall: f64) {
    assert!(times.share(TimeOwner::Unknown) <= 0.05, "{culprit:?}: {times:?}");
    assert!(times.total() <= wall && times.total() >= 0.8 * wall, "{culprit:?}: {} of {wall}", times.total());
}

#[test]
fn culprits_without_a_known_time_have_the_largest_share() {
    for (culprit, owner) in [
        (Culprit::Operations, TimeOwner::Compute),
        (Culprit::Optimizer, TimeOwner::Optimizer),
        // The run waits for the writer, which began a step earlier.
        (Culprit::Disk, TimeOwner::Checkpoint),
    ] {
        undisturbed(|| {
            let (times, wall) = times_with(culprit);
            assert_eq!(times.largest().map(|(owner, _)| owner), Some(owner), "{culprit:?}: {times:?}");
            check_sums(culprit, &times, wall);
        });
    }
}

#[test]
fn a_slow_checkpoint_has_the_time_that_the_run_waits_for_it() {
    undisturbed(|| {
        WRITES.store(0, Ordering::Relaxed);
        let (times, _) = times_with(Culprit::Disk);
        let delayed = DELAY.as_secs_f64() * f64::from(WRITES.load(Ordering::Relaxed));
        // While the writer writes, the run does other work.
        let beside = times.total() - times.get(TimeOwner::Checkpoint);
        assert!(times.get(TimeOwner::Checkpoint) >= 0.8 * (delayed - beside), "{delayed}: {times:?}");
        assert!(delayed >= 2.0 * beside, "the disk is the culprit: {delayed}, {times:?}");
    });
}

#[test]
fn work_that_memory_failures_undid_belongs_to_retries() {
    undisturbed(|| {
        let (times, _) = times_with(Culprit::OutOfMemory);
        // The first micro-batch of a large size fails after the delay.
        assert!(times.get(TimeOwner::Retry) >= DELAY.as_secs_f64(), "{times:?}");
        assert!(times.share(TimeOwner::Unknown) <= 0.05, "{times:?}");
    });
}
