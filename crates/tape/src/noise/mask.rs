//! Dropout masks: drawn in one pass on the CPU, from integer tensors on other devices, and never kept.

use std::marker::PhantomData;

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use rayon::prelude::*;

use super::{Halves, Samples, Source, halves};
use crate::bridge::{PrimitiveBackend, on_backend};
use crate::capture::placeholder_ints;
use crate::host::{HostBackend, InPlaceArgs, is_host, on_host};
use crate::simd::vectorized;
use crate::transfer::{send_queued, uploaded};

/// Dropout mask of one tensor, stored as the rule to draw it.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    source: Source,
    rate: f64,
    /// Index of the tensor's first row on the second-last axis of the whole sequence: a chunk of queries draws its part
    /// of the whole mask.
    first: usize,
}

/// What a kernel draws a mask from, beside the [keys of the samples](Mask::sample_keys): a value is dropped if the
/// [random bits](random_bits) of its row and column are below the threshold.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "kernels alone read it"))]
pub(crate) struct DropRule {
    /// Halves of the key of the place in the model.
    pub(crate) place: Halves,
    pub(crate) threshold: u32,
    /// Factor for the values that stay.
    pub(crate) scale: f32,
    /// Index of the tensor's first row on its second-last axis.
    pub(crate) first: u32,
}

/// What a device computes the values to drop from.
struct Inputs {
    /// Halves of the keys of the samples: `[samples, 1, 1]`.
    low: Tensor<3, Int>,
    high: Tensor<3, Int>,
    /// Coordinates of the rows: `[1, rows, 1]`.
    coordinates: Tensor<3, Int>,
    /// Multiples for the columns: `[1, 1, columns]`.
    columns: Tensor<3, Int>,
}

impl Mask {
    pub(super) fn new(source: &Source, rate: f64, first: usize) -> Self {
        Self { source: source.clone(), rate, first }
    }

    /// Checks that there is a sample for each of `count` entries of the first axis.
    ///
    /// # Panics
    /// If there is not.
    pub(crate) fn check_samples(&self, count: usize) {
        let samples = self.source.samples.keys.len();
        assert_eq!(count, samples, "dropout needs one sample id for each entry of the first axis");
    }

    /// Returns what a kernel draws the mask from, beside the keys of the samples.
    pub(crate) fn rule(&self) -> DropRule {
        let (place, threshold, scale) = (halves(self.source.place), self.threshold(), self.scale());
        DropRule { place, threshold, scale, first: self.first as u32 }
    }

    /// Returns the halves of the keys of the samples on `device`, as signed integers with the same bits: `[2, samples, 1]`. They
    /// are copied to it once for a pass.
    pub(crate) fn sample_keys(&self, device: &Device) -> Tensor<3, Int> {
        let Samples { keys, constants } = &*self.source.samples;
        constants.get("sample keys", &[], device, || {
            ints([2, keys.len(), 1], device, || {
                [0, 1].into_iter().flat_map(|half| keys.iter().map(move |key| key[half])).collect()
            })
        })
    }

