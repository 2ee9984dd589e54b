//! Activations: SiLU, GELU, tanh, leaky ReLU and the gated linear unit (GLU).

use std::marker::PhantomData;

use burn::tensor::{Bool, Tensor, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use rayon::prelude::*;

use crate::bridge::{PrimitiveBackend, on_backend};
use crate::host::{HostOp, Input, MaybeTracked, is_host, run};
use crate::simd::{self, exp, vectorized};

/// Activation function that follows a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// SiLU: [`silu`].
    Silu,
    /// ReLU: the larger of a value and zero.
    Relu,
    /// GELU: [`gelu`].
    Gelu,
    /// Gated linear unit: [`glu`], which halves the rows.
    Glu,
}

/// Computes SiLU (swish), `x * sigmoid(x)`, element by element.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !is_host(&x) {
        return activation::silu(x);
    }
    let shape = x.dims();
    run(Silu, [Input::new(x)], shape)
}

/// Computes GELU, `x` times the normal distribution function of `x`, element by element. It is the exact form, not the one with a
/// hyperbolic tangent.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !is_host(&x) {
        return activation::gelu(x);
    }
    let shape = x.dims();
    run(Gelu, [Input::new(x)], shape)
}

/// Computes the hyperbolic tangent, element by element.
pub fn tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !is_host(&x) {
        return x.tanh();
    }
    let shape = x.dims();
    run(Tanh, [Input::new(x)], shape)
}

/// Computes the leaky ReLU, element by element: `x`, times `slope` where it is negative.
///
/// The backward pass keeps a mask, as that of Burn's operation does, and fills no tensor with zeros.
pub fn leaky_relu<const D: usize>(x: Tensor<D>, slope: f64) -> Tensor<D> {
    let device = x.device();
    on_backend!(&device, B => leaky_relu_on::<B, D>(x, slope))
}

fn leaky_relu_on<B: PrimitiveBackend, const D: usize>(x: Tensor<D>, slope: f64) -> Tensor<D> {
    let input = MaybeTracked::<B>::new(x);
    let x: Tensor<D> = B::from_plain(input.primitive());
    let is_negative = x.clone().lower_elem(0.0);
    let y = x.clone().mask_where(is_negative.clone(), x * slope);
    if matches!(input, MaybeTracked::Plain(_)) {
        return y;
    }
    let step = LeakyReluStep::<B, D>(PhantomData).prepare::<NoCheckpointing>([input.tracked().node()]);
    B::from_tracked(match step.compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((is_negative, slope), B::plain(y)),
        OpsKind::UnTracked(step) => step.finish(B::plain(y)),
    })
}

#[derive(Debug)]
struct LeakyReluStep<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 1> for LeakyReluStep<B, D> {
    type State = (Tensor<D, Bool>, f64);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<D> = B::from_plain(gradients.consume::<B>(&ops.node));
        let (is_negative, slope) = ops.state;
        if let Some(parent) = &ops.parents[0] {
            let gradient = grad_output.clone().mask_where(is_negative, grad_output * slope);
            gradients.register::<B>(parent.id, B::plain(gradient));
        }
    }
}

/// Computes the gated linear unit: the first half of the last axis times the sigmoid of the second half. The last axis
/// of the result is half as long.
///
/// # Panics
/// If the last axis has odd length.
pub fn glu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let mut shape = x.dims();
    assert!(shape[D - 1].is_multiple_of(2), "the length of the last axis must be even, not {}", shape[D - 1]);
    if !is_host(&x) {
        return activation::glu(x, D - 1);
    }
    shape[D - 1] /= 2;
    run(Glu { width: shape[D - 1] }, [Input::new(x)], shape)
}

/// Number of values that one parallel task computes.
const VALUES_PER_TASK: usize = 1 << 15;

/// Computes `f` of each value, on all threads.
fn each(x: &[f32], f: impl Fn(f32) -> f32 + Sync) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    let tasks = y.par_chunks_mut(VALUES_PER_TASK).zip(x.par_chunks(VALUES_PER_TASK));
    tasks.for_each(|(y, x)| {
        vectorized(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x)),
        );
    });
    y
}

/// Computes `f` of each value and the gradient of its result, on all threads.
fn each_with(x: &[f32], grad_output: &[f32], f: impl Fn(f32, f32) -> f32 + Sync) -> Vec<f32> {
    let mut gradient = vec![0.0; x.len()];
    let inputs = x.par_chunks(VALUES_PER_TASK).zip(grad_output.par_chunks(VALUES_PER_TASK));
    gradient.par_chunks_mut(VALUES_PER_TASK).zip(inputs).for_each(|(gradient, (x, grad_output))| {
        vectorized(
            #[inline(always)]
            || {
                let inputs = x.iter().zip(grad_output);
                gradient
                    .iter_mut()
                    .zip(inputs)
                    .for_each(|(g, (&x, &grad_output))| *g = simd::gradient(f(x, grad_output)));
            },
        );
    });
    gradient
}

#[derive(Clone, Debug)]
struct Silu;

impl HostOp<1> for Silu {
    const NAME: &'static str = "silu";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        each(
            x,
            #[inline(always)]
            |x| x * sigmoid(x),
        )
    }

    fn backward(&self, [x]: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let gradient = each_with(
            x,
            grad_output,
            #[inline(always)]
            |x, grad_output| grad_output * silu_derivative(x),
        );
        [Some(gradient)]
    }
}

#[derive(Clone, Debug)]
struct Gelu;

