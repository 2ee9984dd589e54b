//! Kernels that cut windows out of a tensor, and add them up again.
//!
//! They read tensors of any layout and allocate nothing but their result, which has no gaps between rows: most callers give it
//! another shape. Sums are in fp32.

use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::address_of;
use crate::geometry::{Geometry, Piece};

// Shapes: b samples, r rows, q columns, c channels, v values of a window.

/// Threads of a group; each computes one value of the result.
pub(super) const THREADS: u32 = 256;
/// Most groups along an axis that every device allows.
const GROUPS_MAX: usize = 65_535;

/// Cuts the windows of `geometry` out of `x` `[b, r, q, c]`: `[b, rows, columns, v]`.
pub(super) fn cut(x: CubeTensor, geometry: Geometry) -> CubeTensor {
    cut_piece(&x, geometry, &geometry.whole())
}

/// Adds up the windows `[b, rows, columns, v]` of `geometry` at their places: `[b, r, q, c]`.
pub(super) fn add(windows: CubeTensor, geometry: Geometry) -> CubeTensor {
    let (client, device) = (windows.client.clone(), windows.device.clone());
    let out = empty_device_contiguous_dtype(client, device, geometry.input.into(), windows.dtype);
    add_piece(windows, &out, geometry, &geometry.whole());
    out
}

/// Cuts the windows of a piece out of `x` `[b, r, q, c]`: `[b, rows of the piece, columns, v]`.
pub(super) fn cut_piece(x: &CubeTensor, geometry: Geometry, piece: &Piece) -> CubeTensor {
    let shape = geometry.shape_of(piece);
    let out = empty_device_contiguous_dtype(x.client.clone(), x.device.clone(), shape.into(), x.dtype);
    let count = out.shape().num_elements();
    if count == 0 {
        return out;
    }
    let Geometry { kernel, stride, padding, .. } = geometry;
    let (dtype, address) = (dtype_to_storage_type(x.dtype), address_of(&[x, &out]));
    cut_kernel::launch(
        &x.client,
        groups(count),
        CubeDim::new_1d(THREADS),
        address,
        x.clone().into_tensor_arg(),
        out.clone().into_tensor_arg(),
        piece.rows.start as u32,
        kernel[1] as u32,
        stride[0] as u32,
        stride[1] as u32,
        padding[0] as u32,
        padding[1] as u32,
        dtype,
    );
    out
}

/// Adds up the windows `[b, rows of the piece, columns, v]` of a piece at their places in `out` `[b, r, q, c]`, which has no
/// gaps. Rows that windows of earlier pieces have reached, too, are added to, and the others are written.
pub(super) fn add_piece(windows: CubeTensor, out: &CubeTensor, geometry: Geometry, piece: &Piece) {
    let [b, _, q, c] = geometry.input;
    let rows = piece.until - piece.from;
    let count = b * rows * q * c;
    if count == 0 {
        return;
    }
    let Geometry { kernel, stride, padding, .. } = geometry;
    let (dtype, address) = (dtype_to_storage_type(out.dtype), address_of(&[&windows, out]));
    add_kernel::launch(
        &out.client,
        groups(count),
        CubeDim::new_1d(THREADS),
        address,
        windows.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        count,
        rows,
        piece.from,
        piece.fresh,
        // Place of the piece's first window, with the padding before the first row.
        piece.rows.start * stride[0],
        kernel[0] as u32,
        kernel[1] as u32,
        stride[0] as u32,
        stride[1] as u32,
        padding[0] as u32,
        padding[1] as u32,
        dtype,
    );
}

/// Returns how many groups of threads compute `count` values.
pub(super) fn groups(count: usize) -> CubeCount {
    let all = count.div_ceil(THREADS as usize);
    let rows = all.div_ceil(GROUPS_MAX);
    CubeCount::new_2d(all.div_ceil(rows) as u32, rows as u32)
}

#[cube(launch, address_type = "dynamic")]
fn cut_kernel<E: Float>(
    x: &Tensor<E>,
    out: &mut Tensor<E>,
    first_row: u32,
    kernel_columns: u32,
    row_stride: u32,
    column_stride: u32,
    row_padding: u32,
    column_padding: u32,
    #[define(E)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS as usize;
    if place >= out.len() {
        terminate!();
    }
    let channels = x.shape(3);
    let value = place % out.shape(3);
    let window = place / out.shape(3);
    let channel = value % channels;
    let tap = value / channels;
    let sample = window / out.shape(2) / out.shape(1);
    // Places with the padding before the first row and column.
    let above_tap = window / out.shape(2) % out.shape(1) + first_row as usize;
    let row = above_tap * row_stride as usize + tap / kernel_columns as usize;
    let column = window % out.shape(2) * column_stride as usize + tap % kernel_columns as usize;
    let (above, before) = (row_padding as usize, column_padding as usize);
    let mut found = E::from_int(0);
    if row >= above && row < x.shape(1) + above && column >= before && column < x.shape(2) + before {
        let from = sample * x.stride(0) + (row - above) * x.stride(1) + (column - before) * x.stride(2);
        found = x[from + channel * x.stride(3)];
    }
    out[place] = found;
}

#[cube(launch, address_type = "dynamic")]
fn add_kernel<E: Float>(
    windows: &Tensor<E>,
    out: &mut Tensor<E>,
    count: usize,
    rows: usize,
    from: usize,
    fresh: usize,
    first_window: usize,
    kernel_rows: u32,
    kernel_columns: u32,
    row_stride: u32,
    column_stride: u32,
    row_padding: u32,
    column_padding: u32,
    #[define(E)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS as usize;
    if place >= count {
        terminate!();
    }
    let channels = out.shape(3);
    let channel = place % channels;
    let (height, width) = (kernel_rows as usize, kernel_columns as usize);
    let (down, right) = (row_stride as usize, column_stride as usize);
    let sample = place / channels / out.shape(2) / rows;
    let out_column = place / channels % out.shape(2);
    let out_row = place / channels / out.shape(2) % rows + from;
    // Place after the first window of the piece, and the windows over it: from the first that reaches it to the last that
    // begins at or before it.
    let column = out_column + column_padding as usize;
    let row = out_row + row_padding as usize - first_window;
    let first_row = if row + 1 > height { (row + 1 - height).div_ceil(down) } else { 0usize.runtime() };
    let first_column = if column + 1 > width { (column + 1 - width).div_ceil(right) } else { 0usize.runtime() };
    let last_row = min(row / down + 1, windows.shape(1));
    let last_column = min(column / right + 1, windows.shape(2));
    let mut sum = 0.0f32;
    for i in first_row..last_row {
        for j in first_column..last_column {
            let tap = (row - i * down) * width + (column - j * right);
            let from = sample * windows.stride(0) + i * windows.stride(1) + j * windows.stride(2);
            sum += f32::cast_from(windows[from + (tap * channels + channel) * windows.stride(3)]);
        }
    }
    let to = ((sample * out.shape(1) + out_row) * out.shape(2) + out_column) * channels + channel;
    if out_row < fresh {
        sum += f32::cast_from(out[to]);
    }
    out[to] = E::cast_from(sum);
}
