//! Layer norm: each row gets mean zero and variance one, then a scale and a shift per value.

use burn::tensor::Tensor;

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
    let centered = x.clone() - x.mean_dim(D - 1);
    let deviation = (centered.clone().square().mean_dim(D - 1) + epsilon).sqrt();
    centered / deviation * scale.unsqueeze() + shift.unsqueeze()
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
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn tensor<const D: usize>(shape: [usize; D], key: u64, device: &Device) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 * 3.0 - 1.0).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
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
