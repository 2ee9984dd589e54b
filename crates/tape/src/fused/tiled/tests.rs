//! Tests of attention in tiles: values, gradients, threads and padding.

use std::num::NonZeroU32;
use std::sync::Arc;

use burn::tensor::{Device, Distribution};
use plimsoll_core::{Key, SampleId};

use super::*;
use crate::fused::chunked_attention;
use crate::transfer::Constants;

struct Case {
    /// Samples, heads, queries, keys, width, width of a value.
    sizes: [usize; 6],
    lengths: Vec<u32>,
    causal: bool,
    by_distance: bool,
    first_query: usize,
    rate: f64,
}

/// Computes the result and the gradients of all inputs.
fn computed(
    case: &Case,
    inputs: &[Tensor<4>],
    attend: impl Fn(AttentionInputs, &AttentionMask, &Noise) -> Tensor<4>,
) -> Vec<Vec<f32>> {
    let leaves: Vec<Tensor<4>> = inputs.iter().map(|x| x.clone().require_grad()).collect();
    let positions = case.by_distance.then(|| RelativePositions { query: leaves[3].clone(), table: leaves[4].clone() });
    let [query, key, value] = [0, 1, 2].map(|index| leaves[index].clone());
    let mask = AttentionMask {
        key_lengths: Arc::from(case.lengths.clone()),
        causal: case.causal,
        first_query: case.first_query,
        constants: Constants::default(),
    };
    let ids: Vec<SampleId> = (0..case.sizes[0] as u64).map(SampleId).collect();
    let output = attend(AttentionInputs { query, key, value, positions }, &mask, &Noise::new(Key::new(7), &ids));
    let grads = (output.clone() * (output.clone() + 0.3)).sum().backward();
    let used = if case.by_distance { 5 } else { 3 };
    let gradients = leaves[..used].iter().map(|x| x.grad(&grads).expect("each input has a gradient"));
    std::iter::once(output.inner()).chain(gradients).map(|x| x.into_data().try_into_vec().unwrap()).collect()
}

#[test]
fn tiles_equal_attention_at_once() {
    let device = Device::flex().autodiff();
    let case = |sizes: [usize; 6], lengths: &[u32], causal, by_distance, rate| Case {
        sizes,
        lengths: lengths.to_vec(),
        causal,
        by_distance,
        first_query: 0,
        rate,
    };
    let mut cases = vec![
        case([1, 1, 1, 1, 4, 4], &[1], false, false, 0.0),
        case([2, 3, 40, 50, 8, 8], &[50, 17], false, false, 0.0),
        case([2, 2, 130, 130, 8, 9], &[130, 0], false, false, 0.3),
        case([3, 2, 100, 100, 6, 6], &[100, 64, 1], true, false, 0.2),
        case([1, 2, 210, 700, 5, 5], &[690], false, false, 0.0),
        case([2, 2, 110, 110, 8, 8], &[110, 70], false, true, 0.0),
        case([3, 4, 97, 97, 8, 8], &[97, 30, 96], false, true, 0.2),
        case([40, 2, 7, 7, 4, 4], &[7; 40], true, true, 0.1),
        case([1, 1, 300, 300, 4, 4], &[300], true, true, 0.0),
        case([1, 1, 1, 9, 4, 4], &[9], false, true, 0.0),
    ];
    // Queries after frames that are cached.
    cases.push(Case { first_query: 20, ..case([1, 2, 30, 50, 8, 8], &[50], true, false, 0.2) });
    for (index, case) in cases.iter().enumerate() {
        let [b, h, q, k, w, v] = case.sizes;
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Normal(0.0, 0.7), &device);
        let rows = |t: usize, w: usize| random([b, t, h, w]).swap_dims(1, 2);
        // One of the inputs lies in another order.
        let inputs = [rows(q, w), random([b, h, k, w]), rows(k, v), rows(q, w), random([1, h, q + k - 1, w])];
        let found = computed(case, &inputs, |inputs, mask, noise| {
            assert!(is_tiled(&inputs));
            tiled_attention(inputs, mask, noise, case.rate)
        });
        let expected = computed(case, &inputs, |inputs, mask, noise| {
            chunked_attention(inputs, mask, noise, case.rate, NonZeroU32::MAX)
        });
        assert_eq!(found.len(), expected.len());
        for (tensor, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let largest = expected.iter().fold(1e-3_f32, |largest, x| largest.max(x.abs()));
            assert_eq!(found.len(), expected.len(), "case {index}, tensor {tensor}");
            let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > 2e-5 * largest || a.is_nan());
            assert_eq!(far, None, "case {index}, tensor {tensor}");
        }
        // The same bits on one thread.
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let again = alone
            .install(|| computed(case, &inputs, |inputs, mask, noise| tiled_attention(inputs, mask, noise, case.rate)));
        assert!(found == again, "case {index}: one thread computes other bits");
    }
}

#[test]
fn keys_behind_a_sequence_have_no_effect() {
    let device = Device::flex();
    let ones = Tensor::<4>::ones([1, 1, 20, 4], &device);
    let bad = ones.clone().slice_assign([0..1, 0..1, 15..20, 0..4], Tensor::full([1, 1, 5, 4], f32::NAN, &device));
    let mask =
        AttentionMask { key_lengths: Arc::from([15]), causal: false, first_query: 0, constants: Constants::default() };
    let inputs = AttentionInputs { query: ones, key: bad.clone(), value: bad, positions: None };
    let found: Vec<f32> = tiled_attention(inputs, &mask, &Noise::off(), 0.0).into_data().try_into_vec().unwrap();
    assert!(found.iter().all(|value| (value - 1.0).abs() < 1e-6), "{found:?}");
}
