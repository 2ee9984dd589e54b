//! Vectorized loops over slices: sum, exponential, and a function that runs a loop with the widest instructions of the
//! processor.

use pulp::{Arch, WithSimd};

/// Runs `work` compiled for the widest instructions that the processor supports.
pub(crate) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
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

/// Computes a sum as sixteen partial sums: wide registers need additions that do not depend on each other.
#[inline(always)]
pub(crate) fn sum(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let mut parts = [0.0; 16];
    for (place, value) in values.enumerate() {
        parts[place % 16] += value;
    }
    parts.iter().sum()
}

/// Computes the exponential within 2 units in the last place: Cephes' `expf` without branches, so that the compiler
/// vectorizes it. The argument is clamped to `[-87, 88]`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // x = n ln 2 + r, with ln 2 in two parts so that r keeps its digits.
    let n = (x * std::f32::consts::LOG2_E + 12_582_912.0) - 12_582_912.0;
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let value = p * r * r + r + 1.0;
    // 2^n, built from its exponent bits.
    value * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// Size below which a gradient is zero: far below what any optimizer moves a weight by, and far above the denormal numbers, with which a
/// processor multiplies many times slower. Gradients of what nothing attends to shrink from block to block.
const LEAST_GRADIENT: f32 = 1e-26;

/// Returns a gradient, or zero for one that is below every effect.
#[inline(always)]
pub(crate) fn gradient(value: f32) -> f32 {
    if value.abs() < LEAST_GRADIENT { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_accurate_and_finite() {
        for i in -9000..9000 {
            let x = i as f32 * 0.01;
            let (ours, exact) = (exp(x), f64::from(x.clamp(-87.0, 88.0)).exp());
            assert!((f64::from(ours) - exact).abs() <= 2.5e-7 * exact, "{x}: {ours} {exact}");
        }
        assert!(exp(1e30).is_finite() && exp(-1e30) >= 0.0);
    }
}
