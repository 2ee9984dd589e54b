//! Layer norm: each row gets mean zero and variance one, then a scale and a shift per value.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{DType, FloatDType, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use rayon::prelude::*;

use crate::Pass;
use crate::host::{HostOp, HostScratch, Input, MaybeTracked, is_host, run};
use crate::kernels::{KernelBackend, on_kernels};
use crate::remat::nodes::{Exit, Outcome, Slots, hub_of, with_nodes};
use crate::simd::{gradient, sum, vectorized};
use crate::tensors::FloatMapper;

/// Normalizes each row of `x` (its last axis) to mean zero and variance one, then multiplies by `scale` and adds
/// `shift`.
///
/// `epsilon` is added to the variance. PyTorch and Burn use 1e-5.
///
/// # Panics
/// If the last axis, `scale` and `shift` differ in length, or the three tensors in type.
pub fn layer_norm<const D: usize>(x: Tensor<D>, scale: Tensor<1>, shift: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let shape = x.dims();
    let width = shape[D - 1];
    assert!(
        scale.dims() == [width] && shift.dims() == [width],
        "layer norm needs one scale and one shift per value of a row"
    );
    assert!(
        scale.dtype() == x.dtype() && shift.dtype() == x.dtype(),
        "layer norm needs scale and shift of the type of the rows"
    );
    let to = x.dtype();
    normed(x, scale, shift, epsilon, to)
}

impl Pass {
    /// Computes [`layer_norm`] in fp32, whatever the type of `x`.
    pub fn layer_norm<const D: usize>(
        &self,
        x: Tensor<D>,
        scale: Tensor<1>,
        shift: Tensor<1>,
        epsilon: f64,
    ) -> Tensor<D> {
        let to = scale.dtype();
        self.normed_to(x, scale, shift, epsilon, to)
    }

    /// Computes [`layer_norm`] in fp32, whatever the type of `x`, and casts the result to the dtype of matrix products.
    pub fn layer_norm_to_compute<const D: usize>(
        &self,
        x: Tensor<D>,
        scale: Tensor<1>,
        shift: Tensor<1>,
        epsilon: f64,
    ) -> Tensor<D> {
        let to = match self.compute_dtype() {
            FloatDType::F32 => scale.dtype(),
            low => low.into(),
        };
        self.normed_to(x, scale, shift, epsilon, to)
    }

    /// Computes [`layer_norm_to_compute`](Self::layer_norm_to_compute) of `x`, and returns it with `x`, for a residual
    /// connection around what takes the norm.
    ///
    /// On a GPU the gradients of both are added by the kernel of the norm.
    pub fn layer_norm_beside(
        &self,
        x: Tensor<3>,
        scale: Tensor<1>,
        shift: Tensor<1>,
        epsilon: f64,
    ) -> (Tensor<3>, Tensor<3>) {
        let device = x.device();
        let to = match self.compute_dtype() {
            FloatDType::F32 => scale.dtype(),
            low => low.into(),
        };
        on_kernels!(
            &device,
            B => beside_on::<B>(x, scale, shift, (epsilon as f32, to)),
            otherwise (self.layer_norm_to_compute(x.clone(), scale, shift, epsilon), x)
        )
    }

    fn normed_to<const D: usize>(
        &self,
        x: Tensor<D>,
        scale: Tensor<1>,
        shift: Tensor<1>,
        epsilon: f64,
        to: DType,
    ) -> Tensor<D> {
        let device = x.device();
        on_kernels!(
            &device,
            _B => normed(x, scale, shift, epsilon, to),
            otherwise {
                let y = layer_norm(self.at_least_fp32(x), scale, shift, epsilon);
                if y.dtype() == to { y } else { self.to_compute_dtype(y) }
            }
        )
    }
}

/// Layer norm whose result has the type `to`.
fn normed<const D: usize>(x: Tensor<D>, scale: Tensor<1>, shift: Tensor<1>, epsilon: f64, to: DType) -> Tensor<D> {
    let shape = x.dims();
    let width = shape[D - 1];
    if is_host(&x) && is_host(&scale) {
        let op = LayerNorm { width, rows: shape[..D - 1].iter().product(), epsilon: epsilon as f32 };
        return run(op, [Input::new(x), Input::new(scale), Input::new(shift)], shape);
    }
    let device = x.device();
    let rows: usize = shape[..D - 1].iter().product();
    let of_three = |x: Tensor<D>| match D {
        3 => x.reshape([shape[0], shape[1], width]),
        _ => x.reshape([1, rows, width]),
    };
    on_kernels!(
        &device,
        B => on_gpu::<B>(of_three(x), scale, shift, (epsilon as f32, to)).reshape(shape),
        otherwise composed(x, scale, shift, epsilon)
    )
}

