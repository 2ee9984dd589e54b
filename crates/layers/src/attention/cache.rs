//! Keys and values of what was read already, for decoding one token at a time.

use burn::tensor::{Int, Tensor};

// Shapes: b sequences, h heads, t frames, w width of a head.

/// The keys and values of one layer, for sequences that grow together.
#[derive(Clone, Debug, Default)]
pub struct KeyValues {
    parts: Option<(Tensor<4>, Tensor<4>)>,
}

impl KeyValues {
    /// How many frames it holds of each sequence.
    pub fn len(&self) -> usize {
        self.parts.as_ref().map_or(0, |(key, _)| key.dims()[2])
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_none()
    }

    /// Keeps the sequences numbered in `rows`, in that order; a number may come more than once.
    pub fn select(&mut self, rows: &[usize]) {
        self.parts = self.parts.take().map(|(key, value)| (chosen(key, rows), chosen(value, rows)));
    }

    /// Adds frames `[b, h, t, w]`, and gives all there are now.
    pub(super) fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let all = match self.parts.take() {
            Some((keys, values)) => (Tensor::cat(vec![keys, key], 2), Tensor::cat(vec![values, value], 2)),
            None => (key, value),
        };
        self.parts = Some(all.clone());
        all
    }
}

/// The rows of `x` numbered in `rows`.
pub(super) fn chosen(x: Tensor<4>, rows: &[usize]) -> Tensor<4> {
    let numbers: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    let indices = Tensor::<1, Int>::from_ints(numbers.as_slice(), &x.device());
    x.select(0, indices)
}
