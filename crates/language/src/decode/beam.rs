//! Prefix beam search over CTC with fusion: the probability of a text is the sum over all its paths (Hannun et al. 2014).

use rustc_hash::FxHashMap;

use super::align::align;
use super::options::FusionOptions;
use super::scorer::{FusionState, LanguageScorer};
use super::tokens::{is_boundary, joined};
use super::tree::{PrefixTree, ROOT};

/// A word of a text with the frames in which it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedWord {
    /// The word.
    pub word: String,
    /// First frame of the word on the likeliest path of the text.
    pub first_frame: usize,
    /// Last frame of the word on that path.
    pub last_frame: usize,
}

/// A text that a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct CtcHypothesis {
    /// Words with one space between them.
    pub text: String,
    /// Tokens of the text; the likeliest ones if several sequences of tokens give the same text.
    pub tokens: Vec<u32>,
    /// Words with their frames.
    pub words: Vec<TimedWord>,
    /// Natural log-probability of the text by CTC, over the paths that the search has kept.
    pub acoustic: f64,
    /// Natural log-probability of the text by the language model, without weights; zero without a model.
    pub language: f64,
    /// Score by which the texts are ranked: `acoustic` with everything that fusion adds.
    pub score: f64,
}

/// A prefix of a text, with the log-probability of all paths that collapse to it.
#[derive(Clone, Copy)]
struct Prefix {
    /// Node of the prefix in the tree. A new candidate has its parent's node: most candidates are dropped before they
    /// need a node.
    node: u32,
    is_new: bool,
    /// Last token of the prefix; the blank for the empty prefix, as no text token equals the blank.
    last: u32,
    /// Log-probability of the paths that end in a blank.
    blank: f64,
    /// Log-probability of the paths that end in the last token.
    token: f64,
    /// Log-probability of all paths.
    total: f64,
    /// `total` with the score of the fusion; the beam ranks by it.
    score: f64,
}

impl Prefix {
    /// Computes the log-probability of the paths to this prefix after which `token` starts a new token of the text. If
    /// `token` equals the last token of the prefix, these are only the paths that end in a blank.
    fn extendable_by(&self, token: u32) -> f64 {
        if token == self.last { self.blank } else { self.total }
    }
}

/// Searches the best texts of an utterance by CTC and a language model.
///
/// `log_probs` has the natural log-probabilities of all tokens of `scorer` for each frame, frame by frame; token 0 is the
/// blank, and NaN counts as impossible. With weights of zero, without pruning, and with a beam that holds every prefix,
/// the scores are exact. Texts are sorted by their score; of equal scores the lower tokens come first. The result is
/// never empty: when no text is possible, it is the empty text with a score of minus infinity.
///
/// # Panics
/// When `log_probs` is no multiple of the number of tokens, or the options are impossible.
pub fn fused_beam(log_probs: &[f32], scorer: &LanguageScorer, options: &FusionOptions) -> Vec<CtcHypothesis> {
    search(log_probs, scorer, options, &scorer.start(), true)
}

/// Searches the best continuations of a text as [`fused_beam`] does: the text before them has the state `start`, and goes on
/// after them, so neither the sentence nor its last word ends.
///
/// # Panics
/// As [`fused_beam`].
pub fn fused_beam_part(
    log_probs: &[f32],
    scorer: &LanguageScorer,
    options: &FusionOptions,
    start: &FusionState,
) -> Vec<CtcHypothesis> {
    search(log_probs, scorer, options, start, false)
}

