//! Attention rescoring: the decoder reads texts that CTC has found and gives its opinion.

use super::options::blend;
use super::{BeamOptions, Hypothesis, NextToken, ask, best_first, log_prob};

/// Ranks `candidates`, whose scores are CTC log-probabilities, by CTC and the attention decoder together.
///
/// All of them are read at once, a row each, and a row is dropped when its text ends, so the decoder is asked once
/// for each place of the longest text. The result holds every candidate; the formula is that of [`BeamOptions`].
///
/// # Panics
/// Where the options are out of range, or the decoder's rows do not fit what was asked.
pub fn rescore(candidates: Vec<Hypothesis>, decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<Hypothesis> {
    options.check();
    let attention = read(&candidates, decoder, options);
    let score = |(candidate, attention): (Hypothesis, f64)| {
        let weighted = blend(options.ctc_weight, candidate.score, attention);
        Hypothesis { score: options.score(weighted, candidate.tokens.len()), tokens: candidate.tokens }
    };
    best_first(candidates.into_iter().zip(attention).map(score).collect(), usize::MAX)
}

/// The log-probability of each text, its closing token included.
fn read(texts: &[Hypothesis], decoder: &mut dyn NextToken, options: &BeamOptions) -> Vec<f64> {
    let mut sums = vec![0.0; texts.len()];
    // Each text that is still being read, and the decoder's row that says what follows what has been read of it.
    let mut reading: Vec<(usize, usize)> = (0..texts.len()).map(|text| (text, 0)).collect();
    let (mut parents, mut tokens) = (vec![0], vec![options.sos]);
    for place in 0.. {
        if reading.is_empty() {
            break;
        }
        let rows = ask(decoder, &parents, &tokens);
        for &(text, row) in &reading {
            let token = texts[text].tokens.get(place).copied().unwrap_or(options.eos);
            sums[text] += log_prob(&rows[row], token);
        }
        reading.retain(|&(text, _)| place < texts[text].tokens.len());
        (parents, tokens) = reading.iter().map(|&(text, row)| (row, texts[text].tokens[place])).unzip();
        reading.iter_mut().enumerate().for_each(|(row, entry)| entry.1 = row);
    }
    sums
}
