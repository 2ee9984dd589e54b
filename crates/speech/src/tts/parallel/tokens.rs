//! Texts as vectors, and stacks of blocks over them and over frames.

use burn::tensor::Tensor;
use plimsoll_layers::{ConvNext, Lengths};
use plimsoll_tape::Pass;

/// Encoded texts `[texts, tokens, width]` with their voices `[texts, 1, voice width]` and the number of valid tokens of each.
pub(super) struct EncodedTokens {
    pub(super) vectors: Tensor<3>,
    pub(super) voices: Tensor<3>,
    pub(super) lengths: Lengths,
}

/// Applies `blocks` in order; the choice of `pass` says which of them are rematerialized.
pub(super) fn stack(blocks: &[ConvNext], x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
    stack_with(blocks, x, lengths, pass, |_, x| x)
}

/// Applies `blocks` in order, and `before` to the input of each.
pub(super) fn stack_with(
    blocks: &[ConvNext],
    x: Tensor<3>,
    lengths: &Lengths,
    pass: &Pass,
    before: impl Fn(usize, Tensor<3>) -> Tensor<3>,
) -> Tensor<3> {
    blocks.iter().enumerate().fold(x, |x, (index, block)| {
        let (own, x) = (pass.with("block").at(index), before(index, x));
        match pass.choice().remat.covers(index) {
            true => block.forward_rematerialized(x, lengths, &own),
            false => block.forward(x, lengths, &own),
        }
    })
}
