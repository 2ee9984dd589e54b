//! The CTC loss and its gradient on a GPU.

use burn::tensor::Tensor;

use crate::bridge::{PrimitiveBackend, without_autodiff};
use crate::kernels::{CTC_HEAD, CtcRule, KernelBackend, on_kernels};
use crate::noise::ints;

/// Id of the blank token.
const BLANK: u32 = 0;
/// Most states of a text: one for each token, and blanks around them. The kernels hold a number for each in the memory of a group.
const STATES_MAX: usize = 2048;

/// Computes the negative log-probabilities of `texts` by `logits` `[b, t, v]` before softmax, with `lengths` valid frames, summed over the
/// samples, and the gradient of the sum by the logits in fp32 if `has_gradient`. The samples in `left_out` add nothing, and their
/// gradient is zero.
///
/// `None` where this has no kernel: on the CPU, and for texts of more than a thousand tokens or with the token 0, which is the blank.
///
/// # Panics
/// If the numbers of samples, lengths and texts differ, or a token is not below `v`.
pub fn ctc(
    logits: Tensor<3>,
    lengths: &[u32],
    texts: &[Vec<u32>],
    left_out: &[usize],
    has_gradient: bool,
) -> Option<(Tensor<1>, Option<Tensor<3>>)> {
    let [b, t, v] = logits.dims();
    assert!(b == lengths.len() && b == texts.len(), "each sample has a length and a text");
    assert!(texts.iter().flatten().all(|&token| (token as usize) < v), "a token is not in the vocabulary of {v}");
    // A longer text is left out. Others count although they are: a plan of memory traces texts that may be.
    let tokens = texts.iter().map(Vec::len).max().unwrap_or(0).min(t);
    let states = 2 * tokens + 1;
    if states > STATES_MAX || b * t * v == 0 || texts.iter().flatten().any(|&token| token == BLANK) {
        return None;
    }
    let rule = CtcRule { states, tokens, has_gradient };
    let logits = without_autodiff(logits);
    let device = logits.device();
    on_kernels!(
        &device,
        B => {
            let text = |index: usize| (!left_out.contains(&index)).then(|| texts[index].as_slice());
            let index = || (0..b).flat_map(|index| row(lengths[index], text(index), &rule)).collect();
            let index = ints([b, rule.width()], &device, index);
            let (losses, gradient) = B::ctc(B::plain(logits), B::plain_ints(index), rule);
            let losses: Tensor<1> = B::from_plain(losses);
            Some((losses.sum(), gradient.map(B::from_plain)))
        },
        otherwise None
    )
}

/// Returns the numbers of a text, as [`CtcRule`] says.
fn row(frames: u32, text: Option<&[u32]>, rule: &CtcRule) -> Vec<u32> {
    let mut row = vec![0; rule.width()];
    row[0] = frames;
    // Without a frame only the empty text can be read, and it is certain.
    let Some(text) = text.filter(|_| frames > 0) else { return row };
    row[1] = 2 * text.len() as u32 + 1;
    for (position, &token) in text.iter().enumerate() {
        row[CTC_HEAD + 2 * position + 1] = token;
    }
    let mut order: Vec<usize> = (0..text.len()).collect();
    order.sort_by_key(|&position| text[position]);
    let (tokens, begins) = (CTC_HEAD + rule.states, CTC_HEAD + rule.states + rule.tokens);
    let mut distinct = 0;
    for (place, &position) in order.iter().enumerate() {
        if place == 0 || text[position] != text[order[place - 1]] {
            row[tokens + distinct] = text[position];
            row[begins + distinct] = place as u32;
            distinct += 1;
        }
        row[begins + rule.tokens + 1 + place] = 2 * position as u32 + 1;
    }
    row[begins + distinct] = text.len() as u32;
    row[2] = distinct as u32;
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_each_token_once_with_its_states() {
        let rule = CtcRule { states: 9, tokens: 4, has_gradient: true };
        let found = row(7, Some(&[5, 3, 5]), &rule);
        assert_eq!(found[..CTC_HEAD], [7, 7, 2]);
        assert_eq!(found[CTC_HEAD..][..9], [0, 5, 0, 3, 0, 5, 0, 0, 0]);
        assert_eq!(found[CTC_HEAD + 9..][..4], [3, 5, 0, 0]);
        assert_eq!(found[CTC_HEAD + 13..][..5], [0, 1, 3, 0, 0]);
        assert_eq!(found[CTC_HEAD + 18..], [3, 1, 5, 0]);
        assert_eq!(row(7, None, &rule)[..CTC_HEAD], [7, 0, 0]);
        assert_eq!(row(0, Some(&[]), &rule)[..CTC_HEAD], [0, 0, 0]);
    }
}
