//! Attention rescoring: the decoder reads texts that CTC has found and gives its opinion.

use super::options::blend;
use super::{BeamOptions, Hypothesis, NextToken, best_first, log_prob, next_rows};

/// Ranks `candidates`, whose scores are CTC log-probabilities, by CTC and the attention decoder together.
///
/// All of them are read at once, a row each, and a row is dropped when its text ends, so the decoder is asked once
/// for each position of the longest text. The result holds every candidate; the formula is that of [`BeamOptions`].
///
/// # Panics
/// Where the options are out of range, or the decoder's rows do not fit what was asked.
pub fn rescore(candidates: Vec<Hypothesis>, decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    let attention = attention_scores(&candidates, decoder, options);
    let score = |(candidate, attention): (Hypothesis, f64)| {
        let weighted = blend(options.ctc_weight, candidate.score, attention);
        Hypothesis { score: options.score(weighted, candidate.tokens.len()), tokens: candidate.tokens }
    };
    best_first(candidates.into_iter().zip(attention).map(score).collect(), usize::MAX)
}

/// The log-probability of each text, its closing token included.
fn attention_scores(texts: &[Hypothesis], decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<f64> {
    let mut sums = vec![0.0; texts.len()];
    // Each text that is still being read, and the decoder's row that says what follows what has been read of it.
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
