//! A linear layer over every frame of a batch, as one matrix product.

use burn::nn::Linear;
use burn::tensor::Tensor;

/// `[b, t, d]` to `[b, t, e]` through `layer`.
///
/// Burn 0.22 computes a linear layer over three axes as `b` products with the same matrix whenever that looks better
/// tiled. On the CPU one product over all frames makes a whole step 1.04x faster (docs/LOG.md, 2026-11-21); a GPU has not
/// been measured.
pub fn dense(layer: &Linear, x: Tensor<3>) -> Tensor<3> {
    let [b, t, d] = x.dims();
    let y = layer.forward(x.reshape([b * t, d]));
    let [_, e] = y.dims();
    y.reshape([b, t, e])
}
