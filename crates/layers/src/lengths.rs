//! Valid lengths of the sequences of a padded batch, and padding masks.

use burn::tensor::{Bool, Device, Tensor};
use plimsoll_tape::AttentionMask;
use plimsoll_tape::transfer::Constants;

/// Valid length of each sequence of a padded batch. All layers use it to ignore padding.
///
/// Clones share the masks that layers make from the lengths.
#[derive(Clone, Debug)]
pub struct Lengths {
    lengths: Vec<u32>,
    width: usize,
    constants: Constants,
}

impl PartialEq for Lengths {
    fn eq(&self, other: &Self) -> bool {
        self.lengths == other.lengths && self.width == other.width
    }
}

impl Eq for Lengths {}

impl Lengths {
    /// Creates the lengths of sequences that are padded to `width`. `lengths` and `width` count frames or tokens.
    ///
    /// # Panics
    /// If a length is above `width`.
    pub fn new(lengths: Vec<u32>, width: usize) -> Self {
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        assert!(longest <= width, "a sequence of {longest} does not fit a padded width of {width}");
        Self { lengths, width, constants: Constants::default() }
    }

    /// Returns the valid length of each sequence.
    pub fn each(&self) -> &[u32] {
        &self.lengths
    }

    /// Returns the padded length: the size of the time axis.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns whether at least one sequence is shorter than the padded length.
    pub fn is_padded(&self) -> bool {
        self.lengths.iter().any(|&length| (length as usize) < self.width)
    }

    /// Builds the padding mask `[b, t]`: true in the padding. `None` if no sequence is padded.
    pub fn padding(&self, device: &Device) -> Option<Tensor<2, Bool>> {
        self.attention_mask(false).padding(self.width, device)
    }

    /// Returns the tensors that layers make from the lengths and share.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Makes the mask of attention to these sequences: padding is not seen, and in `causal` attention no later frame.
    pub fn attention_mask(&self, causal: bool) -> AttentionMask {
        let constants = self.constants.clone();
        AttentionMask { key_lengths: self.lengths.as_slice().into(), causal, first_query: 0, constants }
    }

    /// Sets the padding of `x` `[b, t, d]` to zero.
    ///
    /// # Panics
    /// If the shape of `x` does not match the batch and the padded length.
    pub fn clear_padding(&self, x: Tensor<3>) -> Tensor<3> {
        self.attention_mask(false).clear_padding(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_padding_zeroes_frames_beyond_each_length() {
        let device = Device::flex();
        let lengths = Lengths::new(vec![1, 3], 3);
        let x = lengths.clear_padding(Tensor::ones([2, 3, 2], &device));
        let values = x.into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(values, [1., 1., 0., 0., 0., 0., 1., 1., 1., 1., 1., 1.]);
        assert!(Lengths::new(vec![3, 3], 3).padding(&device).is_none());
    }
}
