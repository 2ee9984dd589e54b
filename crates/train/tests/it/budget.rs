//! Tests that a budget is held on a device whose memory pools grow and do not shrink by themselves.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{
    Bytes, DeviceMemory, HostBatch, Key, MemoryGate, MemoryMeter, MicroBatch, OutOfMemory, PoolGate, ProbeError, Stage,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, collect};
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

use crate::net::{Net, batch};

/// Size of a page, in bytes.
const PAGE: u64 = 1 << 10;
/// Memory of weights and optimizer, which is always in use.
const BASE: u64 = 8 * PAGE;
/// Bytes that a forward and backward pass takes for each frame, with padding.
const FRAME: u64 = 64;

/// Memory pools of a device: whole pages, which stay reserved until a cleanup.
#[derive(Debug, Default)]
struct Pools {
    reserved: AtomicU64,
    /// Highest reserved memory.
    highest: AtomicU64,
    /// Number of readings.
    reads: AtomicU64,
    /// Memory of the device; 0 if it has as much as is asked for.
    size: u64,
    /// Memory of the device that another process holds.
    other: AtomicU64,
}

impl Pools {
    /// Takes `bytes` beside the memory that is always in use.
    fn take(&self, bytes: u64) {
        let needed = (BASE + bytes).next_multiple_of(PAGE);
        let left = self.size - self.other.load(Relaxed);
        assert!(self.size == 0 || needed <= left, "out of memory: {needed} of {left} bytes");
        let reserved = self.reserved.fetch_max(needed, Relaxed).max(needed);
        self.highest.fetch_max(reserved, Relaxed);
    }
}

impl MemoryMeter for Pools {
    fn current(&self) -> Bytes {
        Bytes(BASE)
    }
    fn peak(&self) -> Bytes {
        self.reads.fetch_add(1, Relaxed);
        Bytes(self.reserved.load(Relaxed))
    }
    fn reset_peak(&self) {}
}

impl Pools {
    /// Memory of the device that nothing holds.
    fn free_bytes(&self) -> u64 {
        self.size - self.other.load(Relaxed) - self.reserved.load(Relaxed)
    }
}

impl DeviceMemory for SharedPools {
    fn free(&self) -> Result<Bytes, ProbeError> {
        Ok(Bytes(self.0.free_bytes()))
    }
}

/// The gate of a device with these pools, which returns unused pages in a cleanup.
struct DeviceGate(Arc<Pools>, PoolGate<SharedPools>);

struct SharedPools(Arc<Pools>);

impl MemoryMeter for SharedPools {
    fn current(&self) -> Bytes {
        self.0.current()
    }
    fn peak(&self) -> Bytes {
        self.0.peak()
    }
    fn reset_peak(&self) {}
}

impl MemoryGate for DeviceGate {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        self.1.check(stage)
    }
    fn check_again(&self, stage: Stage) -> Result<(), OutOfMemory> {
        self.1.check_again(stage)
    }
    fn cleaned_up(&self) {
        self.0.reserved.store(BASE, Relaxed);
        self.1.cleaned_up();
    }
}

thread_local! {
    /// Pools of the test that runs on this thread.
    static POOLS: RefCell<Arc<Pools>> = RefCell::default();
}

/// A model that takes memory of the pools for each micro-batch.
#[derive(Module, Debug)]
struct Pooled {
    net: Net,
}

impl Task for Pooled {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        self.net.weight(batch)
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let [b, t, _] = batch.features.dims();
        POOLS.with_borrow(|pools| pools.take((b * t) as u64 * FRAME));
        self.net.loss(batch, pass)
    }
}

