//! Convolutions over two axes on a GPU: matrix products with the windows of an input, cut out for a part of the rows at a
//! time.
//!
//! What they allocate depends on shapes only: their results, the windows of one piece, and for the weights the sums of each
//! piece. Burn's convolution would choose between kernels with and without windows of the whole input by trying them.

use burn::tensor::Shape;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::windows::{THREADS, add_piece, cut_piece, groups};
use super::{address_of, parts_shape};
use crate::geometry::{Geometry, Piece};

// Shapes: b samples, r rows, q columns, c channels, v values of a window, p windows of all samples, o outputs.

/// Convolves `x` `[b, r, q, c]` with `weight` `[v, o]`: `[p, o]`.
pub(super) fn convolve(x: CubeTensor, weight: CubeTensor, geometry: Geometry) -> CubeTensor {
    let outputs = weight.shape()[1];
    let out = contiguous(&x, [geometry.places(), outputs]);
    let pieces = geometry.pieces(x.dtype.size());
    for piece in &pieces {
        let windows = as_matrix(cut_piece(&x, geometry, piece));
        if pieces.len() == 1 {
            multiply(windows, weight.clone(), out.clone());
            continue;
        }
        let some = contiguous(&x, [geometry.places_of(piece), outputs]);
        multiply(windows, weight.clone(), some.clone());
        copy_rows(some, &out, geometry, piece, true);
    }
    out
}

/// Computes the gradients of the input and the weight of [`convolve`] from `grad_output` `[p, o]`.
pub(super) fn convolve_back(
    x: CubeTensor,
    grad_output: CubeTensor,
    weight: CubeTensor,
    geometry: Geometry,
) -> (CubeTensor, CubeTensor) {
    let grad_x = contiguous(&x, geometry.input);
    let grad_weight = weight_gradient(&x, &grad_output, geometry, |piece, some, windows| {
        let mut turned = weight.clone();
        turned.meta.swap(0, 1);
        // The windows were read before, so their gradients can have their memory.
        multiply(some, turned, as_matrix(windows.clone()));
        add_piece(windows, &grad_x, geometry, piece);
    });
    (grad_x, grad_weight)
}

/// Computes the gradient of the weight of [`convolve`] from `grad_output` `[p, o]`.
pub(super) fn convolve_weight_back(x: CubeTensor, grad_output: CubeTensor, geometry: Geometry) -> CubeTensor {
    weight_gradient(&x, &grad_output, geometry, |_, _, _| ())
}

/// Computes the gradient of the weight, and calls `each` for each piece with the gradient of its outputs and its windows.
fn weight_gradient(
    x: &CubeTensor,
    grad_output: &CubeTensor,
    geometry: Geometry,
    each: impl Fn(&Piece, CubeTensor, CubeTensor),
) -> CubeTensor {
    let shape = [geometry.values(), grad_output.shape()[1]];
    let out = contiguous(x, shape);
    let pieces = geometry.pieces(x.dtype.size());
    let parts = (pieces.len() > 1).then(|| contiguous(x, parts_shape(shape, pieces.len(), x.dtype.size())));
    for (index, piece) in pieces.iter().enumerate() {
        let some = match pieces.len() {
            1 => grad_output.clone(),
            _ => {
                let some = contiguous(x, [geometry.places_of(piece), shape[1]]);
                copy_rows(grad_output.clone(), &some, geometry, piece, false);
                some
            }
        };
        let windows = cut_piece(x, geometry, piece);
        let mut turned = as_matrix(windows.clone());
        turned.meta.swap(0, 1);
        let part = parts.as_ref().map_or_else(|| out.clone(), |parts| part(parts, index, shape));
        multiply(turned, some.clone(), part);
        each(piece, some, windows);
    }
    if let Some(parts) = parts {
        add_parts(parts, &out, pieces.len());
    }
    out
}

/// Allocates a tensor of `shape` without gaps, with the type and the device of `like`.
fn contiguous(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), like.dtype)
}

