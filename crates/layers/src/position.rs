//! Positions: sinusoids that are added, a table that is learned, offsets for relative attention, and rotations.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};

// Shapes: b batch, h heads, t frames, d model width, w width of a head.

/// The frequencies of Vaswani et al. 2017 for `d` channels: one for each pair.
fn frequencies(d: usize) -> Vec<f64> {
    assert!(d.is_multiple_of(2), "sinusoids come in pairs, and {d} is odd");
    (0..d / 2).map(|i| (-(2.0 * i as f64 / d as f64) * 1e4_f64.ln()).exp()).collect()
}

/// A row for each place: sine and cosine of every frequency, side by side.
fn sinusoids(places: impl Iterator<Item = f64>, d: usize, device: &Device) -> Tensor<2> {
    let frequencies = frequencies(d);
    let phases = places.flat_map(|place| frequencies.iter().map(move |f| place * f));
    let values: Vec<f32> = phases.flat_map(|phase| [phase.sin() as f32, phase.cos() as f32]).collect();
    let rows = values.len() / d;
    Tensor::from_data(TensorData::new(values, [rows, d]), device)
}

/// Adds sinusoids to `[b, t, d]`, whose first frame has the place `first`.
///
/// # Panics
/// Where the width is odd.
pub fn add_sinusoids(x: Tensor<3>, first: usize) -> Tensor<3> {
    let [_, t, d] = x.dims();
    let table = sinusoids((first..first + t).map(|place| place as f64), d, &x.device());
    x + table.unsqueeze::<3>()
}

/// The sinusoids `[keys - 1 + queries, d]` of the distances from the queries `first..first + queries` to the `keys`,
/// from the furthest key behind the last query on to the furthest before the first.
pub(crate) fn offsets(first: usize, queries: usize, keys: usize, d: usize, device: &Device) -> Tensor<2> {
    let furthest = (first + queries - 1) as f64;
    sinusoids((0..keys - 1 + queries).map(|place| furthest - place as f64), d, device)
}

/// Rotates queries or keys `[b, h, t, w]`, whose first frame has the place `first` (Su et al. 2021).
///
/// Channel `k` turns together with channel `k + w / 2`, as in GPT-NeoX and the models of Hugging Face.
///
/// # Panics
/// Where the width is odd.
pub fn rotate(x: Tensor<4>, first: usize) -> Tensor<4> {
    let [b, h, t, w] = x.dims();
    let frequencies = frequencies(w);
    let table = |wave: fn(f64) -> f64| -> Tensor<4> {
        let phases = (first..first + t).flat_map(|place| frequencies.iter().map(move |f| place as f64 * f));
        let values: Vec<f32> = phases.map(|phase| wave(phase) as f32).collect();
        let table = Tensor::<4>::from_data(TensorData::new(values, [1, 1, t, w / 2]), &x.device());
        table.cast(x.dtype())
    };
    let (sine, cosine) = (table(f64::sin), table(f64::cos));
    let half = |from: usize| x.clone().slice([0..b, 0..h, 0..t, from..from + w / 2]);
    let (left, right) = (half(0), half(w / 2));
    let turned_left = left.clone() * cosine.clone() - right.clone() * sine.clone();
    Tensor::cat(vec![turned_left, left * sine + right * cosine], 3)
}

/// A learned vector for each place up to a longest length.
#[derive(Module, Debug)]
pub struct LearnedPositions {
    table: Param<Tensor<2>>,
}

impl LearnedPositions {
    /// A table of `longest` places of width `d`, all zero until it is learned.
    pub fn init(longest: usize, d: usize, device: &Device) -> Self {
        Self { table: Param::from_tensor(Tensor::zeros([longest, d], device)) }
    }

    /// How many places there are.
    pub fn longest(&self) -> usize {
        self.table.lazy_shape()[0]
    }

    /// Adds the vectors of the places from `first` on to `[b, t, d]`.
    ///
    /// # Panics
    /// Where the table is too short: a length policy cuts longer inputs before they come here.
    pub fn add(&self, x: Tensor<3>, first: usize) -> Tensor<3> {
        let [_, t, d] = x.dims();
        assert!(first + t <= self.longest(), "{} places were asked for and {} learned", first + t, self.longest());
        x + self.table.val().slice([first..first + t, 0..d]).unsqueeze::<3>()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tolerance;

    use super::*;

    #[test]
    fn the_first_pair_turns_once_in_two_pi_frames() {
        let x = add_sinusoids(Tensor::zeros([1, 3, 4], &Device::flex()), 0);
        let values = x.into_data().try_to_vec::<f32>().unwrap();
        let expected = [0.0, 1.0, 0.0, 1.0, 1f32.sin(), 1f32.cos(), 0.01f32.sin(), 0.01f32.cos()];
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
    }

    #[test]
    fn a_part_has_the_positions_that_it_has_in_the_whole() {
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
        let turned = |x: Tensor<3>, first| rotate(x.unsqueeze_dim::<4>(1), first).squeeze_dim::<3>(1);
        check(turned(whole, 0), turned(part, 3));
    }
}
