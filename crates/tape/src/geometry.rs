//! Where the windows of a tensor lie, and the values in them.

use std::ops::Range;

use burn::tensor::{Slice, Tensor};
use rayon::prelude::*;

/// Most pieces in which a GPU convolves.
const PIECES_MAX: usize = 4;
/// Bytes of the windows of one sample from which on they are cut out in pieces.
const PIECE_BYTES: usize = 2 << 20;

/// Some rows of windows, in all samples, and the rows of the tensor that belong to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Rows of windows.
    pub(crate) rows: Range<usize>,
    /// First row of the tensor that a window of the piece reaches.
    pub(crate) from: usize,
    /// First row that no window of an earlier piece reaches.
    pub(crate) fresh: usize,
    /// Row after the last that is of this piece. No window may reach some rows before it.
    pub(crate) until: usize,
}

/// Places of the windows of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Samples, rows, columns and channels of the tensor.
    pub(crate) input: [usize; 4],
    /// Rows and columns of windows.
    output: [usize; 2],
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
}

impl Geometry {
    pub(crate) fn new(input: [usize; 4], kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Self {
        let output = std::array::from_fn(|axis| {
            let (k, s, length) = (kernel[axis], stride[axis], input[axis + 1] + 2 * padding[axis]);
            assert!(k > 0 && s > 0 && k <= length, "a window of {k} every {s} does not fit {length}");
            (length - k) / s + 1
        });
        Self { input, output, kernel, stride, padding }
    }

    /// Returns the shape of the windows.
    pub(crate) fn shape(&self) -> [usize; 4] {
        let ([b, _, _, c], [rows, columns], [k, l]) = (self.input, self.output, self.kernel);
        [b, rows, columns, k * l * c]
    }

    /// Returns the number of values in a window.
    pub(crate) fn values(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.input[3]
    }

    /// Returns the number of windows.
    pub(crate) fn places(&self) -> usize {
        self.input[0] * self.output[0] * self.output[1]
    }

    /// Returns the number of windows of a piece.
    pub(crate) fn places_of(&self, piece: &Piece) -> usize {
        self.input[0] * piece.rows.len() * self.output[1]
    }

    /// Returns the number of windows that a piece has in a sample, and that of all windows of a sample.
    #[cfg(feature = "cube")]
    pub(crate) fn places_of_sample(&self, piece: &Piece) -> (usize, usize) {
        (piece.rows.len() * self.output[1], self.output[0] * self.output[1])
    }

    /// Returns the number of windows of a sample before those of a piece.
    #[cfg(feature = "cube")]
    pub(crate) fn places_before(&self, piece: &Piece) -> usize {
        piece.rows.start * self.output[1]
    }

    /// Returns the shape of the windows of a piece.
    pub(crate) fn shape_of(&self, piece: &Piece) -> [usize; 4] {
        [self.input[0], piece.rows.len(), self.output[1], self.values()]
    }

    /// Returns all windows as one piece.
    #[cfg(feature = "cube")]
    pub(crate) fn whole(&self) -> Piece {
        Piece { rows: 0..self.output[0], from: 0, fresh: 0, until: self.input[1] }
    }

    /// Returns the pieces in which a GPU convolves: windows have values several times, and take more memory than the tensor.
    /// A piece has the windows of all samples, so its size grows evenly with their number, and a plan for a few samples
    /// serves for many. A value has `width` bytes.
    pub(crate) fn pieces(&self, width: usize) -> Vec<Piece> {
        let rows = self.output[0];
        let bytes = rows * self.output[1] * self.values() * width;
        let count = bytes.div_ceil(PIECE_BYTES).clamp(1, PIECES_MAX).min(rows);
        let ([_, all, ..], [height, _], [down, _], [above, _]) = (self.input, self.kernel, self.stride, self.padding);
        let mut fresh = 0;
        let piece = |index: usize| {
            let rows = rows * index / count..rows * (index + 1) / count;
            let place = |row: usize| row.saturating_sub(above).min(all);
            let from = if index == 0 { 0 } else { place(rows.start * down) };
            let past = place((rows.end - 1) * down + height).max(place(rows.end * down));
            let until = if index + 1 == count { all } else { past };
            Piece { rows, from, fresh: std::mem::replace(&mut fresh, until), until }
        };
        (0..count).map(piece).collect()
    }

    /// Calls `visit` for each run of values that follow each other both in the tensor and in a window: the first place in
    /// the tensor, the first place among the windows, and the number of values.
    #[inline(always)]
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let ([b, r, q, c], [rows, columns], [k, l]) = (self.input, self.output, self.kernel);
        for window in 0..b * rows * columns {
            let (sample, row, column) = (window / (rows * columns), window / columns % rows, window % columns);
            // Places of the window's first row and column with the padding before the first.
            let (top, left) = (row * self.stride[0], column * self.stride[1]);
            let first = self.padding[1].saturating_sub(left).min(l);
            let last = (q + self.padding[1]).saturating_sub(left).min(l);
            if first >= last {
                continue;
            }
            for tap in 0..k {
                let Some(place) = (top + tap).checked_sub(self.padding[0]).filter(|&place| place < r) else { continue };
                let from = ((sample * r + place) * q + left + first - self.padding[1]) * c;
                visit(from, ((window * k + tap) * l + first) * c, (last - first) * c);
            }
        }
    }