/// Returns windows `[.., v]`, which have no gaps, as a matrix with a row for each window.
fn as_matrix(windows: CubeTensor) -> CubeTensor {
    let shape = windows.shape();
    let values = shape[shape.num_dims() - 1];
    let rows = shape.num_elements() / values.max(1);
    CubeTensor::new_contiguous(windows.client, windows.device, [rows, values].into(), windows.handle, windows.dtype)
}

/// Returns the place of a piece among the gradients of the weight of all pieces.
fn part(parts: &CubeTensor, index: usize, shape: [usize; 2]) -> CubeTensor {
    let (all, each) = (parts.shape(), shape.iter().product::<usize>());
    let before = index * all[1];
    let bytes = |values: usize| (values * parts.dtype.size()) as u64;
    let handle = parts.handle.clone().offset_start(bytes(before));
    let handle = handle.offset_end(bytes(all.num_elements() - before - each));
    CubeTensor::new_contiguous(parts.client.clone(), parts.device.clone(), shape.into(), handle, parts.dtype)
}

/// Writes the product of two matrices to `out`.
fn multiply(first: CubeTensor, second: CubeTensor, out: CubeTensor) {
    let dtype = out.dtype;
    matmul(first, second, Some(out), MatmulStrategy::default(), dtype)
        .expect("two matrices of one type have a product");
}

/// Copies rows of outputs between all outputs `[p, o]` and those of a piece: to the piece from the first tensor, or if
/// `is_back`, from the piece to all outputs. The target has no gaps.
fn copy_rows(from: CubeTensor, to: &CubeTensor, geometry: Geometry, piece: &Piece, is_back: bool) {
    let (of_piece, of_all) = geometry.places_of_sample(piece);
    let count = if is_back { from.shape().num_elements() } else { to.shape().num_elements() };
    if count == 0 {
        return;
    }
    let (dtype, address) = (dtype_to_storage_type(to.dtype), address_of(&[&from, to]));
    copy_rows_kernel::launch(
        &to.client,
        groups(count),
        CubeDim::new_1d(THREADS),
        address,
        from.into_tensor_arg(),
        to.clone().into_tensor_arg(),
        count,
        of_piece,
        of_all,
        geometry.places_before(piece),
        is_back,
        dtype,
    );
}

/// Adds up the gradients of the weight of `count` pieces.
fn add_parts(parts: CubeTensor, out: &CubeTensor, count: usize) {
    let values = out.shape().num_elements();
    if values == 0 {
        return;
    }
    let (dtype, address) = (dtype_to_storage_type(out.dtype), address_of(&[&parts, out]));
    let (group, out) = (CubeDim::new_1d(THREADS), out.clone());
    let (client, result) = (out.client.clone(), out.into_tensor_arg());
    add_parts_kernel::launch(
        &client,
        groups(values),
        group,
        address,
        parts.into_tensor_arg(),
        result,
        values,
        count,
        dtype,
    );
}

#[cube(launch, address_type = "dynamic")]
fn copy_rows_kernel<E: Float>(
    from: &Tensor<E>,
    to: &mut Tensor<E>,
    count: usize,
    of_piece: usize,
    of_all: usize,
    before: usize,
    #[comptime] is_back: bool,
    #[define(E)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS as usize;
    if place >= count {
        terminate!();
    }
    let outputs = from.shape(1);
    let (row, output) = (place / outputs, place % outputs);
    let row_of_all = row / of_piece * of_all + before + row % of_piece;
    if is_back {
        to[row_of_all * outputs + output] = from[row * from.stride(0) + output * from.stride(1)];
    } else {
        to[place] = from[row_of_all * from.stride(0) + output * from.stride(1)];
    }
}

#[cube(launch, address_type = "dynamic")]
fn add_parts_kernel<E: Float>(
    parts: &Tensor<E>,
    out: &mut Tensor<E>,
    values: usize,
    count: usize,
    #[define(E)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS as usize;
    if place >= values {
        terminate!();
    }
    let mut sum = 0.0f32;
    for part in 0..count {
        sum += f32::cast_from(parts[part * parts.stride(0) + place]);
    }
    out[place] = E::cast_from(sum);
}
