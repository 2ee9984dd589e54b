//! Relative shift: turns attention scores by distance into scores by key.

use burn::tensor::{Shape, Tensor};

use crate::bridge::PrimitiveBackend;
use crate::host::{HostBackend, HostOp, HostScratch, Input, is_host, on_host, run};

// Shapes: b samples, h heads, q queries, l distances, k keys.

/// Turns attention scores by distance `[samples, heads, q, l]` into scores by key `[samples, heads, q, keys]`.
///
/// Row `r` of the result is row `r` of `scores` from index `q - 1 - r` on. Distances decrease along the row, beginning
/// with the distance between the last query and the first key (Dai et al. 2019).
///
/// # Panics
/// If `l` is not `q - 1 + keys`.
pub(super) fn relative_shift(scores: Tensor<4>, keys: usize) -> Tensor<4> {
    let [b, h, q, l] = scores.dims();
    assert_eq!(l, q - 1 + keys, "relative_shift needs one score for each distance between a query and a key");
    if is_host(&scores) {
        return run(Shift { q, l, keys }, [Input::new(scores)], [b, h, q, keys]);
    }
    // Padding makes a row one longer than it is read, which moves each row by one more than the row before.
    let zeros = Tensor::zeros([b, h, q, 1], (&scores.device(), scores.dtype()));
    let padded = Tensor::cat(vec![zeros, scores], 3).reshape([b, h, l + 1, q]);
    padded.narrow(2, 1, l).reshape([b, h, q, l]).narrow(3, 0, keys)
}

/// Computes the gradient of the input of [`relative_shift`] from the gradient of its result
/// `[samples, heads, q, keys]`, without autodiff.
pub(super) fn relative_shift_backward(gradient: Tensor<4>) -> Tensor<4> {
    let [b, h, q, keys] = gradient.dims();
    let l = q - 1 + keys;
    if is_host(&gradient) {
        let op = Shift { q, l, keys };
        return on_host!(gradient, B => {
            let grad_output = B::contiguous(B::plain(gradient));
            let unshifted = |values: &[&[f32]]| vec![op.unshifted(values[0])];
            B::from_plain(B::compute(Shift::NAME, &[&grad_output], vec![Shape::new([b, h, q, l])], HostScratch::default(), unshifted).remove(0))
        });
    }
    let options = (&gradient.device(), gradient.dtype());
    let filled = Tensor::cat(vec![gradient, Tensor::zeros([b, h, q, l - keys], options)], 3).reshape([b, h, l, q]);
    let padded = Tensor::cat(vec![Tensor::zeros([b, h, 1, q], options), filled], 2).reshape([b, h, q, l + 1]);
    padded.narrow(3, 1, l)
}

#[derive(Clone, Debug)]
struct Shift {
    q: usize,
    l: usize,
    keys: usize,
}

impl HostOp<1> for Shift {
    const NAME: &'static str = "relative_shift";
    const KEEPS_INPUTS: bool = false;

    fn forward(&self, [scores]: [&[f32]; 1]) -> Vec<f32> {
        let mut shifted = Vec::with_capacity(scores.len() / self.l * self.keys);
        for (row, scores) in scores.chunks_exact(self.l).enumerate() {
            let first = self.q - 1 - row % self.q;
            shifted.extend_from_slice(&scores[first..first + self.keys]);
        }
        shifted
    }

    fn backward(&self, _: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        [Some(self.unshifted(grad_output))]
    }
}

impl Shift {
    fn unshifted(&self, grad_output: &[f32]) -> Vec<f32> {
        let mut gradient = vec![0.0; grad_output.len() / self.keys * self.l];
        let rows = gradient.chunks_exact_mut(self.l).zip(grad_output.chunks_exact(self.keys));
        for (row, (gradient, grad_output)) in rows.enumerate() {
            let first = self.q - 1 - row % self.q;
            gradient[first..first + self.keys].copy_from_slice(grad_output);
        }
        gradient
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, FloatDType, TensorData};

    use super::*;

    #[test]
    fn host_and_device_shift_alike() {
        let device = Device::flex().autodiff();
        for (q, keys) in [(3, 5), (4, 4), (1, 3), (5, 2)] {
            let l = q - 1 + keys;
            let values: Vec<f64> = (0..2 * 2 * q * l).map(|i| i as f64).collect();
            let exact = Tensor::<4>::from_data(TensorData::new(values, [2, 2, q, l]), (&device, DType::F64));
            let results = [exact.clone(), exact.cast(FloatDType::F32)].map(|x| {
                let x = x.detach().require_grad();
                let y = relative_shift(x.clone(), keys);
                let grads = y.clone().square().sum().backward();
                [y.into_data(), x.grad(&grads).unwrap().into_data()].map(|data| data.convert::<f32>())
            });
            assert_eq!(results[0], results[1], "{q} queries, {keys} keys");
            let y = Tensor::<4>::from_data(results[0][0].clone(), &Device::flex());
            let backward = [relative_shift_backward(y.clone()), relative_shift_backward(y.cast(FloatDType::F64))];
            for x in backward {
                assert_eq!((x * 2.0).into_data().convert::<f32>(), results[0][1]);
            }
        }
    }
}
