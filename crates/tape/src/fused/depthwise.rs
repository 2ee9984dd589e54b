//! Depthwise convolution over time, without transposing the input.

use std::marker::PhantomData;

use burn::tensor::Tensor;
use burn::tensor::module::conv1d;
use burn::tensor::ops::ConvOptions;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use rayon::prelude::*;

use crate::host::{HostOp, HostScratch, Input, MaybeTracked, is_host, run};
use crate::kernels::{KernelBackend, on_kernels};
use crate::simd::vectorized;

// Shapes: b batch, t frames, d channels, k frames of the kernel.

/// Convolves `x` `[samples, frames, channels]` over time with one kernel per channel (`weight` `[channels, 1, k]`) and
/// adds `bias` `[channels]`. The output has the same number of frames: the input is padded with zeros at both ends.
///
/// # Panics
/// If `k` is even, or the numbers of channels or the types of the three tensors differ.
pub fn depthwise(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>) -> Tensor<3> {
    let [b, t, d] = x.dims();
    let [channels, _, k] = weight.dims();
    assert!(
        channels == d && bias.dims() == [d] && k % 2 == 1,
        "depthwise needs an odd kernel and one kernel and bias per channel"
    );
    assert!(
        weight.dtype() == x.dtype() && bias.dtype() == x.dtype(),
        "depthwise needs kernels and biases of the type of its input"
    );
    if is_host(&x) && is_host(&weight) {
        let op = Depthwise { samples: b, t, d, k };
        return run(op, [Input::new(x), Input::new(weight), Input::new(bias)], [b, t, d]);
    }
    let device = x.device();
    on_kernels!(&device, B => on_gpu::<B>(x, weight, bias), otherwise composed(x, weight, bias))
}

/// The convolution as one of Burn's operations.
fn composed(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>) -> Tensor<3> {
    let [d, _, k] = weight.dims();
    let options = ConvOptions::new([1], [k / 2], [1], d);
    conv1d(x.swap_dims(1, 2), weight, Some(bias), options).swap_dims(1, 2)
}

