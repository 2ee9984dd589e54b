//! Policies for long sequences in a model.

use std::num::NonZeroU32;

use burn::tensor::Tensor;
use plimsoll_core::Choice;
use serde::{Deserialize, Serialize};

use crate::Lengths;

/// Policy by which a model limits the memory of attention over long sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LengthPolicy {
    /// Attention over all queries at once. Memory grows with the square of the length.
    #[default]
    Exact,
    /// Attention over this many queries at a time. Results are equal up to rounding; memory grows with the length, and
    /// the backward pass computes the scores again.
    Chunked(NonZeroU32),
    /// Truncation of sequences to this many frames before attention. The indices of truncated sequences are reported.
    Truncate(NonZeroU32),
}

impl LengthPolicy {
    /// Sets the attention chunk of `choice` under [`Chunked`](Self::Chunked), unless `choice` has one already: the
    /// memory planner may have chosen another size.
    pub fn apply_to(self, mut choice: Choice) -> Choice {
        if let (Self::Chunked(chunk), None) = (self, choice.attention_chunk) {
            choice.attention_chunk = Some(chunk);
        }
        choice
    }

    /// Truncates `x` `[b, t, d]` under [`Truncate`](Self::Truncate). Returns the tensor, its lengths, and the indices
    /// of the sequences that lost frames. Other policies change nothing.
    pub fn truncate(self, x: Tensor<3>, lengths: Lengths) -> (Tensor<3>, Lengths, Vec<usize>) {
        let Self::Truncate(limit) = self else { return (x, lengths, Vec::new()) };
        let limit = limit.get();
        let longer: Vec<usize> = (0..lengths.each().len()).filter(|&index| lengths.each()[index] > limit).collect();
        let width = lengths.width().min(limit as usize);
        if width == lengths.width() {
            return (x, lengths, longer);
        }
        let left = lengths.each().iter().map(|&length| length.min(limit)).collect();
        (x.narrow(1, 0, width), Lengths::new(left, width), longer)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn truncation_reports_cut_sequences() {
        let most = NonZeroU32::new(3).unwrap();
        let cut = |policy: LengthPolicy| {
            let (x, lengths, cut) =
                policy.truncate(Tensor::zeros([3, 5, 2], &Device::flex()), Lengths::new(vec![5, 2, 4], 5));
            (x.dims()[1], lengths.each().to_vec(), cut)
        };
        assert_eq!(cut(LengthPolicy::Truncate(most)), (3, vec![3, 2, 3], vec![0, 2]));
        assert_eq!(cut(LengthPolicy::Chunked(most)), (5, vec![5, 2, 4], vec![]));
        assert_eq!(LengthPolicy::Chunked(most).apply_to(Choice::default()).attention_chunk, Some(most));
    }
}
