//! Depthwise convolution over time, without transposing the input.

use burn::tensor::Tensor;
use burn::tensor::module::conv1d;
use burn::tensor::ops::ConvOptions;

use crate::host::{HostOp, Input, is_host, run};
use crate::simd::vectorized;

// Shapes: b batch, t frames, d channels, k frames of the kernel.

/// Convolves `x` `[samples, frames, channels]` over time with one kernel per channel (`weight` `[channels, 1, k]`) and
/// adds `bias` `[channels]`. The output has the same number of frames: the input is padded with zeros at both ends.
///
/// # Panics
/// If `k` is even, or the numbers of channels differ.
pub fn depthwise(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>) -> Tensor<3> {
    let [b, t, d] = x.dims();
    let [channels, _, k] = weight.dims();
    assert!(
        channels == d && bias.dims() == [d] && k % 2 == 1,
        "depthwise needs an odd kernel and one kernel and bias per channel"
    );
    if is_host(&x) && is_host(&weight) {
        let op = Depthwise { t, d, k };
        return run(op, [Input::new(x), Input::new(weight), Input::new(bias)], [b, t, d]);
    }
    let options = ConvOptions::new([1], [k / 2], [1], d);
    conv1d(x.swap_dims(1, 2), weight, Some(bias), options).swap_dims(1, 2)
}

#[derive(Clone, Debug)]
struct Depthwise {
    t: usize,
    d: usize,
    k: usize,
}

impl Depthwise {
    /// Transposes the kernels from `[channels, k]` to `[k, channels]`, so that the values of one tap (one position of
    /// the kernel) for all channels are contiguous, like the channels of a frame.
    fn taps(&self, weight: &[f32]) -> Vec<f32> {
        let mut taps = vec![0.0; self.k * self.d];
        for channel in 0..self.d {
            for tap in 0..self.k {
                taps[tap * self.d + channel] = weight[channel * self.k + tap];
            }
        }
        taps
    }

    /// Returns the pairs (output frame, input frame) within an utterance for which the output frame adds the input
    /// frame times position `tap` of the kernel.
    fn pairs(&self, tap: usize) -> impl Iterator<Item = (usize, usize)> {
        let side = self.k / 2;
        let first = side.saturating_sub(tap);
        let last = (self.t + side).saturating_sub(tap).min(self.t);
        (first..last).map(move |frame| (frame, frame + tap - side))
    }
}

impl HostOp<3> for Depthwise {
    const NAME: &'static str = "depthwise";

    fn forward(&self, [x, weight, bias]: [&[f32]; 3]) -> Vec<f32> {
        let d = self.d;
        let taps = self.taps(weight);
        let mut y = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || {
                for (y, x) in y.chunks_exact_mut(self.t * d).zip(x.chunks_exact(self.t * d)) {
                    y.chunks_exact_mut(d).for_each(|row| row.copy_from_slice(bias));
                    for tap in 0..self.k {
                        let w = &taps[tap * d..(tap + 1) * d];
                        for (to, from) in self.pairs(tap) {
                            multiply_add(&mut y[to * d..(to + 1) * d], &x[from * d..(from + 1) * d], w);
                        }
                    }
                }
            },
        );
        y
    }

    fn backward(
        &self,
        [x, weight, bias]: [&[f32]; 3],
        grad_output: &[f32],
        wanted: [bool; 3],
    ) -> [Option<Vec<f32>>; 3] {
        let d = self.d;
        let taps = self.taps(weight);
        let (mut grad_x, mut grad_taps, mut grad_bias) =
            (vec![0.0; x.len()], vec![0.0; taps.len()], vec![0.0; bias.len()]);
        vectorized(
            #[inline(always)]
            || {
                let size = self.t * d;
                for ((grad_x, x), grad_output) in
                    grad_x.chunks_exact_mut(size).zip(x.chunks_exact(size)).zip(grad_output.chunks_exact(size))
                {
                    for row in grad_output.chunks_exact(d) {
                        grad_bias.iter_mut().zip(row).for_each(|(sum, &g)| *sum += g);
                    }
                    for tap in 0..self.k {
                        let place = tap * d..(tap + 1) * d;
                        for (to, from) in self.pairs(tap) {
                            let g = &grad_output[to * d..(to + 1) * d];
                            multiply_add(&mut grad_x[from * d..(from + 1) * d], g, &taps[place.clone()]);
                            multiply_add(&mut grad_taps[place.clone()], g, &x[from * d..(from + 1) * d]);
                        }
                    }
                }
            },
        );
        let mut grad_weight = vec![0.0; weight.len()];
        for channel in 0..d {
            for tap in 0..self.k {
                grad_weight[channel * self.k + tap] = grad_taps[tap * d + channel];
            }
        }
        let [x, w, b] = wanted;
        [x.then_some(grad_x), w.then_some(grad_weight), b.then_some(grad_bias)]
    }
}

#[inline(always)]
fn multiply_add(sum: &mut [f32], a: &[f32], b: &[f32]) {
    sum.iter_mut().zip(a).zip(b).for_each(|((sum, &a), &b)| *sum += a * b);
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn tensor<const D: usize>(shape: [usize; D], key: u64) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex().autodiff()).require_grad()
    }

    fn composed(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>) -> Tensor<3> {
        let [d, _, k] = weight.dims();
        let options = ConvOptions::new([1], [k / 2], [1], d);
        conv1d(x.swap_dims(1, 2), weight, Some(bias), options).swap_dims(1, 2)
    }

    #[test]
    fn values_and_gradients_equal_those_of_a_grouped_convolution() {
        for (t, k) in [(9, 5), (2, 7), (1, 15), (12, 1)] {
            let all = |f: fn(Tensor<3>, Tensor<3>, Tensor<1>) -> Tensor<3>| {
                let (x, w, b) = (tensor([2, t, 6], 1), tensor([6, 1, k], 2), tensor([6], 3));
                let y = f(x.clone(), w.clone(), b.clone());
                let grads = (y.clone() * y.clone()).sum().backward();
                let grad_x = x.grad(&grads).unwrap().into_data();
                let grad_w = w.grad(&grads).unwrap().into_data();
                let grad_b = b.grad(&grads).unwrap().into_data();
                [y.into_data(), grad_x, grad_w, grad_b].map(|data| data.try_into_vec::<f32>().unwrap())
            };
            for (ours, theirs) in all(depthwise).iter().zip(&all(composed)) {
                assert_eq!(ours.len(), theirs.len());
                for (a, b) in ours.iter().zip(theirs) {
                    assert!((a - b).abs() < 1e-5, "t {t}, k {k}: {a} {b}");
                }
            }
        }
    }
}
