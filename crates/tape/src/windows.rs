//! Windows that overlap: cut out of a tensor for a convolution or a spectrum, and added up to a signal again.

use burn::tensor::{Slice, Tensor};

use crate::host::{HostOp, Input, is_host, run};

// Shapes: b samples, r rows, q columns, c channels, t frames, w values of a frame.

/// Cuts windows of `kernel` rows and columns out of `x` `[samples, rows, columns, channels]`, one window every `stride`
/// rows and columns, after zeros of `padding` rows and columns at each edge. Returns `[samples, rows, columns, values]`:
/// the values of a window, in the order rows, columns, channels.
///
/// One matrix product with the result is a convolution with these strides. With one row and one channel the windows are
/// the frames of a signal.
///
/// # Panics
/// If a kernel or a stride is 0, or a kernel is longer than its axis with padding.
pub fn cut(x: Tensor<4>, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Tensor<4> {
    let geometry = Geometry::new(x.dims(), kernel, stride, padding);
    if is_host(&x) {
        let shape = geometry.shape();
        return run(Cut(geometry), [Input::new(x)], shape);
    }
    geometry.composed(x)
}

/// Adds up frames `[samples, frames, values]` that begin `hop` values after each other: `[samples, values of the signal]`.
/// The signal ends with the last frame.
///
/// # Panics
/// If `hop` is 0, or there is no frame.
pub fn overlap_add(frames: Tensor<3>, hop: usize) -> Tensor<2> {
    let [b, t, w] = frames.dims();
    assert!(t > 0 && hop > 0, "a signal needs frames and a hop");
    let length = (t - 1) * hop + w;
    if is_host(&frames) {
        let geometry = Geometry::new([b, 1, length, 1], [1, w], [1, hop], [0, 0]);
        return run(Add(geometry), [Input::new(frames)], [b, length]);
    }
    // Blocks of one hop: block `i` of frame `j` belongs to block `i + j` of the signal.
    let blocks = w.div_ceil(hop);
    let missing = Tensor::<3>::zeros([b, t, blocks * hop - w], &frames.device()).cast(frames.dtype());
    let frames = Tensor::cat(vec![frames, missing], 2);
    let zeros = |count: usize| Tensor::<3>::zeros([b, count, hop], &frames.device()).cast(frames.dtype());
    let shifted = |block: usize| {
        let values = frames.clone().narrow(2, block * hop, hop);
        Tensor::cat(vec![zeros(block), values, zeros(blocks - 1 - block)], 1)
    };
    let sum = (0..blocks).map(shifted).reduce(|sum, block| sum + block).expect("a frame has values");
    sum.reshape([b, (t + blocks - 1) * hop]).narrow(1, 0, length)
}

/// Places of the windows of a tensor.
#[derive(Clone, Debug)]
struct Geometry {
    /// Samples, rows, columns and channels of the tensor.
    input: [usize; 4],
    /// Rows and columns of windows.
    output: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Geometry {
    fn new(input: [usize; 4], kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Self {
        let output = std::array::from_fn(|axis| {
            let (k, s, length) = (kernel[axis], stride[axis], input[axis + 1] + 2 * padding[axis]);
            assert!(k > 0 && s > 0 && k <= length, "a window of {k} every {s} does not fit {length}");
            (length - k) / s + 1
        });
        Self { input, output, kernel, stride, padding }
    }

    fn shape(&self) -> [usize; 4] {
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

    fn cut(&self, x: &[f32]) -> Vec<f32> {
        let mut windows = vec![0.0; self.shape().iter().product()];
        self.runs(
            #[inline(always)]
            |from, to, count| windows[to..to + count].copy_from_slice(&x[from..from + count]),
        );
        windows
    }

    fn add(&self, windows: &[f32]) -> Vec<f32> {
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
    fn composed(&self, x: Tensor<4>) -> Tensor<4> {
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

#[derive(Clone, Debug)]
struct Cut(Geometry);

impl HostOp<1> for Cut {
    const NAME: &'static str = "windows";
    const KEEPS_INPUTS: bool = false;

    fn forward(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        self.0.cut(x)
    }

    fn backward(&self, _: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        [Some(self.0.add(grad_output))]
    }
}

#[derive(Clone, Debug)]
struct Add(Geometry);

impl HostOp<1> for Add {
    const NAME: &'static str = "overlap_add";
    const KEEPS_INPUTS: bool = false;

    fn forward(&self, [frames]: [&[f32]; 1]) -> Vec<f32> {
        self.0.add(frames)
    }

    fn backward(&self, _: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        [Some(self.0.cut(grad_output))]
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::Key;

    use super::*;

    fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<D> {
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| Key::new(5).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex().autodiff()).require_grad()
    }

    /// Computes `f` of random values, and the gradient of the sum of squares of the result.
    fn both<const D: usize, const E: usize>(shape: [usize; D], f: impl Fn(Tensor<D>) -> Tensor<E>) -> [Vec<f32>; 2] {
        let x = tensor(shape);
        let y = f(x.clone());
        let gradients = y.clone().square().sum().backward();
        [y.into_data(), x.grad(&gradients).unwrap().into_data()].map(|data| data.try_into_vec::<f32>().unwrap())
    }

    #[test]
    fn windows_equal_those_of_burns_operations() {
        for (shape, kernel, stride, padding) in [
            ([2, 1, 11, 1], [1, 4], [1, 3], [0, 0]),
            ([2, 5, 7, 3], [3, 4], [2, 2], [1, 1]),
            ([1, 4, 6, 2], [1, 5], [1, 3], [0, 2]),
            ([1, 3, 2, 2], [3, 5], [1, 1], [1, 3]),
        ] {
            let ours = both(shape, |x| cut(x, kernel, stride, padding));
            let theirs = both(shape, |x| Geometry::new(shape, kernel, stride, padding).composed(x));
            assert_eq!(ours[0], theirs[0], "{shape:?}");
            assert!(ours[1].iter().zip(&theirs[1]).all(|(a, b)| (a - b).abs() < 1e-5), "{shape:?}");
        }
    }

    #[test]
    fn overlapping_frames_are_added() {
        let frames = Tensor::<3>::from_data([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]], &Device::flex());
        let signal = |frames: Tensor<3>, hop| overlap_add(frames, hop).into_data().try_into_vec_as::<f32>().unwrap();
        for (hop, expected) in [(1, &[1.0, 12.0, 23.0, 30.0][..]), (2, &[1.0, 2.0, 13.0, 20.0, 30.0])] {
            assert_eq!(signal(frames.clone(), hop), expected);
            // In 16 bits the operations of Burn compute it; these numbers are exact.
            assert_eq!(signal(frames.clone().cast(burn::tensor::FloatDType::BF16), hop), expected);
        }
    }

    #[test]
    fn gradient_of_overlapping_frames_is_cut_from_the_signal() {
        let [signal, gradient] = both([2, 4, 5], |frames| overlap_add(frames, 2));
        assert_eq!(signal.len(), 2 * 11);
        for (index, found) in gradient.iter().enumerate() {
            let (sample, frame, value) = (index / 20, index / 5 % 4, index % 5);
            assert!((found - 2.0 * signal[sample * 11 + frame * 2 + value]).abs() < 1e-6);
        }
    }
}
