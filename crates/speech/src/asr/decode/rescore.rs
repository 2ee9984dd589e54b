//! Attention rescoring: the decoder scores the texts that CTC found, and the best by both scores wins.

use super::options::blend;
use super::{BeamOptions, Hypothesis, NextToken, best_first, log_prob, next_rows};

/// Ranks `candidates`, whose scores are CTC log-probabilities, by CTC and the attention decoder together.
///
/// All candidates are scored in parallel, one row each; a row is dropped when its text ends. The decoder is called once
/// for each position of the longest text. The result holds every candidate; [`BeamOptions`] gives the formula.
///
/// # Panics
/// When the options are out of range, or the decoder returns a wrong number of rows.
pub fn rescore(candidates: Vec<Hypothesis>, decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    let attention = attention_scores(&candidates, decoder, options);
    let score = |(candidate, attention): (Hypothesis, f64)| {
        let weighted = blend(options.ctc_weight, candidate.score, attention);
        Hypothesis { score: options.score(weighted, candidate.tokens.len()), tokens: candidate.tokens }
    };
    best_first(candidates.into_iter().zip(attention).map(score).collect(), usize::MAX)
}

/// Computes the decoder's log-probability of each text, including the end token.
fn attention_scores(texts: &[Hypothesis], decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<f64> {
    let mut sums = vec![0.0; texts.len()];
    // Each text that has not ended, with the decoder's row that scores its next token.
    let mut open: Vec<(usize, usize)> = (0..texts.len()).map(|text| (text, 0)).collect();
    let (mut parents, mut tokens) = (vec![0], vec![options.sos]);
    for position in 0.. {
        if open.is_empty() {
            break;
        }
        let rows = next_rows(decoder, &parents, &tokens);
        for &(text, row) in &open {
            let token = texts[text].tokens.get(position).copied().unwrap_or(options.eos);
            sums[text] += log_prob(&rows[row], token);
        }
        open.retain(|&(text, _)| position < texts[text].tokens.len());
        (parents, tokens) = open.iter().map(|&(text, row)| (row, texts[text].tokens[position])).unzip();
        open.iter_mut().enumerate().for_each(|(row, entry)| entry.1 = row);
    }
    sums
}
