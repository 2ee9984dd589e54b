//! Windows that overlap: cut out of a tensor for a convolution or a spectrum, and added up to a signal again.

use std::marker::PhantomData;

use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use crate::geometry::Geometry;
use crate::host::{HostOp, Input, MaybeTracked, is_host, run};
use crate::kernels::{KernelBackend, on_kernels};

mod convolution;

pub use convolution::convolve;

// Shapes: b samples, r rows, q columns, c channels, t frames, w values of a frame.

/// Cuts windows of `kernel` rows and columns out of `x` `[samples, rows, columns, channels]`, one window every `stride`
/// rows and columns, after zeros of `padding` rows and columns at each edge. Returns `[samples, rows, columns, values]`:
/// the values of a window, in the order rows, columns, channels.
///
/// One matrix product with the result is a convolution with these strides. With one row and one channel the windows are
/// the frames of a signal.
///
/// # Panics
/// If a kernel or a stride is 0, or a kernel is longer than its axis with padding.
pub fn cut(x: Tensor<4>, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Tensor<4> {
    let geometry = Geometry::new(x.dims(), kernel, stride, padding);
    if is_host(&x) {
        let shape = geometry.shape();
        return run(Cut(geometry), [Input::new(x)], shape);
    }
    let device = x.device();
    on_kernels!(&device, B => on_gpu::<B>(Windows::Cut, geometry, x), otherwise geometry.composed(x))
}

/// Adds up frames `[samples, frames, values]` that begin `hop` values after each other: `[samples, values of the signal]`.
/// The signal ends with the last frame.
///
/// # Panics
/// If `hop` is 0, or there is no frame.
pub fn overlap_add(frames: Tensor<3>, hop: usize) -> Tensor<2> {
    let [b, t, w] = frames.dims();
    assert!(t > 0 && hop > 0, "a signal needs frames and a hop");
    let length = (t - 1) * hop + w;
    let geometry = Geometry::new([b, 1, length, 1], [1, w], [1, hop], [0, 0]);
    if is_host(&frames) {
        return run(Add(geometry), [Input::new(frames)], [b, length]);
    }
    let device = frames.device();
    on_kernels!(
        &device,
        B => on_gpu::<B>(Windows::Add, geometry, frames.reshape([b, 1, t, w])).reshape([b, length]),
        otherwise added(frames, hop)
    )
}

/// Adds up frames with operations of Burn.
fn added(frames: Tensor<3>, hop: usize) -> Tensor<2> {
    let [b, t, w] = frames.dims();
    let length = (t - 1) * hop + w;
    // Blocks of one hop: block `i` of frame `j` belongs to block `i + j` of the signal.
    let blocks = w.div_ceil(hop);
    let missing = Tensor::<3>::zeros([b, t, blocks * hop - w], &frames.device()).cast(frames.dtype());
    let frames = Tensor::cat(vec![frames, missing], 2);
    let zeros = |count: usize| Tensor::<3>::zeros([b, count, hop], &frames.device()).cast(frames.dtype());
    let shifted = |block: usize| {
        let values = frames.clone().narrow(2, block * hop, hop);
        Tensor::cat(vec![zeros(block), values, zeros(blocks - 1 - block)], 1)
    };
    let sum = (0..blocks).map(shifted).reduce(|sum, block| sum + block).expect("a frame has values");
    sum.reshape([b, (t + blocks - 1) * hop]).narrow(1, 0, length)
}

/// What is done with windows; the gradient of each is the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Windows {
    Cut,
    Add,
}

impl Windows {
    fn run<B: KernelBackend>(self, geometry: Geometry, x: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::Cut => B::cut_windows(x, geometry),
            Self::Add => B::add_windows(x, geometry),
        }
    }

    fn reversed(self) -> Self {
        match self {
            Self::Cut => Self::Add,
            Self::Add => Self::Cut,
        }
    }
}

/// Runs `windows` with a kernel of this crate: one in place of two for each place in a window, and in the backward pass, of
/// four that write the whole tensor.
fn on_gpu<B: KernelBackend>(windows: Windows, geometry: Geometry, x: Tensor<4>) -> Tensor<4> {
    let input = MaybeTracked::<B>::new(x);
    let output = windows.run::<B>(geometry, input.primitive());
    if matches!(input, MaybeTracked::Plain(_)) {
        return B::from_plain(output);
    }
    let node = input.tracked().node();
    let step = WindowsStep::<B>(windows, PhantomData).prepare::<NoCheckpointing>([node]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(geometry, output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct WindowsStep<B>(Windows, PhantomData<B>);

impl<B: KernelBackend> Backward<B, 1> for WindowsStep<B> {
    type State = Geometry;

    fn backward(self, ops: Ops<Geometry, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, self.0.reversed().run::<B>(ops.state, grad_output));
        }
    }
}

#[derive(Clone, Debug)]
struct Cut(Geometry);

impl HostOp<1> for Cut {
    const NAME: &'static str = "windows";
    const KEEPS_INPUTS: bool = false;

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        self.0.cut(x)
    }

    fn backward(&self, _: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        [Some(self.0.add(grad_output))]
    }
}

#[derive(Clone, Debug)]
struct Add(Geometry);

impl HostOp<1> for Add {
    const NAME: &'static str = "overlap_add";
    const KEEPS_INPUTS: bool = false;

    fn forward(&self, [frames]: [&[f32]; 1]) -> Vec<f32> {
        self.0.add(frames)
    }

