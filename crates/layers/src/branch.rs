//! Residual branches that end in a linear layer, so that a block can recompute a branch without its last layer.

use burn::module::Module;
use burn::nn::{LayerNorm, Linear};
use burn::tensor::Tensor;
use plimsoll_tape::epilogue::Epilogue;
use plimsoll_tape::{Pass, remat_dense};

use crate::Lengths;
use crate::norm::layer_norm_to_compute;

// Shapes: b batch, t frames, d model width, i input width of the last linear layer.

/// Layer of a residual branch that ends in a linear layer.
///
/// The backward pass of a linear layer needs its input and not its output. A rematerialized block therefore recomputes
/// [`before_output`](Branch::before_output) only, and never repeats the last matrix product.
pub(crate) trait Branch: Module + Sync + 'static {
    /// Computes the input `[b, t, i]` of the last linear layer from `[b, t, d]`.
    fn before_output(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3>;

    /// Returns the last linear layer of the branch.
    fn output_layer(&self) -> &Linear;
}

/// Applies `norm`, then the whole of `layer`, including its last linear layer, then what `end` makes of `x`, with the noise of its
/// pass: `[b, t, d]` to `[b, t, d]`.
///
/// The tape keeps `x`, and the backward pass computes the activations inside the branch again. The result and the gradients equal those
/// with all activations kept, on the CPU to the last bit.
pub(crate) fn rematerialized_branch<B: Branch>(
    norm: &LayerNorm,
    layer: &B,
    x: Tensor<3>,
    lengths: &Lengths,
    pass: &Pass,
    (end_pass, end): (&Pass, impl FnOnce(Tensor<3>) -> Epilogue),
) -> Tensor<3> {
    let inner = |norm: &LayerNorm, layer: &B, x, lengths: &Lengths, pass: &Pass| {
        layer.before_output(layer_norm_to_compute(norm, x, pass), lengths, pass)
    };
    let end = end(x.clone());
    let (lengths, inner_pass) = (lengths.clone(), pass.clone());
    // The clones share the parameters of the originals.
    let modules = (norm.clone(), layer.clone());
    let block = move |(norm, layer): &(LayerNorm, B), x| inner(norm, layer, x, &lengths, &inner_pass);
    end_pass.end(remat_dense(&modules, x, block, |modules| modules.1.output_layer(), pass), end)
}