/// The convolution with kernels of this crate. Burn's choice of kernels for the gradient of the weights depends on what
/// tuning finds, and so does the memory that it takes: up to twice all values under the kernel.
fn on_gpu<B: KernelBackend>(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>) -> Tensor<3> {
    let inputs = [MaybeTracked::<B>::new(x), MaybeTracked::new(weight), MaybeTracked::new(bias)];
    let [x, weight, bias] = inputs.each_ref().map(MaybeTracked::primitive);
    let output = B::depthwise(x.clone(), weight.clone(), bias);
    if inputs.iter().all(|input| matches!(input, MaybeTracked::Plain(_))) {
        return B::from_plain(output);
    }
    let nodes = inputs.map(|input| input.tracked().node());
    let step = DepthwiseStep::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish((x, weight), output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct DepthwiseStep<B>(PhantomData<B>);

impl<B: KernelBackend> Backward<B, 3> for DepthwiseStep<B> {
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let (x, weight) = ops.state;
        let [for_x, for_weight, for_bias] = ops.parents;
        let taps = weight.shape()[2];
        if let Some(parent) = for_x {
            gradients.register::<B>(parent.id, B::depthwise_back(grad_output.clone(), weight));
        }
        if for_weight.is_none() && for_bias.is_none() {
            return;
        }
        let (weight, bias) = B::depthwise_sums(x, grad_output, taps);
        for (parent, gradient) in [(for_weight, weight), (for_bias, bias)] {
            if let Some(parent) = parent {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Depthwise {
    samples: usize,
    t: usize,
    d: usize,
    k: usize,
}

impl Depthwise {
    /// Returns the number of values of the gradients of taps and bias.
    fn sums(&self) -> usize {
        (self.k + 1) * self.d
    }

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
        y.par_chunks_mut(self.t * d).zip(x.par_chunks(self.t * d)).for_each(|(y, x)| {
            vectorized(
                #[inline(always)]
                || {
                    y.chunks_exact_mut(d).for_each(|row| row.copy_from_slice(bias));
                    for tap in 0..self.k {
                        let w = &taps[tap * d..(tap + 1) * d];
                        for (to, from) in self.pairs(tap) {
                            multiply_add(&mut y[to * d..(to + 1) * d], &x[from * d..(from + 1) * d], w);
                        }
                    }
                },
            );
        });
        y
    }

    fn backward(&self, [x, weight, _]: [&[f32]; 3], grad_output: &[f32], wanted: [bool; 3]) -> [Option<Vec<f32>>; 3] {
        let d = self.d;
        let taps = self.taps(weight);
        let size = self.t * d;
        let mut grad_x = vec![0.0; x.len()];
        // Of each sample: the gradient of the taps, then of the bias.
        let mut sums = vec![0.0; self.sums() * (x.len() / size.max(1)).max(1)];
        let samples = grad_x.par_chunks_mut(size).zip(x.par_chunks(size)).zip(grad_output.par_chunks(size));
        samples.zip(sums.par_chunks_mut(self.sums())).for_each(|(((grad_x, x), grad_output), sums)| {
            let (grad_taps, grad_bias) = sums.split_at_mut(self.k * d);
            vectorized(
                #[inline(always)]
                || {
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
                },
            );
        });
        let (first, others) = sums.split_at_mut(self.sums());
        for other in others.chunks_exact(self.sums()) {
            first.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
        }
        let (grad_taps, grad_bias) = first.split_at(self.k * d);
        let mut grad_weight = vec![0.0; weight.len()];
        for channel in 0..d {
            for tap in 0..self.k {
                grad_weight[channel * self.k + tap] = grad_taps[tap * d + channel];
            }
        }
        let [x, w, b] = wanted;
        [x.then_some(grad_x), w.then_some(grad_weight), b.then(|| grad_bias.to_vec())]
    }

    fn scratch(&self, is_backward: bool) -> HostScratch {
        let values = self.k * self.d + if is_backward { self.sums() * self.samples } else { 0 };
        HostScratch { fixed: (values * size_of::<f32>()) as u64, ..HostScratch::default() }
    }
}

#[inline(always)]
fn multiply_add(sum: &mut [f32], a: &[f32], b: &[f32]) {
    sum.iter_mut().zip(a).zip(b).for_each(|((sum, &a), &b)| *sum += a * b);
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};
    use plimsoll_core::Key;

    use super::*;

    type Convolve = fn(Tensor<3>, Tensor<3>, Tensor<1>) -> Tensor<3>;

    /// Returns the result of `convolve` on `device` and the gradients of its three inputs.
    fn all(convolve: Convolve, [b, t, d, k]: [usize; 4], dtype: DType, device: &Device) -> [Vec<f32>; 4] {
        let on_device = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), device);
        let leaf = |x: Tensor<1>| x.cast(dtype).require_grad();
        let x = leaf(on_device(values(b * t * d, 1)));
        let w = leaf(on_device(values(d * k, 2)));
        let bias = leaf(on_device(values(d, 3)));
        let y = convolve(x.clone().reshape([b, t, d]), w.clone().reshape([d, 1, k]), bias.clone());
        let grads = (y.clone().cast(DType::F32).square().sum() / (b * t) as f32).backward();
        let read = |tensor: Tensor<1>| tensor.cast(DType::F32).into_data().try_into_vec::<f32>().unwrap();
        let gradients = [x, w, bias].map(|input| read(input.grad(&grads).unwrap()));
        let [grad_x, grad_w, grad_bias] = gradients;
        [read(y.reshape([b * t * d])), grad_x, grad_w, grad_bias]
    }

    fn values(count: usize, key: u64) -> Vec<f32> {
        (0..count as u64).map(|i| Key::new(key).at(i).unit() as f32 - 0.5).collect()
    }

    fn assert_close(ours: &[Vec<f32>; 4], theirs: &[Vec<f32>; 4], tolerance: f32, case: [usize; 4]) {
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours.len(), theirs.len());
            for (a, b) in ours.iter().zip(theirs) {
                assert!((a - b).abs() < tolerance, "b, t, d, k = {case:?}: {a} {b}");
            }
        }
    }

    #[test]
    fn values_and_gradients_equal_those_of_a_grouped_convolution() {
        let device = Device::flex().autodiff();
        for case in [[2, 9, 6, 5], [2, 2, 6, 7], [2, 1, 6, 15], [2, 12, 6, 1]] {
            let both = [depthwise, composed].map(|convolve| all(convolve, case, DType::F32, &device));
            assert_close(&both[0], &both[1], 1e-5, case);
        }
    }

    #[test]
    #[should_panic(expected = "of the type of its input")]
    fn another_type_is_refused() {
        let device = Device::flex();
        let weight = Tensor::<3>::zeros([2, 1, 3], &device).cast(DType::BF16);
        depthwise(Tensor::zeros([1, 4, 2], &device), weight, Tensor::zeros([2], &device));
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        let segment = crate::kernels::SEGMENT_FRAMES;
        let cases = [[2, 9, 6, 5], [3, 1, 33, 15], [1, 2 * segment + 1, 40, 31], [2, segment, 64, 7], [2, 5, 8, 1]];
        crate::kernels::sums::in_both_ways(|| {
            for case in cases {
                let expected = all(depthwise, case, DType::F32, &cpu);
                assert_close(&all(depthwise, case, DType::F32, &gpu), &expected, 2e-5, case);
                assert_close(&all(depthwise, case, DType::F16, &gpu), &expected, 2e-2, case);
                // Another layout: the frames of a channel lie beside each other in memory.
                let turned: Convolve = |x, weight, bias| {
                    let [b, t, d] = x.dims();
                    depthwise(x.reshape([b, d, t]).swap_dims(1, 2), weight, bias)
                };
                let [ours, theirs] = [&gpu, &cpu].map(|device| all(turned, case, DType::F32, device));
                assert_close(&ours, &theirs, 2e-5, case);
            }
        });
    }
}
