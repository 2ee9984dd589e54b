//! Plans the Transformer encoder of Burn for a GPU that is not in this machine.
//!
//! `cargo run --example transformer -- [GPU or size]`

use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, BatchShape, SampleId};
use plimsoll_memory::{BackendRules, Demand, MemoryModel, Speed, Traceable, find, plan};
use plimsoll_tape::{Pass, StepLoss, Task, remat};

/// Sequences of 512 tokens, embedded in 768 features. A batch for a plan has no values.
#[derive(Clone)]
struct Sequences(Vec<SampleId>);
impl Batch for Sequences {
    fn ids(&self) -> &[SampleId] {
        &self.0
    }
    fn select(&self, places: &[usize]) -> Self {
        Self(places.iter().map(|&place| self.0[place]).collect())
    }
}

#[derive(Module, Debug)]
struct Model {
    encoder: TransformerEncoder,
}
impl Task for Model {
    type Batch = Sequences;
    type Tensors = Tensor<3>;
    fn send(batch: &Sequences, device: &Device) -> Tensor<3> {
        Tensor::zeros([batch.len(), 512, 768], device)
    }
    fn loss(&self, x: &Tensor<3>, pass: &Pass) -> StepLoss {
        let layers = self.encoder.layers.iter().enumerate();
        let y = layers.fold(x.clone(), |x, (place, layer)| match pass.choice().remat.covers(place) {
            true => remat(layer, x, |layer, x| layer.forward(x, None, None)),
            false => layer.forward(x, None, None),
        });
        StepLoss::new((y - x.clone()).square().sum())
    }
}

struct Base;
impl Traceable for Base {
    type Task = Model;
    fn init(&self, device: &Device) -> Model {
        Model { encoder: TransformerEncoderConfig::new(768, 3072, 12, 12).with_dropout(0.0).init(device) }
    }
    fn batch(&self, shape: BatchShape) -> Sequences {
        Sequences((0..u64::from(shape.utterances)).map(SampleId).collect())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu = find(&std::env::args().nth(1).unwrap_or_else(|| "8GiB".into()))?;
    let demand = Demand::new(vec![BatchShape::samples(64)], BackendRules::cuda()).with_blocks(12);
    let plan = plan(&MemoryModel::new(&Base, demand)?, gpu.usable, &Speed::for_gpu(&gpu))?;
    println!("{}: {plan:#?}", gpu.name);
    Ok(())
}
