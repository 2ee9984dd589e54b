//! How a step is run: the choices that change its memory and its time, and never its result.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// How a micro-batch is computed. Another choice gives the same loss and gradient, up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// Which blocks compute their activations a second time instead of keeping them.
    pub remat: Remat,
    /// Queries that attention looks at together; all of them where `None`.
    pub attention_chunk: Option<NonZeroU32>,
    /// The numbers that matrix products are computed in.
    pub precision: Precision,
}

/// Which blocks of a model are rematerialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remat {
    /// None: everything is kept.
    #[default]
    None,
    /// Every second block, the first included.
    Half,
    /// Every block.
    All,
    /// The first `n` blocks.
    First(u32),
}

impl Remat {
    /// Whether block `index` runs twice.
    pub fn covers(self, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::Half => index.is_multiple_of(2),
            Self::All => true,
            Self::First(n) => index < n as usize,
        }
    }
}

/// The numbers of a training run: those of the matrix products, as sums and norms are always fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    Fp32,
    /// 16 bits with the range of fp32 (Ampere and later).
    Bf16,
    /// 16 bits with a small range, trained under a loss scale (Volta and Turing).
    Fp16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remat_names_the_blocks_it_covers() {
        let covered = |remat: Remat| (0..4).map(|i| remat.covers(i)).collect::<Vec<_>>();
        assert_eq!(covered(Remat::None), [false; 4]);
        assert_eq!(covered(Remat::Half), [true, false, true, false]);
        assert_eq!(covered(Remat::All), [true; 4]);
        assert_eq!(covered(Remat::First(3)), [true, true, true, false]);
    }
}
