//! Random bits of dropout inside of a kernel: the same as on the CPU.

use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;

use crate::noise::{DropRule, GOLDEN, MULTIPLIER_1, MULTIPLIER_2};

/// Numbers of a [`DropRule`] as a kernel takes them.
pub(super) struct DropArgs {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) first: u32,
    pub(super) threshold: u32,
    pub(super) scale: f32,
}

impl DropArgs {
    pub(super) fn new(rule: Option<DropRule>) -> Self {
        let Some(DropRule { place: [low, high], threshold, scale, first }) = rule else {
            return Self { low: 0, high: 0, first: 0, threshold: 0, scale: 1.0 };
        };
        Self { low, high, first, threshold, scale }
    }
}

/// Computes the first half of the key of a sample at a place of the model. `keys` `[2, samples, 1]` are those of all samples; their
/// rows may have gaps between them.
#[cube]
pub(super) fn sample_low(keys: &Tensor<i32>, sample: usize, place_low: u32) -> u32 {
    u32::cast_from(keys[sample * keys.stride(1)]) ^ place_low
}

/// Computes the second half of the key of a sample, as [`sample_low`] the first.
#[cube]
pub(super) fn sample_high(keys: &Tensor<i32>, sample: usize, place_high: u32) -> u32 {
    u32::cast_from(keys[keys.stride(0) + sample * keys.stride(1)]) + place_high
}

/// Computes the first half of the key of the row with the number `row`, as `row_key` of the CPU does. The second half is
/// `high + row`.
#[cube]
pub(super) fn row_key(low: u32, high: u32, row: u32) -> u32 {
    let x = low + row;
    let x = (x ^ (x >> 16u32)) * MULTIPLIER_1;
    (x ^ (x >> 15u32)) + high
}

/// Computes 32 random bits for a column of a row with the key `low` and `high`, as `random_bits` of the CPU does.
#[cube]
pub(super) fn random_bits(low: u32, high: u32, column: u32) -> u32 {
    let x = low + column * GOLDEN;
    let x = (x ^ (x >> 16u32)) * MULTIPLIER_1;
    let x = ((x ^ (x >> 15u32)) + high) * MULTIPLIER_2;
    x ^ (x >> 16u32)
}
