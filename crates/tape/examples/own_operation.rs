//! An operation with a gradient of its own, keyed dropout, and gradients by parameter, in a model of plain Burn
//! modules.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Key, SampleId};
use plimsoll_tape::activation::silu;
use plimsoll_tape::losses::with_gradient;
use plimsoll_tape::{Noise, backward, count, initialize};

#[derive(Module, Debug)]
struct Perceptron {
    first: Linear,
    second: Linear,
}

impl Perceptron {
    fn forward(&self, x: Tensor<2>, noise: &Noise) -> Tensor<2> {
        self.second.forward(noise.dropout(silu(self.first.forward(x)), 0.1))
    }
}

/// Computes the sum of squares, with its gradient derived by hand.
fn sum_of_squares(x: Tensor<2>) -> Tensor<1> {
    let inner = x.clone().without_autodiff();
    with_gradient(x, inner.clone().square().sum(), inner * 2.0)
}

fn main() {
    let device = Device::flex().autodiff();
    let model =
        Perceptron { first: LinearConfig::new(4, 16).init(&device), second: LinearConfig::new(16, 2).init(&device) };
    let model = initialize(model, Key::new(1));
    let samples = ["ann", "bob", "cleo"].map(SampleId::from_name);
    let noise = Noise::new(Key::new(2).with("dropout"), &samples);
    let loss = sum_of_squares(model.forward(Tensor::ones([3, 4], &device), &noise));
    println!("loss {:.4} of {} parameters", loss.clone().into_scalar::<f32>(), count(&model));
    let gradients = backward(loss, &model);
    let weight = gradients.get::<2>(model.first.weight.id).expect("the loss depends on it");
    println!("gradient of the first weight: norm {:.4}", weight.square().sum().sqrt().into_scalar::<f32>());
}
