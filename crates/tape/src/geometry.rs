//! Where the windows of a tensor lie, and the values in them.

use burn::tensor::{Slice, Tensor};

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
        self.runs(
            #[inline(always)]
            |from, to, count| windows[to..to + count].copy_from_slice(&x[from..from + count]),
        );
        windows
    }

    pub(crate) fn add(&self, windows: &[f32]) -> Vec<f32> {
        let mut x = vec![0.0; self.input.iter().product()];
        self.runs(
            #[inline(always)]
            |from, to, count| {
                let values = &windows[to..to + count];
                x[from..from + count].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            },
        );
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
