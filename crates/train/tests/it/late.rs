//! Tests of devices that fail late: the failure shows when a value is read, and then every read fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{Module, ModuleMapper, Param, RunningState};
use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};
use plimsoll_core::{BatchList, EndKind, HostBatch, Key, Position, error_chain};
use plimsoll_tape::failure::FailureCause;
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, collect};
use plimsoll_train::{
    CheckpointStore, Event, Governor, InferenceRunner, Limits, Run, RunOptions, Schedule, Score, StepError, TrainError,
    Trainer, TrainerConfig,
};

use crate::net::{FEATURES, batch};

/// Number of steps in a run.
const STEPS: u64 = 12;

/// A model with a buffer that becomes unreadable, as all memory of a device that is lost.
#[derive(Module, Debug)]
struct Fragile {
    scale: Param<Tensor<1>>,
    memory: RunningState<Tensor<1>>,
}

impl Fragile {
    fn new() -> Self {
        let device = Device::flex().autodiff();
        let memory = RunningState::new(Tensor::ones([FEATURES], &device));
        Self { scale: Param::from_tensor(Tensor::ones([FEATURES], &device)), memory }
    }

    /// Makes the buffer of this model and of all its clones unreadable.
    fn lose(&self) {
        struct Lose;
        impl ModuleMapper for Lose {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let value = param.val();
                match value.is_require_grad() {
                    true => param,
                    false => param.map(|value| unreadable(value.dims(), &value.device())),
                }
            }
        }
        let _ = self.clone().map(&mut Lose);
    }
}

/// Makes a tensor whose values are read late, and cannot be read then.
fn unreadable<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let bytes = Bytes::from_file("no/such/file", shape.iter().product::<usize>() as u64 * 4, 0);
    Tensor::from_data(TensorData::from_bytes(bytes, shape, DType::F32), (device, DType::F32))
}

impl Task for Fragile {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let off = batch.features.clone() * self.memory.value().reshape([1, 1, FEATURES]);
        StepLoss::new((off * self.scale.val().reshape([1, 1, FEATURES])).square().sum())
    }
}

#[test]
fn a_lost_device_ends_a_run_with_its_first_error_and_a_failed_rescue() {
    for async_errors in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path(), 2);
        let config = TrainerConfig { async_errors, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let mut trainer = Trainer::new(Fragile::new(), config, Governor::new(8));
        let limits = Limits { steps: Some(STEPS), ..Limits::default() };
        let options = RunOptions { validate_every: Some(2), ..RunOptions::new(limits) };
        let batches = (0..8).map(|index| batch(index * 4..index * 4 + 4, 6)).collect();
        let mut source = BatchList::new(batches, Position::default());
        let mut events = Vec::new();
        let mut watch = |event: &Event| {
            if matches!(event, Event::Ended { .. } | Event::NotSaved { .. } | Event::Saved { .. }) {
                events.push(event.clone());
            }
        };
        let mut validate = |model: &Fragile, step, _: &mut InferenceRunner<'_>| {
            if step >= 2 {
                model.lose();
            }
            Ok(Score { value: f64::NAN, tie: 0.0, all: Vec::new() })
        };
        let run = Run::new(&mut trainer, &mut source, &store, &options).with_observer(&mut watch);
        let error = run.train(&mut validate).unwrap_err();
        assert!(
            matches!(&error, TrainError::Step { failures: 1, source: StepError::Device { step: 3, .. } }),
            "{error}"
        );
        let [Event::Ended { step: 2, end: EndKind::Failed, reason: first, .. }, Event::NotSaved { step: 2, reason }] =
            &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(*first, error_chain(&error), "the first error comes first");
        assert!(reason.contains("the device cannot return"), "{reason}");
    }
}

/// A model whose loss has a term that is unreadable.
#[derive(Module, Debug)]
struct LateLoss {
    scale: Param<Tensor<1>>,
}

impl Task for LateLoss {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let sum = (batch.features.clone() * self.scale.val().reshape([1, 1, FEATURES])).square().sum();
        StepLoss { parts: vec![("late", unreadable([1], &sum.device()))], ..StepLoss::new(sum) }
    }
}

