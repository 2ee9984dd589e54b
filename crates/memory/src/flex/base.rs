//! Operations that move values without computing: views, copies, masks, selections and fills.

use plimsoll_tape::ir::{
    BaseOperationIr as Base, MaskFillOpIr, MaskWhereOpIr, OperationIr, ShapeOpIr, SliceAssignOpIr, SliceOpIr, TensorIr,
};

use super::{Flex, contiguous};
use crate::heap::{Heap, Value};

impl Flex<'_> {
    /// Simulates an operation that moves values without computing.
    pub(super) fn base(&mut self, base: &Base) {
        match base {
            Base::Reshape(op) => {
                let value = self.heap.take(&op.input);
                let value = self.reshape(value, &op.out.shape);
                self.heap.give(&op.out, value);
            }
            Base::SwapDims(op) => self.view(&op.input, &op.out, |value| {
                value.strides.swap(op.dim1, op.dim2);
            }),
            Base::Permute(op) => self.view(&op.input, &op.out, |value| {
                value.strides = op.axes.iter().map(|&axis| value.strides[axis]).collect();
            }),
            Base::Expand(op) => self.expand(op),
            Base::Slice(op) => self.slice(op),
            Base::Flip(op) => self.view(&op.input, &op.out, |value| {
                op.axes.iter().for_each(|&axis| value.strides[axis] *= -1);
            }),
            Base::Cat(op) => match op.tensors.as_slice() {
                [only] => self.view(only, &op.out, |_| {}),
                tensors => self.cat(tensors, op.dim, &op.out),
            },
            Base::SliceAssign(op) => self.slice_assign(op),
            Base::MaskFill(op) => self.mask_fill(op),
            Base::MaskWhere(op) => self.mask_where(op),
            Base::Gather(op) => self.gather(&op.tensor, &op.indices, &op.out),
            Base::Select(op) => self.gather(&op.tensor, &op.indices, &op.out),
            Base::Scatter(op) => self.scatter(&op.tensor, &op.indices, &op.value, &op.out),
            Base::SelectAssign(op) => self.scatter(&op.tensor, &op.indices, &op.value, &op.out),
            Base::Cast(op) => {
                if op.input.dtype == op.out.dtype {
                    return self.view(&op.input, &op.out, |_| {});
                }
                self.contiguous_inputs(&[&op.input], &op.out);
            }
            Base::Zeros(op) | Base::Empty(op) => {
                let value = self.heap.aligned(&op.out.shape, op.out.dtype.size());
                self.heap.give(&op.out, value);
            }
            other => self.fresh_outputs(&OperationIr::BaseFloat(other.clone())),
        }
    }

    /// Simulates an operation that allocates nothing: `out` shares the memory block of `input`, and only the layout
    /// differs. `change` sets the strides and the offset of `out`.
    fn view(&mut self, input: &TensorIr, out: &TensorIr, change: impl FnOnce(&mut Value)) {
        let mut value = self.heap.take(input);
        change(&mut value);
        value.shape = out.shape.to_vec();
        self.heap.give(out, value);
    }

    /// Simulates an expansion: a view with stride 0 along the axes that are broadcast.
    fn expand(&mut self, op: &ShapeOpIr) {
        self.view(&op.input, &op.out, |value| {
            let missing = op.out.shape.len() - value.shape.len();
            let stride = |axis: usize| {
                let Some(axis_in) = axis.checked_sub(missing) else { return 0 };
                if value.shape[axis_in] == op.out.shape[axis] { value.strides[axis_in] } else { 0 }
            };
            value.strides = (0..op.out.shape.len()).map(stride).collect();
        });
    }

    /// Simulates a slice: a view that starts later and may step over values.
    fn slice(&mut self, op: &SliceOpIr) {
        self.view(&op.tensor, &op.out, |value| {
            for (axis, range) in op.ranges.iter().enumerate() {
                let start = if range.start < 0 { value.shape[axis] as isize + range.start } else { range.start };
                value.offset += (start.max(0) * value.strides[axis]).unsigned_abs();
                value.strides[axis] *= range.step;
            }
        });
    }

    /// Simulates a concatenation, which always allocates a new block.
    fn cat(&mut self, tensors: &[TensorIr], axis: usize, out: &TensorIr) {
        let inputs: Vec<Value> = tensors.iter().map(|tensor| self.heap.take(tensor)).collect();
        let result = self.heap.fresh(&out.shape, out.dtype.size());
        let in_place = axis == 0 && inputs.iter().all(Value::is_contiguous);
        let read: Vec<Value> = match in_place {
            true => inputs,
            // Each input is released as soon as its copy exists.
            false => inputs.into_iter().map(|input| contiguous(self.heap, input)).collect(),
        };
        self.free(read);
        self.heap.give(out, result);
    }

    fn slice_assign(&mut self, op: &SliceAssignOpIr) {
        let (tensor, value) = (self.heap.take(&op.tensor), self.heap.take(&op.value));
        let read =
            if value.strides.iter().all(|&stride| stride == 0) { self.heap.share(&value) } else { self.read(&value) };
        let written = self.writable(tensor);
        self.heap.give(&op.out, written);
        self.free([read, value]);
    }

    /// Simulates `mask_fill`, which works in place in the tensor where possible.
    fn mask_fill(&mut self, op: &MaskFillOpIr) {
        let (tensor, mask) = (self.heap.take(&op.tensor), self.heap.take(&op.mask));
        let is_full = tensor.shape[..] == op.out.shape[..];
        let value = if self.heap.is_unique(&tensor) && tensor.is_contiguous() && is_full {
            tensor
        } else {
            let value = self.heap.fresh(&op.out.shape, op.out.dtype.size());
            self.heap.free(tensor);
            value
        };
        self.heap.give(&op.out, value);
        self.heap.free(mask);
    }

    /// Simulates `mask_where`, which works in place in the tensor or in the value where possible.
    fn mask_where(&mut self, op: &MaskWhereOpIr) {
        let (tensor, mask, value) = (self.heap.take(&op.tensor), self.heap.take(&op.mask), self.heap.take(&op.value));
        let fits = |heap: &Heap, v: &Value| heap.is_unique(v) && v.is_contiguous() && v.shape[..] == op.out.shape[..];
        let (result, freed) = if fits(self.heap, &tensor) {
            (tensor, vec![value])
        } else if fits(self.heap, &value) {
            (value, vec![tensor])
        } else {
            (self.heap.fresh(&op.out.shape, op.out.dtype.size()), vec![tensor, value])
        };
        self.heap.give(&op.out, result);
        self.free(freed);
        self.heap.free(mask);
    }

    /// Returns a block that may be written: the value's own block where no other tensor uses it, a copy otherwise.
    fn writable(&mut self, value: Value) -> Value {
        if self.heap.is_unique(&value) && value.is_contiguous() && value.offset == 0 {
            return value;
        }
        let value = contiguous(self.heap, value);
        if self.heap.is_unique(&value) {
            return value;
        }
        let copy = self.heap.fresh(&value.shape, value.width);
        self.heap.free(value);
        copy
    }

    /// Simulates `gather`, `select` and the lookup of embeddings.
    pub(super) fn gather(&mut self, tensor: &TensorIr, indices: &TensorIr, out: &TensorIr) {
        self.contiguous_inputs(&[tensor, indices], out);
    }

    /// Simulates `scatter` and `select_assign`, which work in place in the target where possible.
    fn scatter(&mut self, tensor: &TensorIr, indices: &TensorIr, value: &TensorIr, out: &TensorIr) {
        let (target, indices, value) = (self.heap.take(tensor), self.heap.take(indices), self.heap.take(value));
        let read = [self.read(&indices), self.read(&value)];
        // Indices are converted to 64 bits.
        let wide = self.heap.scratch(indices.count() * 8);
        let result = if self.heap.is_unique(&target) && target.is_contiguous() {
            target
        } else {
            let copy = self.heap.fresh(&target.shape, target.width);
            self.heap.free(target);
            copy
        };
        self.heap.give(out, result);
        self.free(read);
        self.free([wide, indices, value]);
    }
}
