//! Operations give the right bits on all ranks, whatever the sizes and the delays.

use std::ops::Add;
use std::time::Duration;

use plimsoll_core::Collective;
use proptest::prelude::*;

use super::network::{Random, Ranks};
use super::threads::{on_threads, replicas};
use crate::gather::Gather;
use crate::library_sum::LibrarySum;
use crate::limits::Limits;

const STEP: Duration = Duration::from_micros(100);
const DELAY: Duration = Duration::from_millis(2);

/// Adds whole arrays in the order of the ranks, as threads do.
fn added<F: Copy + Add<Output = F>>(arrays: &[Vec<F>]) -> Vec<F> {
    let mut arrays = arrays.iter().cloned();
    let first = arrays.next().unwrap();
    arrays.fold(first, |sum, next| sum.into_iter().zip(next).map(|(sum, next)| sum + next).collect())
}

/// Gives the values of an array, slice after slice.
fn reader(mut rest: &[f32]) -> impl FnMut(&mut [f32]) -> Result<(), String> {
    move |out| {
        let (next, later) = rest.split_at_checked(out.len()).ok_or("there are no more")?;
        out.copy_from_slice(next);
        rest = later;
        Ok(())
    }
}

fn numbers(ranks: usize, len: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random(seed);
    (0..ranks).map(|_| (0..len).map(|_| random.float()).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_in_order_have_the_bits_of_whole_arrays(
        ranks in 1..=5_usize, len in 0..300_usize, part_len in 1..200_usize, seed: u64,
    ) {
        let arrays: Vec<Vec<f32>> =
            numbers(ranks, len, seed).iter().map(|array| array.iter().map(|&value| value as f32).collect()).collect();
        let bits = |array: &[f32]| array.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let expected = bits(&added(&arrays));
        let sums = on_threads(replicas(ranks, Limits::default()), |replica| {
            let mut own = arrays[replica.rank()].clone();
            replica.sum_in_order(&mut own, part_len).map(|()| own)
        });
        for sums in sums {
            prop_assert_eq!(&bits(&sums.unwrap()), &expected);
        }
    }

    #[test]
    fn sums_by_the_library_are_its_own_on_all_ranks(
        ranks in 1..=7_usize, len in 0..5000_usize, part_len in 1..3000_usize, seed: u64,
    ) {
        let arrays: Vec<Vec<f32>> =
            numbers(ranks, len, seed).iter().map(|array| array.iter().map(|&value| value as f32).collect()).collect();
        let reversed: Vec<Vec<f32>> = arrays.iter().rev().cloned().collect();
        let bits = |array: &[f32]| array.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let expected = bits(&added(&reversed));
        let mut network = Ranks::new(ranks, Limits::default(), DELAY, seed);
        let mut all = vec![vec![f32::NAN; len]; ranks];
        let mut reads: Vec<_> = arrays.iter().map(|array| reader(array)).collect();
        let mut open: Vec<_> = all.iter_mut().zip(&mut reads).map(Some).collect();
        let ends = network.run(STEP, |rank, _| {
            let (sums, read) = open[rank].take().unwrap();
            Some(LibrarySum::new(sums, part_len, read))
        });
        prop_assert!(ends.iter().all(|end| end.as_ref().unwrap().is_ok()));
        drop(ends);
        for sums in &all {
            prop_assert_eq!(&bits(sums), &expected);
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
}