#[test]
fn a_failure_that_shows_at_the_read_of_the_norm_is_an_error_of_the_step() {
    for async_errors in [false, true] {
        let config = TrainerConfig { async_errors, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let scale = Param::from_tensor(Tensor::ones([FEATURES], &Device::flex().autodiff()));
        let mut trainer = Trainer::new(LateLoss { scale }, config, Governor::new(8));
        let before = collect(&trainer.task);
        for _ in 0..2 {
            let error = trainer.step(&batch(0..8, 6)).unwrap_err();
            assert!(matches!(error, StepError::Device { step: 1, .. }), "{error}");
            assert!(collect(&trainer.task) == before && trainer.optimizer.steps() == 0);
        }
    }
}

/// A model whose every pass fails with the message of a device.
#[derive(Module, Debug)]
struct Refused {
    scale: Param<Tensor<1>>,
    #[module(skip)]
    message: String,
}

impl Refused {
    fn new(message: &str) -> Self {
        let scale = Param::from_tensor(Tensor::ones([FEATURES], &Device::flex().autodiff()));
        Self { scale, message: message.into() }
    }
}

impl Task for Refused {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    /// Panics with the message, or as a device without memory if the weights were not computed.
    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        assert!(self.message.is_empty(), "{}", self.message);
        let is_there = || self.scale.val().try_to_data().is_ok();
        let is_there = catch_unwind(AssertUnwindSafe(is_there)).unwrap_or(false);
        assert!(is_there, "out of device memory allocating 64 bytes");
        let scale = self.scale.val().reshape([1, 1, FEATURES]);
        StepLoss::new((batch.features.clone() * scale).square().sum())
    }
}

fn late_config() -> TrainerConfig {
    TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) }
}

#[test]
fn a_kernel_that_cannot_run_ends_the_step_and_is_no_lack_of_memory() {
    // As CubeCL 0.11 words them: a read names the bytes that are missing, and below it why they are.
    for root in [
        "A launch error happened\nCaused by:\n  A compilation error happened during launch\nCaused by:\n  ptxas refused it",
        "A launch error happened\nCaused by:\n  Too many resources were requested during launch\nToo much shared memory \
         requested.",
    ] {
        let message = format!(
            "The bytes were never written (failure #3, still claiming 9 buffer(s))\n  skipped `Matmul`: it needed memory 4, \
             which carried the failure\nCaused by:\n  {root}\nAsked at:\n   0: cubecl::read\n"
        );
        let mut trainer = Trainer::new(Refused::new(&message), late_config(), Governor::new(8));
        let error = trainer.step(&batch(0..8, 6)).unwrap_err();
        assert!(matches!(error, StepError::Device { step: 1, cause: FailureCause::Kernel, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("this is no lack of memory") && text.contains("Matmul"), "{text}");
        assert!(!text.contains("cubecl::read"), "{text}");
    }
}

#[test]
fn a_lost_device_is_named_with_a_way_on() {
    let message = "The device is poisoned\nCaused by:\n  an illegal address";
    let mut trainer = Trainer::new(Refused::new(message), late_config(), Governor::new(8));
    let error = trainer.step(&batch(0..8, 6)).unwrap_err();
    assert!(matches!(error, StepError::Device { cause: FailureCause::DeviceLost, .. }), "{error}");
    assert!(error.to_string().contains("go on from the last checkpoint"), "{error}");
}

#[test]
fn an_update_that_was_not_computed_loses_the_weights_and_no_utterance() {
    let mut trainer = Trainer::new(Refused::new(""), late_config(), Governor::new(8));
    for _ in 0..4 {
        trainer.step(&batch(0..8, 6)).unwrap();
    }
    // A device that had no memory in the update of step 4 says so when the weights are read.
    let device = trainer.task.scale.val().device();
    trainer.task.scale = Param::from_tensor(unreadable([FEATURES], &device));
    let error = trainer.step(&batch(8..16, 6)).unwrap_err();
    assert!(matches!(error, StepError::WeightsLost { step: 5, .. }), "{error}");
}
