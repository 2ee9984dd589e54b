//! From scores to texts: CTC greedy and prefix beam, the attention decoder's beam, both in one pass, and rescoring.
//!
//! Everything here runs on the host in 64-bit log space and knows no tensor. The acoustic side comes as [`CtcScores`],
//! the attention decoder through [`NextToken`]. Not-a-number counts as impossible wherever it comes in, so a model
//! that has diverged hears nothing and the run that evaluates it goes on.
//!
//! Results are best first, of equals the one whose tokens come first in order, and never empty: where nothing is
//! possible, the one hypothesis is the empty text at minus infinity.

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

pub use beam::{attention_beam, joint_beam};
pub use ctc::{CtcScores, ctc_best_path};
pub use options::BeamOptions;
pub use prefix_beam::ctc_prefix_beam;
pub use rescore::rescore;

/// The CTC token that stands for "nothing new".
pub(crate) const BLANK: u32 = 0;

/// A text that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The text, without the tokens that open and close it.
    pub tokens: Vec<u32>,
    /// What the search ranks by, higher is better; each search says what it is.
    pub score: f64,
}

/// A decoder that says which token comes next.
///
/// The searches ask through it, so they run in tests without a model and know nothing of its caches.
pub trait NextToken {
    /// Log-probabilities of the token after each hypothesis: one row for each, as wide as the vocabulary.
    ///
    /// Every hypothesis is a row. `parents` names for each the row of the call before that it continues, and `tokens`
    /// its newest token. A row may be continued several times, in any order, or not at all, and is gone then. The
    /// first call gives one row with the token that opens a text, and parent 0. An implementation keeps its keys and
    /// values by row and picks them by `parents`.
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>>;
}

/// Asks `decoder`, and checks that it answers every row.
fn next_rows(decoder: &mut dyn NextToken, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
    let rows = decoder.step(parents, tokens);
    assert!(rows.len() == tokens.len(), "{} rows asked of the decoder, {} came", tokens.len(), rows.len());
    rows
}

/// The log-probability of `token` in a decoder's row.
fn log_prob(row: &[f32], token: u32) -> f64 {
    f64::from(possible(row[token as usize]))
}

/// The value itself, or minus infinity for not-a-number.
fn possible(value: f32) -> f32 {
    if value.is_nan() { f32::NEG_INFINITY } else { value }
}

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// Keeps the `count` best items, best first; of equals those that came first.
///
/// The threshold is found before anything is sorted, because most items of a beam search are dropped at once.
fn keep_best<T>(items: &mut Vec<T>, count: usize, score: impl Fn(&T) -> f64) {
    if count > 0 && items.len() > count {
        let mut scores: Vec<f64> = items.iter().map(&score).collect();
        let (_, &mut worst, _) = scores.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
        items.retain(|item| score(item) >= worst);
    }
    items.sort_by(|a, b| score(b).total_cmp(&score(a)));
    items.truncate(count);
}

/// What every search returns: at most `count` hypotheses in their order, and at least one.
fn best_first(mut hypotheses: Vec<Hypothesis>, count: usize) -> Vec<Hypothesis> {
    hypotheses.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.tokens.cmp(&b.tokens)));
    hypotheses.truncate(count);
    if hypotheses.is_empty() {
        hypotheses.push(Hypothesis { tokens: Vec::new(), score: f64::NEG_INFINITY });
    }
    hypotheses
}
