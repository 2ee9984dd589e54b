//! One query for each sequence, over buffers that have room to spare: attention while a sequence grows.

use burn::tensor::{Tensor, TensorData, activation};

use super::activation::{exp, wide};
use super::host::{host_values, is_computed};

// Shapes: b sequences, h heads, r room for frames, w width of a head.

/// Numbers that a sum is kept in at once, as many as the widest instructions add.
const LANES: usize = 16;

/// The values `[b, h, 1, w]` that one scaled `query` `[b, h, 1, w]` sees in the first `seen` rows of `keys` and `values`
/// `[b, h, r, w]`, weighted. For decoding: it is no part of a gradient.
///
/// On the CPU each row is read once and where it stands; a matrix product of one row costs several times what its
/// reading does (docs/LOG.md, 2026-11-21).
pub fn glance(query: Tensor<4>, keys: &Tensor<4>, values: &Tensor<4>, seen: usize) -> Tensor<4> {
    let on_tape = [&query, keys, values].iter().any(|x| x.is_autodiff());
    if on_tape || ![&query, keys, values].iter().all(|x| is_computed(x)) {
        let (keys, values) = (keys.clone().narrow(2, 0, seen), values.clone().narrow(2, 0, seen));
        return activation::softmax(query.matmul(keys.swap_dims(2, 3)), 3).matmul(values);
    }
    let ([b, h, _, w], [_, _, room, _], device) = (query.dims(), keys.dims(), query.device());
    let mut mixed = vec![0.0; b * h * w];
    host_values(query, |query| {
        host_values(keys.clone(), |keys| {
            host_values(values.clone(), |values| {
                let mut weights = vec![0.0; seen];
                let heads = mixed.chunks_exact_mut(w).zip(query.chunks_exact(w));
                let buffers = keys.chunks_exact(room * w).zip(values.chunks_exact(room * w));
                for ((mixed, query), (keys, values)) in heads.zip(buffers) {
                    wide(
                        #[inline(always)]
                        || head(mixed, query, &keys[..seen * w], &values[..seen * w], &mut weights),
                    );
                }
            });
        });
    });
    Tensor::from_data(TensorData::new(mixed, [b, h, 1, w]), &device)
}

/// One head: scores, softmax, and the values by their weights.
#[inline(always)]
fn head(mixed: &mut [f32], query: &[f32], keys: &[f32], values: &[f32], weights: &mut [f32]) {
    let width = query.len();
    let mut most = f32::NEG_INFINITY;
    for (weight, key) in weights.iter_mut().zip(keys.chunks_exact(width)) {
        *weight = dot(query, key);
        most = most.max(*weight);
    }
    let mut sum = 0.0;
    for weight in &mut *weights {
        *weight = exp(*weight - most);
        sum += *weight;
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        let share = weight / sum;
        mixed.iter_mut().zip(value).for_each(|(mixed, value)| *mixed += share * value);
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a_lanes, b_lanes) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_lanes.remainder().iter().zip(b_lanes.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_lanes.zip(b_lanes) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tolerance};

    use super::*;

    #[test]
    fn a_glance_is_attention_over_what_is_there() {
        let device = Device::flex();
        for (w, seen) in [(24, 1), (24, 7), (64, 30), (5, 32)] {
            let random = |n| Tensor::<4>::random([2, 3, n, w], burn::tensor::Distribution::Normal(0.0, 1.0), &device);
            let (query, keys, values) = (random(1), random(32), random(32));
            let found = glance(query.clone(), &keys, &values, seen);
            let (keys_seen, values_seen) = (keys.narrow(2, 0, seen), values.narrow(2, 0, seen));
            let weights = activation::softmax(query.matmul(keys_seen.swap_dims(2, 3)), 3);
            assert_eq!(found.dims(), [2, 3, 1, w]);
            let expected = weights.matmul(values_seen).into_data();
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }
}
