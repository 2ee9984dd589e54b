//! The gradients of a module's parameters, on every device.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_autodiff::grads::Gradients;
use std::marker::PhantomData;

use crate::bridge::{Surface, on_backend};

/// Runs the backward pass of `loss` and returns the gradient of every parameter of `module` that has one.
///
/// Unlike [`Tensor::backward`], this works on the recording device too, so a planner can trace it.
///
/// # Panics
/// Where `loss` depends on no parameter that requires a gradient.
pub fn backward<M: Module>(loss: Tensor<1>, module: &M) -> GradientsParams {
    let device = loss.device();
    on_backend!(&device, B => backward_on::<B, M>(loss, module))
}

fn backward_on<B: Surface, M: Module>(loss: Tensor<1>, module: &M) -> GradientsParams {
    let tape = B::tracked(loss).backward();
    let mut collector = Collector::<B> { tape, found: GradientsParams::new(), backend: PhantomData };
    module.visit(&mut collector);
    collector.found
}

struct Collector<B> {
    tape: Gradients,
    found: GradientsParams,
    backend: PhantomData<B>,
}

impl<B: Surface> ModuleVisitor for Collector<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            return;
        }
        if let Some(gradient) = B::tracked(value).grad_remove(&mut self.tape) {
            self.found.register(param.id, B::from_plain::<D>(gradient));
        }
    }
}
