//! What Burn's CPU backend (flex) does with memory, operation by operation: when it looks at what is there, when it
//! writes over it, when it takes more, and how much it uses for a moment.
//!
//! Read from the sources of burn-flex 0.22.1, whose functions have the same names; held by comparing whole steps with
//! the counting allocator (`memtest --verify`).

mod convolution;
mod product;

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{
    ActivationOperationIr as Activation, BaseOperationIr as Base, BinaryOpIr, FloatOperationIr as Float,
    ModuleOperationIr, NumericOperationIr as Numeric, OperationIr, TensorIr,
};

use crate::heap::{Heap, Value};

/// Does `operation` on `heap`, as the CPU would with `threads` threads.
pub(crate) fn apply(heap: &mut Heap, operation: &OperationIr, threads: usize) {
    if let Some(note) = CustomOp::parse(operation) {
        return noted(heap, operation, note);
    }
    let mut flex = Flex { heap, threads };
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => flex.base(base),
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => flex.numeric(numeric),
        OperationIr::Float(_, float) => flex.float(float),
        OperationIr::Activation(activation) => flex.activation(activation),
        OperationIr::Module(module) => flex.module(module),
        other => flex.plain(other),
    }
}

fn noted(heap: &mut Heap, operation: &OperationIr, note: CustomOp<'_>) {
    let inputs: Vec<Value> = operation.inputs().map(|input| heap.take(input)).collect();
    let outputs: Vec<&TensorIr> = operation.outputs().collect();
    match note {
        CustomOp::Mark(_) => {}
        CustomOp::Scratch { bytes, .. } => {
            let scratch = heap.scratch(bytes as usize);
            heap.free(scratch);
        }
        CustomOp::Contiguous => {
            let mut inputs = inputs;
            let value = contiguous(heap, inputs.remove(0));
            heap.give(outputs[0], value);
            return;
        }
        CustomOp::Make(_) => {
            for output in outputs {
                let value = heap.fresh(&output.shape, output.dtype.size());
                heap.give(output, value);
            }
        }
        CustomOp::Change { scratch, .. } => {
            let mut inputs = inputs.into_iter();
            let changed = inputs.next().expect("something is changed");
            let fresh = outputs.get(1).map(|output| heap.fresh(&output.shape, output.dtype.size()));
            let mut value = contiguous(heap, changed);
            if !heap.is_unique(&value) {
                let copy = heap.fresh(&value.shape, value.width);
                heap.free(value);
                value = copy;
            }
            let scratch = heap.scratch(scratch as usize);
            heap.free(scratch);
            inputs.for_each(|input| heap.free(input));
            heap.give(outputs[0], value);
            if let (Some(fresh), Some(output)) = (fresh, outputs.get(1)) {
                heap.give(output, fresh);
            }
            return;
        }
    }
    inputs.into_iter().for_each(|input| heap.free(input));
}

/// `into_contiguous`: the whole of a block, in order; a copy where it is not.
fn contiguous(heap: &mut Heap, value: Value) -> Value {
    if heap.is_whole(&value) {
        return value;
    }
    let copy = heap.fresh(&value.shape, value.width);
    heap.free(value);
    copy
}

struct Flex<'a> {
    heap: &'a mut Heap,
    threads: usize,
}

