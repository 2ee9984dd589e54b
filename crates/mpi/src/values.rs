//! The numbers of a sum: how they travel, and how they are added in the order of the ranks.

use std::ops::{Add, Range};

/// Numbers that a sum replaces by their sums over all ranks.
pub(crate) trait Values {
    /// Number that stands for the format of the bytes.
    const FORMAT: u8;
    /// Bytes of a number on the way.
    const WIDTH: usize;

    fn len(&self) -> usize;

    /// Writes the bytes of this rank's numbers in `range`.
    fn encode(&mut self, range: Range<usize>, out: &mut [u8]);

    /// Replaces the numbers in `range` by their sums, and writes the bytes of the sums. `parts` has the bytes of each
    /// rank in their order, and `None` for this rank.
    fn add(&mut self, range: Range<usize>, parts: &[Option<&[u8]>], out: &mut [u8]);

    /// Replaces the numbers in `range` by the sums that another rank has computed.
    fn store(&mut self, range: Range<usize>, bytes: &[u8]);
}

/// Numbers that are added at a time: few enough to stay in the nearest cache.
const BLOCK: usize = 1024;

/// A float type as it travels. Its methods are inlined by force: a call for each number would take most of a sum.
pub(crate) trait Float: Copy + Add<Output = Self> {
    const FORMAT: u8;
    const WIDTH: usize;
    const ZERO: Self;

    fn read(bytes: &[u8]) -> Self;

    fn write(self, out: &mut [u8]);
}

macro_rules! float {
    ($float:ty, $format:literal) => {
        impl Float for $float {
            const FORMAT: u8 = $format;
            const WIDTH: usize = size_of::<$float>();
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("as many bytes as the type has"))
            }

            #[inline(always)]
            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

float!(f32, 1);
float!(f64, 2);

/// Numbers that travel and are added in their own format.
pub(crate) struct Exact<'a, F>(pub(crate) &'a mut [F]);

impl<F: Float> Values for Exact<'_, F> {
    const FORMAT: u8 = F::FORMAT;
    const WIDTH: usize = F::WIDTH;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn encode(&mut self, range: Range<usize>, out: &mut [u8]) {
        for (value, out) in self.0[range].iter().zip(out.chunks_exact_mut(F::WIDTH)) {
            value.write(out);
        }
    }

    fn add(&mut self, range: Range<usize>, parts: &[Option<&[u8]>], out: &mut [u8]) {
        let mut sums = [F::ZERO; BLOCK];
        let outs = out.chunks_mut(BLOCK * F::WIDTH);
        for (index, (own, out)) in self.0[range].chunks_mut(BLOCK).zip(outs).enumerate() {
            let sums = &mut sums[..own.len()];
            for (rank, part) in parts.iter().enumerate() {
                let start = index * BLOCK * F::WIDTH;
                match part {
                    Some(part) => {
                        let part = part[start..start + out.len()].chunks_exact(F::WIDTH);
                        combine(sums, part.map(F::read), rank == 0);
                    }
                    None => combine(sums, own.iter().copied(), rank == 0),
                }
            }
            own.copy_from_slice(sums);
            for (sum, out) in sums.iter().zip(out.chunks_exact_mut(F::WIDTH)) {
                sum.write(out);
            }
        }
    }

    fn store(&mut self, range: Range<usize>, bytes: &[u8]) {
        for (value, bytes) in self.0[range].iter_mut().zip(bytes.chunks_exact(F::WIDTH)) {
            *value = F::read(bytes);
        }
    }
}

/// Adds `values` to `sums`, or begins the sums with them.
#[inline(always)]
fn combine<F: Float>(sums: &mut [F], values: impl Iterator<Item = F>, begins: bool) {
    match begins {
        true => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value),
        false => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = *sum + value),
    }
}

/// What rounding to bf16 has taken from earlier sums, and gives back to the next one.
///
/// A sum in bf16 sends half the bytes and loses 16 of 24 bits. The loss of each number is kept on its rank and is added to
/// the next sum, so that over many steps nothing is lost. Each array that is summed needs one of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bf16Feedback {
    rest: Vec<f32>,
}

impl Bf16Feedback {
    /// Makes it without any rest.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what rounding has taken on this rank and not given back yet; empty before the first sum.
    pub fn rest(&self) -> &[f32] {
        &self.rest
    }
}

/// Numbers that travel as bf16, with feedback. They are added as f32.
pub(crate) struct Rounded<'a> {
    values: &'a mut [f32],
    rest: &'a mut [f32],
}

