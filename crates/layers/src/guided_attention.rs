//! Guided attention: a penalty that teaches a synthesizer to read its text from left to right.

use burn::tensor::{Device, Tensor};
use plimsoll_tape::transfer::from_host;

use crate::Lengths;

// Shapes: b batch, h heads, u queries, t keys, w width of a head, c columns of the guide.

/// Distance, in multiples of sigma, beyond which the Gaussian counts as zero: at this distance it is below 4e-6.
const REACH: f64 = 5.0;

/// Guided attention loss (Tachibana et al. 2018): penalizes attention away from the diagonal.
///
/// A weight from query `i` of `n` to key `j` of `m` costs `1 - exp(-(j / m - i / n)² / (2 sigma²))`, with the valid
/// lengths `n` and `m` of each utterance.
///
/// The penalty needs no attention weights in memory. On `[-1, 1]` the Gaussian is, up to 4e-6, a Fourier series of a
/// few terms, and each term splits into a product of a function of `i` and a function of `j`. The functions of `j`
/// become extra columns of the values, which attention mixes like the other columns; a product with the functions of
/// `i` then gives the penalty. This method works for any way to compute attention: at once, in chunks, or
/// rematerialized.
#[derive(Clone, Debug)]
pub struct GuidedAttention {
    queries: Tensor<4>,
    keys: Tensor<4>,
}

impl GuidedAttention {
    /// Creates a guide for `queries` over `keys`. `sigma` is the width of the diagonal as a fraction of the sequence;
    /// the paper (Tachibana et al. 2018) uses 0.2.
    ///
    /// # Panics
    /// If `sigma` is not above zero.
    pub fn new(sigma: f64, queries: &Lengths, keys: &Lengths, device: &Device) -> Self {
        assert!(sigma > 0.0, "the width of guided attention must be above zero, not {sigma}");
        // The series is periodic. The period is long enough that the next Gaussian counts as zero on [-1, 1].
        let period = 1.0 + REACH * sigma;
        let frequency = std::f64::consts::TAU / period;
        let count = (REACH / (frequency * sigma)).ceil() as usize;
        let coefficient = |term: usize| {
            let phase = frequency * term as f64 * sigma;
            sigma * std::f64::consts::TAU.sqrt() / period * (-0.5 * phase * phase).exp()
        };
        let waves = |position: f64| -> Vec<f64> {
            let phases = (1..=count).map(|term| frequency * term as f64 * position);
            std::iter::once(1.0).chain(phases.flat_map(|phase| [phase.cos(), phase.sin()])).collect()
        };
        let factor = |column: usize| match column {
            0 => 1.0 - coefficient(0),
            _ => -2.0 * coefficient(column.div_ceil(2)),
        };
        let weighted =
            |position| -> Vec<f64> { waves(position).into_iter().enumerate().map(|(i, w)| w * factor(i)).collect() };
        Self { queries: table(queries, weighted, device), keys: table(keys, waves, device) }
    }

    /// Appends the columns of the guide to the values `[b, h, t, w]`: `[b, h, t, w + c]`.
    pub(crate) fn append(&self, values: Tensor<4>) -> Tensor<4> {
        let [b, h, t, _] = values.dims();
        let [_, _, _, c] = self.keys.dims();
        let columns = self.keys.clone().cast(values.dtype()).expand([b, h, t, c]);
        Tensor::cat(vec![values, columns], 3)
    }

    /// Splits the attention output `[b, h, u, w + c]` of values from [`append`](Self::append) into the output
    /// `[b, h, u, w]` and the penalty `[1]`, summed over all valid queries and averaged over the heads.
    pub(crate) fn split(&self, mixed: Tensor<4>) -> (Tensor<4>, Tensor<1>) {
        let [_, h, _, all] = mixed.dims();
        let c = self.keys.dims()[3];
        let columns = mixed.clone().narrow(3, all - c, c);
        let columns = columns.cast(self.queries.dtype());
        let penalty = (columns * self.queries.clone()).sum() / h as f64;
        (mixed.narrow(3, 0, all - c), penalty)
    }
}

/// Builds a table `[b, 1, n, c]`: for each valid position the `waves` at its fraction of the sequence; zeros in the
/// padding.
fn table(lengths: &Lengths, waves: impl Fn(f64) -> Vec<f64>, device: &Device) -> Tensor<4> {
    let c = waves(0.0).len();
    from_host([lengths.each().len(), 1, lengths.width(), c], device, || {
        let mut values = Vec::with_capacity(lengths.each().len() * lengths.width() * c);
        for &length in lengths.each() {
            for position in 0..lengths.width() {
                match position < length as usize {
                    true => values.extend(waves(position as f64 / f64::from(length)).into_iter().map(|w| w as f32)),
                    false => values.resize(values.len() + c, 0.0),
                }
            }
        }
        values
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::activation::softmax;

    use super::*;

    /// Computes the penalty by definition, from all attention weights.
    fn by_definition(weights: &[f32], [b, h, u, t]: [usize; 4], queries: &[u32], keys: &[u32], sigma: f64) -> f64 {
        let mut sum = 0.0;
        for (index, &weight) in weights.iter().enumerate() {
            let (k, q, i) = (index % t, index / t % u, index / t / u / h);
            assert!(i < b);
            if q < queries[i] as usize && k < keys[i] as usize {
                let offset = k as f64 / f64::from(keys[i]) - q as f64 / f64::from(queries[i]);
                sum += f64::from(weight) * (1.0 - (-offset * offset / (2.0 * sigma * sigma)).exp()) / h as f64;
            }
        }
        sum
    }

    #[test]
    fn columns_give_the_penalty_of_the_full_weights() {
        let device = Device::flex();
        let shape = [2, 3, 40, 23];
        let queries = Lengths::new(vec![40, 31], 40);
        let keys = Lengths::new(vec![17, 23], 23);
        let values = Tensor::<4>::random([2, 3, 23, 4], Default::default(), &device);
        for sigma in [0.05, 0.2, 0.4, 1.0] {
            let guide = GuidedAttention::new(sigma, &queries, &keys, &device);
            let weights = softmax(Tensor::<4>::random(shape, Default::default(), &device) * 9.0, 3);
            let (mixed, penalty) = guide.split(weights.clone().matmul(guide.append(values.clone())));
            let expected = weights.clone().matmul(values.clone());
            mixed.into_data().assert_approx_eq::<f32>(&expected.into_data(), burn::tensor::Tolerance::absolute(1e-5));
            let weights: Vec<f32> = weights.into_data().try_into_vec().unwrap();
            let expected = by_definition(&weights, shape, queries.each(), keys.each(), sigma);
            let found = f64::from(penalty.into_scalar::<f32>());
            assert!((found - expected).abs() < 1e-4 * expected, "{sigma}: {found} {expected}");
        }
    }
}
