//! 8-bit state in blocks with one scale each.
//!
//! The method follows Dettmers et al. (2021, arXiv 2110.02861): optimizer state tolerates a relative error of some
//! percent if each block of values is scaled by its largest value. This module differs in two ways.
//!
//! - The codes of the paper are a table of 256 numbers. Here a code is the fourth root of a value's share of the
//!   largest value in its block, and decoding takes the fourth power: two roots and two squares, which every backend
//!   can compute and fuse. The finest code is 4e-9 of the largest value in a signed block and 2e-10 in a positive
//!   block. Positive blocks have no zero code: a second moment never vanishes while its mean does not.
//! - A second moment loses a thousandth in a step, and the next code is some percent away. Rounded to the nearest code
//!   it would never change; rounded up it would only grow (to 3.5 and 19 times its root, simulated with gradients of
//!   four magnitudes in a block; with the rounding here it is within 2 % for the upper two and 18 % for the lowest).
//!   So the rounding threshold varies with the step, and a code moves as often as it should. The threshold is a
//!   function of the step and of the place in a block, so a run can be repeated and resumed, on the CPU to the last bit.
//!
//! Four codes are packed into one 32-bit integer, so backends need no byte type.

// Shapes: b blocks of 256 values, w words of four codes in all of them.

use burn::tensor::{DType, Device, FloatDType, Int, IntDType, Tensor, TensorData};
use plimsoll_tape::transfer::uploaded;

/// Number of values that share one scale.
pub(super) const BLOCK: usize = 256;

/// Number of 32-bit words in a block.
pub(super) const WORDS: usize = BLOCK / 4;

/// Number of values below which a parameter's state stays in fp32: biases and norms, which are small and sensitive.
pub(super) const SMALL: usize = 1024;

/// Returns whether the state of a parameter with `values` values is kept in 8 bits.
pub(super) fn bears_eight(values: usize) -> bool {
    values >= SMALL
}

/// Computes the bytes of the 8-bit state of a parameter with `values` values; small parameters stay in fp32.
pub(super) fn bytes(values: u64) -> u64 {
    if values < SMALL as u64 { values * 4 } else { values.div_ceil(BLOCK as u64) * (BLOCK as u64 + 4) }
}

/// Whether the values of a running mean can be negative, which decides their 8-bit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Values of both signs and zero: codes from -127 to 127, stored as 1 to 255.
    Signed,
    /// Values of zero and above, such as a mean of squares: codes from 1 to 255. No code decodes to zero, so a value
    /// that is small beside the largest value of its block stays above zero.
    Positive,
}

impl Range {
    /// Returns the code of the smallest magnitude (zero, or the smallest value of a positive block) and the code of the
    /// largest magnitude in a block.
    fn codes(self) -> (f64, f64) {
        match self {
            Self::Signed => (0.0, 127.0),
            Self::Positive => (1.0, 255.0),
        }
    }
}

/// Running mean of one parameter, quantized to 8 bits in blocks of 256 values with one scale each.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// 8-bit codes of the values, packed into 32-bit words: byte `k` of word `i` of a block is the code of the block's value
    /// `64 k + i`. So the blocks of several parameters are one after another, too.
    pub(super) codes: Tensor<1, Int>,
    /// Largest magnitude in each block, `[blocks, 1]`.
    pub(super) scales: Tensor<2>,
    /// Number of values, without the padding of the last block.
    pub(super) count: usize,
    /// Range of the values, which decides their codes.
    pub(super) range: Range,
}

impl Blocks {
    /// Quantizes `values` to 8 bits with the rounding [`threshold`] of a step.
    pub(super) fn quantize(values: Tensor<1>, range: Range, threshold: &Tensor<2>) -> Self {
        let (least, most) = range.codes();
        let [count] = values.dims();
        let rows = in_blocks(values);
        let size = rows.clone().abs();
        let scales = size.clone().max_dim(1);
        let place = (size / scales.clone().clamp_min(f32::MIN_POSITIVE)).sqrt().sqrt() * most;
        let code = (place + threshold.clone()).floor().clamp(least, most);
        let code = match range {
            Range::Signed => code * rows.sign() + 128.0,
            Range::Positive => code,
        };
        Self { codes: pack(code.cast(IntDType::I32)), scales, count, range }
    }

    /// Decodes the values to fp32.
    pub(super) fn dequantize(self) -> Tensor<1> {
        let (_, most) = self.range.codes();
        let code = unpack(self.codes).cast(FloatDType::F32);
        let share = match self.range {
            Range::Signed => {
                let root = (code - 128.0) / most;
                root.clone() * root.clone().abs() * root.square()
            }
            Range::Positive => (code / most).square().square(),
        };
        (share * self.scales).reshape([-1]).narrow(0, 0, self.count)
    }
}

/// Computes the rounding thresholds of a step, `[1, 256]`: over the steps, the thresholds at each place in a block
/// cover 0 to 1 evenly.
///
/// Multiples of the golden ratio are spread evenly for every number of steps; multiples of the inverse plastic number
/// separate the places of a block (Roberts 2018, "The unreasonable effectiveness of quasirandom sequences").
pub(super) fn threshold(step: u64, device: &Device) -> Tensor<2> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    const PLASTIC: f64 = 0.754_877_666_246_692_7;
    let start = (step as f64 * GOLDEN).fract();
    let values = (0..BLOCK).map(|place| (start + place as f64 * PLASTIC).fract() as f32).collect();
    Tensor::from_data(uploaded(TensorData::new(values, [1, BLOCK])), (device, DType::F32))
}

