//! Gradients of the parameters of a module, on every device.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_autodiff::grads::Gradients;
use std::marker::PhantomData;

use crate::bridge::{PrimitiveBackend, on_backend};
use crate::flat::copy_at;
use crate::transfer::send_queued;

/// Runs the backward pass of `loss` and returns the gradient of each parameter of `module` that has one: in fp32, or in 16
/// bits where the parameter was used as a [copy in 16 bits](crate::flat::LowParameters) alone.
///
/// Unlike [`Tensor::backward`], this also works on the capture device, so that a planner can trace a training step.
///
/// # Panics
/// If `loss` does not depend on a tensor that requires a gradient.
pub fn backward<M: Module>(loss: Tensor<1>, module: &M) -> GradientsParams {
    let device = loss.device();
    // What computes the sums of a loss is not fused together with what computes their gradients.
    send_queued(&device);
    on_backend!(&device, B => backward_on::<B, M>(loss, module))
}

/// Frees the graph of a forward pass whose loss was dropped without a backward pass.
///
/// Burn 0.22 does not free such a graph at once: each backward pass of any other graph frees one operation of it, from
/// its input on. After an out-of-memory failure the memory is needed before the next attempt. This function runs 4,096
/// empty backward passes on the CPU, more than the deepest model has operations in a row. The passes take about ten
/// milliseconds, and some tenths of a second after a graph of thousands of operations.
///
/// Burn frees nothing of a graph while a leaf of it is in use that no backward pass has reached, such as a weight since its
/// last update. So give the model other leaves first: map each parameter to its value, detached and with a gradient. The
/// trainer of `plimsoll-train` does.
pub fn free_dropped_graphs() {
    let device = Device::flex().autodiff();
    for _ in 0..DEEPEST {
        let _ = Tensor::<1>::zeros([1], &device).require_grad().backward();
    }
}

/// Upper bound of the number of operations in a row from the input of a model to its loss: a Conformer of 17 blocks has
/// about 1,500.
const DEEPEST: usize = 4096;

fn backward_on<B: PrimitiveBackend, M: Module>(loss: Tensor<1>, module: &M) -> GradientsParams {
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

impl<B: PrimitiveBackend> ModuleVisitor for Collector<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            return;
        }
        let value = B::tracked(value);
        let low = copy_at::<D>(value.id()).and_then(|copy| B::tracked(copy).grad_remove(&mut self.tape));
        let gradient = match (value.grad_remove(&mut self.tape), low) {
            (Some(gradient), Some(low)) => {
                Some(B::from_plain::<D>(gradient) + B::from_plain(low).cast(FloatDType::F32))
            }
            (gradient, low) => gradient.or(low).map(B::from_plain),
        };
        if let Some(gradient) = gradient {
            self.found.register(param.id, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use std::sync::Arc;

    use super::*;
    use crate::remat;

    #[test]
    fn dropped_graph_is_freed() {
        let device = Device::flex().autodiff();
        let kept = Arc::new(());
        let mut x = Tensor::<1>::ones([4], &device).require_grad();
        for _ in 0..100 {
            x = x.clone() * x;
        }
        let held = kept.clone();
        let layer: Linear = LinearConfig::new(4, 4).init(&device);
        let y = remat(&layer, x.unsqueeze::<2>(), move |layer: &Linear, x: Tensor<2>| {
            let _ = &held;
            layer.forward(x)
        });
        drop(y);
        assert_eq!(
            Arc::strong_count(&kept),
            2,
            "Burn frees dropped graphs by itself: `free_dropped_graphs` is no longer needed"
        );
        free_dropped_graphs();
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