fn search(
    log_probs: &[f32],
    scorer: &LanguageScorer,
    options: &FusionOptions,
    start: &FusionState,
    is_whole: bool,
) -> Vec<CtcHypothesis> {
    options.check();
    let n_tokens = scorer.texts().len();
    assert!(n_tokens > 0, "there is no blank");
    assert!(
        log_probs.len().is_multiple_of(n_tokens),
        "{} log-probabilities are no rows of {n_tokens} tokens",
        log_probs.len()
    );
    let mut tree = PrefixTree::new(*start);
    let mut beam = vec![Prefix {
        node: ROOT,
        is_new: false,
        last: 0,
        blank: 0.0,
        token: f64::NEG_INFINITY,
        total: 0.0,
        score: 0.0,
    }];
    let mut positions = Vec::new();
    for row in log_probs.chunks(n_tokens) {
        let (row, tokens) = likely(row, options.token_log_prob_min);
        positions.clear();
        positions.resize(tree.len(), u32::MAX);
        for (position, prefix) in beam.iter().enumerate() {
            positions[prefix.node as usize] = position as u32;
        }
        let mut next = stay(&beam, &positions, &tree, &row);
        for prefix in &beam {
            let log_prob = |token| prefix.extendable_by(token) + f64::from(row[token as usize]);
            let candidates = tokens.iter().map(|&token| (token, log_prob(token)));
            let possible = candidates.filter(|&(_, total)| total > f64::NEG_INFINITY);
            next.extend(
                possible.filter_map(|(token, total)| extended(prefix, token, total, &positions, &tree, scorer)),
            );
        }
        keep(&mut next, options);
        for prefix in next.iter_mut().filter(|prefix| prefix.is_new) {
            if let Some(fusion) = fusion(prefix.node, prefix.last, &tree, scorer) {
                prefix.node = tree.extend(prefix.node, prefix.last, fusion);
                prefix.is_new = false;
            }
        }
        beam = next;
    }
    let ends = |state: &FusionState| if is_whole { scorer.finish(state) } else { Some(*state) };
    finished(&beam, &tree, &ends, scorer, options, log_probs)
}

/// Returns the row without the tokens that are too unlikely and without NaN, and the text tokens that are left, the
/// likeliest first.
fn likely(row: &[f32], log_prob_min: f32) -> (Vec<f32>, Vec<u32>) {
    let mut row: Vec<f32> = row.iter().map(|&value| if value.is_nan() { f32::NEG_INFINITY } else { value }).collect();
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for value in row.iter_mut().filter(|value| **value < log_prob_min && **value < most) {
        *value = f32::NEG_INFINITY;
    }
    let mut tokens: Vec<u32> = (1..row.len() as u32).filter(|&token| row[token as usize] > f32::NEG_INFINITY).collect();
    tokens.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
    (row, tokens)
}

/// Returns the prefixes of the beam after one more frame, for the paths in which the frame is a blank or repeats the last
/// token. If the beam also has the parent of a prefix (the prefix without its last token), the paths of the parent that
/// reach the prefix in this frame are added.
fn stay(beam: &[Prefix], positions: &[u32], tree: &PrefixTree, row: &[f32]) -> Vec<Prefix> {
    let later = |prefix: &Prefix| {
        let blank = prefix.total + f64::from(row[0]);
        let mut token = prefix.token;
        if prefix.node != ROOT
            && let Some(parent) = beam.get(positions[tree.parent(prefix.node) as usize] as usize)
        {
            token = log_add(token, parent.extendable_by(prefix.last));
        }
        // The empty prefix has no last token.
        token += if prefix.node == ROOT { f64::NEG_INFINITY } else { f64::from(row[prefix.last as usize]) };
        let total = log_add(blank, token);
        Prefix { blank, token, total, score: total + tree.fusion(prefix.node).score(), ..*prefix }
    };
    beam.iter().map(later).collect()
}

/// Returns the candidate for `prefix` plus `token`, whose paths have the log-probability `total`. Nothing if the longer
/// prefix is in the beam already, or the lexicon forbids it.
fn extended(
    prefix: &Prefix,
    token: u32,
    total: f64,
    positions: &[u32],
    tree: &PrefixTree,
    scorer: &LanguageScorer,
) -> Option<Prefix> {
    if tree.child(prefix.node, token).is_some_and(|child| positions[child as usize] != u32::MAX) {
        return None;
    }
    let score = total + fusion(prefix.node, token, tree, scorer)?.score();
    let node = prefix.node;
    Some(Prefix { node, is_new: true, last: token, blank: f64::NEG_INFINITY, token: total, total, score })
}

