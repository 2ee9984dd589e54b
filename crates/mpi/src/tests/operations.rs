//! Operations give the right bits on all ranks, whatever the sizes and the delays.

use std::ops::Add;
use std::time::Duration;

use proptest::prelude::*;

use super::network::{Random, Ranks};
use crate::gather::Gather;
use crate::limits::Limits;
use crate::sum::Sum;
use crate::values::{Bf16Feedback, Exact, Float, Rounded};

const STEP: Duration = Duration::from_micros(100);
const DELAY: Duration = Duration::from_millis(2);

/// Adds whole arrays in the order of the ranks, as threads do.
fn added<F: Copy + Add<Output = F>>(arrays: &[Vec<F>]) -> Vec<F> {
    let mut arrays = arrays.iter().cloned();
    let first = arrays.next().unwrap();
    arrays.fold(first, |sum, next| sum.into_iter().zip(next).map(|(sum, next)| sum + next).collect())
}

/// Sums the arrays in a simulated network.
fn summed<F: Float>(mut arrays: Vec<Vec<F>>, slice_len: usize, seed: u64) -> Vec<Vec<F>> {
    let mut ranks = Ranks::new(arrays.len(), Limits::default(), DELAY, seed);
    let mut open: Vec<Option<&mut Vec<F>>> = arrays.iter_mut().map(Some).collect();
    let ends = ranks.run(STEP, |rank, post| {
        let values = open[rank].take().unwrap();
        Some(Sum::new(Exact(values), slice_len, post))
    });
    assert!(ends.iter().all(|end| end.as_ref().unwrap().is_ok()));
    drop(ends);
    arrays
}

fn numbers(ranks: usize, len: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random(seed);
    (0..ranks).map(|_| (0..len).map(|_| random.float()).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_have_the_bits_of_whole_arrays_in_rank_order(
        ranks in 1..=7_usize, len in 0..5000_usize, slice_len in 1..3000_usize, seed: u64,
    ) {
        let doubles = numbers(ranks, len, seed);
        let bits = |array: &[f64]| array.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
        let expected = bits(&added(&doubles));
        for sums in summed(doubles.clone(), slice_len, seed) {
            prop_assert_eq!(&bits(&sums), &expected);
        }
        let floats: Vec<Vec<f32>> =
            doubles.iter().map(|array| array.iter().map(|&value| value as f32).collect()).collect();
        let bits = |array: &[f32]| array.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let expected = bits(&added(&floats));
        for sums in summed(floats.clone(), slice_len, seed) {
            prop_assert_eq!(&bits(&sums), &expected);
        }
    }

    #[test]
    fn gather_gives_all_bytes_to_all(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..=7),
        chunk_len in 1..100_usize, seed: u64,
    ) {
        let mut ranks = Ranks::new(contents.len(), Limits::default(), DELAY, seed);
        for _ in 0..2 {
            let ends = ranks.run(STEP, |rank, post| Some(Gather::new(contents[rank].clone(), chunk_len, post)));
            for end in ends {
                let found = end.unwrap().unwrap().into_contents();
                prop_assert!(found.iter().map(|bytes| &bytes[..]).eq(contents.iter().map(|bytes| &bytes[..])));
            }
        }
    }

    #[test]
    fn bf16_gives_the_same_bits_to_all_and_loses_nothing_over_time(
        ranks in 1..=5_usize, len in 1..200_usize, slice_len in 2..100_usize, seed: u64,
    ) {
        let arrays: Vec<Vec<f32>> = numbers(ranks, len, seed)
            .into_iter()
            .map(|array| array.into_iter().map(|value| (value.abs() * 1e-6) as f32 + 1.0).collect())
            .collect();
        let exact = added(&arrays);
        let mut network = Ranks::new(ranks, Limits::default(), DELAY, seed);
        let mut feedback = vec![Bf16Feedback::new(); ranks];
        let mut totals = vec![0.0_f64; len];
        const STEPS: usize = 50;
        for _ in 0..STEPS {
            let mut sums = arrays.clone();
            let mut open: Vec<_> = sums.iter_mut().zip(&mut feedback).map(Some).collect();
            let ends = network.run(STEP, |rank, post| {
                let (values, feedback) = open[rank].take().unwrap();
                Some(Sum::new(Rounded::new(values, feedback), slice_len, post))
            });
            prop_assert!(ends.iter().all(|end| end.as_ref().unwrap().is_ok()));
            drop(ends);
            for other in &sums[1..] {
                prop_assert_eq!(&sums[0], other);
            }
            totals.iter_mut().zip(&sums[0]).for_each(|(total, &sum)| *total += f64::from(sum));
        }
        for (total, &exact) in totals.iter().zip(&exact) {
            // Without feedback the error of each step would add up: 2^-9 of each of the sums.
            let error = (total / STEPS as f64 / f64::from(exact) - 1.0).abs();
            prop_assert!(error < 0.01 / STEPS as f64 + 1e-6, "{total} {exact}: {error}");
        }
    }
}
