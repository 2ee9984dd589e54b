//! Tests that compare rematerialized blocks with plain blocks.

use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::Int;
use burn::tensor::{Device, TensorData};
use plimsoll_core::{Key, SampleId};

use super::*;
use crate::activation::silu;
use crate::{Noise, backward, initialize};

#[derive(Module, Debug)]
struct Stack {
    first: Linear,
    second: Linear,
}

impl Stack {
    fn block(layer: &Linear, x: Tensor<2>, noise: &Noise) -> Tensor<2> {
        x.clone() + noise.dropout(silu(layer.forward(x)), 0.3)
    }

    /// Computes the model, with rematerialized layers if `again`. The second layer runs twice, so its parameters are
    /// shared.
    fn forward(&self, x: Tensor<2>, again: bool) -> Tensor<2> {
        let ids: Vec<SampleId> = (0..4).map(SampleId).collect();
        let layers = [&self.first, &self.second, &self.second];
        layers.into_iter().enumerate().fold(x, |x, (index, layer)| {
            let noise = Noise::new(Key::new(9).at(index as u64), &ids);
            match again {
                true => remat(layer, x, move |layer, x| Self::block(layer, x, &noise)),
                false => Self::block(layer, x, &noise),
            }
        })
    }
}

fn stack(device: &Device) -> Stack {
    let layer = || LinearConfig::new(6, 6).init(device);
    initialize(Stack { first: layer(), second: layer() }, Key::new(1))
}

fn input(device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..24).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [4, 6]), device)
}

fn values(gradients: &GradientsParams, stack: &Stack) -> Vec<Vec<f32>> {
    let matrix = |layer: &Linear| gradients.get::<2>(layer.weight.id).unwrap().into_data().try_into_vec().unwrap();
    let bias = |layer: &Linear| {
        let id = layer.bias.as_ref().unwrap().id;
        gradients.get::<1>(id).unwrap().into_data().try_into_vec().unwrap()
    };
    [&stack.first, &stack.second].into_iter().flat_map(|layer| [matrix(layer), bias(layer)]).collect()
}

#[test]
fn gradients_are_bit_identical_with_dropout_and_shared_parameters() {
    let device = Device::flex().autodiff();
    let stack = stack(&device);
    let gradients = |again| {
        let x = input(&device).require_grad();
        let y = stack.forward(x.clone(), again);
        let loss = (y.clone() * y).sum();
        values(&backward(loss, &stack), &stack)
    };
    assert_eq!(gradients(true), gradients(false));
}

#[test]
fn nested_blocks_pass_the_gradient_to_the_input() {
    let device = Device::flex().autodiff();
    let stack = stack(&device);
    let gradient = |again: bool| {
        let x = input(&device).require_grad();
        let y = match again {
            true => remat(&stack, x.clone(), |stack, x| stack.forward(x, true)),
            false => stack.forward(x.clone(), false),
        };
        let grads = y.square().sum().backward();
        x.grad(&grads).unwrap().into_data()
    };
    assert_eq!(gradient(true), gradient(false));
}

#[test]
fn capture_contains_both_passes() {
    let operations = |again| {
        let device = Device::capture();
        let captured = device.capture_scope(|scope| {
            let device = device.clone().autodiff();
            let stack = stack(&device);
            let y = stack.forward(input(&device), again);
            assert_eq!(backward(y.clone().mul(y).sum(), &stack).len(), 4);
            scope.complete([], [])
        });
        captured.unwrap().graph.operations.len()
    };
    assert!(operations(true) > operations(false));
}

#[test]
fn without_autodiff_the_block_runs_once() {
    let device = Device::flex();
    let stack = stack(&device);
    let x = input(&device);
    assert_eq!(stack.forward(x.clone(), true).into_data(), stack.forward(x, false).into_data());
}

/// Block for tests, with an integer input, two outputs, one input that requires no gradient, and running statistics.
#[derive(Module, Debug)]
struct MixedBlock {
    embedding: Embedding,
    norm: BatchNorm,
    mix: Linear,
}

type MixedInputs = (Tensor<2, Int>, Tensor<2>, [Tensor<2>; 2]);

impl MixedBlock {
    fn forward(&self, (ids, constant, [a, b]): MixedInputs) -> (Tensor<2>, Vec<Tensor<2>>) {
        let [n, _] = ids.dims();
        let embedded: Tensor<2> = self.embedding.forward(ids).reshape([n, 6]);
        let mixed = self.norm.forward(self.mix.forward(embedded + a.clone() * constant));
        (mixed.clone() * b, vec![mixed.exp(), a])
    }
}

fn mixed_block(device: &Device) -> MixedBlock {
    let block = MixedBlock {
        embedding: EmbeddingConfig::new(5, 6).init(device),
        norm: BatchNormConfig::new(6).init(device),
        mix: LinearConfig::new(6, 6).init(device),
    };
    initialize(block, Key::new(4))
}

/// Computes gradients of parameters and inputs in three passes, with a rematerialized block if `again`, and the running
/// statistics after the passes.
fn mixed_results(again: bool) -> Vec<TensorData> {
    let device = Device::flex().autodiff();
    let block = mixed_block(&device);
    let mut results = Vec::new();
    for _ in 0..3 {
        let ids = Tensor::<2, Int>::from_ints([[1], [3], [3], [0]], &device);
        let (a, b) = (input(&device).require_grad(), (input(&device) * 2.0).require_grad());
        let inputs = (ids, input(&device) + 1.0, [a.clone(), b.clone()]);
        let (first, rest) = match again {
            true => remat(&block, inputs, MixedBlock::forward),
            false => block.forward(inputs),
        };
        // The third output reaches no loss.
        let loss = (first.clone() * first).sum() + rest[0].clone().sum();
        let tape = loss.backward();
        results.extend([a.grad(&tape).unwrap().into_data(), b.grad(&tape).unwrap().into_data()]);
        let gradients = GradientsParams::from_grads(tape, &block);
        results.push(gradients.get::<2>(block.embedding.weight.id).unwrap().into_data());
        results.push(gradients.get::<2>(block.mix.weight.id).unwrap().into_data());
    }
    let norm = block.norm.valid();
    results.extend([norm.running_mean.value().into_data(), norm.running_var.value().into_data()]);
    results
}

#[test]
fn mixed_inputs_and_outputs_work_and_statistics_move_once() {
    assert_eq!(mixed_results(true), mixed_results(false));
}
