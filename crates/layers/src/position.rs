//! Position encodings: sinusoids, a learned table, relative offsets and rotary positions.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::transfer::{Constants, from_host};

// Shapes: b batch, h heads, t frames, d model width, w width of a head.

/// Computes the frequencies of Vaswani et al. 2017 for `d` channels: one frequency for each pair of channels.
fn frequencies(d: usize) -> Vec<f64> {
    assert!(d.is_multiple_of(2), "position encodings need an even width, not {d}");
    (0..d / 2).map(|i| (-(2.0 * i as f64 / d as f64) * 1e4_f64.ln()).exp()).collect()
}

/// Number of positions from one coarse angle to the next; see [`waves`].
const FINE: i64 = 64;

/// Computes sine and cosine of each of `positions` times each of `frequencies`, in this order, and hands them to `put`.
///
/// A position is split into a coarse and a fine part, whose waves are combined by the angle addition formulas. So a
/// position costs a few multiplications and not a sine, and has the same values in every range that holds it.
fn waves(positions: impl Iterator<Item = i64> + Clone, frequencies: &[f64], mut put: impl FnMut(f64, f64)) {
    let coarse = positions.clone().map(|position| position.div_euclid(FINE));
    let (Some(lowest), Some(highest)) = (coarse.clone().min(), coarse.max()) else { return };
    let table = |steps: std::ops::RangeInclusive<i64>, width: i64| -> Vec<(f64, f64)> {
        let angles = steps.flat_map(|step| frequencies.iter().map(move |f| (step * width) as f64 * f));
        angles.map(f64::sin_cos).collect()
    };
    let (coarse, fine) = (table(lowest..=highest, FINE), table(0..=FINE - 1, 1));
    let count = frequencies.len();
    for position in positions {
        let coarse = &coarse[(position.div_euclid(FINE) - lowest) as usize * count..][..count];
        let fine = &fine[position.rem_euclid(FINE) as usize * count..][..count];
        for (&(sin_a, cos_a), &(sin_b, cos_b)) in coarse.iter().zip(fine) {
            put(sin_a * cos_b + cos_a * sin_b, cos_a * cos_b - sin_a * sin_b);
        }
    }
}

/// Computes a row `[d]` for each position: sine in channel `2k`, cosine in channel `2k + 1`.
fn sinusoids(positions: impl ExactSizeIterator<Item = i64> + Clone, d: usize, device: &Device) -> Tensor<2> {
    let rows = positions.len();
    from_host([rows, d], device, || {
        let mut values = Vec::with_capacity(rows * d);
        waves(positions, &frequencies(d), |sine, cosine| values.extend([sine as f32, cosine as f32]));
        values
    })
}

/// Adds sinusoidal positions to `x` `[b, t, d]` (Vaswani et al. 2017). The first frame of `x` has the position `first`.
///
/// # Panics
/// If `d` is odd.
pub fn add_sinusoids(x: Tensor<3>, first: usize) -> Tensor<3> {
    let [_, t, d] = x.dims();
    let table = sinusoids((0..t).map(|index| (first + index) as i64), d, &x.device());
    x + table.unsqueeze::<3>()
}

/// Computes the sinusoids `[keys - 1 + queries, d]` of all distances from the queries `first..first + queries` to the
/// keys `0..keys`, in decreasing order: from the last query and key 0 to the first query and the last key.
pub(crate) fn offsets(first: usize, queries: usize, keys: usize, d: usize, device: &Device) -> Tensor<2> {
    let largest = (first + queries - 1) as i64;
    sinusoids((0..keys - 1 + queries).map(|index| largest - index as i64), d, device)
}

/// Applies rotary positions to queries or keys `x` `[b, h, t, w]` (Su et al. 2021). The first frame of `x` has the
/// position `first`.
///
/// Channel `k` rotates together with channel `k + w / 2`, as in GPT-NeoX and Hugging Face models.
///
/// # Panics
/// If `w` is odd.
pub fn apply_rotary(x: Tensor<4>, first: usize) -> Tensor<4> {
    rotate(x, first, &Constants::default())
}

