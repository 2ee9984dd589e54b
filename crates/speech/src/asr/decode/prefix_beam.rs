//! Prefix beam search over CTC: the probability of a text is the sum over all its paths (Hannun et al. 2014).

use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::tree::{PrefixTree, ROOT};
use super::{BLANK, CtcScores, Hypothesis, best_first, keep_best, log_add};

/// A prefix of a text, with the log-probability of all paths that collapse to it.
struct Prefix {
    /// Node of the prefix in the tree. A new candidate has its parent's node: most candidates are dropped before they
    /// need a node.
    node: usize,
    is_new: bool,
    /// Last token of the prefix; the blank for the empty prefix, as no text token equals the blank.
    last: u32,
    /// Log-probability of the paths that end in a blank.
    blank: f64,
    /// Log-probability of the paths that end in the last token.
    token: f64,
    /// Log-probability of all paths, which end in a blank or in the last token; the beam ranks by it.
    total: f64,
}

impl Prefix {
    /// Computes the log-probability of the paths to this prefix after which `token` starts a new token of the text. If
    /// `token` equals the last token of the prefix, these are only the paths that end in a blank: without a blank, CTC
    /// collapses the two equal tokens to one.
    fn extendable_by(&self, token: u32) -> f64 {
        if token == self.last { self.blank } else { self.total }
    }
}

/// Searches the best `width` texts of an utterance by their CTC log-probability.
///
/// A narrow beam drops paths, so its scores are at most the true scores; a beam that holds every prefix is exact. Of
/// prefixes with equal scores, first the prefixes stay that were in the beam before, then the prefixes with the better
/// parent, then the prefixes with the likelier or the lower token.
///
/// Any token except the blank may appear in the text. To forbid a token, give it minus infinity in `scores`.
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

/// Returns the tokens that may extend a prefix in this frame: the `2 * width` likeliest tokens.
///
/// The limit does not change the result. A likely token can be useless for a prefix because it equals the last token,
/// which needs a blank in between, or because the longer prefix is in the beam already: that is at most `width` tokens.
/// So for each token that is left out there are `width` tokens that extend the same prefix at least as well and fill
/// the beam.
fn likely_tokens(row: &[f32], width: usize) -> Vec<u32> {
    let mut tokens: Vec<u32> = (1..row.len() as u32).collect();
    keep_best(&mut tokens, width.saturating_mul(2), |&token| f64::from(row[token as usize]));
    tokens
}

/// Returns the prefixes of the beam with their log-probabilities after one more frame, whose scores are `row`, for the
/// paths in which the frame is a blank or repeats the last token. If the beam also has the parent of a prefix (the
/// prefix without its last token), the paths of the parent that reach the prefix in this frame are added. `positions`
/// gives the position in the beam of each node of `tree`.
fn stay(beam: &[Prefix], positions: &HashMap<usize, usize>, tree: &PrefixTree, row: &[f32]) -> Vec<Prefix> {
    let later = |prefix: &Prefix| {
        let blank = prefix.total + f64::from(row[BLANK as usize]);
        // The empty prefix has no last token, so it gains no paths from a parent.
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

/// Returns the candidate for `prefix` plus `token`, with the log-probability of its paths after the frame whose scores
/// are `row`. No other prefix of the beam leads to the same text, so nothing has to be added.
fn extended(prefix: &Prefix, token: u32, row: &[f32]) -> Prefix {
    let total = prefix.extendable_by(token) + f64::from(row[token as usize]);
    Prefix { node: prefix.node, is_new: true, last: token, blank: f64::NEG_INFINITY, token: total, total }
}