/// Returns the state of the fusion after a prefix with one more token, from the tree if it was there before.
fn fusion(node: u32, token: u32, tree: &PrefixTree, scorer: &LanguageScorer) -> Option<FusionState> {
    match tree.child(node, token) {
        Some(child) => Some(*tree.fusion(child)),
        None => scorer.advance(tree.fusion(node), token),
    }
}

/// Keeps the best prefixes that are within the margin, sorted; of equal scores the earlier ones.
fn keep(prefixes: &mut Vec<Prefix>, options: &FusionOptions) {
    let best = prefixes.iter().map(|prefix| prefix.score).fold(f64::NEG_INFINITY, f64::max);
    prefixes.retain(|prefix| prefix.total > f64::NEG_INFINITY && prefix.score >= best - options.beam_margin);
    let width = options.width.get();
    if prefixes.len() > width {
        let mut scores: Vec<f64> = prefixes.iter().map(|prefix| prefix.score).collect();
        let (_, &mut worst, _) = scores.select_nth_unstable_by(width - 1, |a, b| b.total_cmp(a));
        prefixes.retain(|prefix| prefix.score >= worst);
    }
    prefixes.sort_by(|a, b| b.score.total_cmp(&a.score));
    prefixes.truncate(width);
}

/// Ends the texts of the beam by `ends`, joins equal texts, and finds the frames of the best.
fn finished(
    beam: &[Prefix],
    tree: &PrefixTree,
    ends: &dyn Fn(&FusionState) -> Option<FusionState>,
    scorer: &LanguageScorer,
    options: &FusionOptions,
    log_probs: &[f32],
) -> Vec<CtcHypothesis> {
    // Place of each text, and the log-probability of its likeliest tokens.
    let mut texts: FxHashMap<String, (usize, f64)> = FxHashMap::default();
    let mut found: Vec<CtcHypothesis> = Vec::new();
    for prefix in beam {
        let Some(fusion) = ends(tree.fusion(prefix.node)) else { continue };
        let tokens = tree.tokens(prefix.node);
        let text = joined(tokens.iter().map(|&token| scorer.texts()[token as usize].as_str()));
        match texts.get_mut(&text) {
            Some((at, likeliest)) => {
                let same = &mut found[*at];
                // The beam is not sorted by CTC alone, so the later tokens may be the likelier ones.
                if prefix.total > *likeliest {
                    (same.tokens, *likeliest) = (tokens, prefix.total);
                }
                let added = same.score - same.acoustic;
                same.acoustic = log_add(same.acoustic, prefix.total);
                same.score = same.acoustic + added;
            }
            None => {
                texts.insert(text.clone(), (found.len(), prefix.total));
                let score = prefix.total + fusion.score();
                let (acoustic, language) = (prefix.total, fusion.log_prob());
                found.push(CtcHypothesis { text, tokens, words: Vec::new(), acoustic, language, score });
            }
        }
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.tokens.cmp(&b.tokens)));
    found.truncate(options.n_best.get());
    for hypothesis in &mut found {
        hypothesis.words = timed(&hypothesis.tokens, scorer, log_probs);
    }
    if found.is_empty() {
        let impossible = f64::NEG_INFINITY;
        let (text, tokens, words) = (String::new(), Vec::new(), Vec::new());
        found.push(CtcHypothesis { text, tokens, words, acoustic: impossible, language: 0.0, score: impossible });
    }
    found
}

/// Finds the words of a text and their frames.
fn timed(tokens: &[u32], scorer: &LanguageScorer, log_probs: &[f32]) -> Vec<TimedWord> {
    let frames = align(log_probs, scorer.texts().len(), tokens).unwrap_or_default();
    let mut words: Vec<TimedWord> = Vec::new();
    let mut is_apart = true;
    for (&token, &(first_frame, last_frame)) in tokens.iter().zip(&frames) {
        for character in scorer.texts()[token as usize].chars() {
            if is_boundary(character) {
                is_apart = true;
                continue;
            }
            match words.last_mut().filter(|_| !is_apart) {
                Some(word) => {
                    word.word.push(character);
                    word.last_frame = last_frame;
                }
                None => words.push(TimedWord { word: character.into(), first_frame, last_frame }),
            }
            is_apart = false;
        }
    }
    words
}

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}