    pub(crate) fn cut(&self, x: &[f32]) -> Vec<f32> {
        let mut windows = vec![0.0; self.shape().iter().product()];
        let sample = self.of_sample();
        let (values, cut) = (sample.input.iter().product(), sample.shape().iter().product());
        windows.par_chunks_mut(cut).zip(x.par_chunks(values)).for_each(|(windows, x)| {
            sample.runs(
                #[inline(always)]
                |from, to, count| windows[to..to + count].copy_from_slice(&x[from..from + count]),
            );
        });
        windows
    }

    /// Returns the windows of one sample: each thread takes whole samples.
    fn of_sample(&self) -> Self {
        let [_, rows, columns, channels] = self.input;
        Self { input: [1, rows, columns, channels], ..*self }
    }

    pub(crate) fn add(&self, windows: &[f32]) -> Vec<f32> {
        let mut x = vec![0.0; self.input.iter().product()];
        let sample = self.of_sample();
        let (values, cut) = (sample.input.iter().product(), sample.shape().iter().product());
        x.par_chunks_mut(values).zip(windows.par_chunks(cut)).for_each(|(x, windows)| {
            sample.runs(
                #[inline(always)]
                |from, to, count| {
                    let values = &windows[to..to + count];
                    x[from..from + count].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                },
            );
        });
        x
    }

    /// Cuts the windows with operations of Burn, one for each place in a window.
    pub(crate) fn composed(&self, x: Tensor<4>) -> Tensor<4> {
        let x = edged(edged(x, 1, self.padding[0]), 2, self.padding[1]);
        let tap = |row: usize, column: usize| {
            let range = |axis: usize, first: usize| {
                let past = first + (self.output[axis] - 1) * self.stride[axis] + 1;
                Slice::new(first as isize, Some(past as isize), self.stride[axis] as isize)
            };
            x.clone().slice([Slice::full(), range(0, row), range(1, column), Slice::full()])
        };
        let places = (0..self.kernel[0]).flat_map(|row| (0..self.kernel[1]).map(move |column| (row, column)));
        Tensor::cat(places.map(|(row, column)| tap(row, column)).collect(), 3)
    }
}

/// Adds `count` zeros at both ends of axis `axis`.
fn edged(x: Tensor<4>, axis: usize, count: usize) -> Tensor<4> {
    if count == 0 {
        return x;
    }
    let mut shape = x.dims();
    shape[axis] = count;
    let zeros = Tensor::<4>::zeros(shape, &x.device()).cast(x.dtype());
    Tensor::cat(vec![zeros.clone(), x, zeros], axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the windows over each row, piece by piece, by the rule of the kernel; `None` is a row that is never written.
    fn counted(geometry: &Geometry, pieces: &[Piece]) -> Vec<Option<usize>> {
        let ([_, rows, ..], [height, _], [down, _], [above, _]) =
            (geometry.input, geometry.kernel, geometry.stride, geometry.padding);
        let mut counts = vec![None; rows];
        for piece in pieces {
            let over = |row: usize| {
                let reaches = |window: &usize| (window * down..window * down + height).contains(&(row + above));
                piece.rows.clone().filter(reaches).count()
            };
            for (row, count) in counts.iter_mut().enumerate() {
                if (piece.from..piece.until).contains(&row) {
                    assert_eq!(row < piece.fresh, count.is_some(), "{geometry:?} {piece:?}");
                    *count = Some(count.unwrap_or(0) + over(row));
                } else {
                    assert_eq!(over(row), 0, "{geometry:?} {piece:?}");
                }
            }
        }
        counts
    }

    #[test]
    fn pieces_write_each_row_and_add_up_to_the_whole() {
        let mut numbers = [0; PIECES_MAX + 1];
        for case in 0..30 * 7 * 6 * 6 {
            let (rows, height, down, above) = (case % 30 + 1, case / 30 % 7 + 1, case / 210 % 6 + 1, case / 1260);
            if height > rows + 2 * above {
                continue;
            }
            let geometry = Geometry::new([1, rows, 1, 1], [height, 1], [down, 1], [above, 0]);
            for width in [4, 40_000, PIECE_BYTES] {
                let pieces = geometry.pieces(width);
                numbers[pieces.len()] += 1;
                let windows: Vec<usize> = pieces.iter().flat_map(|piece| piece.rows.clone()).collect();
                assert_eq!(windows, (0..geometry.output[0]).collect::<Vec<_>>());
                let found = counted(&geometry, &pieces);
                let found: Vec<f32> = found.iter().map(|count| count.map_or(f32::NAN, |count| count as f32)).collect();
                assert_eq!(found, geometry.add(&vec![1.0; geometry.output[0] * height]), "{geometry:?}");
            }
        }
        assert!(numbers[1..].iter().all(|&count| count > 100), "{numbers:?}");
    }
}
