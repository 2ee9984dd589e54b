//! Beam search with the attention decoder, alone or jointly with CTC (Watanabe et al. 2017).

use plimsoll_language::{FusionState, LanguageScorer};

use super::finished::Finished;
use super::forward::PrefixForward;
use super::options::blend;
use super::tree::{PrefixTree, ROOT};
use super::{BLANK, BeamOptions, CtcScores, Hypothesis, NextToken, keep_best, log_prob, next_rows};

/// Searches the best texts by the attention decoder alone.
///
/// Each step keeps the best `width` continuations of all hypotheses. A continuation with the end token is finished;
/// every other continuation goes on. At `length_max` tokens every running hypothesis is ended, with the end token's
/// log-probability. The search stops earlier when no running hypothesis can beat the best finished text or, with a
/// bonus or normalization, when the finished texts of three lengths in a row are far below the best text, as in ESPnet.
/// The first result is the best text of a complete search with this width (with a bonus or normalization: nearly
/// always). The further results are by-products, often fewer than `width`.
///
/// The blank and the start token never become part of a text.
///
/// # Panics
/// When the options are out of range, or the decoder returns a wrong number of rows.
pub fn attention_beam(decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    BeamSearch { ctc: None, ctc_weight: 0.0, language: None, options, limit: options.length_max }.run(decoder)
}

/// Searches the best texts by CTC and the attention decoder together; in all else it equals [`attention_beam`].
///
/// The CTC score of a running hypothesis is the probability of all texts that begin with the hypothesis; the CTC score
/// of a finished hypothesis is the probability of the text itself. CTC scores only the decoder's best `1.5 * width`
/// tokens, as in ESPnet; with a CTC weight of 1 it scores all tokens. A text never has more tokens than frames, because
/// CTC cannot emit more tokens.
///
/// # Panics
/// When the options are out of range, the decoder returns a wrong number of rows, or its vocabulary differs from CTC's.
pub fn joint_beam(scores: &CtcScores, decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    joint(scores, decoder, options, None)
}

/// Searches the best texts by CTC, the attention decoder and a language together; in all else it equals [`joint_beam`].
///
/// What `language` adds to a text, its [`FusionState::score`], is added to the log-probabilities of [`BeamOptions`]. A word
/// bonus can raise a score at any length, so no bound is exact: the search stops when the best running text lies 25 below the
/// best finished text (natural log), or at its limit.
///
/// # Panics
/// As [`joint_beam`], or when the language has fewer tokens than the decoder.
pub fn fused_joint_beam(
    scores: &CtcScores,
    decoder: &mut dyn NextToken,
    options: &BeamOptions,
    language: &LanguageScorer,
) -> Vec<Hypothesis> {
    joint(scores, decoder, options, Some(language))
}

fn joint(
    scores: &CtcScores,
    decoder: &mut dyn NextToken,
    options: &BeamOptions,
    language: Option<&LanguageScorer>,
) -> Vec<Hypothesis> {
    options.check();
    let ctc = (options.ctc_weight > 0.0).then_some(scores);
    let limit = ctc.map_or(options.length_max, |scores| options.length_max.min(scores.frames()));
    BeamSearch { ctc, ctc_weight: options.ctc_weight, language, options, limit }.run(decoder)
}

struct BeamSearch<'a> {
    ctc: Option<&'a CtcScores>,
    ctc_weight: f64,
    language: Option<&'a LanguageScorer>,
    options: &'a BeamOptions,
    /// Maximum number of tokens of a text.
    limit: usize,
}

/// A hypothesis that has no end token yet, so the search can still continue it.
struct Running {
    node: usize,
    attention: f64,
    forward: Option<PrefixForward>,
    fusion: Option<FusionState>,
}

/// A continuation of a running hypothesis by one token, which may be the end token. The beam keeps the best candidates
/// and drops the others.
struct Candidate {
    parent: usize,
    token: u32,
    attention: f64,
    /// Log-probability by CTC and the decoder, weighted, with what a language adds.
    weighted: f64,
    fusion: Option<FusionState>,
    /// Score of the candidate before division by the length, by which the beam ranks. A score is divided by the length
    /// only when its text is finished.
    sum: f64,
}

impl BeamSearch<'_> {
    fn run(&self, decoder: &mut dyn NextToken) -> Vec<Hypothesis> {
        let mut tree = PrefixTree::new();
        let mut finished = Finished::new(self.options);
        let (forward, fusion) = (self.ctc.map(PrefixForward::empty), self.language.map(LanguageScorer::start));
        let mut running = vec![Running { node: ROOT, attention: 0.0, forward, fusion }];
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
            // The open hypotheses are sorted and equally long, so the first has the highest bound.
            if open.first().is_none_or(|c| self.is_settled(&finished, c, length + 1)) {
                break;
            }
            (parents, tokens) = open.iter().map(|c| (c.parent, c.token)).unzip();
            running = open.iter().map(|c| self.advance(c, &running[c.parent], &mut tree)).collect();
        }
        finished.into_best()
    }

    /// Adds to `candidates` each way to continue `hypothesis` by one token: by the end token and, if its `length` in
    /// tokens is below the maximum, by each likely text token. `parent` is the index of `hypothesis` among the running
    /// hypotheses, and `row` has the decoder's log-probabilities of its next token. Impossible continuations are left
    /// out.
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
            let Some(fusion) = self.fused(hypothesis.fusion.as_ref(), token) else { return };
            let weighted = weighted + fusion.map_or(0.0, |state| state.score());
            if weighted > f64::NEG_INFINITY {
                let sum = weighted + self.options.length_bonus * tokens as f64;
                candidates.push(Candidate { parent, token, attention, weighted, fusion, sum });
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

    /// Returns the state of the language after one more token, which may be the end token: `Some(None)` without a language,
    /// and nothing if the language forbids the token.
    fn fused(&self, state: Option<&FusionState>, token: u32) -> Option<Option<FusionState>> {
        let Some((language, state)) = self.language.zip(state) else { return Some(None) };
        match token == self.options.eos {
            true => language.finish(state).map(Some),
            false => language.advance(state, token).map(Some),
        }
    }

    /// Returns whether no running text can win any more. `best` is the best of them, and has `length` tokens.
    fn is_settled(&self, finished: &Finished<'_>, best: &Candidate, length: usize) -> bool {
        match self.language {
            Some(_) => finished.is_far_above(best.sum),
            None => finished.is_settled(self.options.bound(best.weighted, length, self.limit)),
        }
    }

    /// Returns the text tokens with which a hypothesis is continued: the `1.5 * width` tokens that are likeliest by the
    /// decoder's log-probabilities `row`, or all text tokens when CTC has the whole weight. In a search by attention
    /// alone no result is lost, because the beam keeps at most `width` of the tokens. In a joint search only these
    /// tokens get a CTC score.
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
        let &Candidate { token, attention, fusion, .. } = candidate;
        let forward = from.forward.as_ref().zip(self.ctc).map(|(forward, scores)| forward.extend(token, scores));
        Running { node: tree.extend(from.node, token), attention, forward, fusion }
    }
}
