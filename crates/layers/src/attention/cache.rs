//! Keys and values of what was read already, for decoding one token at a time.

use burn::tensor::{Int, Tensor};

// Shapes: b sequences, h heads, t frames, r room for frames, w width of a head.

/// The least room that is made for frames.
const ROOM: usize = 32;

/// The keys and values of one layer, for sequences that grow together.
///
/// They stand in buffers with room to spare, which double when they are full: a frame that joins is written where it
/// belongs, and what is there already is not copied for it.
#[derive(Clone, Debug, Default)]
pub struct KeyValues {
    /// Keys and values `[b, h, r, w]`.
    buffers: Option<(Tensor<4>, Tensor<4>)>,
    len: usize,
}

impl KeyValues {
    /// How many frames it holds of each sequence.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the sequences numbered in `rows`, in that order; a number may come more than once.
    pub fn select(&mut self, rows: &[usize]) {
        self.buffers = self.buffers.take().map(|(key, value)| (chosen(key, rows), chosen(value, rows)));
    }

    /// Adds frames `[b, h, t, w]`, and gives the buffers `[b, h, r, w]` with all there are now.
    pub(super) fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let (first, len) = (self.len, self.len + key.dims()[2]);
        let (keys, values) = match self.buffers.take() {
            Some((keys, values)) => (Some(keys), Some(values)),
            None => (None, None),
        };
        let (keys, values) = (written(keys, key, first), written(values, value, first));
        self.buffers = Some((keys.clone(), values.clone()));
        self.len = len;
        (keys, values)
    }
}

/// `buffer`, larger where it must be, with `frames` from place `first` on.
fn written(buffer: Option<Tensor<4>>, frames: Tensor<4>, first: usize) -> Tensor<4> {
    let [b, h, t, w] = frames.dims();
    let room = |frames: usize| frames.next_power_of_two().max(ROOM);
    let buffer = match buffer {
        Some(buffer) if buffer.dims()[2] >= first + t => buffer,
        full => {
            let larger = Tensor::<4>::zeros([b, h, room(first + t), w], &frames.device()).cast(frames.dtype());
            match full {
                Some(full) => larger.slice_assign([0..b, 0..h, 0..first, 0..w], full.narrow(2, 0, first)),
                None => larger,
            }
        }
    };
    buffer.slice_assign([0..b, 0..h, first..first + t, 0..w], frames)
}

/// The rows of `x` numbered in `rows`.
pub(super) fn chosen(x: Tensor<4>, rows: &[usize]) -> Tensor<4> {
    let numbers: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    let indices = Tensor::<1, Int>::from_ints(numbers.as_slice(), &x.device());
    x.select(0, indices)
}
