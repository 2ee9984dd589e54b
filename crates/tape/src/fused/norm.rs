//! Layer norm: each row gets mean zero and variance one, then a scale and a shift per value.

use std::marker::PhantomData;

use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use crate::bridge::{PrimitiveBackend, on_backend};
use crate::host::{HostOp, Input, is_host, run};
use crate::simd::{sum, vectorized};

/// Normalizes each row of `x` (its last axis) to mean zero and variance one, then multiplies by `scale` and adds
/// `shift`.
///
/// `epsilon` is added to the variance. PyTorch and Burn use 1e-5.
///
/// # Panics
/// If the last axis, `scale` and `shift` differ in length.
pub fn layer_norm<const D: usize>(x: Tensor<D>, scale: Tensor<1>, shift: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let shape = x.dims();
    let width = shape[D - 1];
    assert!(
        scale.dims() == [width] && shift.dims() == [width],
        "layer norm needs one scale and one shift per value of a row"
    );
    if is_host(&x) && is_host(&scale) {
        let op = LayerNorm { width, epsilon: epsilon as f32 };
        return run(op, [Input::new(x), Input::new(scale), Input::new(shift)], shape);
    }
    if !(x.is_autodiff() && scale.is_autodiff() && shift.is_autodiff()) {
        let (mean, inverse) = moments_of_rows(&x, epsilon);
        return (x - mean) * inverse * scale.unsqueeze() + shift.unsqueeze();
    }
    let device = x.device();
    on_backend!(&device, B => on_device::<B, D>(x, scale, shift, epsilon))
}

/// Computes the mean of each row, and one over its standard deviation.
fn moments_of_rows<const D: usize>(x: &Tensor<D>, epsilon: f64) -> (Tensor<D>, Tensor<D>) {
    let mean = x.clone().mean_dim(D - 1);
    let variance = (x.clone() - mean.clone()).square().mean_dim(D - 1);
    (mean, (variance + epsilon).sqrt().recip())
}

/// Computes layer norm as one operation of the tape, which keeps its input and the moments of the rows. Composed of Burn's
/// operations, its backward pass would be some forty kernels, and would keep three tensors of the size of the input.
fn on_device<B: PrimitiveBackend, const D: usize>(
    x: Tensor<D>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    let (x, node) = B::tracked(x).into_parts();
    let (scale, scale_node) = B::tracked(scale).into_parts();
    let (shift, shift_node) = B::tracked(shift).into_parts();
    let (x, scale): (Tensor<D>, Tensor<1>) = (B::from_plain(x), B::from_plain(scale));
    let (mean, inverse) = moments_of_rows(&x, epsilon);
    let shift = B::from_plain::<1>(shift);
    let y = (x.clone() - mean.clone()) * inverse.clone() * scale.clone().unsqueeze() + shift.unsqueeze();
    let kept = [B::plain(x), B::plain(mean), B::plain(inverse), B::plain(scale)];
    let nodes = [node, scale_node, shift_node];
    let step = DeviceStep::<B, D>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(kept, B::plain(y)),
        OpsKind::UnTracked(step) => step.finish(B::plain(y)),
    })
}

#[derive(Debug)]
struct DeviceStep<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 3> for DeviceStep<B, D> {
    /// Input, mean and inverse deviation of the rows, scale.
    type State = [FloatTensor<B>; 4];

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<D> = B::from_plain(gradients.consume::<B>(&ops.node));
        let [x, mean, inverse, scale] = ops.state;
        let (x, mean, inverse): (Tensor<D>, Tensor<D>, Tensor<D>) =
            (B::from_plain(x), B::from_plain(mean), B::from_plain(inverse));
        let width = x.dims()[D - 1];
        let normed = (x - mean) * inverse.clone();
        let along_rows = |values: Tensor<D>| values.reshape([-1, width as i32]).sum_dim(0).reshape([width]);
        let [x_parent, scale_parent, shift_parent] = ops.parents;
        if let Some(parent) = x_parent {
            // Its mean and its component along the normalized row do not change the output.
            let gradient = grad_output.clone() * B::from_plain::<1>(scale).unsqueeze();
            let flat = gradient.clone().mean_dim(D - 1);
            let along = (gradient.clone() * normed.clone()).mean_dim(D - 1);
            let gradient = (gradient - flat - normed.clone() * along) * inverse;
            gradients.register::<B>(parent.id, B::plain(gradient));
        }
        if let Some(parent) = scale_parent {
            gradients.register::<B>(parent.id, B::plain(along_rows(grad_output.clone() * normed)));
        }
        if let Some(parent) = shift_parent {
            gradients.register::<B>(parent.id, B::plain(along_rows(grad_output)));
        }
    }
}

#[derive(Clone, Debug)]
struct LayerNorm {
    width: usize,
    epsilon: f32,
}

