//! Attention of one query per sequence over buffers with spare rows, for autoregressive decoding.

use burn::tensor::{Tensor, TensorData, activation};

use crate::host::{is_on_cpu, with_cpu_values};
use crate::simd::vectorized;

// Shapes: b sequences, h heads, r rows of the buffers, w width of a head.

/// Number of partial sums of a dot product: as many as the widest instructions add at once.
const LANES: usize = 16;

/// Computes the attention output `[sequences, heads, 1, width]` of one scaled `query` `[sequences, heads, 1, width]`
/// over the first `count` rows of `keys` and `values` `[sequences, heads, rows, width]`. For decoding; training uses
/// [`attention_weights`](super::attention_weights) or [`chunked_attention`](super::chunked_attention).
///
/// On the CPU without autodiff each row is read once, in place. With matrix products of one row, a frame of a
/// synthesizer of width 256 took 1.29x and 1.38x as long after 500 frames as after 50; now it takes 1.17x and 1.22x
/// (docs/log/synthesis.md, "What a spoken frame costs").
pub fn single_query_attention(query: Tensor<4>, keys: &Tensor<4>, values: &Tensor<4>, count: usize) -> Tensor<4> {
    let on_tape = [&query, keys, values].iter().any(|x| x.is_autodiff());
    if on_tape || ![&query, keys, values].iter().all(|x| is_on_cpu(x)) {
        let (keys, values) = (keys.clone().narrow(2, 0, count), values.clone().narrow(2, 0, count));
        return activation::softmax(query.matmul(keys.swap_dims(2, 3)), 3).matmul(values);
    }
    let ([b, h, _, w], [_, _, capacity, _], device) = (query.dims(), keys.dims(), query.device());
    let mut output = vec![0.0; b * h * w];
    with_cpu_values(query, |query| {
        with_cpu_values(keys.clone(), |keys| {
            with_cpu_values(values.clone(), |values| {
                let mut weights = vec![0.0; count];
                let heads = output.chunks_exact_mut(w).zip(query.chunks_exact(w));
                let buffers = keys.chunks_exact(capacity * w).zip(values.chunks_exact(capacity * w));
                for ((output, query), (keys, values)) in heads.zip(buffers) {
                    vectorized(
                        #[inline(always)]
                        || attend_head(output, query, &keys[..count * w], &values[..count * w], &mut weights),
                    );
                }
            });
        });
    });
    Tensor::from_data(TensorData::new(output, [b, h, 1, w]), &device)
}

/// Computes one attention head and adds the result to `output`: scores, softmax, and the weighted sum of the values.
/// `weights` is working memory with one number for each key.
#[inline(always)]
fn attend_head(output: &mut [f32], query: &[f32], keys: &[f32], values: &[f32], weights: &mut [f32]) {
    let width = query.len();
    let mut highest = f32::NEG_INFINITY;
    for (weight, key) in weights.iter_mut().zip(keys.chunks_exact(width)) {
        *weight = dot(query, key);
        highest = highest.max(*weight);
    }
    let mut sum = 0.0;
    for weight in &mut *weights {
        *weight = super::rows::weight(*weight - highest);
        sum += *weight;
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        let weight = weight / sum;
        output.iter_mut().zip(value).for_each(|(output, value)| *output += weight * value);
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
    fn equals_attention_over_the_rows_in_use() {
        let device = Device::flex();
        for (w, count) in [(24, 1), (24, 7), (64, 30), (5, 32)] {
            let random = |n| Tensor::<4>::random([2, 3, n, w], burn::tensor::Distribution::Normal(0.0, 1.0), &device);
            let (query, keys, values) = (random(1), random(32), random(32));
            let found = single_query_attention(query.clone(), &keys, &values, count);
            let (keys_seen, values_seen) = (keys.narrow(2, 0, count), values.narrow(2, 0, count));
            let weights = activation::softmax(query.matmul(keys_seen.swap_dims(2, 3)), 3);
            assert_eq!(found.dims(), [2, 3, 1, w]);
            let expected = weights.matmul(values_seen).into_data();
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }
}
