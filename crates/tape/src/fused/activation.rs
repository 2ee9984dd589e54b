//! SiLU, the gated linear unit and the hyperbolic tangent.

use burn::tensor::{Tensor, activation};
use pulp::{Arch, WithSimd};

use super::host::{HostOp, Input, is_host, run};

/// `x` times its sigmoid, value by value.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !is_host(&x) {
        return activation::silu(x);
    }
    let shape = x.dims();
    run(Silu, [Input::of(x)], shape)
}

/// The hyperbolic tangent, value by value.
pub fn tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !is_host(&x) {
        return x.tanh();
    }
    let shape = x.dims();
    run(Tanh, [Input::of(x)], shape)
}

/// The first half of the last axis times the sigmoid of the second half.
///
/// # Panics
/// Where the last axis is odd.
pub fn glu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let mut shape = x.dims();
    assert!(shape[D - 1].is_multiple_of(2), "an axis of {} has no halves", shape[D - 1]);
    if !is_host(&x) {
        return activation::glu(x, D - 1);
    }
    shape[D - 1] /= 2;
    run(Glu { width: shape[D - 1] }, [Input::of(x)], shape)
}

#[derive(Clone, Debug)]
struct Silu;

impl HostOp<1> for Silu {
    const NAME: &'static str = "silu";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        wide(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * sigmoid(x)),
        );
        y
    }

    fn backward(&self, [x]: [&[f32]; 1], above: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut gradient = vec![0.0; x.len()];
        wide(
            #[inline(always)]
            || gradient.iter_mut().zip(x).zip(above).for_each(|((g, &x), &above)| *g = above * slope(x)),
        );
        [Some(gradient)]
    }
}

#[derive(Clone, Debug)]
struct Tanh;

impl HostOp<1> for Tanh {
    const NAME: &'static str = "tanh";

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        wide(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, &x)| *y = tangent(x)),
        );
        y
    }

    fn backward(&self, [x]: [&[f32]; 1], above: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut gradient = vec![0.0; x.len()];
        wide(
            #[inline(always)]
            || {
                for ((g, &x), &above) in gradient.iter_mut().zip(x).zip(above) {
                    let y = tangent(x);
                    *g = above * (1.0 - y * y);
                }
            },
        );
        [Some(gradient)]
    }
}

#[inline(always)]
fn tangent(x: f32) -> f32 {
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
        wide(
            #[inline(always)]
            || {
                for (y, x) in y.chunks_exact_mut(self.width).zip(x.chunks_exact(2 * self.width)) {
                    let (value, gate) = x.split_at(self.width);
                    y.iter_mut().zip(value).zip(gate).for_each(|((y, &value), &gate)| *y = value * sigmoid(gate));
                }
            },
        );
        y
    }

    fn backward(&self, [x]: [&[f32]; 1], above: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut gradient = vec![0.0; x.len()];
        let width = self.width;
        wide(
            #[inline(always)]
            || {
                let rows = gradient.chunks_exact_mut(2 * width).zip(x.chunks_exact(2 * width));
                for ((gradient, x), above) in rows.zip(above.chunks_exact(width)) {
                    let (by_value, by_gate) = gradient.split_at_mut(width);
                    let (value, gate) = x.split_at(width);
                    for i in 0..width {
                        let s = sigmoid(gate[i]);
                        by_value[i] = above[i] * s;
                        by_gate[i] = above[i] * value[i] * s * (1.0 - s);
                    }
                }
            },
        );
        [Some(gradient)]
    }
}

/// Runs `work` compiled for the widest instructions that the processor has.
pub(crate) fn wide<R>(work: impl FnOnce() -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Work<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, simd: S) -> R {
            simd.vectorize(
                #[inline(always)]
                || self.0(),
            )
        }
    }
    Arch::new().dispatch(Work(work))
}

/// The derivative of SiLU.
#[inline(always)]
fn slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The exponential, within 2 units in the last place: Cephes' `expf`, written without branches so that it vectorises.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // x = n ln 2 + r, with ln 2 in two parts so that r keeps its digits.
    let n = (x * std::f32::consts::LOG2_E + 12_582_912.0) - 12_582_912.0;
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let value = p * r * r + r + 1.0;
    // Two to the power of n, by its exponent bits.
    value * f32::from_bits(((n as i32 + 127) << 23) as u32)
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
        // Outside the tape it is the same.
        let plain = ours(input(&Device::flex())).into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(plain, y);
    }

    #[test]
    fn values_and_gradients_are_burns() {
        check(silu, activation::silu);
        check(glu, |x| activation::glu(x, 2));
        check(tanh, Tensor::tanh);
    }

    #[test]
    fn a_view_is_read_in_its_own_order() {
        let x = input(&Device::flex()).swap_dims(1, 2);
        let ours = silu(x.clone()).into_data().try_into_vec::<f32>().unwrap();
        let burns = activation::silu(x).into_data().try_into_vec::<f32>().unwrap();
        assert!(ours.iter().zip(&burns).all(|(a, b)| (a - b).abs() < 1e-5));
    }

    #[test]
    fn the_exponential_is_exact_enough_and_never_infinite() {
        for i in -9000..9000 {
            let x = i as f32 * 0.01;
            let (ours, exact) = (exp(x), f64::from(x.clamp(-87.0, 88.0)).exp());
            assert!((f64::from(ours) - exact).abs() <= 2.5e-7 * exact, "{x}: {ours} {exact}");
        }
        assert!(exp(1e30).is_finite() && exp(-1e30) >= 0.0);
    }
}
