//! Dropout masks: drawn in one pass on the CPU, from integer tensors on other devices, and never kept.

use std::marker::PhantomData;

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use plimsoll_core::Key;
use rayon::prelude::*;

use super::Source;
use crate::bridge::{PrimitiveBackend, on_backend};
use crate::capture::{is_capture_device, placeholder_ints};
use crate::host::{HostBackend, InPlaceArgs, is_host, on_host};
use crate::simd::vectorized;

/// Dropout mask of one tensor, stored as the rule to draw it.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    source: Source,
    rate: f64,
    /// Index of the tensor's first row on the second-last axis of the whole sequence: a chunk of queries draws its part
    /// of the whole mask.
    first: usize,
}

impl Mask {
    pub(super) fn new(source: &Source, rate: f64, first: usize) -> Self {
        Self { source: source.clone(), rate, first }
    }

    /// Returns the factor by which dropout multiplies the values that stay.
    pub(crate) fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.rate)) as f32
    }

    /// Returns the threshold of dropout: a value is dropped if its 32 random bits, as a number, are below it.
    pub(crate) fn threshold(&self) -> u32 {
        (self.rate * 4_294_967_296.0) as u32
    }

    /// Computes the random-number key of each row of a tensor of shape `shape`, as two halves of 32 bits. A row is the
    /// last axis.
    pub(crate) fn row_keys(&self, shape: &[usize]) -> Vec<[u32; 2]> {
        assert!(shape.len() > 1, "dropout needs a tensor of at least two axes");
        assert_eq!(shape[0], self.source.samples.len(), "dropout needs one sample id for each entry of the first axis");
        let halves = |key: Key| [key.bits() as u32, (key.bits() >> 32) as u32];
        let mut rows = Vec::with_capacity(shape[..shape.len() - 1].iter().product());
        for id in self.source.samples.iter() {
            self.collect_row_keys(self.source.key.at(id.0), &shape[1..shape.len() - 1], &mut |key| {
                rows.push(halves(key));
            });
        }
        rows
    }

    /// Passes the random-number key of each row to `found`: `key` belongs to a part of the tensor, and `axes` are the
    /// lengths of the axes that lead from this part to its rows. Keys are computed from coordinates instead of row
    /// numbers, because row numbers depend on padding.
    fn collect_row_keys(&self, key: Key, axes: &[usize], found: &mut impl FnMut(Key)) {
        let Some((&extent, rest)) = axes.split_first() else { return found(key) };
        let first = if rest.is_empty() { self.first as u64 } else { 0 };
        for index in first..first + extent as u64 {
            self.collect_row_keys(key.at(index), rest, found);
        }
    }

    /// Computes the bytes of memory that the random-number keys of all rows of a tensor of shape `shape` take.
    pub(crate) fn scratch(shape: &[usize]) -> usize {
        shape[..shape.len() - 1].iter().product::<usize>() * size_of::<[u32; 2]>()
    }

    /// Applies the mask and the scale to `values` in place.
    fn apply(&self, values: &mut [f32], shape: &[usize]) {
        let (scale, threshold) = (self.scale(), self.threshold());
        let width = shape[shape.len() - 1].max(1);
        let rows = self.row_keys(shape);
        let fill = |values: &mut [f32], row: &[[u32; 2]]| {
            vectorized(
                #[inline(always)]
                || {
                    for (values, &key) in values.chunks_exact_mut(width).zip(row) {
                        for (index, value) in values.iter_mut().enumerate() {
                            *value = if random_bits(key, index as u32) < threshold { 0.0 } else { *value * scale };
                        }
                    }
                },
            );
        };
        // Tasks of a few thousand values: smaller ones cost more than they save.
        let task_rows = (1_usize << 14).div_ceil(width);
        values
            .par_chunks_mut(task_rows * width)
            .zip(rows.par_chunks(task_rows))
            .for_each(|(values, row)| fill(values, row));
    }

    /// Computes the boolean mask of the values that stay, for a tensor of `shape` on `device` (without autodiff). It
    /// equals the mask that is drawn on the CPU.
    pub(super) fn keep_mask<const D: usize>(&self, shape: [usize; D], device: &Device) -> Tensor<D, Bool> {
        let width = shape[D - 1];
        let count = shape[..D - 1].iter().product();
        let rows = if is_capture_device(device) { Vec::new() } else { self.row_keys(&shape) };
        let half = |index: usize| -> Tensor<2, Int> {
            if let Some(column) = placeholder_ints([count, 1], device) {
                return column.expand([count, width]);
            }
            let values: Vec<i32> = rows.iter().map(|row| row[index] as i32).collect();
            let column = TensorData::new(values, [rows.len(), 1]);
            Tensor::<2, Int>::from_data(column, (device, DType::I32)).expand([rows.len(), width])
        };
        // Column index times the golden ratio constant, computed on the host: one row for all.
        let steps: Vec<i32> = (0..width as u32).map(|index| index.wrapping_mul(GOLDEN) as i32).collect();
        let steps: Tensor<2, Int> = Tensor::from_data(TensorData::new(steps, [1, width]), (device, DType::I32));
        let drawn = random_bits_tensor(half(0).bitwise_xor(steps.expand([count, width])), half(1));
        // Unsigned numbers compare like signed ones after the first bit of both is flipped.
        let threshold = (self.threshold() ^ 0x8000_0000) as i32;
        drawn.bitwise_xor_scalar(i32::MIN).greater_equal_elem(threshold).reshape(shape)
    }
}

