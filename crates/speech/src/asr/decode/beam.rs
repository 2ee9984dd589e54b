//! Beam search with the attention decoder, alone or in one pass with CTC (Watanabe et al. 2017).

use super::finished::Finished;
use super::forward::PrefixForward;
use super::options::blend;
use super::tree::{PrefixTree, ROOT};
use super::{BLANK, BeamOptions, CtcScores, Hypothesis, NextToken, keep_best, log_prob, next_rows};

/// The best texts by the attention decoder alone.
///
/// In each step the best `width` continuations of all hypotheses are kept, closing ones among them: those are finished,
/// the others go on. At `length_max` tokens every hypothesis still running is closed, at the closing token's price
/// like any other. The search stops earlier when nothing that runs can still beat the best finished text, or, with a
/// bonus or normalisation, when the texts of three lengths in a row have ended far behind it, as in ESPnet. So the
/// first text is the best that going on would have found; the others are what was met on the way, often fewer than
/// `width`.
///
/// Neither the blank nor the opening token is ever taken for a part of the text.
///
/// # Panics
/// Where the options are out of range, or the decoder's rows do not fit what was asked.
pub fn attention_beam(decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    BeamSearch { ctc: None, ctc_weight: 0.0, options, limit: options.length_max }.run(decoder)
}

/// The best texts by CTC and the attention decoder together, as [`attention_beam`] otherwise.
///
/// A running hypothesis is ranked by the probability in CTC of all texts that begin with it, a closed one by that of
/// the text itself. CTC scores only the tokens the decoder likes best, one and a half times `width` of them, as in
/// ESPnet; with a CTC weight of 1 it scores all. No text is longer than the frames, as CTC cannot say one.
///
/// # Panics
/// Where the options are out of range, or the decoder's rows do not fit what was asked or the CTC vocabulary.
pub fn joint_beam(scores: &CtcScores, decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    if options.ctc_weight == 0.0 {
        return attention_beam(decoder, options);
    }
    let limit = options.length_max.min(scores.frames());
    BeamSearch { ctc: Some(scores), ctc_weight: options.ctc_weight, options, limit }.run(decoder)
}

struct BeamSearch<'a> {
    ctc: Option<&'a CtcScores>,
    ctc_weight: f64,
    options: &'a BeamOptions,
    /// Tokens of the longest text.
    limit: usize,
}

/// A hypothesis that has not ended.
struct Running {
    node: usize,
    attention: f64,
    forward: Option<PrefixForward>,
}

/// A hypothesis one token longer, before it is known whether the beam keeps it.
struct Candidate {
    parent: usize,
    token: u32,
    attention: f64,
    weighted: f64,
    /// What the beam ranks by; the division by the length waits until a text has ended.
    sum: f64,
}

impl BeamSearch<'_> {
    fn run(&self, decoder: &mut dyn NextToken) -> Vec<Hypothesis> {
        let mut tree = PrefixTree::new();
        let mut finished = Finished::new(self.options);
        let mut running = vec![Running { node: ROOT, attention: 0.0, forward: self.ctc.map(PrefixForward::empty) }];
        let (mut parents, mut tokens) = (vec![0], vec![self.options.sos]);
        for length in 0..=self.limit {
            let rows = next_rows(decoder, &parents, &tokens);
            let mut candidates = Vec::new();
            for (parent, row) in rows.iter().enumerate() {
                self.continuations(parent, &running[parent], row, length, &mut candidates);
            }
            keep_best(&mut candidates, self.options.width.get(), |candidate| candidate.sum);
            let (ended, open): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| c.token == self.options.eos);
            finished.take(ended.iter().map(|c| (tree.tokens(running[c.parent].node), c.weighted)).collect());
            // The open ones are best first, and all as long as each other: the first can reach as much as any.
            if open.first().is_none_or(|c| finished.is_settled(self.options.bound(c.weighted, length + 1, self.limit)))
            {
                break;
            }
            (parents, tokens) = open.iter().map(|c| (c.parent, c.token)).unzip();
            running = open.iter().map(|c| self.advance(c, &running[c.parent], &mut tree)).collect();
        }
        finished.into_best()
    }

    /// Adds what `hypothesis`, of `length` tokens, may become: closed, or longer where the limit lets it.
    fn continuations(
        &self,
        parent: usize,
        hypothesis: &Running,
        row: &[f32],
        length: usize,
        candidates: &mut Vec<Candidate>,
    ) {
        if let Some(scores) = self.ctc {
            let (ctc, decoder) = (scores.vocabulary(), row.len());
            assert!(ctc == decoder, "ctc has {ctc} tokens and the decoder {decoder}");
        }
        let mut add = |token, ctc, tokens| {
            let attention = hypothesis.attention + log_prob(row, token);
            let weighted = blend(self.ctc_weight, ctc, attention);
            if weighted > f64::NEG_INFINITY {
                let sum = weighted + self.options.length_bonus * tokens as f64;
                candidates.push(Candidate { parent, token, attention, weighted, sum });
            }
        };
        add(self.options.eos, hypothesis.forward.as_ref().map_or(0.0, PrefixForward::complete), length);
        if length < self.limit {
            for token in self.likely_tokens(row) {
                let ctc =
                    hypothesis.forward.as_ref().zip(self.ctc).map_or(0.0, |(f, scores)| f.with_token(token, scores));
                add(token, ctc, length + 1);
            }
        }
    }

    /// The tokens worth a CTC score. For attention alone nothing is lost: only `width` of them can stay in the beam.
    fn likely_tokens(&self, row: &[f32]) -> Vec<u32> {
        let is_text = |token: &u32| ![BLANK, self.options.sos, self.options.eos].contains(token);
        let mut tokens: Vec<u32> = (0..row.len() as u32).filter(is_text).collect();
        if self.ctc_weight < 1.0 {
            let width = self.options.width.get();
            keep_best(&mut tokens, width.saturating_add(width.div_ceil(2)), |&token| log_prob(row, token));
        }
        tokens
    }

    fn advance(&self, candidate: &Candidate, from: &Running, tree: &mut PrefixTree) -> Running {
        let &Candidate { token, attention, .. } = candidate;
        let forward = from.forward.as_ref().zip(self.ctc).map(|(forward, scores)| forward.extend(token, scores));
        Running { node: tree.extend(from.node, token), attention, forward }
    }
}
