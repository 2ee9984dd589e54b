//! Key-value cache of self-attention, for decoding step by step.

use burn::tensor::{Int, Tensor};

// Shapes: b sequences, h heads, t frames, r capacity in frames, w width of a head.

/// Smallest capacity of a buffer, in frames.
const MIN_CAPACITY: usize = 32;

/// Key-value cache of one [`Attention`](super::Attention) layer. All sequences of the batch have the same length.
///
/// The buffers have spare capacity and double when they are full, so most steps write the new frames without a copy of
/// the old frames.
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    /// Buffers of keys and values, each `[b, h, r, w]`: sequences, heads, room in frames, width of a head. `None` while
    /// empty.
    buffers: Option<(Tensor<4>, Tensor<4>)>,
    len: usize,
}

impl KeyValueCache {
    /// Returns the number of frames stored of each sequence.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no frame is stored yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the sequences with the indices `rows`, in that order. An index may occur more than once, as in beam
    /// search.
    ///
    /// # Panics
    /// If an index is not below the number of sequences.
    pub fn select(&mut self, rows: &[usize]) {
        self.buffers = self.buffers.take().map(|(key, value)| (select_rows(key, rows), select_rows(value, rows)));
    }

    /// Appends zeros until `len` frames of each sequence are stored. Does nothing if there are as many already, or none at
    /// all. A plan of memory traces the last of many steps with this function, without the steps before it.
    pub fn pad_to(&mut self, len: usize) {
        let Some((keys, _)) = &self.buffers else { return };
        let ([b, h, _, w], device, dtype) = (keys.dims(), keys.device(), keys.dtype());
        if let Some(missing) = len.checked_sub(self.len).filter(|&missing| missing > 0) {
            let zeros = || Tensor::<4>::zeros([b, h, missing, w], &device).cast(dtype);
            self.append(zeros(), zeros());
        }
    }

    /// Appends frames `[b, h, t, w]` and returns the whole buffers `[b, h, r, w]` (`r`: room in frames). The first
    /// `len()` frames of the buffers are valid.
    pub(super) fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let (first, len) = (self.len, self.len + key.dims()[2]);
        let (keys, values) = match self.buffers.take() {
            Some((keys, values)) => (Some(keys), Some(values)),
            None => (None, None),
        };
        let (keys, values) = (write(keys, key, first), write(values, value, first));
        self.buffers = Some((keys.clone(), values.clone()));
        self.len = len;
        (keys, values)
    }
}

/// Writes `frames` into `buffer` from frame index `first` on; makes a larger buffer if the frames do not fit.
fn write(buffer: Option<Tensor<4>>, frames: Tensor<4>, first: usize) -> Tensor<4> {
    let [b, h, t, w] = frames.dims();
    let capacity = |frames: usize| frames.next_power_of_two().max(MIN_CAPACITY);
    let buffer = match buffer {
        Some(buffer) if buffer.dims()[2] >= first + t => buffer,
        full => {
            let larger = Tensor::<4>::zeros([b, h, capacity(first + t), w], &frames.device()).cast(frames.dtype());
            match full {
                Some(full) => larger.slice_assign([0..b, 0..h, 0..first, 0..w], full.narrow(2, 0, first)),
                None => larger,
            }
        }
    };
    buffer.slice_assign([0..b, 0..h, first..first + t, 0..w], frames)
}

/// Selects the sequences of `x` `[b, h, t, w]` with the indices `rows`.
pub(super) fn select_rows(x: Tensor<4>, rows: &[usize]) -> Tensor<4> {
    let indices: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    let indices = Tensor::<1, Int>::from_ints(indices.as_slice(), &x.device());
    x.select(0, indices)
}
