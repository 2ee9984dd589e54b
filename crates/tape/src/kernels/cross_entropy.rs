//! Kernels of the cross-entropy: the loss of each row with the logarithm by which its softmax is normalized, and the gradient from that.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::address_of;
use super::rows::{GROUP_ROWS, ROW_THREADS, largest_of_row, sum_of_row};

// Shapes: b batch, u tokens, v vocabulary.

/// Less than every logit.
const LOWEST: f32 = -3.0e38;

/// Returns the groups of threads that compute the rows of `logits` `[b, u, v]`.
fn groups(logits: &Shape) -> (CubeCount, CubeDim) {
    let count = CubeCount::new_3d(logits[1].div_ceil(GROUP_ROWS as usize) as u32, 1, logits[0] as u32);
    (count, CubeDim::new_2d(ROW_THREADS, GROUP_ROWS))
}

/// Computes the loss of each row of `logits`, and the logarithm of the sum of its exponentials, both `[b * u]`.
pub(super) fn losses(logits: CubeTensor, labels: CubeTensor, smoothing: f32) -> [CubeTensor; 2] {
    let shape = logits.shape();
    let new = || {
        let rows = Shape::new([shape[0] * shape[1]]);
        empty_device_dtype(logits.client.clone(), logits.device.clone(), rows, DType::F32)
    };
    let (losses, norms) = (new(), new());
    let (count, dim) = groups(&shape);
    let address = address_of(&[&logits]);
    let client = logits.client.clone();
    losses_kernel::launch(
        &client,
        count,
        dim,
        address,
        logits.into_tensor_arg(),
        labels.into_tensor_arg(),
        losses.clone().into_tensor_arg(),
        norms.clone().into_tensor_arg(),
        1.0 - smoothing,
        smoothing / shape[2] as f32,
    );
    [losses, norms]
}

/// Computes the gradient of `logits` from their `norms` and the gradient of the loss.
pub(super) fn gradient(
    [logits, norms, grad_output]: [CubeTensor; 3],
    labels: CubeTensor,
    smoothing: f32,
) -> CubeTensor {
    let shape = logits.shape();
    let gradient = empty_device_dtype(logits.client.clone(), logits.device.clone(), shape.clone(), DType::F32);
    let (count, dim) = groups(&shape);
    let address = address_of(&[&logits, &gradient]);
    let client = logits.client.clone();
    gradient_kernel::launch(
        &client,
        count,
        dim,
        address,
        logits.into_tensor_arg(),
        labels.into_tensor_arg(),
        norms.into_tensor_arg(),
        grad_output.into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        1.0 - smoothing,
        smoothing / shape[2] as f32,
    );
    gradient
}

#[cube(launch, address_type = "dynamic")]
fn losses_kernel(
    logits: &Tensor<f32>,
    labels: &Tensor<i32>,
    losses: &mut Tensor<f32>,
    norms: &mut Tensor<f32>,
    own: f32,
    each: f32,
) {
    let sample = CUBE_POS_Z as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (rows, width) = (logits.shape(1), logits.shape(2));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
    let is_row = row < rows;
    let row = min(row, rows - 1);
    let place = sample * logits.stride(0) + row * logits.stride(1);
    let step = logits.stride(2);
    let mut largest = f32::new(LOWEST);
    let mut token = UNIT_POS_X as usize;
    while token < width {
        largest = max(largest, logits[place + token * step]);
        token += ROW_THREADS as usize;
    }
    let largest = largest_of_row(&mut shared, largest);
    let mut sum = 0.0f32;
    let mut all = 0.0f32;
    let mut token = UNIT_POS_X as usize;
    while token < width {
        let difference = logits[place + token * step] - largest;
        sum += difference.exp();
        all += difference;
        token += ROW_THREADS as usize;
    }
    let sum = sum_of_row(&mut shared, sum);
    let all = sum_of_row(&mut shared, all);
    if is_row && UNIT_POS_X == 0 {
        let index = sample * rows + row;
        let label = labels[index * labels.stride(0)];
        let mut loss = 0.0f32;
        if label >= 0 {
            let of_label = logits[place + label as usize * step] - largest;
            loss = sum.ln() - own * of_label;
            // Without smoothing only one logit counts, and another may be minus infinity.
            if each > 0.0f32 {
                loss -= each * all;
            }
        }
        let (loss_to, norm_to) = (index * losses.stride(0), index * norms.stride(0));
        losses[loss_to] = loss;
        norms[norm_to] = largest + sum.ln();
    }
}

#[cube(launch, address_type = "dynamic")]
fn gradient_kernel(
    logits: &Tensor<f32>,
    labels: &Tensor<i32>,
    norms: &Tensor<f32>,
    grad_output: &Tensor<f32>,
    gradient: &mut Tensor<f32>,
    own: f32,
    each: f32,
) {
    let sample = CUBE_POS_Z as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (rows, width) = (logits.shape(1), logits.shape(2));
    if row < rows {
        let index = sample * rows + row;
        let label = labels[index * labels.stride(0)];
        let norm = norms[index * norms.stride(0)];
        let factor = grad_output[0];
        let place = sample * logits.stride(0) + row * logits.stride(1);
        let to = sample * gradient.stride(0) + row * gradient.stride(1);
        let to_step = gradient.stride(2);
        let mut token = UNIT_POS_X as usize;
        while token < width {
            let mut slope = 0.0f32;
            if label >= 0 {
                slope = (logits[place + token * logits.stride(2)] - norm).exp() - each;
                if token == label as usize {
                    slope -= own;
                }
            }
            gradient[to + token * to_step] = slope * factor;
            token += ROW_THREADS as usize;
        }
    }
}
