//! Word and character error rates by jiwer's definitions, pooled over a corpus and never averaged over sentences.

pub use plimsoll_text::score::ErrorCounts;
