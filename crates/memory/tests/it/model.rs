//! A model of any size: layers that mix over time and over features, each with rematerialization.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, BatchShape, Grid, HostBatch, HostSample, SampleId};
use plimsoll_memory::Traceable;
use plimsoll_tape::activation::silu;
use plimsoll_tape::transfer::Constants;
use plimsoll_tape::{AttentionMask, Pass, StepLoss, Task, TensorBatch, attention_weights, layer_norm, remat};

#[derive(Module, Debug)]
pub(crate) struct Mixer {
    widen: Linear,
    narrow: Linear,
}

#[derive(Module, Debug)]
pub(crate) struct Stack {
    layers: Vec<Mixer>,
    heads: usize,
}

impl Mixer {
    fn forward(&self, x: Tensor<3>, heads: usize, pass: &Pass) -> Tensor<3> {
        let [b, t, d] = x.dims();
        let ones = |value: f32| Tensor::<1>::full([d], value, &x.device());
        let normed = layer_norm(x.clone(), ones(1.0), ones(0.0), 1e-5);
        let split = normed.reshape([b, t, heads, d / heads]).swap_dims(1, 2);
        let scores = split.clone().matmul(split.clone().swap_dims(2, 3));
        let constants = Constants::default();
        let sight = AttentionMask { key_lengths: vec![t as u32; b].into(), causal: true, first_query: 0, constants };
        let mixed = attention_weights(scores, None, &sight, &pass.with("mix").noise().clone(), 0.1).matmul(split);
        let x = x + mixed.swap_dims(1, 2).reshape([b, t, d]);
        x.clone() + pass.dense(&self.narrow, pass.dropout(silu(pass.dense(&self.widen, x)), 0.1))
    }
}

impl Task for Stack {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.shape().frame_cells() as f64
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let (mut x, heads) = (batch.features.clone(), self.heads);
        for (place, layer) in self.layers.iter().enumerate() {
            let pass = pass.at(place);
            x = match pass.choice().remat.covers(place) {
                true => remat(layer, x, move |layer, x| layer.forward(x, heads, &pass)),
                false => layer.forward(x, heads, &pass),
            };
        }
        StepLoss::new((x - batch.features.clone()).square().sum())
    }
}

/// Size of a `Stack`, from which the test model and its batches are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stacks {
    pub(crate) heads: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
}

impl Traceable for Stacks {
    type Task = Stack;

    fn init(&self, device: &Device) -> Stack {
        let d = self.heads * self.width;
        let layer = || Mixer {
            widen: LinearConfig::new(d, 4 * d).init(device),
            narrow: LinearConfig::new(4 * d, d).init(device),
        };
        Stack { layers: (0..self.layers).map(|_| layer()).collect(), heads: self.heads }
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        let width = self.heads * self.width;
        let sample = |place: u32| HostSample {
            id: SampleId(u64::from(place)),
            name: place.to_string(),
            features: vec![0.5; shape.frames.0 as usize * width],
            tokens: vec![1; shape.tokens as usize],
            reference: Vec::new(),
        };
        let samples: Vec<HostSample> = (0..shape.utterances).map(sample).collect();
        HostBatch::collate(&samples, width, &Grid::default()).unwrap()
    }
}
