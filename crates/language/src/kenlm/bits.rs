//! Numbers that are packed bit by bit.

use crate::bytes::ModelBytes;

/// Sign of a 32-bit float.
const SIGN: u32 = 1 << 31;

/// Returns the number of bits of the largest value.
pub(super) fn required(value: u64) -> u64 {
    u64::from(u64::BITS - value.leading_zeros())
}

/// Reads an integer of at most 57 bits, `bit` bits behind `at`.
pub(super) fn integer(bytes: &ModelBytes, at: u64, bit: u64, bits: u64) -> u64 {
    let word = bytes.u64(at.saturating_add(bit >> 3)) >> (bit & 7);
    word & ((1u64 << bits) - 1)
}

/// Reads a float.
pub(super) fn float(bytes: &ModelBytes, at: u64, bit: u64) -> f32 {
    f32::from_bits(integer(bytes, at, bit, 32) as u32)
}

/// Reads a float that is never positive, without its sign.
pub(super) fn negative(bytes: &ModelBytes, at: u64, bit: u64) -> f32 {
    f32::from_bits(integer(bytes, at, bit, 31) as u32 | SIGN)
}

/// Splits the log-probability of a hash table: its sign says whether the n-gram ends no longer one.
pub(super) fn split_sign(prob: f32) -> (f32, bool) {
    let bits = prob.to_bits();
    (f32::from_bits(bits | SIGN), bits & SIGN == 0)
}
