//! Numbers in 8 bits: a code stands for the mean of the values that share it.

use crate::ngrams::{ENDS_HERE, continues};

/// Number of codes.
pub(crate) const CODES: usize = 256;

/// Number format of probabilities and back-offs of n-grams longer than a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantization {
    /// 32-bit floats: scores are exact.
    #[default]
    None,
    /// 8 bits, as KenLM's `-q 8 -b 8`: each code is the mean of an equal share of the values of its order.
    Bits8,
}

/// Means of the values of each code, in ascending order behind the reserved codes.
pub(crate) struct Codebook {
    pub(crate) means: [f32; CODES],
    reserved: usize,
}

impl Codebook {
    /// Makes the codes of probabilities.
    pub(crate) fn for_probs(probs: &[f32]) -> Self {
        Self::new(probs.to_vec(), &[])
    }

    /// Makes the codes of back-offs; the two zeros have codes of their own.
    pub(crate) fn for_backoffs(backoffs: &[f32]) -> Self {
        let values = backoffs.iter().copied().filter(|&backoff| backoff != 0.0).collect();
        Self::new(values, &[ENDS_HERE, 0.0])
    }

    fn new(mut values: Vec<f32>, reserved: &[f32]) -> Self {
        values.sort_by(f32::total_cmp);
        let mut means = [0.0; CODES];
        means[..reserved.len()].copy_from_slice(reserved);
        let n_bins = CODES - reserved.len();
        let mut start = 0;
        for bin in 0..n_bins {
            let end = values.len() * (bin + 1) / n_bins;
            let share = &values[start..end];
            let mean = share.iter().map(|&value| f64::from(value)).sum::<f64>() / share.len() as f64;
            let before = if bin == 0 { f32::MIN } else { means[reserved.len() + bin - 1] };
            means[reserved.len() + bin] = if share.is_empty() { before } else { mean as f32 };
            start = end;
        }
        Self { means, reserved: reserved.len() }
    }

    /// Returns the code whose mean is nearest to `value`.
    pub(crate) fn code(&self, value: f32) -> u8 {
        if self.reserved > 0 && value == 0.0 {
            return u8::from(continues(value));
        }
        let bins = &self.means[self.reserved..];
        let above = bins.partition_point(|&mean| mean < value).min(bins.len() - 1);
        let nearer_below = above > 0 && value - bins[above - 1] < bins[above] - value;
        (self.reserved + above - usize::from(nearer_below)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_kept() {
        let probs = [-1.5, -0.25, -3.0];
        let book = Codebook::for_probs(&probs);
        for prob in probs {
            assert_eq!(book.means[usize::from(book.code(prob))], prob);
        }
    }

    #[test]
    fn zeros_keep_their_sign() {
        let book = Codebook::for_backoffs(&[0.0, -0.0, -0.5]);
        for backoff in [0.0f32, -0.0, -0.5] {
            assert_eq!(book.means[usize::from(book.code(backoff))].to_bits(), backoff.to_bits());
        }
    }

    #[test]
    fn many_values_come_near() {
        let probs: Vec<f32> = (0..10_000).map(|i| -(i as f32) / 2000.0).collect();
        let book = Codebook::for_probs(&probs);
        for prob in probs {
            assert!((book.means[usize::from(book.code(prob))] - prob).abs() < 0.011, "{prob}");
        }
    }
}
