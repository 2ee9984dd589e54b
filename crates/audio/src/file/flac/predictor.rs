//! Linear prediction: each sample is predicted from the samples before it.

/// Coefficients of the fixed predictors, by their order. The first coefficient belongs to the sample just before.
pub(super) const FIXED: [&[i32]; 5] = [&[], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]];

/// Turns differences from a prediction into samples, from the sample on that has one before it for each coefficient.
///
/// It is not compiled for the newest processors: with their vectors of 64-bit numbers the compiler makes it slower.
#[inline(never)]
pub(super) fn restore(samples: &mut [i32], coefficients: &[i32], shift: u32) {
    /// One function for each order, so that the compiler unrolls it.
    macro_rules! by_order {
        ($($order:literal)*) => {
            match coefficients.len() {
                0 => {}
                $($order => {
                    let coefficients: &[i32; $order] = coefficients.try_into().expect("this is its length");
                    restore_order(samples, coefficients, shift);
                })*
                order => restore_any(samples, &coefficients[..order], shift),
            }
        };
    }
    by_order!(1 2 3 4 5 6 7 8 9 10 11 12);
}

fn restore_order<const N: usize>(samples: &mut [i32], coefficients: &[i32; N], shift: u32) {
    let coefficients = coefficients.map(i64::from);
    let mut last: [i64; N] = std::array::from_fn(|n| samples[N - 1 - n].into());
    for sample in &mut samples[N..] {
        // The newest sample comes last: all other products are known before it.
        let older: i64 = (1..N).map(|n| coefficients[n] * last[n]).sum();
        let predicted = (older + coefficients[0] * last[0]) >> shift;
        *sample = sample.wrapping_add(predicted as i32);
        // One by one: this stays in registers.
        for n in (1..N).rev() {
            last[n] = last[n - 1];
        }
        last[0] = (*sample).into();
    }
}

fn restore_any(samples: &mut [i32], coefficients: &[i32], shift: u32) {
    for index in coefficients.len()..samples.len() {
        let (before, from) = samples.split_at_mut(index);
        let pairs = before.iter().rev().zip(coefficients);
        let sum: i64 = pairs.map(|(&sample, &coefficient)| i64::from(sample) * i64::from(coefficient)).sum();
        from[0] = from[0].wrapping_add((sum >> shift) as i32);
    }
}
