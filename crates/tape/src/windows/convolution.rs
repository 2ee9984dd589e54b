//! Convolution as a product of the windows of a tensor with weights.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use super::cut;
use crate::bridge::PrimitiveBackend;
use crate::geometry::Geometry;
use crate::host::{HostBackend, HostScratch, MaybeTracked, is_host, on_host};
use crate::kernels::{KernelBackend, on_kernels};

/// Multiplies each window of `x` `[samples, rows, columns, channels]`, as [`cut`] makes them, by `weight` `[values, outputs]`:
/// `[windows, outputs]`. This is a convolution.
///
/// The windows are cut out again in the backward pass, and are not kept; on a GPU some rows at a time.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_tape::windows::convolve;
///
/// // Sums of three neighbors, every second one.
/// let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0, 5.0], &Device::flex()).reshape([1, 1, 5, 1]);
/// let sums = convolve(x, Tensor::ones([3, 1], &Device::flex()), [1, 3], [1, 2], [0, 0]);
/// assert_eq!(sums.into_data().try_into_vec::<f32>().unwrap(), [6.0, 12.0]);
/// ```
///
/// # Panics
/// If a kernel or a stride is 0, a kernel is longer than its axis with padding, or the weight has not a row for each value of
/// a window.
pub fn convolve(
    x: Tensor<4>,
    weight: Tensor<2>,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Tensor<2> {
    let geometry = Geometry::new(x.dims(), kernel, stride, padding);
    let ([values, _], needed) = (weight.dims(), geometry.values());
    assert!(values == needed, "a window has {needed} values, and the weight is for {values}");
    if is_host(&x) && is_host(&weight) {
        return on_host!(x, B => on_tape::<B, OnHost>(geometry, x, weight));
    }
    let device = x.device();
    on_kernels!(&device, B => on_tape::<B, OnKernels>(geometry, x, weight), otherwise {
        cut(x, kernel, stride, padding).reshape([geometry.places(), values]).matmul(weight)
    })
}

/// What a convolution keeps for its backward pass: its input, its weight and its geometry.
type Kept<B> = (FloatTensor<B>, FloatTensor<B>, Geometry);
/// Gradients of the input and of the weight, of those that are asked for at least.
type Gradient<B> = [Option<FloatTensor<B>>; 2];

/// Way to compute a convolution and its gradients on the backend `B`.
trait Way<B: PrimitiveBackend>: Debug + Send + Sync + 'static {
    /// Convolves `x` `[b, r, q, c]` with `weight` `[v, o]`: `[p, o]`.
    fn convolve(x: FloatTensor<B>, weight: FloatTensor<B>, geometry: Geometry) -> FloatTensor<B>;

    /// Computes the gradients of input and weight from that of the result: those that are `wanted`, and perhaps the other.
    fn gradients(kept: Kept<B>, grad_output: FloatTensor<B>, wanted: [bool; 2]) -> Gradient<B>;
}

/// By products of Burn with windows that are cut out of host memory.
#[derive(Debug)]
struct OnHost;

impl OnHost {
    fn windows<B: HostBackend>(x: FloatTensor<B>, geometry: Geometry) -> FloatTensor<B> {
        let shape = [geometry.places(), geometry.values()].into();
        let x = B::contiguous(x);
        B::compute("windows", &[&x], vec![shape], HostScratch::default(), |values| vec![geometry.cut(values[0])])
            .remove(0)
    }
}

impl<B: HostBackend> Way<B> for OnHost {
    fn convolve(x: FloatTensor<B>, weight: FloatTensor<B>, geometry: Geometry) -> FloatTensor<B> {
        B::float_matmul(Self::windows::<B>(x, geometry), weight)
    }

    fn gradients(kept: Kept<B>, grad_output: FloatTensor<B>, [for_x, for_weight]: [bool; 2]) -> Gradient<B> {
        let (x, weight, geometry) = kept;
        let grad_weight = for_weight
            .then(|| B::float_matmul(B::float_transpose(Self::windows::<B>(x, geometry)), grad_output.clone()));
        let grad_x = for_x.then(|| {
            let windows = B::contiguous(B::float_matmul(grad_output, B::float_transpose(weight)));
            let shape = geometry.input.into();
            B::compute("windows", &[&windows], vec![shape], HostScratch::default(), |values| {
                vec![geometry.add(values[0])]
            })
            .remove(0)
        });
        [grad_x, grad_weight]
    }
}

/// By kernels of this crate on a GPU.
#[derive(Debug)]
struct OnKernels;

impl<B: KernelBackend> Way<B> for OnKernels {
    fn convolve(x: FloatTensor<B>, weight: FloatTensor<B>, geometry: Geometry) -> FloatTensor<B> {
        B::convolve(x, weight, geometry)
    }

    fn gradients(kept: Kept<B>, grad_output: FloatTensor<B>, [for_x, _]: [bool; 2]) -> Gradient<B> {
        let (x, weight, geometry) = kept;
        if !for_x {
            return [None, Some(B::convolve_weight_back(x, grad_output, geometry))];
        }
        let (grad_x, grad_weight) = B::convolve_back(x, grad_output, weight, geometry);
        [Some(grad_x), Some(grad_weight)]
    }
}

