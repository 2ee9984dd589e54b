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

/// Adds up `sums` `[s, r, d]` over the segments. Returns all rows but the last with the columns first, in the shape `first`,
/// `[d]` or `[d, 1, r - 1]`, and the last row `[d]`. Both have the type `dtype`.
pub(super) fn add_segments(sums: CubeTensor, first: Shape, dtype: DType) -> (CubeTensor, CubeTensor) {
    let shape = sums.shape();
    let (rows, columns) = (shape[1], shape[2]);
    let new = |shape: Shape| empty_device_dtype(sums.client.clone(), sums.device.clone(), shape, dtype);
    let (first, last) = (new(first), new(Shape::new([columns])));
    if rows * columns == 0 {
        return (first, last);
    }
    let strides = first.meta.strides();
    let (of_column, of_row) = (strides[0] as u32, strides.get(2).map_or(0, |&stride| stride as u32));
    let address = address_of(&[&sums, &first, &last]);
    add_segments_kernel::launch(
        &last.client,
        CubeCount::new_2d(columns.div_ceil(THREADS as usize) as u32, rows as u32),
        CubeDim::new_1d(THREADS),
        address,
        sums.into_tensor_arg(),
        first.clone().into_tensor_arg(),
        last.clone().into_tensor_arg(),
        of_column,
        of_row,
        dtype_to_storage_type(dtype),
    );
    (first, last)
}

#[cube(launch, address_type = "dynamic")]
fn add_segments_kernel<E: Float>(
    sums: &Tensor<f32>,
    first: &mut Tensor<E>,
    last: &mut Tensor<E>,
    of_column: u32,
    of_row: u32,
    #[define(E)] _dtype: ElemType,
) {
    let column = ABSOLUTE_POS_X as usize;
    let row = CUBE_POS_Y as usize;
    if column >= sums.shape(2) {
        terminate!();
    }
    let mut sum = 0.0f32;
    let mut place = row * sums.stride(1) + column * sums.stride(2);
    for _segment in 0..sums.shape(0) {
        sum += sums[place];
        place += sums.stride(0);
    }
    if row + 1 < sums.shape(1) {
        first[column * of_column as usize + row * of_row as usize] = E::cast_from(sum);
    } else {
        let step = last.stride(0);
        last[column * step] = E::cast_from(sum);
    }
}
