//! Tests that buffers that a forward pass updates, such as running means, change with a step and only with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::module::{Module, Param, RunningState};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, HostBatch, Key, MemoryGate, OutOfMemory, Stage};
use plimsoll_tape::{NamedTensor, Pass, StepLoss, Task, TensorBatch, collect};
use plimsoll_train::{Governor, Schedule, StepError, Trainer, TrainerConfig};

use crate::gates::NoMeter;
use crate::net::{FEATURES, batch};

/// A model that scales the difference of its input from a running mean.
#[derive(Module, Debug)]
struct Normed {
    scale: Param<Tensor<1>>,
    mean: RunningState<Tensor<1>>,
}

impl Normed {
    fn new(device: &Device) -> Self {
        let scale = Param::from_tensor(Tensor::ones([FEATURES], device));
        Self { scale, mean: RunningState::new(Tensor::zeros([FEATURES], device)) }
    }
}

impl Task for Normed {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.len() as f64
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let now = batch.features.clone().mean_dim(0).mean_dim(1).reshape([FEATURES]);
        let mean = self.mean.value_sync();
        // As in Burn's batch norm: the new value is read in the next pass.
        self.mean.update((mean.clone() * 0.9 + now * 0.1).detach());
        let off = batch.features.clone() - mean.reshape([1, 1, FEATURES]);
        StepLoss::new((off * self.scale.val().reshape([1, 1, FEATURES])).square().sum())
    }
}

/// Memory gate that fails at the checks in the first field, counted from 0. The second field counts the checks.
#[derive(Clone, Debug)]
struct Shut(&'static [usize], Arc<AtomicUsize>);

impl MemoryGate for Shut {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        match self.0.contains(&self.1.fetch_add(1, Relaxed)) {
            true => Err(OutOfMemory { stage, reason: "injected by the test".into() }),
            false => Ok(()),
        }
    }
}

fn trainer(shut: &'static [usize]) -> Trainer<Normed> {
    let config = TrainerConfig::new(Schedule::constant(1e-3), Key::new(1));
    let trainer = Trainer::new(Normed::new(&Device::flex().autodiff()), config, Governor::new(8));
    trainer.with_memory(Shut(shut, Arc::default()), NoMeter)
}

/// Returns the values of all parameters and buffers, including the buffers of the last pass.
fn settled(task: &Normed) -> Vec<NamedTensor> {
    let _ = task.valid();
    collect(task)
}

fn mean(values: &[NamedTensor]) -> &NamedTensor {
    values.iter().find(|value| value.name == "mean").expect("buffers are visited like parameters")
}

#[test]
fn a_failed_micro_batch_leaves_buffers_unchanged() {
    // The first fails after its forward pass, and at half the size after its backward pass.
    for shut in [&[0][..], &[1], &[0, 2, 5]] {
        let mut storm = trainer(shut);
        let mut ledger = Vec::new();
        for step in 0..4 {
            ledger.push(storm.step(&batch(step * 8..step * 8 + 8, 6)).unwrap().micro_batches);
        }
        assert!(ledger[0].len() > 1, "a failure splits the batch");
        let mut calm = trainer(&[]);
        for (step, micro_batches) in (0..).zip(&ledger) {
            calm.replay(&batch(step * 8..step * 8 + 8, 6), micro_batches).unwrap();
        }
        assert_eq!(settled(&storm.task), settled(&calm.task));
        assert!(mean(&settled(&calm.task)).values.iter().any(|value| *value != 0.0));
    }
}

#[test]
fn a_failed_step_leaves_buffers_unchanged() {
    let mut trainer = trainer(&[]);
    trainer.step(&batch(0..8, 6)).unwrap();
    let before = settled(&trainer.task);
    let mut broken = batch(8..16, 6);
    broken.features[3] = f32::NAN;
    let error = trainer.step(&broken).unwrap_err();
    assert!(matches!(error, StepError::NotFinite { .. }), "{error}");
    assert_eq!(settled(&trainer.task), before);
    trainer.gradient(&batch(16..24, 6), None).unwrap();
    assert_eq!(settled(&trainer.task), before, "a gradient alone changes no buffer");
}
