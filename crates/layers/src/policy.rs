//! What happens to sequences that are long.

use std::num::NonZeroU32;

use burn::tensor::Tensor;
use plimsoll_core::Choice;
use serde::{Deserialize, Serialize};

use crate::Lengths;

/// How attention deals with length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LengthPolicy {
    /// All queries look at all keys at once: memory grows with the square of the length.
    #[default]
    Exact,
    /// So many queries at a time: the same result, memory that grows with the length, a part of the time twice.
    Chunked(NonZeroU32),
    /// Sequences are cut to so many frames before attention sees them. Who is cut is counted and told.
    Truncate(NonZeroU32),
}

impl LengthPolicy {
    /// `choice` as this policy has it: a chunk that the choice names is smaller or larger for a reason, and stays.
    pub fn applied(self, mut choice: Choice) -> Choice {
        if let (Self::Chunked(chunk), None) = (self, choice.attention_chunk) {
            choice.attention_chunk = Some(chunk);
        }
        choice
    }

    /// `[b, t, d]` cut as this policy has it, with the lengths that are left and the places of who was cut.
    pub fn cut(self, x: Tensor<3>, lengths: Lengths) -> (Tensor<3>, Lengths, Vec<usize>) {
        let Self::Truncate(most) = self else { return (x, lengths, Vec::new()) };
        let most = most.get();
        let longer: Vec<usize> = (0..lengths.each().len()).filter(|&place| lengths.each()[place] > most).collect();
        let width = lengths.width().min(most as usize);
        if width == lengths.width() {
            return (x, lengths, longer);
        }
        let left = lengths.each().iter().map(|&length| length.min(most)).collect();
        (x.narrow(1, 0, width), Lengths::new(left, width), longer)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn who_is_cut_is_told() {
        let most = NonZeroU32::new(3).unwrap();
        let cut = |policy: LengthPolicy| {
            let (x, lengths, cut) =
                policy.cut(Tensor::zeros([3, 5, 2], &Device::flex()), Lengths::new(vec![5, 2, 4], 5));
            (x.dims()[1], lengths.each().to_vec(), cut)
        };
        assert_eq!(cut(LengthPolicy::Truncate(most)), (3, vec![3, 2, 3], vec![0, 2]));
        assert_eq!(cut(LengthPolicy::Chunked(most)), (5, vec![5, 2, 4], vec![]));
        assert_eq!(LengthPolicy::Chunked(most).applied(Choice::default()).attention_chunk, Some(most));
    }
}