fn on_tape<B: PrimitiveBackend, W: Way<B>>(geometry: Geometry, x: Tensor<4>, weight: Tensor<2>) -> Tensor<2> {
    let inputs = [MaybeTracked::<B>::new(x), MaybeTracked::new(weight)];
    let [x, weight] = inputs.each_ref().map(MaybeTracked::primitive);
    let is_plain = inputs.iter().all(|input| matches!(input, MaybeTracked::Plain(_)));
    // From here on `x` and `weight` alone hold the inputs: where nothing is kept, the input is free before the product.
    let nodes = inputs.map(|input| input.tracked().node());
    if is_plain {
        return B::from_plain(W::convolve(x, weight, geometry));
    }
    let step = ConvolutionStep::<B, W>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => {
            let output = W::convolve(x.clone(), weight.clone(), geometry);
            step.finish((x, weight, geometry), output)
        }
        OpsKind::UnTracked(step) => step.finish(W::convolve(x, weight, geometry)),
    })
}

#[derive(Debug)]
struct ConvolutionStep<B, W>(PhantomData<(B, W)>);

impl<B: PrimitiveBackend, W: Way<B>> Backward<B, 2> for ConvolutionStep<B, W> {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let found = W::gradients(ops.state, grad_output, ops.parents.each_ref().map(Option::is_some));
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, FloatDType, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn random<const D: usize>(shape: [usize; D], key: u64, device: &Device) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    type Case = ([usize; 4], usize, [usize; 2], [usize; 2], [usize; 2]);

    /// Sizes of an input, outputs, kernel, stride and padding. On a GPU the last four are convolved in pieces.
    const CASES: [Case; 8] = [
        ([2, 7, 11, 3], 4, [3, 5], [2, 3], [1, 2]),
        ([1, 5, 4, 2], 3, [3, 3], [2, 2], [0, 0]),
        ([2, 9, 1, 4], 5, [5, 1], [3, 1], [2, 0]),
        ([3, 4, 4, 1], 2, [2, 2], [3, 3], [0, 0]),
        ([2, 260, 19, 24], 8, [3, 3], [2, 2], [0, 0]),
        ([2, 512, 9, 32], 6, [5, 3], [1, 2], [2, 1]),
        ([1, 515, 40, 20], 7, [3, 3], [4, 1], [1, 1]),
        ([3, 1030, 3, 100], 9, [4, 2], [2, 1], [3, 0]),
    ];

    type Convolve<'a> = dyn Fn(Tensor<4>, Tensor<2>) -> Tensor<2> + 'a;

    /// Computes a convolution of random values, and the gradients of a random sum of its results.
    fn all(
        convolve: &Convolve<'_>,
        (shape, outputs, values): ([usize; 4], usize, usize),
        dtype: FloatDType,
        device: &Device,
    ) -> [Vec<f32>; 3] {
        let x = random(shape, 1, device).cast(dtype).require_grad();
        let weight = random([values, outputs], 2, device).cast(dtype).require_grad();
        let y = convolve(x.clone(), weight.clone());
        let factors = random(y.dims(), 3, device);
        let mut gradients = (y.clone().cast(FloatDType::F32) * factors).sum().backward();
        let [grad_x, grad_weight] = [
            x.grad_remove(&mut gradients).unwrap().into_data(),
            weight.grad_remove(&mut gradients).unwrap().into_data(),
        ];
        [y.into_data(), grad_x, grad_weight].map(|data| data.convert::<f32>().try_into_vec::<f32>().unwrap())
    }

    fn assert_close(found: &[Vec<f32>; 3], expected: &[Vec<f32>; 3], tolerance: f32, case: &str) {
        for (name, (found, expected)) in ["result", "input", "weight"].iter().zip(found.iter().zip(expected)) {
            assert_eq!(found.len(), expected.len(), "{name} of {case}");
            let most = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max);
            assert!(far <= tolerance * most, "{name} of {case}: {far} of {most}");
        }
    }

    #[test]
    fn convolution_equals_that_of_burn() {
        let device = Device::flex().autodiff();
        for (shape, outputs, kernel, stride, padding) in CASES {
            let [_, _, _, channels] = shape;
            let values = kernel[0] * kernel[1] * channels;
            let size = (shape, outputs, values);
            let ours = |x: Tensor<4>, weight: Tensor<2>| convolve(x, weight, kernel, stride, padding);
            let theirs = |x: Tensor<4>, weight: Tensor<2>| {
                let weight = weight.reshape([kernel[0], kernel[1], channels, outputs]).permute([3, 2, 0, 1]);
                let options = ConvOptions::new(stride, padding, [1, 1], 1);
                let y = conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1]);
                let [b, rows, columns, _] = y.dims();
                y.reshape([b * rows * columns, outputs])
            };
            let [ours, theirs] = [&ours as &Convolve<'_>, &theirs].map(|f| all(f, size, FloatDType::F32, &device));
            assert_close(&ours, &theirs, 1e-5, &format!("{shape:?}"));
        }
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        for (shape, outputs, kernel, stride, padding) in CASES {
            let size = (shape, outputs, kernel[0] * kernel[1] * shape[3]);
            let straight = |x: Tensor<4>, weight: Tensor<2>| convolve(x, weight, kernel, stride, padding);
            let turned = |x: Tensor<4>, weight: Tensor<2>| {
                let [b, r, q, c] = shape;
                convolve(x.reshape([b, c, q, r]).permute([0, 3, 2, 1]), weight, kernel, stride, padding)
            };
            for f in [&straight as &Convolve<'_>, &turned] {
                let expected = all(f, size, FloatDType::F32, &cpu);
                assert_close(&all(f, size, FloatDType::F32, &gpu), &expected, 2e-5, &format!("{shape:?}"));
                assert_close(&all(f, size, FloatDType::F16, &gpu), &expected, 1e-2, &format!("{shape:?} in 16 bits"));
            }
        }
    }
}