const GOLDEN: u32 = 0x9e37_79b9;
const MULTIPLIER_1: u32 = 0x7feb_352d;
const MULTIPLIER_2: u32 = 0x846c_a68b;

/// Computes 32 uniform random bits for index `index` of a row: the mixer "lowbias32" (Wellons 2018) over the first half
/// of the row's key and the index, with the second half of the key added in between.
#[inline(always)]
pub(crate) fn random_bits([low, high]: [u32; 2], index: u32) -> u32 {
    let mut x = low ^ index.wrapping_mul(GOLDEN);
    x = (x ^ (x >> 16)).wrapping_mul(MULTIPLIER_1);
    x = ((x ^ (x >> 15)).wrapping_add(high)).wrapping_mul(MULTIPLIER_2);
    x ^ (x >> 16)
}

/// Computes [`random_bits`] for a tensor, in signed integers, whose sums and products wrap to the same bits.
fn random_bits_tensor(x: Tensor<2, Int>, high: Tensor<2, Int>) -> Tensor<2, Int> {
    // Shifting a signed number right copies its sign bit; the mask clears the copies.
    let shifted = |x: &Tensor<2, Int>, by: u32| {
        x.clone().bitwise_right_shift_scalar(by as i32).bitwise_and_scalar((u32::MAX >> by) as i32)
    };
    let mixed = |x: Tensor<2, Int>, by: u32| {
        let right = shifted(&x, by);
        x.bitwise_xor(right)
    };
    let x = mixed(x, 16).mul_scalar(MULTIPLIER_1 as i32);
    let x = (mixed(x, 15) + high).mul_scalar(MULTIPLIER_2 as i32);
    mixed(x, 16)
}

/// Applies dropout with `mask` to `x`; the result has autodiff if `x` has autodiff.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, mask: Mask) -> Tensor<D> {
    if !x.is_autodiff() {
        return drop_plain(x, &mask);
    }
    let device = x.device();
    on_backend!(&device, B => {
        // `into_parts` releases the graph's reference, so that the values can be changed in place if the graph does not
        // keep them.
        let (values, node) = B::tracked(x).into_parts();
        let y = drop_plain(B::from_plain::<D>(values), &mask);
        let step = Drop::<B, D>(PhantomData).prepare::<NoCheckpointing>([node]).compute_bound().stateful();
        B::from_tracked(match step {
            OpsKind::Tracked(step) => step.finish(mask, B::plain(y)),
            OpsKind::UnTracked(step) => step.finish(B::plain(y)),
        })
    })
}

/// Applies dropout without autodiff.
fn drop_plain<const D: usize>(x: Tensor<D>, mask: &Mask) -> Tensor<D> {
    let shape = x.dims();
    if is_host(&x) {
        return on_host!(x, B => {
            let args = InPlaceArgs::scratch(Mask::scratch(&shape));
            let apply = |values: &mut [f32], _: &mut [f32], _: &[&[f32]]| mask.apply(values, &shape);
            B::from_plain(B::change_in_place("dropout", B::plain(x), args, apply).0)
        });
    }
    let keep_mask = mask.keep_mask(shape, &x.device());
    x.mul_scalar(mask.scale()).mask_fill(keep_mask.bool_not(), 0.0)
}

#[derive(Debug)]
struct Drop<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 1> for Drop<B, D> {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<D> = B::from_plain(gradients.consume::<B>(&ops.node));
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, B::plain(drop_plain(grad_output, &ops.state)));
        }
    }
}
