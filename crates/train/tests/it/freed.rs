//! The graph of a pass that failed is freed before the next attempt, though the weights of the model are still in use.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, HostBatch, Key, MemoryGate, OutOfMemory, Stage};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, remat};
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

use crate::gates::NoMeter;
use crate::net::{FEATURES, batch};

/// What each pass so far holds, and the numbers of earlier passes that are still held when a pass begins.
static PASSES: Mutex<(Vec<Weak<()>>, Vec<usize>)> = Mutex::new((Vec::new(), Vec::new()));

/// A model whose graph holds something that the test can see.
#[derive(Module, Debug)]
struct Holding {
    first: Linear,
    second: Linear,
}

impl Task for Holding {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.len() as f64
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let held = Arc::new(());
        let mut passes = PASSES.lock().unwrap();
        let alive = passes.0.iter().filter(|pass| pass.strong_count() > 0).count();
        passes.1.push(alive);
        passes.0.push(Arc::downgrade(&held));
        drop(passes);
        let x = self.first.forward(batch.features.clone());
        let x = remat(&self.second, x, move |second: &Linear, x: Tensor<3>| {
            let _ = &held;
            second.forward(x)
        });
        StepLoss::new(x.square().sum())
    }
}

/// Fails at the second check of a forward pass.
#[derive(Clone, Debug, Default)]
struct FailsOnce(Arc<AtomicUsize>);

impl MemoryGate for FailsOnce {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        match stage == Stage::Forward && self.0.fetch_add(1, Relaxed) == 1 {
            true => Err(OutOfMemory { stage, reason: "injected by the test".into() }),
            false => Ok(()),
        }
    }
}

#[test]
fn a_failed_pass_holds_nothing_at_the_next_attempt() {
    let device = Device::flex().autodiff();
    let layer = |inputs| LinearConfig::new(inputs, 4).init(&device);
    let model = Holding { first: layer(FEATURES), second: layer(4) };
    let config = TrainerConfig::new(Schedule::constant(1e-3), Key::new(1));
    let mut trainer = Trainer::new(model, config, Governor::new(8)).with_memory(FailsOnce::default(), NoMeter);
    // The update makes new leaves, which the graph of the next pass begins with.
    for step in 0..3 {
        let report = trainer.step(&batch(step * 8..step * 8 + 8, 10)).unwrap();
        assert_eq!(report.failures.len(), usize::from(step == 1), "{:?}", report.failures);
    }
    let alive = PASSES.lock().unwrap().1.clone();
    // The second step fails once; it and the next are computed in halves.
    assert_eq!(alive, [0; 6]);
}