/// Layer norm of Burn's operations.
fn composed<const D: usize>(x: Tensor<D>, scale: Tensor<1>, shift: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let mean = x.clone().mean_dim(D - 1);
    let centered = x - mean;
    let variance = centered.clone().square().mean_dim(D - 1);
    centered / (variance + epsilon).sqrt() * scale.unsqueeze() + shift.unsqueeze()
}

/// Layer norm as one operation of the tape with kernels of this crate: it keeps its input and the moments of the rows.
/// Composed of Burn's operations, its backward pass would be some forty kernels, and would keep three tensors of the size of
/// the input; how many of them are fused, and what they store between them, depends on what is queued beside them.
fn on_gpu<B: KernelBackend>(
    x: Tensor<3>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    (epsilon, to): (f32, DType),
) -> Tensor<3> {
    let inputs = [MaybeTracked::<B>::new(x), MaybeTracked::new(scale), MaybeTracked::new(shift)];
    let [x, scale, shift] = inputs.each_ref().map(MaybeTracked::primitive);
    let (output, moments) = B::norm_rows(x.clone(), scale.clone(), shift, epsilon, to);
    if inputs.iter().all(|input| matches!(input, MaybeTracked::Plain(_))) {
        return B::from_plain(output);
    }
    let nodes = inputs.map(|input| input.tracked().node());
    let step = GpuStep::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish([x, moments, scale], output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

/// Layer norm of `x` as two results of the tape: the norm, and `x` itself.
fn beside_on<B: KernelBackend>(
    x: Tensor<3>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    (epsilon, to): (f32, DType),
) -> (Tensor<3>, Tensor<3>) {
    if !x.is_tracked() {
        return (on_gpu::<B>(x.clone(), scale, shift, (epsilon, to)), x);
    }
    let inputs = [MaybeTracked::<B>::new(x), MaybeTracked::new(scale), MaybeTracked::new(shift)];
    let [x, scale, shift] = inputs.each_ref().map(MaybeTracked::primitive);
    let (normed, moments) = B::norm_rows(x.clone(), scale.clone(), shift, epsilon, to);
    let (nodes, guards) = with_nodes::<B>(inputs.map(MaybeTracked::tracked));
    let (for_x, for_scale, for_shift) = (nodes[0], nodes[1], nodes[2]);
    let slots = Slots::<B>::default();
    let (found, kept) = (slots.clone(), x.clone());
    let run = move || -> Outcome<B> {
        let mut found = found.take().into_iter();
        let (grad_output, other) = (found.next().flatten(), found.next().flatten());
        let Some(grad_output) = grad_output else {
            // What took the norm had no gradient.
            return for_x.zip(other).into_iter().collect();
        };
        let found = gradients::<B>(
            grad_output,
            [kept.clone(), moments.clone(), scale.clone()],
            other,
            [for_x.is_some(), for_scale.is_some() || for_shift.is_some()],
        );
        [for_x, for_scale, for_shift].into_iter().zip(found).filter_map(|(node, found)| node.zip(found)).collect()
    };
    let mut exit = Exit { hub: hub_of::<B>(guards, Arc::new(run), x.clone()), slots };
    (exit.map_float(B::constant::<3>(normed)), exit.map_float(B::constant::<3>(x)))
}

#[derive(Debug)]
struct GpuStep<B>(PhantomData<B>);

impl<B: KernelBackend> Backward<B, 3> for GpuStep<B> {
    /// Input, moments of the rows, scale.
    type State = [FloatTensor<B>; 3];

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let [for_x, for_scale, for_shift] = ops.parents;
        let wanted = [for_x.is_some(), for_scale.is_some() || for_shift.is_some()];
        let found = self::gradients::<B>(grad_output, ops.state, None, wanted);
        for (parent, gradient) in [for_x, for_scale, for_shift].into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Computes the gradients of input, scale and shift from that of the result and from input, moments and scale. `other` is added
/// to that of the input. `wanted` says whether that of the input and whether those of scale and shift are.
fn gradients<B: KernelBackend>(
    grad_output: FloatTensor<B>,
    [x, moments, scale]: [FloatTensor<B>; 3],
    other: Option<FloatTensor<B>>,
    wanted: [bool; 2],
) -> [Option<FloatTensor<B>>; 3] {
    match wanted {
        [true, true] => {
            let mut all = B::norm_back(grad_output, other, [x, moments, scale], None).into_iter();
            std::array::from_fn(|_| all.next())
        }
        [true, false] => [Some(B::norm_rows_back(grad_output, x, moments, scale, other)), None, None],
        [false, true] => {
            let of_scale = scale.dtype();
            let (of_scale, of_shift) = B::norm_rows_sums(grad_output, x, moments, of_scale);
            [None, Some(of_scale), Some(of_shift)]
        }
        [false, false] => [None, None, None],
    }
}

#[derive(Clone, Debug)]
struct LayerNorm {
    width: usize,
    rows: usize,
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
        let values = self.segment_rows() * self.width;
        y.par_chunks_mut(values).zip(x.par_chunks(values)).for_each(|(y, x)| {
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
        });
        y
    }

    fn backward(&self, [x, scale, _]: [&[f32]; 3], grad_output: &[f32], wanted: [bool; 3]) -> [Option<Vec<f32>>; 3] {
        let width = self.width;
        let mut grad_x = vec![0.0; x.len()];
        let values = self.segment_rows() * width;
        // The sums of a segment: of the gradient of the scale, then of the shift.
        let mut sums = vec![0.0; 2 * width * x.len().div_ceil(values.max(1)).max(1)];
        let segments = grad_x.par_chunks_mut(values).zip(x.par_chunks(values)).zip(grad_output.par_chunks(values));
        segments.zip(sums.par_chunks_mut(2 * width)).for_each(|(((grad_x, x), grad_output), sums)| {
            self.segment_gradient([x, scale, grad_output], grad_x, sums.split_at_mut(width));
        });
        let (first, others) = sums.split_at_mut(2 * width);
        for other in others.chunks_exact(2 * width) {
            first.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
        }
        let (grad_scale, grad_shift) = first.split_at(width);
        let [x, scale, shift] = wanted;
        [x.then_some(grad_x), scale.then(|| grad_scale.to_vec()), shift.then(|| grad_shift.to_vec())]
    }

    fn scratch(&self, is_backward: bool) -> HostScratch {
        let sums = 2 * self.width * self.rows.div_ceil(self.segment_rows()).max(1) * size_of::<f32>();
        HostScratch { fixed: if is_backward { sums as u64 } else { 0 }, ..HostScratch::default() }
    }
}

impl LayerNorm {
    /// Returns the number of rows of a task, which depends on no machine, so that sums over rows do not either.
    fn segment_rows(&self) -> usize {
        (1_usize << 16).div_ceil(self.width.max(1))
    }

    /// Computes the gradient of the rows of a segment, and adds to the sums of the gradients of scale and shift.
    fn segment_gradient(
        &self,
        [x, scale, grad_output]: [&[f32]; 3],
        grad_x: &mut [f32],
        (grad_scale, grad_shift): (&mut [f32], &mut [f32]),
    ) {
        let (width, n) = (self.width, self.width as f32);
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
                        grad_x[i] = gradient(inverse * (grad_x[i] - flat - normed * along));
                        grad_scale[i] += grad_output[i] * normed;
                        grad_shift[i] += grad_output[i];
                    }
                }
            },
        );
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
    #[should_panic(expected = "of the type of the rows")]
    fn another_type_is_refused() {
        let device = Device::flex();
        let scale = Tensor::<1>::zeros([2], &device).cast(FloatDType::BF16);
        layer_norm(Tensor::<3>::zeros([1, 4, 2], &device), scale, Tensor::zeros([2], &device), 1e-5);
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        let all = |[b, t, d]: [usize; 3], device: &Device| {
            let leaf = |key| tensor([d], key, device).require_grad();
            let (x, scale, shift) = (tensor([b, t, d], 1, device).require_grad(), leaf(2), leaf(3));
            // Once as it is and once in another layout and with another rank: channels before frames in memory.
            let turned = x.clone().reshape([b, d, t]).swap_dims(1, 2).unsqueeze::<4>();
            let y = layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5);
            let turned = layer_norm(turned, scale.clone(), shift.clone(), 1e-5).squeeze_dim::<3>(0);
            let loss = (y.clone() * tensor([b, t, d], 4, device)).sum() + (turned * tensor([b, t, d], 5, device)).sum();
            let grads = (loss / (b * t) as f32).backward();
            let of_parameters = [scale, shift].map(|leaf| leaf.grad(&grads).unwrap().into_data());
            let [scale, shift] = of_parameters;
            [y.into_data(), x.grad(&grads).unwrap().into_data(), scale, shift]
        };
        let segment = crate::kernels::NORM_SEGMENT_ROWS;
        crate::kernels::sums::in_both_ways(|| {
            for shape in [
                [3, 2, 1],
                [1, 2 * segment + 1, 5],
                [2, segment, 80],
                [5, 9, 64],
                [2, 3, 700],
                [40, 70, 33],
                [2, 40, 1100],
            ] {
                for (ours, theirs) in all(shape, &gpu).iter().zip(&all(shape, &cpu)) {
                    ours.assert_approx_eq::<f32>(theirs, burn::tensor::Tolerance::rel_abs(1e-4, 1e-4));
                }
            }
        });
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

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_take_and_give_16_bits() {
        use plimsoll_core::{Choice, Precision};

        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        let half = Pass::new(Choice { precision: Precision::Fp16, ..Choice::default() }, crate::Noise::off());
        let all = |shape: [usize; 3], device: &Device, takes: FloatDType, gives: bool, pass: &Pass| {
            let leaf = |key| tensor([shape[2]], key, device).require_grad();
            let (x, scale, shift) = (tensor(shape, 1, device).require_grad(), leaf(2), leaf(3));
            let norm = if gives { Pass::layer_norm_to_compute } else { Pass::layer_norm };
            let y = norm(pass, x.clone().cast(takes), scale.clone(), shift.clone(), 1e-5);
            assert_eq!(y.dtype(), if gives { pass.compute_dtype().into() } else { DType::F32 });
            let y = pass.at_least_fp32(y);
            let grads = ((y.clone() * tensor(shape, 4, device)).sum() / (shape[0] * shape[1]) as f32).backward();
            let [scale, shift] = [scale, shift].map(|leaf| leaf.grad(&grads).unwrap().into_data());
            [y.into_data(), x.grad(&grads).unwrap().into_data(), scale, shift]
        };
        crate::kernels::sums::in_both_ways(|| {
            for shape in [[3, 2, 8], [1, 70, 33], [2, 64, 80]] {
                let expected = all(shape, &cpu, FloatDType::F32, false, &Pass::plain());
                for (takes, gives) in [(FloatDType::F16, false), (FloatDType::F32, true), (FloatDType::F16, true)] {
                    let found = all(shape, &gpu, takes, gives, &half);
                    for (ours, theirs) in found.iter().zip(&expected) {
                        ours.assert_approx_eq::<f32>(theirs, burn::tensor::Tolerance::rel_abs(1e-2, 1e-2));
                    }
                }
            }
        });
    }

    #[test]
    fn a_norm_beside_its_input_has_the_gradients_of_both() {
        check_beside(&Device::flex().autodiff());
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_add_the_gradient_beside_a_norm() {
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        crate::kernels::sums::in_both_ways(|| check_beside(&gpu));
    }

    fn check_beside(device: &Device) {
        let shape = [2, 70, 12];
        let all = |is_beside: bool, uses: [bool; 2]| {
            let leaf = |key| tensor([shape[2]], key, device).require_grad();
            let (x, scale, shift) = (tensor(shape, 1, device).require_grad(), leaf(2), leaf(3));
            let pass = Pass::plain();
            // The input of the norm is not a leaf.
            let inner = x.clone() * 2.0;
            let (normed, kept) = match is_beside {
                true => pass.layer_norm_beside(inner, scale.clone(), shift.clone(), 1e-5),
                false => (layer_norm(inner.clone(), scale.clone(), shift.clone(), 1e-5), inner),
            };
            let mut loss = (x.clone() * 3.0).sum();
            if uses[0] {
                loss = loss + (normed * tensor(shape, 4, device)).sum();
            }
            if uses[1] {
                loss = loss + (kept.square() * tensor(shape, 5, device)).sum();
            }
            let grads = loss.backward();
            let of_parameters = [&scale, &shift].map(|leaf| leaf.grad(&grads).map(Tensor::into_data));
            (x.grad(&grads).expect("a gradient").into_data(), of_parameters)
        };
        for uses in [[true, true], [true, false], [false, true]] {
            let ((x, parameters), (expected, of_norm)) = (all(true, uses), all(false, uses));
            x.assert_approx_eq::<f32>(&expected, burn::tensor::Tolerance::rel_abs(1e-4, 1e-4));
            for (found, expected) in parameters.into_iter().zip(of_norm) {
                assert_eq!(found.is_some(), expected.is_some(), "{uses:?}");
                if let (Some(found), Some(expected)) = (found, expected) {
                    found.assert_approx_eq::<f32>(&expected, burn::tensor::Tolerance::rel_abs(1e-4, 1e-4));
                }
            }
        }
    }
}