/// Trains for 30 steps within `budget`. Returns the micro-batches of each step, the number of failures of each step, the
/// highest reserved memory after a step, and the trainer.
fn train(budget: Option<Bytes>, async_errors: bool) -> (Vec<Vec<MicroBatch>>, Vec<usize>, u64, Trainer<Pooled>) {
    let pools = Arc::new(Pools::default());
    POOLS.set(pools.clone());
    let config = TrainerConfig { async_errors, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(Pooled { net }, config, Governor::new(8));
    if let Some(budget) = budget {
        let gate = DeviceGate(pools.clone(), PoolGate::new(SharedPools(pools.clone()), budget));
        trainer = trainer.with_memory(gate, SharedPools(pools.clone()));
    }
    let (mut ledger, mut failures, mut highest) = (Vec::new(), Vec::new(), 0);
    for step in 0..30 {
        let report = trainer.step(&batch(step * 8..step * 8 + 8, 10)).unwrap();
        assert!(report.unfit.is_empty(), "{:?}", report.unfit);
        ledger.push(report.micro_batches);
        failures.push(report.failures.len());
        highest = highest.max(pools.peak().0);
    }
    (ledger, failures, highest, trainer)
}

#[test]
fn a_budget_on_pools_is_held_by_smaller_micro_batches() {
    let (_, _, whole, calm) = train(None, false);
    for async_errors in [false, true] {
        for pages in [2, 3, 5, 8] {
            let budget = Bytes(BASE + pages * PAGE);
            assert!(budget.0 < whole, "the budget is too large to matter");
            let (ledger, failures, highest, trainer) = train(Some(budget), async_errors);
            assert!(highest <= budget.0, "{highest} reserved of {budget}");
            // Every utterance in exactly one micro-batch.
            for micro_batches in &ledger {
                let mut used: Vec<usize> = micro_batches.iter().flat_map(MicroBatch::range).collect();
                used.sort_unstable();
                assert_eq!(used, (0..8).collect::<Vec<_>>());
            }
            assert!(failures[0] > 0, "the first batch fits into no budget");
            let rest: usize = failures[1..].iter().sum();
            assert!(rest <= 15, "the size that fits is learned: {failures:?}");
            // The same gradients, in other parts.
            for (found, expected) in collect(&trainer.task).iter().zip(collect(&calm.task)) {
                let apart = found.values.iter().zip(&expected.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart < 5e-3, "{}: {apart}", found.name);
            }
        }
    }
}

#[test]
fn another_process_lowers_the_limit_and_gives_it_back() {
    let batch = batch(0..8, 10);
    let whole = (BASE + (batch.frame_lengths.len() * batch.frames) as u64 * FRAME).next_multiple_of(PAGE);
    let (budget, room) = (Bytes(whole + PAGE), PAGE);
    let wanted = 5 * PAGE;
    let pools = Arc::new(Pools { size: whole + 3 * PAGE, ..Pools::default() });
    POOLS.set(pools.clone());
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    let gate = PoolGate::new(SharedPools(pools.clone()), budget).beside_others(SharedPools(pools.clone()), Bytes(room));
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(Pooled { net }, config, Governor::new(8))
        .with_memory(DeviceGate(pools.clone(), gate), SharedPools(pools.clone()));
    let mut parts = Vec::new();
    for step in 0..300 {
        // It takes what is free until it has what it wants, and ends after step 60.
        let wanted = if (30..60).contains(&step) { wanted } else { 0 };
        let available = pools.free_bytes() + pools.other.load(Relaxed);
        pools.other.store(wanted.min(available), Relaxed);
        let report = trainer.step(&batch).unwrap();
        assert!(report.unfit.is_empty(), "step {step}: {:?}", report.unfit);
        assert!(pools.reserved.load(Relaxed) <= budget.0, "step {step}");
        // After one step the pools have made room for it.
        if step > 31 {
            assert!(pools.free_bytes() >= room, "step {step}: {} bytes are free", pools.free_bytes());
        }
        parts.push(report.micro_batches.len());
    }
    assert!(parts[..30].iter().all(|parts| *parts == 1), "{parts:?}");
    assert!(parts[33..60].iter().filter(|parts| **parts > 1).count() > 15, "{parts:?}");
    assert_eq!(parts[260..], [1; 40], "{parts:?}");
}

#[test]
fn an_utterance_above_the_budget_is_left_out_and_named() {
    let pools = Arc::new(Pools::default());
    POOLS.set(pools.clone());
    let budget = Bytes(BASE + PAGE);
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    let net = Net::new(8, &Device::flex().autodiff());
    let gate = DeviceGate(pools.clone(), PoolGate::new(SharedPools(pools.clone()), budget));
    let mut trainer = Trainer::new(Pooled { net }, config, Governor::new(8)).with_memory(gate, SharedPools(pools));
    match trainer.step(&batch(0..1, 40)) {
        Err(StepError::NothingFits { names, .. }) => assert_eq!(names, ["u0"]),
        other => panic!("{other:?}"),
    }
    // The next one fits.
    assert_eq!(trainer.step(&batch(1..2, 4)).unwrap().failures.len(), 0);
}

#[test]
fn pools_are_read_once_in_a_step_for_what_was_computed_before() {
    let pools = Arc::new(Pools::default());
    POOLS.set(pools.clone());
    let short = batch(0..8, 10);
    let frames = |batch: &HostBatch| (batch.frame_lengths.len() * batch.frames) as u64;
    let budget = Bytes(BASE + (frames(&short) * FRAME).next_multiple_of(PAGE));
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    let net = Net::new(8, &Device::flex().autodiff());
    let gate = DeviceGate(pools.clone(), PoolGate::new(SharedPools(pools.clone()), budget));
    let meter = SharedPools(pools.clone());
    let mut trainer = Trainer::new(Pooled { net }, config, Governor::new(8)).with_memory(gate, meter);
    let mut read_in = |batch: &HostBatch| {
        let before = pools.reads.load(Relaxed);
        let failures = trainer.step(batch).unwrap().failures.len();
        (pools.reads.load(Relaxed) - before, failures)
    };
    let reads: Vec<u64> = (0..40).map(|_| read_in(&short).0).collect();
    let reading = reads.iter().filter(|reads| **reads > 0).count();
    // After the first steps, once in a step, and more often in every sixteenth step.
    assert!(reads[0] > 0 && reading == reads.len() && reads[18..31] == [1; 13], "{reads:?}");
    // What is new is read at once, and again when it comes back after a failure.
    let long = batch(0..8, 30);
    assert!(frames(&long) > frames(&short));
    let mut failed = 0;
    for step in 0..40 {
        let (reads, failures) = read_in(&long);
        assert!(reads > 0 || failures == 0, "step {step}");
        failed += failures;
        assert!(pools.peak().0 <= budget.0, "step {step}: {:?} reserved of {budget}", pools.peak());
    }
    assert!(failed > 1, "the governor tried larger micro-batches again");
}