impl<'a> Rounded<'a> {
    /// Joins the numbers with their feedback. A feedback of another length starts anew.
    pub(crate) fn new(values: &'a mut [f32], feedback: &'a mut Bf16Feedback) -> Self {
        if feedback.rest.len() != values.len() {
            feedback.rest = vec![0.0; values.len()];
        }
        Self { values, rest: &mut feedback.rest }
    }
}

impl Values for Rounded<'_> {
    const FORMAT: u8 = 3;
    const WIDTH: usize = 2;

    fn len(&self) -> usize {
        self.values.len()
    }

    fn encode(&mut self, range: Range<usize>, out: &mut [u8]) {
        let values = self.values[range.clone()].iter().zip(&mut self.rest[range]);
        for ((value, rest), out) in values.zip(out.chunks_exact_mut(Self::WIDTH)) {
            out.copy_from_slice(&round(*value, rest).to_le_bytes());
        }
    }

    /// The own numbers of the range go into the sum as they are: they do not travel. So their rest is free for what the
    /// sum loses.
    fn add(&mut self, range: Range<usize>, parts: &[Option<&[u8]>], out: &mut [u8]) {
        let mut sums = [0.0; BLOCK];
        let own = self.values[range.clone()].chunks_mut(BLOCK).zip(self.rest[range].chunks_mut(BLOCK));
        for (index, ((own, rest), out)) in own.zip(out.chunks_mut(BLOCK * Self::WIDTH)).enumerate() {
            let (start, len) = (index * BLOCK * Self::WIDTH, out.len());
            let sums = &mut sums[..own.len()];
            for (rank, part) in parts.iter().enumerate() {
                match part {
                    Some(part) => {
                        let part = part[start..start + len].chunks_exact(Self::WIDTH);
                        combine(sums, part.map(read_bf16), rank == 0);
                    }
                    None => combine(sums, own.iter().copied(), rank == 0),
                }
            }
            let outs = out.chunks_exact_mut(Self::WIDTH);
            for (((sum, own), rest), out) in sums.iter().zip(own).zip(rest).zip(outs) {
                let rounded = round(*sum, rest);
                *own = from_bf16(rounded);
                out.copy_from_slice(&rounded.to_le_bytes());
            }
        }
    }

    fn store(&mut self, range: Range<usize>, bytes: &[u8]) {
        for (value, bytes) in self.values[range].iter_mut().zip(bytes.chunks_exact(Self::WIDTH)) {
            *value = read_bf16(bytes);
        }
    }
}

/// Rounds the value with the rest of earlier roundings, and keeps the rest of this one.
#[inline(always)]
fn round(value: f32, rest: &mut f32) -> u16 {
    let whole = value + *rest;
    let rounded = to_bf16(whole);
    let lost = whole - from_bf16(rounded);
    // A gradient that is not finite must not spoil the steps after it.
    *rest = if lost.is_finite() { lost } else { 0.0 };
    rounded
}

/// Rounds to the nearest bf16, and to the even one between two. Without branches, so that many are rounded at once; tests
/// compare it with the crate `half`.
#[inline(always)]
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if value.is_nan() { nan } else { rounded }) as u16
}

#[inline(always)]
fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn read_bf16(bytes: &[u8]) -> f32 {
    from_bf16(u16::from_le_bytes(bytes.try_into().expect("a bf16 has two bytes")))
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rounds_as_half_does(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assert_eq!(to_bf16(value), bf16::from_f32(value).to_bits());
            prop_assert_eq!(from_bf16(to_bf16(value)).to_bits(), bf16::from_f32(value).to_f32().to_bits());
        }
    }

    #[test]
    fn rounding_gives_back_what_it_took() {
        let mut rest = 0.0;
        let sum: f32 = (0..1000).map(|_| from_bf16(round(1.001, &mut rest))).sum();
        assert!((sum - 1001.0).abs() < 0.01, "{sum}");
        let sum: f32 = (0..1000).map(|_| from_bf16(to_bf16(1.001))).sum();
        assert_eq!(sum, 1000.0, "without feedback");
    }

    #[test]
    fn values_that_are_not_finite_leave_no_rest() {
        for value in [f32::NAN, f32::INFINITY, f32::MAX] {
            let mut rest = 0.0;
            let rounded = from_bf16(round(value, &mut rest));
            assert!(!rounded.is_finite() && rest == 0.0, "{value}: {rounded} {rest}");
        }
    }
}
