//! Convolutions and their gradients. flex computes all of them in three dimensions.

use plimsoll_tape::ir::TensorIr;

use super::Flex;
use crate::heap::Value;

/// Number of output positions whose inputs a convolution gathers at a time, as the columns of one tile (im2col).
const TILE: usize = 512;
/// Largest size, in bytes, of the columns (im2col) that a transposed convolution holds at a time for one group of
/// channels of one sample.
const COLUMNS_BYTES: usize = 8 << 20;

impl Flex<'_> {
    /// Simulates flex's `conv3d_impl`: rearranges input and kernels, and allocates a tile of columns for each thread.
    pub(super) fn convolution(&mut self, x: Value, weight: Value, out: &[usize], groups: usize) -> Value {
        let is_bf16 = x.width == 2;
        let read = [&x, &weight].map(|value| if is_bf16 { self.widen(value) } else { self.read(value) });
        let (inputs, outputs) = (x.shape[1], weight.shape[0]);
        let (is_depthwise, is_small) = (groups == inputs && groups > 1, groups == 1 && inputs <= 4 && outputs <= 16);
        let result = if is_depthwise || is_small {
            self.heap.fresh(out, 4)
        } else {
            let kernels = self.heap.fresh(&weight.shape, 4);
            let rearranged = self.heap.fresh(&x.shape, 4);
            let result = self.heap.fresh(out, 4);
            let columns: usize = weight.shape[1..].iter().product();
            let space: usize = out[2..].iter().product();
            let tile = space.min(TILE);
            let tiles = (out[0] * space.div_ceil(TILE)).min(self.threads);
            let scratch = self.heap.scratch(tiles * (columns + outputs / groups) * tile * 4);
            self.free([scratch, kernels, rearranged]);
            result
        };
        self.free(read);
        let result = if is_bf16 { self.narrow(result) } else { result };
        self.free([x, weight]);
        result
    }

    /// Simulates flex's `convert_bf16_to_f32`: makes a contiguous copy, and then a copy in 32 bits.
    fn widen(&mut self, value: &Value) -> Value {
        let read = self.read(value);
        let wide = self.heap.fresh(&value.shape, 4);
        self.heap.free(read);
        wide
    }

    /// Allocates the result in 16 bits, while the result in 32 bits still exists.
    fn narrow(&mut self, wide: Value) -> Value {
        let narrow = self.heap.fresh(&wide.shape, 2);
        self.heap.free(wide);
        narrow
    }

    /// Simulates flex's `conv_transpose3d_impl`: allocates the result, and columns for each sample that is computed at
    /// the same time.
    pub(super) fn transposed_convolution(
        &mut self,
        gradient: &Value,
        weight: &Value,
        out: &[usize],
        groups: usize,
    ) -> Value {
        let is_bf16 = gradient.width == 2;
        let read = [gradient, weight].map(|value| if is_bf16 { self.widen(value) } else { self.read(value) });
        let result = self.heap.fresh(out, 4);
        let column: usize = weight.shape[1..].iter().product();
        let space: usize = gradient.shape[2..].iter().product();
        let tile = (COLUMNS_BYTES / 4 / column.max(1)).clamp(1, space.max(1));
        let together = (gradient.shape[0] * groups).min(self.threads);
        let columns = self.heap.scratch(together * column * tile * 4);
        self.heap.free(columns);
        self.free(read);
        if is_bf16 { self.narrow(result) } else { result }
    }

    /// Simulates flex's `conv_weight_grad_no_groups`: convolves the input with the gradient, with samples and channels
    /// exchanged.
    pub(super) fn weight_gradient(&mut self, [mut x, mut gradient]: [Value; 2], out: &TensorIr, groups: usize) {
        for value in [&mut x, &mut gradient] {
            value.shape.swap(0, 1);
            value.strides.swap(0, 1);
        }
        let mut shape = out.shape.to_vec();
        shape.swap(0, 1);
        let value = match groups {
            1 => self.convolution(x, gradient, &shape, 1),
            _ => {
                self.free([x, gradient]);
                self.heap.fresh(&out.shape, out.dtype.size())
            }
        };
        self.heap.give(out, value);
    }

    /// Simulates the gradient of the bias: a contiguous copy by channels, and its sum.
    pub(super) fn bias_gradient(&mut self, gradient: &TensorIr, x: &TensorIr, bias: &TensorIr, out: &TensorIr) {
        let others = [self.heap.take(x), self.heap.take(bias)];
        let mut value = self.heap.take(gradient);
        value.shape.swap(0, 1);
        value.strides.swap(0, 1);
        let (channels, count) = (value.shape[0], value.count());
        let value = self.reshape(value, &[channels, count / channels.max(1)]);
        let value = self.reduce(value, 1);
        self.heap.give(out, value);
        self.free(others);
    }
}
