//! Does a model fit a card that is not here? `cargo run --example fits -- [CARD]`

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use plimsoll_core::{BatchShape, Frames, Grid, HostBatch, HostSample, Precision, SampleId};
use plimsoll_memory::{BackendRules, Demand, Speed, StepMemory, Subject, Survey, find, plan};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, remat, silu};

/// A stack of layers that learns to give back what it is given: any Burn model would do.
#[derive(Module, Debug)]
struct Stack {
    layers: Vec<Linear>,
}

impl Task for Stack {
    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.shape().frame_cells() as f64
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let mut x = batch.features.clone();
        for (place, layer) in self.layers.iter().enumerate() {
            x = match pass.choice().remat.covers(place) {
                true => remat(layer, x, |layer, x| silu(layer.forward(x))),
                false => silu(layer.forward(x)),
            };
        }
        StepLoss::of((x - batch.features.clone()).square().sum())
    }
}

struct Stacks {
    width: usize,
    layers: usize,
}

impl Subject for Stacks {
    type Task = Stack;

    fn init(&self, device: &Device) -> Stack {
        Stack { layers: (0..self.layers).map(|_| LinearConfig::new(self.width, self.width).init(device)).collect() }
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        let features = vec![0.0; shape.frames.0 as usize * self.width];
        let sample = |place| HostSample {
            id: SampleId(place),
            name: place.to_string(),
            features: features.clone(),
            tokens: vec![0; shape.tokens as usize],
            reference: Vec::new(),
        };
        let samples: Vec<HostSample> = (0..u64::from(shape.utterances)).map(sample).collect();
        HostBatch::collate(&samples, self.width, &Grid::default()).expect("whole frames")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let card = find(&std::env::args().nth(1).unwrap_or_else(|| "8GiB".into()))?;
    let stacks = Stacks { width: 1024, layers: 24 };
    let lengths = [500, 1000, 2000].map(|frames| BatchShape { utterances: 32, frames: Frames(frames), tokens: 1 });
    let demand = Demand {
        buckets: lengths.to_vec(),
        blocks: 24,
        second_passes: Demand::all_second_passes(24),
        chunks: vec![None],
        precision: Precision::Fp32,
        micro_batch: None,
        rules: BackendRules::card(),
        step: StepMemory::default(),
        prefetch: 1,
        lean_bits: 17,
    };
    let survey = Survey::of(&stacks, demand)?;
    let plan = plan(&survey, card.usable, &Speed::of(&card, Precision::Fp32))?;
    println!("{}: {} of {} at most", card.name, plan.peak, plan.budget);
    for bucket in &plan.buckets {
        let (frames, peak) = (bucket.bucket.frames.0, bucket.peak);
        println!("{frames:>6} frames: {:>2} at once, {:?}, {peak}", bucket.micro_batch, bucket.choice.remat);
    }
    Ok(())
}
