//! Guided attention: a synthesiser reads its text from left to right, and is told so while it learns.

use burn::tensor::{Device, Tensor, TensorData};

use crate::Lengths;

// Shapes: b batch, h heads, u queries, t keys, c columns of the guide.

/// How many spreads away a bell is taken for zero: there it is below 4e-6.
const REACH: f64 = 5.0;

/// The diagonal that attention should follow (Tachibana et al. 2018): looking away from it is a penalty of
/// `1 - exp(-(key / keys - query / queries)² / 2σ²)`.
///
/// The penalty of a query is the weighted mean of a function of its key. A bell between -1 and 1 is, to 4e-6, a sum of
/// a few waves, and a wave of a difference is a product of waves; so the penalty can be had from a few more columns of
/// the values, mixed as the values are. No weights need be kept for it, however attention is computed: all at once, in
/// chunks, or a second time in the backward pass.
#[derive(Clone, Debug)]
pub struct Guide {
    queries: Tensor<4>,
    keys: Tensor<4>,
}

impl Guide {
    /// The guide of `queries` that look at `keys`, with a diagonal as broad as `sigma`, a share of the whole.
    ///
    /// # Panics
    /// Where `sigma` is not above zero.
    pub fn new(sigma: f64, queries: &Lengths, keys: &Lengths, device: &Device) -> Self {
        assert!(sigma > 0.0, "a diagonal {sigma} broad is none");
        // The waves repeat after a period, behind which the next bell must not be felt.
        let period = 1.0 + REACH * sigma;
        let turn = std::f64::consts::TAU / period;
        let count = (REACH / (turn * sigma)).ceil() as usize;
        let height = |wave: usize| {
            let phase = turn * wave as f64 * sigma;
            sigma * std::f64::consts::TAU.sqrt() / period * (-0.5 * phase * phase).exp()
        };
        let waves = |place: f64| -> Vec<f64> {
            let phases = (1..=count).map(|wave| turn * wave as f64 * place);
            std::iter::once(1.0).chain(phases.flat_map(|phase| [phase.cos(), phase.sin()])).collect()
        };
        let factor = |column: usize| match column {
            0 => 1.0 - height(0),
            _ => -2.0 * height(column.div_ceil(2)),
        };
        let asked = |place| -> Vec<f64> { waves(place).into_iter().enumerate().map(|(i, w)| w * factor(i)).collect() };
        Self { queries: table(queries, asked, device), keys: table(keys, waves, device) }
    }

    /// The values `[b, h, t, w]` with the guide's columns behind them.
    pub(crate) fn append(&self, values: Tensor<4>) -> Tensor<4> {
        let [b, h, t, _] = values.dims();
        let [_, _, _, c] = self.keys.dims();
        let columns = self.keys.clone().cast(values.dtype()).expand([b, h, t, c]);
        Tensor::cat(vec![values, columns], 3)
    }

    /// What was mixed from such values, without the columns, and the sum of the penalties over all valid queries, of
    /// the heads on average.
    pub(crate) fn take(&self, mixed: Tensor<4>) -> (Tensor<4>, Tensor<1>) {
        let [_, h, _, all] = mixed.dims();
        let c = self.keys.dims()[3];
        let columns = mixed.clone().narrow(3, all - c, c);
        let columns = columns.cast(self.queries.dtype());
        let penalty = (columns * self.queries.clone()).sum() / h as f64;
        (mixed.narrow(3, 0, all - c), penalty)
    }
}

/// `[b, 1, n, c]`: a row of `waves` for the place of each valid position in its sequence, zero in padding.
fn table(lengths: &Lengths, waves: impl Fn(f64) -> Vec<f64>, device: &Device) -> Tensor<4> {
    let c = waves(0.0).len();
    let mut values = Vec::with_capacity(lengths.each().len() * lengths.width() * c);
    for &length in lengths.each() {
        for place in 0..lengths.width() {
            match place < length as usize {
                true => values.extend(waves(place as f64 / f64::from(length)).into_iter().map(|w| w as f32)),
                false => values.resize(values.len() + c, 0.0),
            }
        }
    }
    Tensor::from_data(TensorData::new(values, [lengths.each().len(), 1, lengths.width(), c]), device)
}

#[cfg(test)]
mod tests {
    use burn::tensor::activation::softmax;

    use super::*;

    /// The penalty as it is defined.
    fn plain(weights: &[f32], [b, h, u, t]: [usize; 4], queries: &[u32], keys: &[u32], sigma: f64) -> f64 {
        let mut sum = 0.0;
        for (place, &weight) in weights.iter().enumerate() {
            let (k, q, i) = (place % t, place / t % u, place / t / u / h);
            assert!(i < b);
            if q < queries[i] as usize && k < keys[i] as usize {
                let apart = k as f64 / f64::from(keys[i]) - q as f64 / f64::from(queries[i]);
                sum += f64::from(weight) * (1.0 - (-apart * apart / (2.0 * sigma * sigma)).exp()) / h as f64;
            }
        }
        sum
    }

    #[test]
    fn a_few_columns_say_what_all_weights_would() {
        let device = Device::flex();
        let shape = [2, 3, 40, 23];
        let queries = Lengths::new(vec![40, 31], 40);
        let keys = Lengths::new(vec![17, 23], 23);
        let values = Tensor::<4>::random([2, 3, 23, 4], Default::default(), &device);
        for sigma in [0.05, 0.2, 0.4, 1.0] {
            let guide = Guide::new(sigma, &queries, &keys, &device);
            let weights = softmax(Tensor::<4>::random(shape, Default::default(), &device) * 9.0, 3);
            let (mixed, penalty) = guide.take(weights.clone().matmul(guide.append(values.clone())));
            let expected = weights.clone().matmul(values.clone());
            mixed.into_data().assert_approx_eq::<f32>(&expected.into_data(), burn::tensor::Tolerance::absolute(1e-5));
            let weights: Vec<f32> = weights.into_data().try_into_vec().unwrap();
            let expected = plain(&weights, shape, queries.each(), keys.each(), sigma);
            let found = f64::from(penalty.into_scalar::<f32>());
            assert!((found - expected).abs() < 1e-4 * expected, "{sigma}: {found} {expected}");
        }
    }
}
