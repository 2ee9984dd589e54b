//! Tests that the memory of steps is measured as planned, and that steps which do not fit are seen.

use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use plimsoll_core::{Batch, Bytes, Choice, Key, MemoryMeter, OpenGate, Stage};
use plimsoll_train::planned::PlannedLimit;
use plimsoll_train::pools::MeasuredMemory;
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

use crate::gates::{Failing, FailingGate};
use crate::net::{Net, batch};

/// A meter of pools that always reserve the same.
struct Pools;

impl MemoryMeter for Pools {
    fn current(&self) -> Bytes {
        Bytes(70)
    }
    fn peak(&self) -> Bytes {
        Bytes(100)
    }
    fn reset_peak(&self) {}
}

fn trainer() -> Trainer<Net> {
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
    Trainer::new(Net::new(8, &Device::flex().autodiff()), config, Governor::new(1))
}

/// Measures six utterances in micro-batches of two.
fn measure(trainer: &mut Trainer<Net>, stop: bool) -> Result<MeasuredMemory, StepError> {
    let whole = batch(0..6, 6);
    let planned = PlannedLimit { shape: whole.shape(), limit: 2, choice: Choice::default() };
    trainer.measure(&AtomicBool::new(stop), &whole, planned, false)
}

#[test]
fn steps_are_measured_with_the_state_of_the_optimizer() {
    let mut trainer = trainer().with_memory(OpenGate, Pools);
    for steps in [2, 4, 6] {
        assert_eq!(measure(&mut trainer, false).unwrap(), MeasuredMemory::Reserved(Bytes(100)));
        assert_eq!(trainer.optimizer.steps(), steps);
        assert_eq!(trainer.governor.limit(batch(0..6, 6).shape()), 2);
    }
    assert_eq!(trainer.measure_inference(false, |_| {}), Some(MeasuredMemory::Reserved(Bytes(100))));
    assert_eq!(trainer.measure_inference(false, |_| panic!("a bug")), None);
    assert!(matches!(measure(&mut trainer, true), Err(StepError::Stopped { .. })));
}

#[test]
fn steps_that_do_not_fit_are_exceeded_in_every_stage() {
    for stage in [Stage::Forward, Stage::Backward, Stage::Accumulate, Stage::Norm, Stage::Update] {
        for step in [1, 2] {
            let mut trainer = trainer().with_memory(FailingGate::new(Failing::Memory, stage, step), Pools);
            assert_eq!(measure(&mut trainer, false).unwrap(), MeasuredMemory::Exceeded, "{stage}, step {step}");
        }
    }
    let mut validating = trainer().with_memory(FailingGate::new(Failing::Memory, Stage::Validation, 0), Pools);
    assert_eq!(validating.measure_inference(false, |_| {}), Some(MeasuredMemory::Exceeded));
    let mut failing = trainer().with_memory(OpenGate, Pools);
    let out_of_memory = || panic!("out of memory");
    assert_eq!(failing.measure_inference(true, |_| out_of_memory()), Some(MeasuredMemory::Exceeded));
}
