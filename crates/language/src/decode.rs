//! CTC prefix beam search with shallow fusion: a language model, hotwords and a lexicon take part in the search.
//!
//! The search has the rules of `pyctcdecode`: a word is scored when it ends, the beginning of a word costs as soon as
//! no known word begins so, and beginnings of hotwords raise a hypothesis. Unlike there, a hypothesis keeps its paths
//! that end in a blank and in a token together, so the same width holds more texts.

mod align;
mod beam;
mod hotwords;
mod lexicon;
mod options;
mod scorer;
mod tokens;
mod tree;
mod trie;

pub use beam::{CtcHypothesis, TimedWord, fused_beam, fused_beam_part};
pub use hotwords::Hotwords;
pub use lexicon::Lexicon;
pub use options::FusionOptions;
pub use scorer::{FusionState, LanguageScorer};
pub use tokens::TokenText;