/// Applies rotary positions like [`apply_rotary`], with tables that `constants` keeps.
pub(crate) fn rotate(x: Tensor<4>, first: usize, constants: &Constants) -> Tensor<4> {
    let [b, h, t, w] = x.dims();
    let device = x.device();
    let table = |name, pick: fn(f64, f64) -> f64| -> Tensor<4> {
        let table = constants.get(name, &[first, t, w], &device, || {
            from_host([1, 1, t, w / 2], &device, || {
                let mut values = Vec::with_capacity(t * w / 2);
                let positions = (0..t).map(|index| (first + index) as i64);
                waves(positions, &frequencies(w), |sine, cosine| values.push(pick(sine, cosine) as f32));
                values
            })
        });
        table.cast(x.dtype())
    };
    let (sine, cosine) = (table("rotary sines", |sine, _| sine), table("rotary cosines", |_, cosine| cosine));
    let half = |from: usize| x.clone().slice([0..b, 0..h, 0..t, from..from + w / 2]);
    let (left, right) = (half(0), half(w / 2));
    let rotated_left = left.clone() * cosine.clone() - right.clone() * sine.clone();
    Tensor::cat(vec![rotated_left, left * sine + right * cosine], 3)
}

/// Learned position encoding: a table with one vector for each position.
#[derive(Module, Debug)]
pub struct LearnedPositions {
    table: Param<Tensor<2>>,
}

impl LearnedPositions {
    /// Creates a table of `max_len` positions of width `d`, initially zero.
    pub fn init(max_len: usize, d: usize, device: &Device) -> Self {
        Self { table: Param::from_tensor(Tensor::zeros([max_len, d], device)) }
    }

    /// Returns the number of positions in the table.
    pub fn max_len(&self) -> usize {
        self.table.lazy_shape()[0]
    }

    /// Adds the vectors of the positions from `first` on to `x` `[b, t, d]`.
    ///
    /// # Panics
    /// If the table is too short. Cut longer inputs before, for example with [`LengthPolicy`](crate::LengthPolicy).
    pub fn add(&self, x: Tensor<3>, first: usize) -> Tensor<3> {
        let [_, t, d] = x.dims();
        assert!(first + t <= self.max_len(), "{} positions do not fit a table of {}", first + t, self.max_len());
        x + self.table.val().slice([first..first + t, 0..d]).unsqueeze::<3>()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tolerance;

    use super::*;

    #[test]
    fn sinusoids_match_the_formula() {
        let x = add_sinusoids(Tensor::zeros([1, 3, 4], &Device::flex()), 0);
        let values = x.into_data().try_to_vec::<f32>().unwrap();
        let expected = [0.0, 1.0, 0.0, 1.0, 1f32.sin(), 1f32.cos(), 0.01f32.sin(), 0.01f32.cos()];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
    }

    #[test]
    fn far_and_negative_positions_have_the_values_of_the_formula() {
        let frequencies = frequencies(64);
        for start in [-100_000_i64, -4000, -65, -64, -1, 0, 63, 999, 100_000] {
            let mut found = Vec::new();
            waves((0..200).map(|index| start - index), &frequencies, |sine, cosine| found.push((sine, cosine)));
            for (row, pair) in found.chunks(frequencies.len()).enumerate() {
                for (frequency, &(sine, cosine)) in frequencies.iter().zip(pair) {
                    let angle = (start - row as i64) as f64 * frequency;
                    assert!((sine - angle.sin()).abs() < 1e-9 && (cosine - angle.cos()).abs() < 1e-9, "{angle}");
                }
            }
        }
    }

    #[test]
    fn slice_gets_its_positions_of_the_whole() {
        let device = Device::flex();
        let learned =
            LearnedPositions { table: Param::from_tensor(Tensor::random([9, 4], Default::default(), &device)) };
        let whole = Tensor::<3>::random([2, 7, 4], Default::default(), &device);
        let part = whole.clone().slice([0..2, 3..7, 0..4]);
        let check = |all: Tensor<3>, some: Tensor<3>| {
            let expected = all.slice([0..2, 3..7, 0..4]).into_data();
            some.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        };
        check(add_sinusoids(whole.clone(), 0), add_sinusoids(part.clone(), 3));
        check(learned.add(whole.clone(), 0), learned.add(part.clone(), 3));
        let turned = |x: Tensor<3>, first| apply_rotary(x.unsqueeze_dim::<4>(1), first).squeeze_dim::<3>(1);
        check(turned(whole, 0), turned(part, 3));
    }
}