/// Arranges values in rows of one block, `[blocks, 256]`, with the last block padded by zeros.
fn in_blocks(values: Tensor<1>) -> Tensor<2> {
    let [count] = values.dims();
    let missing = count.next_multiple_of(BLOCK) - count;
    if missing == 0 {
        return values.reshape([-1, BLOCK as i64]);
    }
    let rest = Tensor::zeros([missing], (&values.device(), DType::F32));
    Tensor::cat(vec![values, rest], 0).reshape([-1, BLOCK as i64])
}

/// Packs the codes of blocks `[b, 256]` into 32-bit integers `[64 b]`, four codes in each.
fn pack(codes: Tensor<2, Int>) -> Tensor<1, Int> {
    let byte = |k: usize| codes.clone().narrow(1, k * WORDS, WORDS).bitwise_left_shift_scalar(8 * k as i32);
    byte(0).bitwise_or(byte(1)).bitwise_or(byte(2)).bitwise_or(byte(3)).reshape([-1])
}

/// Unpacks 32-bit integers `[64 b]` into the codes of blocks `[b, 256]`, four from each.
fn unpack(words: Tensor<1, Int>) -> Tensor<2, Int> {
    let words: Tensor<2, Int> = words.reshape([-1, WORDS as i64]);
    let byte = |k: i32| words.clone().bitwise_right_shift_scalar(8 * k).bitwise_and_scalar(255);
    Tensor::cat((0..4).map(byte).collect(), 1)
}

/// Converts the words of one parameter into the order of a checkpoint: there byte `k` of word `i`, of `w` words, is the code of
/// value `k w + i` of the whole parameter.
pub(super) fn to_checkpoint_order(words: &[i32]) -> Vec<i32> {
    reordered(words, in_block, in_whole)
}

/// Converts words from the order of a checkpoint.
pub(super) fn from_checkpoint_order(words: &[i32]) -> Vec<i32> {
    reordered(words, in_whole, in_block)
}

/// Word and byte of a value among the words of its block.
fn in_block(value: usize, _: usize) -> (usize, usize) {
    let place = value % BLOCK;
    (value / BLOCK * WORDS + place % WORDS, place / WORDS)
}

/// Word and byte of a value among all `words` of a parameter.
fn in_whole(value: usize, words: usize) -> (usize, usize) {
    (value % words, value / words)
}

fn reordered(
    words: &[i32],
    from: impl Fn(usize, usize) -> (usize, usize),
    to: impl Fn(usize, usize) -> (usize, usize),
) -> Vec<i32> {
    let mut new = vec![0_u32; words.len()];
    for value in 0..words.len() * 4 {
        let ((word, byte), (new_word, new_byte)) = (from(value, words.len()), to(value, words.len()));
        let code = words[word].cast_unsigned() >> (8 * byte) & 255;
        new[new_word] |= code << (8 * new_byte);
    }
    new.into_iter().map(u32::cast_signed).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;

    use super::*;

    fn there_and_back(values: &[f32], range: Range, step: u64) -> Vec<f32> {
        let device = Device::flex();
        let tensor = Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &device);
        let blocks = Blocks::quantize(tensor, range, &threshold(step, &device));
        assert_eq!(blocks.codes.dtype(), DType::I32);
        blocks.dequantize().into_data().try_into_vec().unwrap()
    }

    /// Makes test values over four magnitudes, of both signs or positive.
    fn sample(count: usize, range: Range) -> Vec<f32> {
        let one = |i: usize| {
            let key = Key::new(5).at(i as u64);
            let size = 10f64.powf(-4.0 * key.unit());
            let negative = range == Range::Signed && key.at(1).unit() < 0.5;
            (if negative { -size } else { size }) as f32
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn values_return_within_one_code_and_the_largest_exactly() {
        for (range, levels) in [(Range::Signed, 127.0), (Range::Positive, 255.0)] {
            for count in [SMALL, SMALL + 7] {
                let values = sample(count, range);
                let back = there_and_back(&values, range, 3);
                assert_eq!(back.len(), count);
                for (block, back) in values.chunks(BLOCK).zip(back.chunks(BLOCK)) {
                    let largest = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                    for (value, back) in block.iter().zip(back) {
                        let root = |x: f32| (x.abs() / largest).powf(0.25) * levels;
                        assert!((root(*value) - root(*back)).abs() < 1.001, "{value} {back}");
                        assert!(value.signum() == back.signum() && (value.abs() < largest || value == back));
                    }
                }
            }
        }
    }

    #[test]
    fn rounding_is_unbiased_over_the_steps() {
        let values = sample(SMALL, Range::Positive);
        let steps = 400;
        let root = |x: f32| f64::from(x).powf(0.25);
        let mut sums = vec![0.0; SMALL];
        for step in 0..steps {
            let back = there_and_back(&values, Range::Positive, step);
            sums.iter_mut().zip(back).for_each(|(sum, back)| *sum += root(back));
        }
        for (value, sum) in values.iter().zip(sums) {
            let error = (sum / steps as f64 - root(*value)).abs();
            assert!(error < 0.02 / 255.0, "{value}: {error}");
        }
    }

    #[test]
    fn zeros_stay_zeros_and_small_squares_stay_positive() {
        for range in [Range::Signed, Range::Positive] {
            assert_eq!(there_and_back(&[0.0; SMALL], range, 1), [0.0; SMALL]);
        }
        let mut values = [1e-20; SMALL];
        values[0] = 1.0;
        let back = there_and_back(&values, Range::Positive, 1);
        assert!(back.iter().all(|value| *value > 0.0));
    }
}