impl Flex<'_> {
    /// `to_contiguous` by reference: the value itself stays until the operation is done.
    fn read(&mut self, value: &Value) -> Value {
        let shared = self.heap.share(value);
        contiguous(self.heap, shared)
    }

    fn free(&mut self, values: impl IntoIterator<Item = Value>) {
        for value in values {
            self.heap.free(value);
        }
    }

    /// Another look at the same block.
    fn view(&mut self, input: &TensorIr, out: &TensorIr, look: impl FnOnce(&mut Value)) {
        let mut value = self.heap.take(input);
        look(&mut value);
        value.shape = out.shape.to_vec();
        self.heap.give(out, value);
    }

    fn reshape(&mut self, value: Value, shape: &[usize]) -> Value {
        let mut value = if value.is_contiguous() { value } else { contiguous(self.heap, value) };
        value.shape = shape.to_vec();
        value.strides = crate::heap::in_order(shape);
        value
    }

    /// Outputs are new, inputs are read as they stand.
    fn plain(&mut self, operation: &OperationIr) {
        let inputs: Vec<Value> = operation.inputs().map(|input| self.heap.take(input)).collect();
        for output in operation.outputs() {
            let value = self.heap.fresh(&output.shape, output.dtype.size());
            self.heap.give(output, value);
        }
        self.free(inputs);
    }

    /// The output is new, the inputs are read in order.
    fn ordered(&mut self, inputs: &[&TensorIr], out: &TensorIr) {
        let inputs: Vec<Value> = inputs.iter().map(|input| self.heap.take(input)).collect();
        let read: Vec<Value> = inputs.iter().map(|input| self.read(input)).collect();
        let value = self.heap.fresh(&out.shape, out.dtype.size());
        self.heap.give(out, value);
        self.free(read);
        self.free(inputs);
    }

    /// `unary_op` and `scalar_op`: in place where nobody else looks.
    fn unary(&mut self, value: Value) -> Value {
        if self.heap.is_unique(&value) && value.is_contiguous() && value.offset == 0 {
            return value;
        }
        // Where the block is looked at whole, its order is kept.
        let mut result = self.heap.fresh(&value.shape, value.width);
        if value.offset == 0 && is_permuted_whole(&value) {
            result.strides.clone_from(&value.strides);
        }
        self.heap.free(value);
        result
    }

    fn unary_op(&mut self, input: &TensorIr, out: &TensorIr) {
        let value = self.heap.take(input);
        let value = self.unary(value);
        self.heap.give(out, value);
    }

    /// `binary_op`: in place in the left operand, or in the right one, where its numbers are all there.
    fn binary(&mut self, left: Value, right: Value) -> Value {
        let shape: Vec<usize> = broadcast(&left.shape, &right.shape);
        let count: usize = shape.iter().product();
        let takes = |heap: &Heap, target: &Value| {
            heap.is_unique(target) && target.count() == count && target.is_contiguous() && target.offset == 0
        };
        if takes(self.heap, &left) {
            self.heap.free(right);
            return reread(left, shape);
        }
        if takes(self.heap, &right) {
            self.heap.free(left);
            return reread(right, shape);
        }
        let result = self.heap.fresh(&shape, left.width);
        self.free([left, right]);
        result
    }

    fn binary_op(&mut self, BinaryOpIr { lhs, rhs, out }: &BinaryOpIr) {
        let (left, right) = (self.heap.take(lhs), self.heap.take(rhs));
        let value = self.binary(left, right);
        self.heap.give(out, value);
    }

    /// `reduce_dim`: a copy in order where the strides cannot be flattened.
    fn reduced(&mut self, value: Value, axis: usize) -> Value {
        let inner = value.shape.len() - axis - 1;
        let is_half = value.width == 2;
        let copies = !value.is_contiguous() && (axis > 1 || inner > 1 || is_half);
        let read = if copies { self.read(&value) } else { self.heap.share(&value) };
        let mut shape = value.shape.clone();
        shape[axis] = 1;
        let result = self.heap.fresh(&shape, value.width);
        self.free([read, value]);
        result
    }

    fn base(&mut self, base: &Base) {
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
            Base::Expand(op) => self.view(&op.input, &op.out, |value| {
                let missing = op.out.shape.len() - value.shape.len();
                let stride = |axis: usize| {
                    let Some(axis_in) = axis.checked_sub(missing) else { return 0 };
                    if value.shape[axis_in] == op.out.shape[axis] { value.strides[axis_in] } else { 0 }
                };
                value.strides = (0..op.out.shape.len()).map(stride).collect();
            }),
            Base::Slice(op) => self.view(&op.tensor, &op.out, |value| {
                for (axis, range) in op.ranges.iter().enumerate() {
                    let start = if range.start < 0 { value.shape[axis] as isize + range.start } else { range.start };
                    value.offset += (start.max(0) * value.strides[axis]).unsigned_abs();
                    value.strides[axis] *= range.step;
                }
            }),
            Base::Flip(op) => self.view(&op.input, &op.out, |value| {
                op.axes.iter().for_each(|&axis| value.strides[axis] *= -1);
            }),
            Base::Cat(op) => match op.tensors.as_slice() {
                [only] => self.view(only, &op.out, |_| {}),
                tensors => self.cat(tensors, op.dim, &op.out),
            },
            Base::SliceAssign(op) => {
                let (tensor, value) = (self.heap.take(&op.tensor), self.heap.take(&op.value));
                let read = if value.strides.iter().all(|&stride| stride == 0) {
                    self.heap.share(&value)
                } else {
                    self.read(&value)
                };
                let written = self.written(tensor);
                self.heap.give(&op.out, written);
                self.free([read, value]);
            }
            Base::MaskFill(op) => {
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
            Base::MaskWhere(op) => {
                let (tensor, mask, value) =
                    (self.heap.take(&op.tensor), self.heap.take(&op.mask), self.heap.take(&op.value));
                let fits =
                    |heap: &Heap, v: &Value| heap.is_unique(v) && v.is_contiguous() && v.shape[..] == op.out.shape[..];
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
            Base::Gather(op) => self.indexed(&op.tensor, &op.indices, &op.out),
            Base::Select(op) => self.indexed(&op.tensor, &op.indices, &op.out),
            Base::Scatter(op) => self.scattered(&op.tensor, &op.indices, &op.value, &op.out),
            Base::SelectAssign(op) => self.scattered(&op.tensor, &op.indices, &op.value, &op.out),
            Base::Cast(op) => {
                if op.input.dtype == op.out.dtype {
                    return self.view(&op.input, &op.out, |_| {});
                }
                self.ordered(&[&op.input], &op.out);
            }
            Base::Zeros(op) | Base::Empty(op) => {
                let value = self.heap.aligned(&op.out.shape, op.out.dtype.size());
                self.heap.give(&op.out, value);
            }
            other => self.plain(&OperationIr::BaseFloat(other.clone())),
        }
    }

    fn cat(&mut self, tensors: &[TensorIr], axis: usize, out: &TensorIr) {
        let inputs: Vec<Value> = tensors.iter().map(|tensor| self.heap.take(tensor)).collect();
        let result = self.heap.fresh(&out.shape, out.dtype.size());
        let in_place = axis == 0 && inputs.iter().all(Value::is_contiguous);
        let read: Vec<Value> = match in_place {
            true => inputs,
            // Each is given up for its copy in turn.
            false => inputs.into_iter().map(|input| contiguous(self.heap, input)).collect(),
        };
        self.free(read);
        self.heap.give(out, result);
    }

    /// What is written into: the value itself where nobody else looks at it.
    fn written(&mut self, value: Value) -> Value {
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

    fn indexed(&mut self, tensor: &TensorIr, indices: &TensorIr, out: &TensorIr) {
        self.ordered(&[tensor, indices], out);
    }

    fn scattered(&mut self, tensor: &TensorIr, indices: &TensorIr, value: &TensorIr, out: &TensorIr) {
        let (target, indices, value) = (self.heap.take(tensor), self.heap.take(indices), self.heap.take(value));
        let read = [self.read(&indices), self.read(&value)];
        // Indices are read as 64 bits.
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

    fn numeric(&mut self, numeric: &Numeric) {
        match numeric {
            Numeric::Add(op) | Numeric::Sub(op) | Numeric::Mul(op) | Numeric::Div(op) | Numeric::Rem(op) => {
                self.binary_op(op);
            }
            Numeric::AddScalar(op)
            | Numeric::SubScalar(op)
            | Numeric::MulScalar(op)
            | Numeric::DivScalar(op)
            | Numeric::RemScalar(op)
            | Numeric::PowiScalar(op)
            | Numeric::ClampMin(op)
            | Numeric::ClampMax(op) => self.unary_op(&op.lhs, &op.out),
            Numeric::Abs(op) | Numeric::Neg(op) | Numeric::Sign(op) => self.unary_op(&op.input, &op.out),
            Numeric::Clamp(op) => self.unary_op(&op.tensor, &op.out),
            Numeric::SumDim(op) | Numeric::MeanDim(op) | Numeric::MaxDim(op) | Numeric::MinDim(op) => {
                let value = self.heap.take(&op.input);
                let value = self.reduced(value, op.axis);
                self.heap.give(&op.out, value);
            }
            Numeric::SumDims(op) => {
                let mut value = self.heap.take(&op.input);
                for &axis in &op.axes {
                    value = self.reduced(value, axis);
                }
                self.heap.give(&op.out, value);
            }
            other => self.plain(&OperationIr::NumericFloat(burn::tensor::DType::F32, other.clone())),
        }
    }

    fn float(&mut self, float: &Float) {
        match float {
            Float::Matmul(op) => self.product(op),
            Float::Exp(op)
            | Float::Log(op)
            | Float::Log1p(op)
            | Float::Erf(op)
            | Float::Sqrt(op)
            | Float::Cos(op)
            | Float::Sin(op)
            | Float::Tanh(op)
            | Float::Recip(op)
            | Float::Round(op)
            | Float::Floor(op)
            | Float::Ceil(op)
            | Float::Trunc(op) => self.unary_op(&op.input, &op.out),
            Float::PowfScalar(op) => self.unary_op(&op.lhs, &op.out),
            Float::Powf(op) | Float::ArcTan2(op) | Float::Hypot(op) => self.binary_op(op),
            other => self.plain(&OperationIr::Float(burn::tensor::DType::F32, other.clone())),
        }
    }

    fn activation(&mut self, activation: &Activation) {
        match activation {
            Activation::Relu(op) | Activation::Sigmoid(op) | Activation::Gelu(op) | Activation::LogSigmoid(op) => {
                self.unary_op(&op.input, &op.out);
            }
            Activation::LeakyRelu(op) => self.unary_op(&op.lhs, &op.out),
            Activation::ReluBackward(op)
            | Activation::SigmoidBackward(op)
            | Activation::GeluBackward(op)
            | Activation::LogSigmoidBackward(op) => self.binary_op(op),
            Activation::Softmax(op) => self.ordered(&[&op.input], &op.out),
            Activation::LogSoftmax(op) => {
                let value = self.heap.take(&op.input);
                let axis = op.axis;
                let again = self.heap.share(&value);
                let highest = self.reduced(again, axis);
                let shifted = self.binary(value, highest);
                let again = self.heap.share(&shifted);
                let raised = self.unary(again);
                let summed = self.reduced(raised, axis);
                let result = self.binary(shifted, summed);
                self.heap.give(&op.out, result);
            }
            other => self.plain(&OperationIr::Activation(other.clone())),
        }
    }

    fn module(&mut self, module: &ModuleOperationIr) {
        match module {
            ModuleOperationIr::Embedding(op) => self.indexed(&op.weights, &op.indices, &op.out),
            ModuleOperationIr::EmbeddingBackward(op) => {
                let (indices, gradient) = (self.heap.take(&op.indices), self.heap.take(&op.out_grad));
                let result = self.heap.aligned(&op.out.shape, op.out.dtype.size());
                let read = [self.read(&indices), self.read(&gradient)];
                let wide = self.heap.scratch(indices.count() * 8);
                self.heap.give(&op.out, result);
                self.free(read);
                self.free([wide, indices, gradient]);
            }
            ModuleOperationIr::Conv1d(op) => {
                let (x, weight) = (self.heap.take(&op.x), self.heap.take(&op.weight));
                let bias = op.bias.as_ref().map(|bias| self.heap.take(bias));
                let value = self.convolved(x, weight, &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(bias);
            }
            ModuleOperationIr::Conv2d(op) => {
                let (x, weight) = (self.heap.take(&op.x), self.heap.take(&op.weight));
                let bias = op.bias.as_ref().map(|bias| self.heap.take(bias));
                let value = self.convolved(x, weight, &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(bias);
            }
            ModuleOperationIr::Conv1dXBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.weight), self.heap.take(&op.output_grad)];
                let value = self.transposed(&all[2], &all[1], &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(all);
            }
            ModuleOperationIr::Conv2dXBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.weight), self.heap.take(&op.output_grad)];
                let value = self.transposed(&all[2], &all[1], &op.out.shape, op.options.groups);
                self.heap.give(&op.out, value);
                self.free(all);
            }
            ModuleOperationIr::Conv1dWeightBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.output_grad)];
                let weight = self.heap.take(&op.weight);
                self.weight_gradient(all, &op.out, op.options.groups);
                self.heap.free(weight);
            }
            ModuleOperationIr::Conv2dWeightBackward(op) => {
                let all = [self.heap.take(&op.x), self.heap.take(&op.output_grad)];
                let weight = self.heap.take(&op.weight);
                self.weight_gradient(all, &op.out, op.options.groups);
                self.heap.free(weight);
            }
            ModuleOperationIr::Conv1dBiasBackward(op) => self.bias_gradient(&op.output_grad, &op.x, &op.bias, &op.out),
            ModuleOperationIr::Conv2dBiasBackward(op) => self.bias_gradient(&op.output_grad, &op.x, &op.bias, &op.out),
            other => self.plain(&OperationIr::Module(other.clone())),
        }
    }
}

/// The numbers of `value`, which lie in order, as `shape`.
fn reread(mut value: Value, shape: Vec<usize>) -> Value {
    value.strides = crate::heap::in_order(&shape);
    value.shape = shape;
    value
}

/// Whether the numbers of `value` are those of a block in some order of its axes.
fn is_permuted_whole(value: &Value) -> bool {
    let mut axes: Vec<(isize, usize)> = value.strides.iter().copied().zip(value.shape.iter().copied()).collect();
    axes.retain(|&(_, length)| length != 1);
    axes.sort_unstable();
    let mut expected = 1;
    axes.iter().all(|&(stride, length)| {
        let fits = stride == expected;
        expected *= length as isize;
        fits
    })
}

fn broadcast(left: &[usize], right: &[usize]) -> Vec<usize> {
    let rank = left.len().max(right.len());
    let length = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| length(left, axis).max(length(right, axis))).collect()
}