impl LayerNorm {
    /// Computes the mean of a row, and one over its standard deviation.
    #[inline(always)]
    fn moments(&self, row: &[f32]) -> (f32, f32) {
        let n = self.width as f32;
        let mean = sum(row.iter().copied()) / n;
        let variance = sum(row.iter().map(|x| (x - mean) * (x - mean))) / n;
        (mean, 1.0 / (variance + self.epsilon).sqrt())
    }
}

impl HostOp<3> for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn forward(&self, [x, scale, shift]: [&[f32]; 3]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || {
                for (y, x) in y.chunks_exact_mut(self.width).zip(x.chunks_exact(self.width)) {
                    let (mean, inverse) = self.moments(x);
                    for (((y, x), scale), shift) in y.iter_mut().zip(x).zip(scale).zip(shift) {
                        *y = (x - mean) * inverse * scale + shift;
                    }
                }
            },
        );
        y
    }

    fn backward(&self, [x, scale, _]: [&[f32]; 3], grad_output: &[f32], wanted: [bool; 3]) -> [Option<Vec<f32>>; 3] {
        let width = self.width;
        let mut grad_x = vec![0.0; x.len()];
        let (mut grad_scale, mut grad_shift) = (vec![0.0; width], vec![0.0; width]);
        let n = width as f32;
        vectorized(
            #[inline(always)]
            || {
                let rows =
                    grad_x.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(grad_output.chunks_exact(width));
                for ((grad_x, x), grad_output) in rows {
                    let (mean, inverse) = self.moments(x);
                    // The gradient of the normalized row. Its mean and its component along the normalized row do not
                    // change the output.
                    for (grad_x, (grad_output, scale)) in grad_x.iter_mut().zip(grad_output.iter().zip(scale)) {
                        *grad_x = grad_output * scale;
                    }
                    let flat = sum(grad_x.iter().copied()) / n;
                    let along = sum(grad_x.iter().zip(x).map(|(g, x)| g * (x - mean) * inverse)) / n;
                    for i in 0..width {
                        let normed = (x[i] - mean) * inverse;
                        grad_x[i] = inverse * (grad_x[i] - flat - normed * along);
                        grad_scale[i] += grad_output[i] * normed;
                        grad_shift[i] += grad_output[i];
                    }
                }
            },
        );
        let [x, scale, shift] = wanted;
        [x.then_some(grad_x), scale.then_some(grad_scale), shift.then_some(grad_shift)]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, FloatDType, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn tensor<const D: usize>(shape: [usize; D], key: u64, device: &Device) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 * 3.0 - 1.0).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    #[test]
    fn other_devices_compute_the_same_values_and_gradients() {
        let device = Device::flex().autodiff();
        for width in [1, 5, 50] {
            let results = |host: bool| {
                let cast = |x: Tensor<1>| if host { x } else { x.cast(FloatDType::F64) };
                let leaf = |key| cast(tensor([width], key, &device)).detach().require_grad();
                let x = tensor([3, 2, width], 1, &device);
                let x = if host { x } else { x.cast(FloatDType::F64) }.detach().require_grad();
                let (scale, shift) = (leaf(2), leaf(3));
                let y = layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5);
                let factor = tensor([3, 2, width], 4, &device);
                let factor = if host { factor } else { factor.cast(FloatDType::F64) };
                let grads = (y.clone() * factor).sum().backward();
                let of_parameters = [scale.grad(&grads).unwrap().into_data(), shift.grad(&grads).unwrap().into_data()];
                let [scale, shift] = of_parameters;
                [y.into_data(), x.grad(&grads).unwrap().into_data(), scale, shift].map(|data| data.convert::<f32>())
            };
            for (ours, theirs) in results(true).iter().zip(&results(false)) {
                ours.assert_approx_eq::<f32>(theirs, burn::tensor::Tolerance::rel_abs(1e-4, 2e-4));
            }
        }
    }

    #[test]
    fn values_and_gradients_equal_those_of_burn() {
        let device = Device::flex().autodiff();
        for width in [1, 5, 16, 50] {
            let results = |ours: bool| {
                let leaf = |key| tensor([width], key, &device).require_grad();
                let (x, scale, shift) = (tensor([3, 2, width], 1, &device).require_grad(), leaf(2), leaf(3));
                let y = if ours {
                    layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5)
                } else {
                    let centered = x.clone() - x.clone().mean_dim(2);
                    let deviation = (centered.clone().square().mean_dim(2) + 1e-5).sqrt();
                    centered / deviation * scale.clone().unsqueeze() + shift.clone().unsqueeze()
                };
                let grads = (y.clone() * tensor([3, 2, width], 4, &device)).sum().backward();
                let grad_x = x.grad(&grads).unwrap().into_data();
                [
                    y.into_data(),
                    grad_x,
                    scale.grad(&grads).unwrap().into_data(),
                    shift.grad(&grads).unwrap().into_data(),
                ]
            };
            for (ours, theirs) in results(true).iter().zip(&results(false)) {
                ours.assert_approx_eq::<f32>(theirs, burn::tensor::Tolerance::rel_abs(1e-4, 2e-4));
            }
        }
    }
}
