//! Scalars with a known gradient: results of computations that autodiff did not record.

use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use std::marker::PhantomData;

use crate::bridge::{PrimitiveBackend, on_backend, without_autodiff};

/// Attaches a known gradient to a scalar: `value` was computed from `input` without autodiff, and `gradient` is the
/// derivative of `value` by `input`.
///
/// The result is `value` with autodiff. In the backward pass `input` gets `gradient` times the gradient of the result.
/// Any graphs of `value` and `gradient` are dropped. Used for losses whose gradient is known in closed form, such as CTC.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_tape::losses::with_gradient;
///
/// // The sum of squares, with its gradient computed by hand.
/// let device = Device::flex().autodiff();
/// let x = Tensor::<1>::from_floats([1.0, -2.0], &device).require_grad();
/// let inner = x.clone().without_autodiff();
/// let loss = with_gradient(x.clone(), inner.clone().square().sum(), inner * 2.0);
/// let grads = (loss * 3.0).backward();
/// assert_eq!(x.grad(&grads).unwrap().into_data().try_to_vec::<f32>().unwrap(), [6.0, -12.0]);
/// ```
///
/// # Panics
/// If `input` is not on an autodiff device, or `gradient` has another shape.
pub fn with_gradient<const D: usize>(input: Tensor<D>, value: Tensor<1>, gradient: Tensor<D>) -> Tensor<1> {
    assert_eq!(input.dims(), gradient.dims(), "the gradient must have the shape of the input");
    let device = input.device();
    on_backend!(&device, B => with_gradient_on::<B, D>(input, value, gradient))
}

fn with_gradient_on<B: PrimitiveBackend, const D: usize>(
    input: Tensor<D>,
    value: Tensor<1>,
    gradient: Tensor<D>,
) -> Tensor<1> {
    let input = B::tracked(input);
    let (value, gradient) = (B::plain(value), KnownGradient(without_autodiff(gradient)));
    let step =
        WithGradientStep::<B, D>(PhantomData).prepare::<NoCheckpointing>([input.node()]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(gradient, value),
        OpsKind::UnTracked(step) => step.finish(value),
    })
}

#[derive(Clone, Debug)]
struct KnownGradient<const D: usize>(Tensor<D>);

#[derive(Debug)]
struct WithGradientStep<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 1> for WithGradientStep<B, D> {
    type State = KnownGradient<D>;

    fn backward(self, ops: Ops<KnownGradient<D>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<1> = B::from_plain(gradients.consume::<B>(&ops.node));
        let grad_output: Tensor<D> = grad_output.reshape(Shape::new([1; D]));
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, B::plain(ops.state.0 * grad_output));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::tensor::Device;

    use super::*;
    use crate::backward;

    #[derive(Module, Debug)]
    struct Weights {
        weight: Param<Tensor<2>>,
    }

    fn known(weights: &Weights) -> Tensor<1> {
        let inner = without_autodiff(weights.weight.val());
        with_gradient(weights.weight.val(), inner.clone().square().sum(), inner * 2.0)
    }

    #[test]
    fn known_gradient_equals_recorded_gradient() {
        let device = Device::flex().autodiff();
        let weights = Weights { weight: Param::from_data([[1.0, -2.0], [0.5, 3.0]], &device) };
        let recorded = backward(weights.weight.val().square().sum() * 0.25, &weights);
        let known = backward(known(&weights) * 0.25, &weights);
        let read = |g: burn::optim::GradientsParams| g.get::<2>(weights.weight.id).unwrap().into_data();
        assert_eq!(read(known), read(recorded));
    }

    #[test]
    fn works_on_the_capture_device() {
        let device = Device::capture();
        let captured = device.capture_scope(|scope| {
            let device = device.clone().autodiff();
            let weights = Weights { weight: Param::from_data([[1.0, -2.0]], &device) };
            assert_eq!(backward(known(&weights), &weights).len(), 1);
            scope.complete([], [])
        });
        assert!(captured.unwrap().graph.operations.len() > 3);
    }
}
