//! Execution choices of a training step. They change memory and time; the result changes only by rounding.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// Way to compute a micro-batch, selected by the memory planner. All choices give the same loss and gradients up to
/// rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Blocks that recompute their activations in the backward pass instead of keeping them.
    pub remat: Remat,
    /// Number of queries that attention processes together; `None` for all queries at once.
    pub attention_chunk: Option<NonZeroU32>,
    /// Number format of matrix products.
    pub precision: Precision,
}

/// Blocks of a model that are rematerialized (activation checkpointing).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remat {
    /// No block is rematerialized: all activations are kept.
    #[default]
    None,
    /// Every second block is rematerialized, beginning with the first block.
    Half,
    /// Every block is rematerialized.
    All,
    /// The first `n` blocks are rematerialized.
    First(u32),
}

impl Remat {
    /// Makes the value for the first `count` of `blocks` blocks.
    pub fn count_of(count: u32, blocks: u32) -> Self {
        match count {
            0 => Self::None,
            count if count >= blocks => Self::All,
            count => Self::First(count),
        }
    }

    /// Returns the number of rematerialized blocks of a model with `blocks` blocks.
    pub fn count(self, blocks: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::Half => blocks.div_ceil(2),
            Self::All => blocks,
            Self::First(count) => count.min(blocks),
        }
    }

    /// Returns whether the block with index `index`, from 0, is rematerialized.
    pub fn covers(self, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::Half => index.is_multiple_of(2),
            Self::All => true,
            Self::First(n) => index < n as usize,
        }
    }
}

/// Number format of matrix products. Sums, norms and parameters are always in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// fp32: 32-bit floating point.
    #[default]
    Fp32,
    /// bf16: 16-bit floating point with the range of fp32. NVIDIA GPUs since Ampere compute it.
    Bf16,
    /// fp16: 16-bit floating point with a small range; training needs a loss scale. For Volta and Turing GPUs.
    Fp16,
}

/// Place and precision in which an optimizer keeps its state between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateForm {
    /// State in fp32 on the device.
    #[default]
    Full,
    /// State in 8 bits on the device, in blocks with one scale each; parameters below 1024 values stay in fp32.
    Eight,
    /// State in fp32 in host memory, copied to the device for each update. On the CPU it takes as much memory as
    /// `Full`.
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remat_covers_the_named_blocks() {
        let covered = |remat: Remat| (0..4).map(|i| remat.covers(i)).collect::<Vec<_>>();
        assert_eq!(covered(Remat::None), [false; 4]);
        assert_eq!(covered(Remat::Half), [true, false, true, false]);
        assert_eq!(covered(Remat::All), [true; 4]);
        assert_eq!(covered(Remat::First(3)), [true, true, true, false]);
        for remat in [Remat::None, Remat::Half, Remat::All, Remat::First(3), Remat::count_of(1, 4)] {
            assert_eq!(covered(remat).iter().filter(|is| **is).count() as u32, remat.count(4));
        }
    }
}
