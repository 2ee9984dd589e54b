//! Tests that the memory of steps is measured as planned, and that steps which do not fit are seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use burn::tensor::Device;
use plimsoll_core::{Batch, Bytes, Choice, Key, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, Stage};
use plimsoll_train::planned::PlannedLimit;
use plimsoll_train::pools::MeasuredMemory;
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

use crate::gates::{Failing, FailingGate};
use crate::net::{Net, batch};

/// Pools that reserve 100 for a step and 130 where the first step makes the state of the optimizer, until a cleanup leaves 40.
#[derive(Clone, Debug, Default)]
struct Pools {
    reserved: Arc<AtomicU64>,
    updates: Arc<AtomicU64>,
}

impl MemoryMeter for Pools {
    fn current(&self) -> Bytes {
        self.peak()
    }
    fn peak(&self) -> Bytes {
        Bytes(self.reserved.load(Relaxed))
    }
    fn reset_peak(&self) {}
}

impl MemoryGate for Pools {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        let is_first = stage == Stage::Update && self.updates.fetch_add(1, Relaxed) == 0;
        self.reserved.fetch_max(if is_first { 130 } else { 100 }, Relaxed);
        Ok(())
    }
    fn cleaned_up(&self) {
        self.reserved.store(40, Relaxed);
    }
}

fn trainer() -> Trainer<Net> {
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    let planned = PlannedLimit { shape: batch(0..6, 6).shape(), limit: 2, choice: Choice::default() };
    Trainer::new(Net::new(8, &Device::flex().autodiff()), config, Governor::from_plan(vec![planned], 2))
}

/// Measures six utterances in micro-batches of two.
fn measure(trainer: &mut Trainer<Net>, stop: bool) -> Result<MeasuredMemory, StepError> {
    let whole = batch(0..6, 6);
    trainer.measure(&AtomicBool::new(stop), &whole, &whole, false)
}

#[test]
fn steps_are_measured_with_the_state_of_the_optimizer() {
    let pools = Pools::default();
    let mut trainer = trainer().with_memory(pools.clone(), pools.clone());
    for (steps, expected) in [(3, 130), (5, 100), (7, 100)] {
        // What earlier lengths left does not count.
        if trainer.optimizer.steps() > 0 {
            pools.reserved.store(900, Relaxed);
        }
        assert_eq!(measure(&mut trainer, false).unwrap(), MeasuredMemory::Reserved(Bytes(expected)));
        assert_eq!(trainer.optimizer.steps(), steps);
    }
    assert_eq!(trainer.measure_inference(false, |_| {}), Some(MeasuredMemory::Reserved(Bytes(100))));
    assert_eq!(trainer.measure_inference(false, |_| panic!("a bug")), None);
    assert!(matches!(measure(&mut trainer, true), Err(StepError::Stopped { .. })));
}

#[test]
fn steps_that_do_not_fit_are_exceeded_in_every_stage() {
    for stage in [Stage::Forward, Stage::Backward, Stage::Accumulate, Stage::Norm, Stage::Update] {
        for step in [1, 2] {
            let mut trainer = trainer().with_memory(FailingGate::new(Failing::Memory, stage, step), Pools::default());
            assert_eq!(measure(&mut trainer, false).unwrap(), MeasuredMemory::Exceeded, "{stage}, step {step}");
        }
    }
    let mut validating =
        trainer().with_memory(FailingGate::new(Failing::Memory, Stage::Validation, 0), Pools::default());
    assert_eq!(validating.measure_inference(false, |_| {}), Some(MeasuredMemory::Exceeded));
    let mut failing = trainer().with_memory(OpenGate, Pools::default());
    let out_of_memory = || panic!("out of memory");
    assert_eq!(failing.measure_inference(true, |_| out_of_memory()), Some(MeasuredMemory::Exceeded));
}
