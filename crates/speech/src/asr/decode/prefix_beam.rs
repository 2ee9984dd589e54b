//! Prefix beam search over CTC: the probability of a text is that of all its paths together (Hannun et al. 2014).

use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::tree::{PrefixTree, ROOT};
use super::{BLANK, CtcScores, Hypothesis, best_first, keep_best, log_add};

/// A text so far, with the log-probability of the paths that read as it.
struct Prefix {
    /// Its position in the tree, or its parent's where `is_new`: most candidates never earn a position.
    node: usize,
    is_new: bool,
    /// Its last token; the blank for the empty prefix, because no token equals it.
    last: u32,
    /// Paths that end in a blank.
    blank: f64,
    /// Paths that end in the last token.
    token: f64,
    /// Both together, which is what the beam ranks by.
    total: f64,
}

impl Prefix {
    /// The log-probability of the paths that another `token` makes longer: after an equal one it needs a blank.
    fn extendable_by(&self, token: u32) -> f64 {
        if token == self.last { self.blank } else { self.total }
    }
}

/// The best `width` texts of an utterance by their CTC log-probability.
///
/// A narrow beam forgets paths, so its scores are never above the true ones; where it holds every prefix they are
/// exact. Of prefixes with equal scores the one stays that was in the beam before, or else whose parent ranks higher,
/// or else whose token is likelier or lower.
///
/// CTC may say any token but the blank here; one that must not appear in a text has to be impossible in `scores`.
pub fn ctc_prefix_beam(scores: &CtcScores, width: NonZeroUsize) -> Vec<Hypothesis> {
    let width = width.get();
    let mut tree = PrefixTree::new();
    let mut beam =
        vec![Prefix { node: ROOT, is_new: false, last: BLANK, blank: 0.0, token: f64::NEG_INFINITY, total: 0.0 }];
    for t in 0..scores.frames() {
        let row = scores.row(t);
        let positions: HashMap<usize, usize> =
            beam.iter().enumerate().map(|(position, prefix)| (prefix.node, position)).collect();
        let mut next = stay(&beam, &positions, &tree, row);
        let tokens = likely_tokens(row, width);
        for prefix in &beam {
            let is_kept = |token| tree.child(prefix.node, token).is_some_and(|child| positions.contains_key(&child));
            next.extend(tokens.iter().filter(|&&token| !is_kept(token)).map(|&token| extended(prefix, token, row)));
        }
        next.retain(|prefix| prefix.total > f64::NEG_INFINITY);
        keep_best(&mut next, width, |prefix| prefix.total);
        for prefix in next.iter_mut().filter(|prefix| prefix.is_new) {
            prefix.node = tree.extend(prefix.node, prefix.last);
            prefix.is_new = false;
        }
        beam = next;
    }
    let hypothesis = |prefix: &Prefix| Hypothesis { tokens: tree.tokens(prefix.node), score: prefix.total };
    best_first(beam.iter().map(hypothesis).collect(), width)
}

/// The tokens by which prefixes may grow in this frame: the `2 * width` likeliest.
///
/// Nothing is lost by it. A token may be out of turn for a prefix as its last one, which needs a blank before it, or
/// because it leads to a child that is in the beam already: at most `width` tokens in all. So before a token that is
/// left out come `width` others that grow the same prefix at least as well, and they fill the beam.
fn likely_tokens(row: &[f32], width: usize) -> Vec<u32> {
    let mut tokens: Vec<u32> = (1..row.len() as u32).collect();
    keep_best(&mut tokens, width.saturating_mul(2), |&token| f64::from(row[token as usize]));
    tokens
}

/// The prefixes of the beam one frame later, each with what its parent adds to it where that is in the beam as well.
fn stay(beam: &[Prefix], positions: &HashMap<usize, usize>, tree: &PrefixTree, row: &[f32]) -> Vec<Prefix> {
    let later = |prefix: &Prefix| {
        let blank = prefix.total + f64::from(row[BLANK as usize]);
        // The empty prefix has no last token, and no paths that end in one.
        let mut token = prefix.token;
        if prefix.node != ROOT
            && let Some(&position) = positions.get(&tree.parent(prefix.node))
        {
            token = log_add(token, beam[position].extendable_by(prefix.last));
        }
        token += f64::from(row[prefix.last as usize]);
        Prefix { node: prefix.node, is_new: false, last: prefix.last, blank, token, total: log_add(blank, token) }
    };
    beam.iter().map(later).collect()
}

/// `prefix` made longer by `token`. No other prefix of the beam leads there: a text has one parent.
fn extended(prefix: &Prefix, token: u32, row: &[f32]) -> Prefix {
    let total = prefix.extendable_by(token) + f64::from(row[token as usize]);
    Prefix { node: prefix.node, is_new: true, last: token, blank: f64::NEG_INFINITY, token: total, total }
}
