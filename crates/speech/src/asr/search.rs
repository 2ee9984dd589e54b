//! How a recogniser's scores become a text.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// How the best text is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Search {
    /// The best token of every frame, by CTC. Fast, and needs no decoder.
    #[default]
    Greedy,
    /// The best text by CTC, over all ways to say it. Needs no decoder.
    PrefixBeam {
        /// Texts kept at each frame.
        width: NonZeroUsize,
    },
    /// The best text by the attention decoder.
    Attention {
        /// Texts kept at each token.
        width: NonZeroUsize,
        /// Added to the score for each token: above zero, longer texts win more often.
        length_bonus: f64,
    },
    /// The best text by both at once, token by token.
    Joint {
        /// Texts kept at each token.
        width: NonZeroUsize,
        /// Share of CTC in the score.
        ctc_weight: f64,
        /// Added to the score for each token: above zero, longer texts win more often.
        length_bonus: f64,
    },
    /// The best texts by CTC, put in order by both. Nearly as good as joint search, for much less.
    Rescore {
        /// Texts that CTC proposes.
        width: NonZeroUsize,
        /// Share of CTC in the score.
        ctc_weight: f64,
    },
}

impl Search {
    /// The names that [`from_name`](Self::from_name) knows.
    pub const NAMES: [&str; 5] = ["greedy", "prefix-beam", "attention", "joint", "rescore"];

    /// The search called `name`, with so many texts kept and so much of CTC.
    pub fn from_name(name: &str, width: NonZeroUsize, ctc_weight: f64, length_bonus: f64) -> Option<Self> {
        Some(match name {
            "greedy" => Self::Greedy,
            "prefix-beam" => Self::PrefixBeam { width },
            "attention" => Self::Attention { width, length_bonus },
            "joint" => Self::Joint { width, ctc_weight, length_bonus },
            "rescore" => Self::Rescore { width, ctc_weight },
            _ => return None,
        })
    }

    /// Whether it asks an attention decoder.
    pub fn needs_decoder(&self) -> bool {
        !matches!(self, Self::Greedy | Self::PrefixBeam { .. })
    }
}