    fn backward(&self, _: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        [Some(self.0.cut(grad_output))]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(5).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex().autodiff()).require_grad()
    }

    /// Computes `f` of random values, and the gradient of the sum of squares of the result.
    fn both<const D: usize, const E: usize>(shape: [usize; D], f: impl Fn(Tensor<D>) -> Tensor<E>) -> [Vec<f32>; 2] {
        let x = tensor(shape);
        let y = f(x.clone());
        let gradients = y.clone().square().sum().backward();
        [y.into_data(), x.grad(&gradients).unwrap().into_data()].map(|data| data.try_into_vec::<f32>().unwrap())
    }

    #[test]
    fn windows_equal_those_of_burns_operations() {
        for (shape, kernel, stride, padding) in [
            ([2, 1, 11, 1], [1, 4], [1, 3], [0, 0]),
            ([2, 5, 7, 3], [3, 4], [2, 2], [1, 1]),
            ([1, 4, 6, 2], [1, 5], [1, 3], [0, 2]),
            ([1, 3, 2, 2], [3, 5], [1, 1], [1, 3]),
        ] {
            let ours = both(shape, |x| cut(x, kernel, stride, padding));
            let theirs = both(shape, |x| Geometry::new(shape, kernel, stride, padding).composed(x));
            assert_eq!(ours[0], theirs[0], "{shape:?}");
            assert!(ours[1].iter().zip(&theirs[1]).all(|(a, b)| (a - b).abs() < 1e-5), "{shape:?}");
        }
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_equal_the_operations_of_the_cpu() {
        use burn::tensor::{DType, DeviceKind};
        let gpu = Device::wgpu(DeviceKind::DefaultDevice).autodiff();
        fn on<const D: usize, const E: usize>(
            device: &Device,
            dtype: DType,
            shape: [usize; D],
            f: &dyn Fn(Tensor<D>) -> Tensor<E>,
        ) -> [Vec<f32>; 2] {
            let x = tensor(shape).into_data();
            let x = Tensor::<D>::from_data(x, device).cast(dtype).require_grad();
            let y = f(x.clone());
            let gradients = y.clone().cast(DType::F32).square().sum().backward();
            let read = |data: TensorData| data.convert::<f32>().try_into_vec::<f32>().unwrap();
            [read(y.into_data()), read(x.grad(&gradients).unwrap().into_data())]
        }
        let near = |a: &[Vec<f32>; 2], b: &[Vec<f32>; 2], tolerance: f32| {
            let pairs = || a.iter().flatten().zip(b.iter().flatten());
            a[0].len() == b[0].len() && a[1].len() == b[1].len() && pairs().all(|(a, b)| (a - b).abs() < tolerance)
        };
        for (shape, kernel, stride, padding) in [
            ([2, 1, 11, 1], [1, 4], [1, 3], [0, 0]),
            ([2, 5, 7, 3], [3, 4], [2, 2], [1, 1]),
            ([1, 4, 6, 2], [1, 5], [1, 3], [0, 2]),
            ([1, 3, 2, 2], [3, 5], [1, 1], [1, 3]),
            ([3, 1, 4000, 1], [1, 512], [1, 128], [0, 0]),
            ([2, 67, 3, 8], [5, 1], [3, 1], [2, 0]),
            ([1, 9, 5, 4], [2, 2], [4, 3], [0, 0]),
        ] {
            let cut = |x: Tensor<4>| cut(x, kernel, stride, padding);
            let turned = |x: Tensor<4>| {
                let [b, r, q, c] = shape;
                cut(x.reshape([b, c, q, r]).permute([0, 3, 2, 1]))
            };
            for f in [&cut as &dyn Fn(Tensor<4>) -> Tensor<4>, &turned] {
                let expected = on(&Device::flex().autodiff(), DType::F32, shape, f);
                assert!(near(&on(&gpu, DType::F32, shape, f), &expected, 1e-5), "{shape:?}");
                assert!(near(&on(&gpu, DType::F16, shape, f), &expected, 2e-2), "{shape:?} in 16 bits");
            }
        }
        for (shape, hop) in [([2, 4, 5], 2), ([1, 9, 16], 4), ([2, 1, 7], 3), ([2, 3, 4], 6)] {
            let add = |frames: Tensor<3>| overlap_add(frames, hop);
            let expected = on(&Device::flex().autodiff(), DType::F32, shape, &add);
            assert!(near(&on(&gpu, DType::F32, shape, &add), &expected, 1e-5), "{shape:?} every {hop}");
        }
    }

    #[test]
    fn overlapping_frames_are_added() {
        let frames = Tensor::<3>::from_data([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]], &Device::flex());
        let signal = |frames: Tensor<3>, hop| overlap_add(frames, hop).into_data().try_into_vec_as::<f32>().unwrap();
        for (hop, expected) in [(1, &[1.0, 12.0, 23.0, 30.0][..]), (2, &[1.0, 2.0, 13.0, 20.0, 30.0])] {
            assert_eq!(signal(frames.clone(), hop), expected);
            // In 16 bits the operations of Burn compute it; these numbers are exact.
            assert_eq!(signal(frames.clone().cast(burn::tensor::FloatDType::BF16), hop), expected);
        }
    }

    #[test]
    fn gradient_of_overlapping_frames_is_cut_from_the_signal() {
        let [signal, gradient] = both([2, 4, 5], |frames| overlap_add(frames, 2));
        assert_eq!(signal.len(), 2 * 11);
        for (index, found) in gradient.iter().enumerate() {
            let (sample, frame, value) = (index / 20, index / 5 % 4, index % 5);
            assert!((found - 2.0 * signal[sample * 11 + frame * 2 + value]).abs() < 1e-6);
        }
    }
}