    /// Returns the factor by which dropout multiplies the values that stay.
    pub(crate) fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.rate)) as f32
    }

    /// Returns the threshold of dropout: a value is dropped if its 32 random bits, as a number, are below it.
    pub(crate) fn threshold(&self) -> u32 {
        (self.rate * 4_294_967_296.0) as u32
    }

    /// Computes the random-number key of each row of a tensor of shape `shape`. A row is the last axis.
    pub(crate) fn row_keys(&self, shape: &[usize]) -> Vec<Halves> {
        let (place, coordinates) = (halves(self.source.place), self.row_coordinates(shape));
        let of_sample = |&[low, high]: &Halves| (low ^ place[0], high.wrapping_add(place[1]));
        let samples = self.source.samples.keys.iter().map(of_sample);
        samples.flat_map(|sample| coordinates.iter().map(move |&row| row_key(sample, row))).collect()
    }

    /// Computes a number for each row of a sample, which stands for the place of the row on the axes between the first and
    /// the last. It does not depend on the lengths of the axes, because padding changes them.
    fn row_coordinates(&self, shape: &[usize]) -> Vec<u32> {
        assert!(shape.len() > 1, "dropout needs a tensor of at least two axes");
        self.check_samples(shape[0]);
        let axes = &shape[1..shape.len() - 1];
        let mut rows = vec![0_u32];
        for (axis, &extent) in axes.iter().enumerate() {
            let first = if axis + 1 == axes.len() { self.first } else { 0 };
            let along = |row: u32| (first..first + extent).map(move |place| row.wrapping_add(step_of(axis, place)));
            rows = rows.into_iter().flat_map(along).collect();
        }
        rows
    }

    /// Computes the bytes of memory that the random-number keys of all rows of a tensor of shape `shape` take.
    pub(crate) fn scratch(shape: &[usize]) -> usize {
        shape[..shape.len() - 1].iter().product::<usize>() * size_of::<Halves>()
    }

    /// Applies the mask and the scale to `values` in place.
    fn apply(&self, values: &mut [f32], shape: &[usize]) {
        let (scale, threshold) = (self.scale(), self.threshold());
        let width = shape[shape.len() - 1].max(1);
        let rows = self.row_keys(shape);
        let fill = |values: &mut [f32], row: &[Halves]| {
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

    /// Computes the boolean mask of the values that are dropped, for a tensor of `shape` on `device` (without autodiff). It
    /// equals the mask that is drawn on the CPU.
    ///
    pub(super) fn drop_mask<const D: usize>(&self, shape: [usize; D], device: &Device) -> Tensor<D, Bool> {
        self.drawn_from(self.inputs(&shape, device), shape)
    }

    /// Returns what the values to drop in a tensor of `shape` are computed from. The device computes the keys of the rows from
    /// those of the samples, which are copied to it once for a pass; all dropouts of a pass share them.
    fn inputs(&self, shape: &[usize], device: &Device) -> Inputs {
        let Samples { keys, constants } = &*self.source.samples;
        let half = |half| self.sample_keys(device).narrow(0, half, 1).reshape([keys.len(), 1, 1]);
        let [low, high] = [0, 1].map(|index| constants.get("half of sample keys", &[index], device, || half(index)));
        let (axes, width) = (&shape[1..shape.len() - 1], shape[shape.len() - 1]);
        // One copy from the host serves nearly all sizes.
        let most = axes.iter().map(|extent| self.first + extent).max().unwrap_or(0).max(width);
        let count = most.next_power_of_two().max(LEAST_NUMBERS);
        let numbers =
            constants.get("numbers", &[count], device, || ints([1, 1, count], device, || (0..count as u32).collect()));
        let rows = [&[self.first], axes].concat();
        let is_new = !constants.has("rows", &rows, device) || !constants.has("columns", &[width], device);
        if is_new {
            send_queued(device);
        }
        let coordinates = constants.get("rows", &rows, device, || self.row_coordinates_on(axes, &numbers));
        let columns = constants.get("columns", &[width], device, || multiples(&numbers, 0, width, GOLDEN));
        if is_new {
            // With what made them, a GPU would fuse nothing of the mask.
            send_queued(device);
        }
        Inputs { low, high, coordinates, columns }
    }

    /// Computes the values to drop from `inputs`.
    fn drawn_from<const D: usize>(&self, inputs: Inputs, shape: [usize; D]) -> Tensor<D, Bool> {
        let Inputs { low, high, coordinates, columns } = inputs;
        let place = halves(self.source.place).map(|half| half as i32);
        // Sums broadcast, and a GPU fuses them; an explicit `expand` would end its kernel.
        let (low, high) = (low.bitwise_xor_scalar(place[0]), high.add_scalar(place[1]));
        let row = row_key_tensor(low + coordinates.clone(), high.clone());
        let drawn = random_bits_tensor(row + columns, high + coordinates);
        // Unsigned numbers compare like signed ones after the first bit of both is flipped.
        let threshold = (self.threshold() ^ 0x8000_0000) as i32;
        drawn.bitwise_xor_scalar(i32::MIN).lower_elem(threshold).reshape(shape)
    }

    /// Draws the values to drop in a tensor that is like `x`; `None` on the CPU, which draws them while it drops them.
    ///
    /// Burn fuses the operations of this into one kernel unless they are queued beside reductions: then it fuses neither. So
    /// what is queued before is sent to the device first, and the mask before what follows.
    pub(crate) fn drawn_alone_for<const D: usize>(&self, x: &Tensor<D>) -> Option<Tensor<D, Bool>> {
        if is_host(x) {
            return None;
        }
        let device = x.device().inner();
        let inputs = self.inputs(&x.dims(), &device);
        send_queued(&device);
        let drawn = self.drawn_from(inputs, x.dims());
        send_queued(&device);
        Some(drawn)
    }

    /// Computes [`row_coordinates`](Self::row_coordinates) on a device, for rows on `axes`, from the `numbers` from 0 on:
    /// `[1, rows, 1]`.
    fn row_coordinates_on(&self, axes: &[usize], numbers: &Tensor<3, Int>) -> Tensor<3, Int> {
        let mut rows = multiples(numbers, 0, 1, 0);
        for (axis, &extent) in axes.iter().enumerate() {
            let first = if axis + 1 == axes.len() { self.first } else { 0 };
            let count = rows.dims()[1];
            rows = (rows + multiples(numbers, first, extent, step_of(axis, 1))).reshape([1, count * extent, 1]);
        }
        rows
    }
}

/// Smallest count of numbers that a device is sent.
const LEAST_NUMBERS: usize = 4096;

/// Computes `factor` times each of `count` numbers from `first` on, as signed integers with the same bits:
/// `[1, 1, count]`. `numbers` are the numbers from 0 on.
fn multiples(numbers: &Tensor<3, Int>, first: usize, count: usize, factor: u32) -> Tensor<3, Int> {
    numbers.clone().narrow(2, first, count).mul_scalar(factor as i32)
}

/// Copies `values` to `device`, as signed integers with the same bits.
pub(crate) fn ints<const D: usize>(
    shape: [usize; D],
    device: &Device,
    values: impl FnOnce() -> Vec<u32>,
) -> Tensor<D, Int> {
    placeholder_ints(shape, device).unwrap_or_else(|| {
        let values: Vec<i32> = values().into_iter().map(|value| value as i32).collect();
        Tensor::from_data(uploaded(TensorData::new(values, shape)), (device, DType::I32))
    })
}

/// Odd factors, one for each axis of rows: the number of a row is the sum of its places times these.
pub(crate) const STEPS: [u32; 4] = [0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// Returns the part of a row's number that stands for `place` on `axis`.
fn step_of(axis: usize, place: usize) -> u32 {
    (place as u32).wrapping_mul(STEPS[axis % STEPS.len()])
}

/// Computes the key of the row with the number `row` of a sample: the first half of the mixer of [`random_bits`], with the
/// number in place of a column. The second half of the key depends on the row, too: otherwise two rows of nearly equal first
/// halves would drop the same values in shifted columns.
#[inline(always)]
fn row_key((low, high): (u32, u32), row: u32) -> Halves {
    let x = low.wrapping_add(row);
    let x = (x ^ (x >> 16)).wrapping_mul(MULTIPLIER_1);
    [(x ^ (x >> 15)).wrapping_add(high), high.wrapping_add(row)]
}

/// Computes the first half of [`row_key`] for a tensor.
fn row_key_tensor(x: Tensor<3, Int>, high: Tensor<3, Int>) -> Tensor<3, Int> {
    mixed(mixed(x, 16).mul_scalar(MULTIPLIER_1 as i32), 15) + high
}

pub(crate) const GOLDEN: u32 = 0x9e37_79b9;
pub(crate) const MULTIPLIER_1: u32 = 0x7feb_352d;
pub(crate) const MULTIPLIER_2: u32 = 0x846c_a68b;

/// Computes 32 uniform random bits for index `index` of a row: the mixer "lowbias32" (Wellons 2018) over the first half
/// of the row's key plus a multiple of the index, with the second half of the key added in between.
#[inline(always)]
pub(crate) fn random_bits([low, high]: Halves, index: u32) -> u32 {
    let mut x = low.wrapping_add(index.wrapping_mul(GOLDEN));
    x = (x ^ (x >> 16)).wrapping_mul(MULTIPLIER_1);
    x = ((x ^ (x >> 15)).wrapping_add(high)).wrapping_mul(MULTIPLIER_2);
    x ^ (x >> 16)
}

/// Computes [`random_bits`] for a tensor, in signed integers, whose sums and products wrap to the same bits.
fn random_bits_tensor(x: Tensor<3, Int>, high: Tensor<3, Int>) -> Tensor<3, Int> {
    let x = mixed(x, 16).mul_scalar(MULTIPLIER_1 as i32);
    let x = (mixed(x, 15) + high).mul_scalar(MULTIPLIER_2 as i32);
    mixed(x, 16)
}

/// Computes `x ^ (x >> by)`, where the bits are those of unsigned numbers.
fn mixed(x: Tensor<3, Int>, by: u32) -> Tensor<3, Int> {
    // Shifting a signed number right copies its sign bit; the mask clears the copies.
    let right = x.clone().bitwise_right_shift_scalar(by as i32).bitwise_and_scalar((u32::MAX >> by) as i32);
    x.bitwise_xor(right)
}

/// Applies dropout with `mask` to `x`; the result has autodiff if `x` has autodiff.
pub(crate) fn dropout<const D: usize>(x: Tensor<D>, mask: Mask) -> Tensor<D> {
    dropout_drawn(x, mask, None)
}

/// Applies dropout as [`dropout`] does. `drawn` are the values to drop, if they are drawn already.
pub(crate) fn dropout_drawn<const D: usize>(x: Tensor<D>, mask: Mask, drawn: Option<Tensor<D, Bool>>) -> Tensor<D> {
    if !x.is_autodiff() {
        return drop_plain(x, &mask, drawn);
    }
    let device = x.device();
    on_backend!(&device, B => {
        // `into_parts` releases the graph's reference, so that the values can be changed in place if the graph does not
        // keep them.
        let (values, node) = B::tracked(x).into_parts();
        let y = drop_plain(B::from_plain::<D>(values), &mask, drawn);
        let step = Drop::<B, D>(PhantomData).prepare::<NoCheckpointing>([node]).compute_bound().stateful();
        B::from_tracked(match step {
            OpsKind::Tracked(step) => step.finish(mask, B::plain(y)),
            OpsKind::UnTracked(step) => step.finish(B::plain(y)),
        })
    })
}

/// Applies dropout without autodiff. On a device, `drawn` are the values that are dropped.
fn drop_plain<const D: usize>(x: Tensor<D>, mask: &Mask, drawn: Option<Tensor<D, Bool>>) -> Tensor<D> {
    let shape = x.dims();
    if is_host(&x) {
        return on_host!(x, B => {
            let args = InPlaceArgs::scratch(Mask::scratch(&shape));
            let apply = |values: &mut [f32], _: &mut [f32], _: &[&[f32]]| mask.apply(values, &shape);
            B::from_plain(B::change_in_place("dropout", B::plain(x), args, apply).0)
        });
    }
    let drawn = drawn.unwrap_or_else(|| mask.drop_mask(shape, &x.device()));
    x.mul_scalar(mask.scale()).mask_fill(drawn, 0.0)
}

#[derive(Debug)]
struct Drop<B, const D: usize>(PhantomData<B>);

impl<B: PrimitiveBackend, const D: usize> Backward<B, 1> for Drop<B, D> {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<D> = B::from_plain(gradients.consume::<B>(&ops.node));
        if let Some(parent) = &ops.parents[0] {
            let drawn = ops.state.drawn_alone_for(&grad_output);
            gradients.register::<B>(parent.id, B::plain(drop_plain(grad_output, &ops.state, drawn)));
        }
    }
}
