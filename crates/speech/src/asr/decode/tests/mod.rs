//! Compares the searches with their definitions, by enumerating every path and every text of small utterances.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

mod beams;
mod ctc;

use super::*;

const SOS: u32 = 3;
const EOS: u32 = 4;
/// Size of the vocabulary: the blank, two text tokens, and the start and end tokens.
const VOCABULARY: usize = 5;
const IMPOSSIBLE: f32 = f32::NEG_INFINITY;
/// Tolerance for sums of a few dozen 64-bit terms in different orders.
const TOLERANCE: f64 = 1e-9;

/// Random numbers from 0 to 1: the high bits of Knuth's MMIX generator.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }
}

fn width(width: usize) -> NonZeroUsize {
    NonZeroUsize::new(width).unwrap()
}

fn unlimited() -> NonZeroUsize {
    width(usize::MAX)
}

fn random_scores(seed: u64, frames: usize, vocabulary: usize) -> CtcScores {
    let mut numbers = RandomNumbers(seed);
    let logits = (0..frames * vocabulary).map(|_| numbers.next() * 6.0 - 3.0).collect();
    CtcScores::from_logits(logits, vocabulary)
}

/// Makes random scores in which the start and end tokens are impossible for CTC.
fn text_scores(seed: u64, frames: usize) -> CtcScores {
    let inner = random_scores(seed, frames, SOS as usize);
    let row = |t| inner.row(t).iter().copied().chain([IMPOSSIBLE; 2]);
    CtcScores::new((0..frames).flat_map(row).collect(), VOCABULARY)
}

/// Computes the log-probability of every text by definition: the sum over all paths that collapse to the text.
fn every_text(scores: &CtcScores) -> BTreeMap<Vec<u32>, f64> {
    let (frames, v) = (scores.frames(), scores.vocabulary());
    let mut texts = BTreeMap::new();
    for path in 0..v.pow(frames as u32) {
        let tokens: Vec<u32> = (0..frames).map(|t| (path / v.pow(t as u32) % v) as u32).collect();
        let log_prob: f64 = tokens.iter().enumerate().map(|(t, &token)| scores.at(t, token)).sum();
        let mut text = tokens;
        text.dedup();
        text.retain(|&token| token != BLANK);
        *texts.entry(text).or_insert(0.0) += log_prob.exp();
    }
    texts.into_iter().filter(|(_, p)| *p > 0.0).map(|(text, p)| (text, p.ln())).collect()
}

/// Returns the text tokens: all tokens except the blank, `sos` and `eos`.
fn alphabet(sos: u32, eos: u32) -> impl Iterator<Item = u32> {
    (1..VOCABULARY as u32).filter(move |token| ![sos, eos].contains(token))
}

/// Lists every text of at most `length` tokens.
fn texts_up_to(length: usize, sos: u32, eos: u32) -> Vec<Vec<u32>> {
    let mut texts = vec![Vec::new()];
    let mut begun = 0;
    for _ in 0..length {
        let end = texts.len();
        for index in begun..end {
            for token in alphabet(sos, eos) {
                let longer = [texts[index].as_slice(), &[token]].concat();
                texts.push(longer);
            }
        }
        begun = end;
    }
    texts
}

/// A decoder for tests with random scores that depend on all tokens before. It checks each call.
struct ToyDecoder {
    seed: u64,
    sos: u32,
    eos: u32,
    rows: Vec<Vec<u32>>,
    calls: usize,
    /// Whether two rows may hold the same tokens, as happens in rescoring.
    allows_duplicates: bool,
}

impl ToyDecoder {
    fn new(seed: u64) -> Self {
        Self { seed, sos: SOS, eos: EOS, rows: Vec::new(), calls: 0, allows_duplicates: false }
    }

    fn row(&self, history: &[u32]) -> Vec<f32> {
        let seed =
            history.iter().fold(self.seed, |hash, &token| (hash ^ u64::from(token + 1)).wrapping_mul(0x100000001b3));
        let mut numbers = RandomNumbers(seed);
        numbers.next();
        CtcScores::from_logits((0..VOCABULARY).map(|_| numbers.next() * 5.0).collect(), VOCABULARY).row(0).to_vec()
    }

    /// Computes the log-probability of a text, including the end token, by definition.
    fn log_prob(&self, text: &[u32]) -> f64 {
        let all = [&[self.sos], text, &[self.eos]].concat();
        (1..all.len()).map(|n| f64::from(self.row(&all[..n])[all[n] as usize])).sum()
    }
}

impl NextToken for ToyDecoder {
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
        assert!(!parents.is_empty() && parents.len() == tokens.len());
        if self.calls == 0 {
            assert!(parents == [0] && tokens == [self.sos], "one row opens all texts");
            self.rows = vec![Vec::new()];
        } else {
            let is_text = |token: &u32| alphabet(self.sos, self.eos).any(|other| other == *token);
            assert!(tokens.iter().all(is_text), "{tokens:?}");
        }
        self.calls += 1;
        self.rows =
            parents.iter().zip(tokens).map(|(&row, &token)| [self.rows[row].as_slice(), &[token]].concat()).collect();
        assert!(self.rows.iter().all(|row| row.len() == self.calls), "a row grows by one token a call");
        let mut distinct = self.rows.clone();
        distinct.sort();
        distinct.dedup();
        assert!(self.allows_duplicates || distinct.len() == self.rows.len(), "the same hypothesis twice");
        self.rows.iter().map(|row| self.row(row)).collect()
    }
}

/// A decoder for tests whose scores are a given function of the tokens so far. The fields are the tokens of each row,
/// the number of calls, and the function.
struct ScriptedDecoder<F>(Vec<Vec<u32>>, usize, F);

impl<F: Fn(&[u32]) -> Vec<f32>> ScriptedDecoder<F> {
    fn new(next: F) -> Self {
        Self(vec![Vec::new()], 0, next)
    }
}

impl<F: Fn(&[u32]) -> Vec<f32>> NextToken for ScriptedDecoder<F> {
    fn step(&mut self, parents: &[usize], tokens: &[u32]) -> Vec<Vec<f32>> {
        self.1 += 1;
        self.0 = parents.iter().zip(tokens).map(|(&row, &token)| [self.0[row].as_slice(), &[token]].concat()).collect();
        self.0.iter().map(|row| (self.2)(&row[1..])).collect()
    }
}

fn options(width: NonZeroUsize, length_max: usize) -> BeamOptions {
    BeamOptions { width, ..BeamOptions::new(SOS, EOS, length_max) }
}

/// Computes the score of a text by the formula in [`BeamOptions`].
fn definition(options: &BeamOptions, ctc: f64, attention: f64, tokens: usize) -> f64 {
    let share = |weight: f64, value: f64| if weight == 0.0 { 0.0 } else { weight * value };
    let weighted = share(options.ctc_weight, ctc) + share(1.0 - options.ctc_weight, attention);
    let raw = weighted + options.length_bonus * tokens as f64;
    if options.normalize_length { raw / (tokens + 1) as f64 } else { raw }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < TOLERANCE
}

fn sorted(hypotheses: &[Hypothesis]) -> bool {
    !hypotheses.is_empty() && hypotheses.windows(2).all(|pair| pair[0].score >= pair[1].score)
}
