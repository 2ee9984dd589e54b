//! Searches from scores to texts: CTC best path, CTC prefix beam, attention beam, joint beam, and rescoring.
//!
//! Everything here runs on the host in 64-bit log space, without tensors. CTC comes as [`CtcScores`], the attention
//! decoder through [`NextToken`]. NaN counts as impossible, so a model that has diverged gives empty texts, and its
//! evaluation goes on.
//!
//! Results are sorted best first; of equal scores the lower token sequence comes first. A result is never empty: when
//! nothing is possible, the one hypothesis is the empty text with a score of minus infinity.
//!
//! ```
//! use plimsoll_speech::asr::decode::{CtcScores, ctc_best_path, ctc_prefix_beam};
//!
//! // Two frames, the blank and one token. The best path is blank, blank (0.36); the token's three paths sum to 0.64.
//! let scores = CtcScores::new([0.6f32, 0.4, 0.6, 0.4].map(f32::ln).to_vec(), 2);
//! assert!(ctc_best_path(&scores).is_empty());
//! let width = std::num::NonZeroUsize::new(4).expect("4 is not zero");
//! assert_eq!(ctc_prefix_beam(&scores, width)[0].tokens, [1]);
//! ```

mod beam;
mod ctc;
mod finished;
mod forward;
mod options;
mod prefix_beam;
mod rescore;
#[cfg(test)]
mod tests;
mod tree;

pub use beam::{attention_beam, fused_joint_beam, joint_beam};
pub use ctc::{CtcScores, ctc_best_path};
pub use options::BeamOptions;
pub use prefix_beam::ctc_prefix_beam;
pub use rescore::rescore;

/// The blank token of CTC.
pub(crate) const BLANK: u32 = 0;

/// A text found by a search, with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// Tokens of the text, without the start and end tokens.
    pub tokens: Vec<u32>,
    /// Score of the text in the search; higher is better. Each search documents what its score means.
    pub score: f64,
}

/// A decoder that scores the next token of several hypotheses at once.
///
/// The searches use this trait, so that tests can replace the model and the caches stay inside the model.
pub trait NextToken {
    /// Returns the natural log-probabilities of the next token: one row for each hypothesis, as wide as the vocabulary.
    ///
    /// Each hypothesis is a row. `tokens` has the newest token of each row. `parents` has, for each row, the index of
    /// the row in the previous call that it continues. A previous row may be continued several times, in any order, or
    /// not at all; a row that is not continued is dropped. The first call has one row: the start token with parent 0.
    /// An implementation keeps its cached keys and values by row and selects them by `parents`.
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>>;
}

/// Asks `decoder` for the log-probabilities of the next token, and returns one row for each hypothesis. `tokens` holds
/// the newest token of each hypothesis, and `parents` the row of the previous call that it continues. Panics if the
/// decoder returns another number of rows.
fn next_rows(decoder: &mut dyn NextToken, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
    let rows = decoder.step(parents, tokens);
    assert!(
        rows.len() == tokens.len(),
        "the decoder was called with {} rows and returned {}",
        tokens.len(),
        rows.len()
    );
    rows
}

/// Returns the log-probability of `token` in `row`, the decoder's log-probabilities of the next token. NaN counts as
/// minus infinity.
fn log_prob(row: &[f32], token: u32) -> f64 {
    f64::from(possible(row[token as usize]))
}

/// Returns `value`, or minus infinity for NaN.
fn possible(value: f32) -> f32 {
    if value.is_nan() { f32::NEG_INFINITY } else { value }
}

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// Keeps the `count` items with the highest scores and sorts them, highest first; of items with equal scores the
/// earlier items are kept.
///
/// The threshold is found before sorting, because a beam search drops most items.
fn keep_best<T>(items: &mut Vec<T>, count: usize, score: impl Fn(&T) -> f64) {
    if count > 0 && items.len() > count {
        let mut scores: Vec<f64> = items.iter().map(&score).collect();
        let (_, &mut worst, _) = scores.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
        items.retain(|item| score(item) >= worst);
    }
    items.sort_by(|a, b| score(b).total_cmp(&score(a)));
    items.truncate(count);
}

/// Makes the result of a search: at most `count` hypotheses, sorted, and at least one.
fn best_first(mut hypotheses: Vec<Hypothesis>, count: usize) -> Vec<Hypothesis> {
    hypotheses.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.tokens.cmp(&b.tokens)));
    hypotheses.truncate(count);
    if hypotheses.is_empty() {
        hypotheses.push(Hypothesis { tokens: Vec::new(), score: f64::NEG_INFINITY });
    }
    hypotheses
}
