//! The searches that turn a recognizer's output into a text.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// Search that turns a recognizer's output into the best text, with its options.
///
/// ```
/// use plimsoll_speech::asr::Search;
///
/// let width = std::num::NonZeroUsize::new(10).expect("10 is not zero");
/// assert_eq!(Search::from_name("prefix-beam", width, 0.3, 0.0), Some(Search::PrefixBeam { width }));
/// assert!(Search::Joint { width, ctc_weight: 0.3, length_bonus: 0.0 }.needs_decoder());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Search {
    /// Takes the best CTC token of every frame. Fastest; needs no decoder.
    #[default]
    Greedy,
    /// Finds the best text by CTC, summed over all paths that collapse to the text. Needs no decoder.
    PrefixBeam {
        /// Beam width: texts kept after each frame.
        width: NonZeroUsize,
    },
    /// Finds the best text by the attention decoder.
    Attention {
        /// Beam width: texts kept after each token.
        width: NonZeroUsize,
        /// Bonus added to the score (natural log) for each token. A positive value favors longer texts.
        length_bonus: f64,
    },
    /// Finds the best text by CTC and the attention decoder together, token by token.
    Joint {
        /// Beam width: texts kept after each token.
        width: NonZeroUsize,
        /// Weight of CTC in the score, from 0 to 1; the decoder has the rest.
        ctc_weight: f64,
        /// Bonus added to the score (natural log) for each token. A positive value favors longer texts.
        length_bonus: f64,
    },
    /// Finds the best texts by CTC, and ranks them again with the attention decoder. Nearly as accurate as joint
    /// search, and much faster.
    Rescore {
        /// Beam width: number of texts that CTC proposes.
        width: NonZeroUsize,
        /// Weight of CTC in the score, from 0 to 1; the decoder has the rest.
        ctc_weight: f64,
    },
}

impl Search {
    /// The names that [`from_name`](Self::from_name) accepts.
    pub const NAMES: [&str; 5] = ["greedy", "prefix-beam", "attention", "joint", "rescore"];

    /// Returns the search called `name`, or `None` for an unknown name. Options that the search does not have are
    /// ignored.
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

    /// Returns whether the search uses an attention decoder.
    pub fn needs_decoder(&self) -> bool {
        !matches!(self, Self::Greedy | Self::PrefixBeam { .. })
    }
}