impl HostOp<1> for Gelu {
    const NAME: &'static str = "gelu";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        each(
            x,
            #[inline(always)]
            |x| x * normal(x).0,
        )
    }

    fn backward(&self, [x]: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let gradient = each_with(
            x,
            grad_output,
            #[inline(always)]
            |x, grad_output| {
                let (below, bell) = normal(x);
                grad_output * (below + x * bell * FRAC_1_SQRT_2PI)
            },
        );
        [Some(gradient)]
    }
}

/// Value of the bell below which nothing lies beyond it: denormal numbers would slow down what follows.
const LEAST_BELL: f32 = 1e-20;

/// `1 / sqrt(2 pi)`.
const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;

/// Computes the distribution function of the normal distribution within 1e-7, and `exp(-x^2 / 2)`.
///
/// It is Hart's sum of five powers for the error function (Abramowitz and Stegun 7.1.26), without branches, so that the compiler
/// vectorizes it.
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let bell = exp(-z * z);
    let mut p = 1.061_405_4;
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = p * t + c;
    }
    let above = if bell < LEAST_BELL { 0.0 } else { 0.5 * p * t * bell };
    (if x < 0.0 { above } else { 1.0 - above }, bell)
}

#[derive(Clone, Debug)]
struct Tanh;

impl HostOp<1> for Tanh {
    const NAME: &'static str = "tanh";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, &x)| *y = tanh_value(x)),
        );
        y
    }

    fn backward(&self, [x]: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut gradient = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || {
                for ((g, &x), &grad_output) in gradient.iter_mut().zip(x).zip(grad_output) {
                    let y = tanh_value(x);
                    *g = grad_output * (1.0 - y * y);
                }
            },
        );
        [Some(gradient)]
    }
}

#[inline(always)]
fn tanh_value(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

#[derive(Clone, Debug)]
struct Glu {
    width: usize,
}

impl HostOp<1> for Glu {
    const NAME: &'static str = "glu";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        let mut y = vec![0.0; x.len() / 2];
        let task = self.task_values();
        y.par_chunks_mut(task).zip(x.par_chunks(2 * task)).for_each(|(y, x)| {
            vectorized(
                #[inline(always)]
                || {
                    for (y, x) in y.chunks_exact_mut(self.width).zip(x.chunks_exact(2 * self.width)) {
                        let (value, gate) = x.split_at(self.width);
                        y.iter_mut().zip(value).zip(gate).for_each(|((y, &value), &gate)| *y = value * sigmoid(gate));
                    }
                },
            );
        });
        y
    }

    fn backward(&self, [x]: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut gradient = vec![0.0; x.len()];
        let (width, task) = (self.width, self.task_values());
        let tasks = gradient.par_chunks_mut(2 * task).zip(x.par_chunks(2 * task)).zip(grad_output.par_chunks(task));
        tasks.for_each(|((gradient, x), grad_output)| {
            vectorized(
                #[inline(always)]
                || {
                    let rows = gradient.chunks_exact_mut(2 * width).zip(x.chunks_exact(2 * width));
                    for ((gradient, x), grad_output) in rows.zip(grad_output.chunks_exact(width)) {
                        let (grad_value, grad_gate) = gradient.split_at_mut(width);
                        let (value, gate) = x.split_at(width);
                        for i in 0..width {
                            let s = sigmoid(gate[i]);
                            grad_value[i] = grad_output[i] * s;
                            grad_gate[i] = grad_output[i] * value[i] * s * (1.0 - s);
                        }
                    }
                },
            );
        });
        [Some(gradient)]
    }
}

impl Glu {
    /// Returns the number of values of the result that a task computes: whole rows.
    fn task_values(&self) -> usize {
        VALUES_PER_TASK.div_ceil(self.width.max(1)) * self.width.max(1)
    }
}

/// Computes the derivative of SiLU.
#[inline(always)]
fn silu_derivative(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    fn input(device: &Device) -> Tensor<3> {
        let values: Vec<f32> = (0..240).map(|i| (i as f32 - 120.0) * 0.11).collect();
        Tensor::from_data(TensorData::new(values, [4, 6, 10]), device)
    }

    fn check<const D: usize>(ours: fn(Tensor<3>) -> Tensor<D>, burns: fn(Tensor<3>) -> Tensor<D>) {
        let device = Device::flex().autodiff();
        let gradient = |f: fn(Tensor<3>) -> Tensor<D>| {
            let x = input(&device).require_grad();
            let y = f(x.clone());
            let grads = (y.clone() * y.clone()).sum().backward();
            (y.into_data().try_into_vec::<f32>().unwrap(), x.grad(&grads).unwrap().into_data())
        };
        let ((y, g), (y_burn, g_burn)) = (gradient(ours), gradient(burns));
        let g: Vec<f32> = g.try_into_vec().unwrap();
        let g_burn: Vec<f32> = g_burn.try_into_vec().unwrap();
        for (a, b) in y.iter().zip(&y_burn).chain(g.iter().zip(&g_burn)) {
            assert!((a - b).abs() <= 2e-6 * (1.0 + b.abs()), "{a} {b}");
        }
        // The same without autodiff.
        let plain = ours(input(&Device::flex())).into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(plain, y);
    }

    #[test]
    fn values_and_gradients_equal_those_of_burn() {
        check(silu, activation::silu);
        check(gelu, activation::gelu);
        check(glu, |x| activation::glu(x, 2));
        check(tanh, Tensor::tanh);
        check(|x| leaky_relu(x, 0.1), |x| activation::leaky_relu(x, 0.1));
    }

    #[test]
    fn transposed_input_is_read_in_logical_order() {
        let x = input(&Device::flex()).swap_dims(1, 2);
        let ours = silu(x.clone()).into_data().try_into_vec::<f32>().unwrap();
        let burns = activation::silu(x).into_data().try_into_vec::<f32>().unwrap();
        assert!(ours.iter().zip(&burns).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
