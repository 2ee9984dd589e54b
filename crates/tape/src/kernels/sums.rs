//! The kernel that adds up the sums of segments.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::address_of;

// Shapes: s segments, r rows, d columns.

/// Threads of a group.
const THREADS: u32 = 64;

/// Rows of the sums that become one tensor.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    count: usize,
    /// Shape of the tensor.
    shape: Shape,
    /// Whether the columns are the first axis of the tensor and the rows the last; otherwise row follows row.
    turned: bool,
}

impl Rows {
    /// Makes the tensor `[count * d]` of `count` rows of `d` columns.
    pub(super) fn joined(count: usize, columns: usize) -> Self {
        Self { count, shape: Shape::new([count * columns]), turned: false }
    }

    /// Makes the tensor `[d, 1, count]` of `count` rows of `d` columns.
    pub(super) fn turned(count: usize, columns: usize) -> Self {
        Self { count, shape: Shape::new([columns, 1, count]), turned: true }
    }
}

/// Adds up `sums` `[s, r, d]` over the segments. Returns a tensor of the type `dtype` for each of up to three groups of `rows`,
/// which follow each other.
pub(super) fn add_segments(sums: CubeTensor, rows: &[Rows], dtype: DType) -> Vec<CubeTensor> {
    let shape = sums.shape();
    let columns = shape[2];
    debug_assert_eq!(rows.iter().map(|rows| rows.count).sum::<usize>(), shape[1]);
    let new = |rows: &Rows| empty_device_dtype(sums.client.clone(), sums.device.clone(), rows.shape.clone(), dtype);
    let outputs: Vec<CubeTensor> = rows.iter().map(new).collect();
    if shape[1] * columns == 0 {
        return outputs;
    }
    // Steps from column to column and from row to row. Where a group is missing, another takes its place, and no row reaches it.
    let steps = |index: usize| match (rows.get(index), outputs.get(index)) {
        (Some(Rows { turned: true, .. }), Some(out)) => (out.meta.strides()[0] as u32, out.meta.strides()[2] as u32),
        _ => (1, columns as u32),
    };
    let out = |index: usize| outputs.get(index).unwrap_or(&outputs[0]).clone().into_tensor_arg();
    let end = |count: usize| rows.iter().take(count).map(|rows| rows.count).sum::<usize>() as u32;
    let (steps_0, steps_1, steps_2) = (steps(0), steps(1), steps(2));
    let client = outputs[0].client.clone();
    let address = address_of(&[&sums, &outputs[0]]);
    add_segments_kernel::launch(
        &client,
        CubeCount::new_2d(columns.div_ceil(THREADS as usize) as u32, shape[1] as u32),
        CubeDim::new_1d(THREADS),
        address,
        sums.into_tensor_arg(),
        out(0),
        out(1),
        out(2),
        end(1),
        end(2),
        steps_0.0,
        steps_0.1,
        steps_1.0,
        steps_1.1,
        steps_2.0,
        steps_2.1,
        dtype_to_storage_type(dtype),
    );
    outputs
}

#[cube(launch, address_type = "dynamic")]
fn add_segments_kernel<E: Float>(
    sums: &Tensor<f32>,
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<E>,
    end_0: u32,
    end_1: u32,
    column_step_0: u32,
    row_step_0: u32,
    column_step_1: u32,
    row_step_1: u32,
    column_step_2: u32,
    row_step_2: u32,
    #[define(E)] _dtype: ElemType,
) {
    let column = ABSOLUTE_POS_X;
    let row = CUBE_POS_Y;
    if column as usize >= sums.shape(2) {
        terminate!();
    }
    let mut sum = 0.0f32;
    let mut place = row as usize * sums.stride(1) + column as usize * sums.stride(2);
    for _segment in 0..sums.shape(0) {
        sum += sums[place];
        place += sums.stride(0);
    }
    if row < end_0 {
        out_0[(column * column_step_0 + row * row_step_0) as usize] = E::cast_from(sum);
    } else if row < end_1 {
        out_1[(column * column_step_1 + (row - end_0) * row_step_1) as usize] = E::cast_from(sum);
    } else {
        out_2[(column * column_step_2 + (row - end_1) * row_step_2) as usize] = E::cast_from(sum);
    }
}
