//! Operations that compute each value from the values at the same position, and reductions.

use plimsoll_tape::ir::{
    ActivationOperationIr as Activation, BinaryOpIr, FloatOperationIr as Float, NumericOperationIr as Numeric,
    OperationIr, TensorIr,
};

use super::Flex;
use crate::heap::{Heap, Value, contiguous_strides};

impl Flex<'_> {
    /// Simulates arithmetic and reductions.
    pub(super) fn numeric(&mut self, numeric: &Numeric) {
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
                let value = self.reduce(value, op.axis);
                self.heap.give(&op.out, value);
            }
            Numeric::SumDims(op) => {
                let mut value = self.heap.take(&op.input);
                for &axis in &op.axes {
                    value = self.reduce(value, axis);
                }
                self.heap.give(&op.out, value);
            }
            other => self.fresh_outputs(&OperationIr::NumericFloat(burn::tensor::DType::F32, other.clone())),
        }
    }

    /// Simulates functions of floats, and matrix products.
    pub(super) fn float(&mut self, float: &Float) {
        match float {
            Float::Matmul(op) => self.matmul(op),
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
            other => self.fresh_outputs(&OperationIr::Float(burn::tensor::DType::F32, other.clone())),
        }
    }

    /// Simulates activation functions and their gradients.
    pub(super) fn activation(&mut self, activation: &Activation) {
        match activation {
            Activation::Relu(op) | Activation::Sigmoid(op) | Activation::Gelu(op) | Activation::LogSigmoid(op) => {
                self.unary_op(&op.input, &op.out);
            }
            Activation::LeakyRelu(op) => self.unary_op(&op.lhs, &op.out),
            Activation::ReluBackward(op)
            | Activation::SigmoidBackward(op)
            | Activation::GeluBackward(op)
            | Activation::LogSigmoidBackward(op) => self.binary_op(op),
            Activation::Softmax(op) => self.contiguous_inputs(&[&op.input], &op.out),
            Activation::LogSoftmax(op) => {
                let value = self.heap.take(&op.input);
                let axis = op.axis;
                let again = self.heap.share(&value);
                let highest = self.reduce(again, axis);
                let shifted = self.binary(value, highest);
                let again = self.heap.share(&shifted);
                let raised = self.unary(again);
                let summed = self.reduce(raised, axis);
                let result = self.binary(shifted, summed);
                self.heap.give(&op.out, result);
            }
            other => self.fresh_outputs(&OperationIr::Activation(other.clone())),
        }
    }

    /// Simulates flex's `unary_op` and `scalar_op`, which work in place where no other tensor uses the block.
    fn unary(&mut self, value: Value) -> Value {
        if self.heap.is_unique(&value) && value.is_contiguous() && value.offset == 0 {
            return value;
        }
        // A permuted whole block keeps its layout.
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

    /// Simulates flex's `binary_op`: in place in the left operand, or else in the right operand, if the operand has the
    /// full size.
    fn binary(&mut self, left: Value, right: Value) -> Value {
        let shape: Vec<usize> = broadcast(&left.shape, &right.shape);
        let count: usize = shape.iter().product();
        let takes = |heap: &Heap, target: &Value| {
            heap.is_unique(target) && target.count() == count && target.is_contiguous() && target.offset == 0
        };
        if takes(self.heap, &left) {
            self.heap.free(right);
            return with_shape(left, shape);
        }
        if takes(self.heap, &right) {
            self.heap.free(left);
            return with_shape(right, shape);
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

    /// Simulates flex's `reduce_dim`, with a contiguous copy where the strides cannot be flattened.
    pub(super) fn reduce(&mut self, value: Value, axis: usize) -> Value {
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
}

/// Returns the contiguous `value` with its elements arranged in `shape`.
fn with_shape(mut value: Value, shape: Vec<usize>) -> Value {
    value.strides = contiguous_strides(&shape);
    value.shape = shape;
    value
}

/// Returns whether the elements of `value` lie in memory without gaps, with the axes in any order.
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

/// Computes the shape to which `left` and `right` are broadcast.
fn broadcast(left: &[usize], right: &[usize]) -> Vec<usize> {
    let rank = left.len().max(right.len());
    let length = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| length(left, axis).max(length(right, axis))).collect()
}
