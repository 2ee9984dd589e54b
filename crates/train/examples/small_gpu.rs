//! Trains Burn's own modules on a GPU within 96 MiB, where a batch needs more: `cargo run --example small_gpu --features wgpu`.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, DeviceKind, Tensor, activation::relu};
use plimsoll_core::{Batch, Bytes, Key, PoolGate, SampleId};
use plimsoll_tape::{Pass, StepLoss, Task, initialize};
use plimsoll_train::pools::PoolMeter;
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

/// Numbers from 0 to 1. In this example they follow from the ids; real data would be a second field.
#[derive(Clone)]
struct Numbers(Vec<SampleId>);

impl Batch for Numbers {
    fn ids(&self) -> &[SampleId] {
        &self.0
    }
    fn select(&self, places: &[usize]) -> Self {
        Self(places.iter().map(|&place| self.0[place]).collect())
    }
}

/// Learns the square of a number.
#[derive(Module, Debug)]
struct Squares {
    hidden: Linear,
    output: Linear,
}

impl Task for Squares {
    type Batch = Numbers;
    type Tensors = Tensor<2>;
    fn send(Numbers(ids): &Numbers, device: &Device) -> Tensor<2> {
        let values: Vec<f32> = ids.iter().map(|id| Key::new(id.0).unit() as f32).collect();
        Tensor::<1>::from_floats(&values[..], device).reshape([-1, 1])
    }
    fn loss(&self, x: &Tensor<2>, _: &Pass) -> StepLoss {
        let y = self.output.forward(relu(self.hidden.forward(x.clone())));
        StepLoss::new((y - x.clone().square()).square().sum())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::wgpu(DeviceKind::DefaultDevice).autodiff();
    let (hidden, output) = (LinearConfig::new(1, 256).init(&device), LinearConfig::new(256, 1).init(&device));
    let model = initialize(Squares { hidden, output }, Key::new(2));
    let config = TrainerConfig::new(Schedule::constant(0.01), Key::new(1));
    let meter = PoolMeter::new(&device);
    // 64 Ki numbers take 64 MiB for each of several tensors. The governor begins with all of them at once.
    let mut trainer = Trainer::new(model, config, Governor::new(1 << 16))
        .with_memory(PoolGate::new(meter.clone(), Bytes::mib(96)), meter);
    for step in 0..8 {
        let report = trainer.step(&Numbers((step << 16..(step + 1) << 16).map(SampleId).collect()))?;
        let (parts, refused, peak) = (report.micro_batches.len(), report.failures.len(), report.peak.0);
        println!(
            "step {}: loss {:.4}, {parts} micro-batches, {refused} refused, {peak} reserved",
            step + 1,
            report.loss
        );
    }
    Ok(())
}
