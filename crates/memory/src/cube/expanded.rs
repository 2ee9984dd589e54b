//! Operations as fusion sees them: an activation is recorded as one operation, and fusion gets the arithmetic that
//! computes it.
//!
//! Follows the default activations of `burn-backend` 0.22.1 (`backend/ops/activation.rs`). Rare ones stay one operation.

use burn::tensor::{BoolStore, DType};
use plimsoll_tape::ir::{
    ActivationOperationIr as Activation, BaseOperationIr as Base, BinaryOpIr, CreationOpIr, DimOpIr,
    FloatOperationIr as Float, MaskFillOpIr, NumericOperationIr as Numeric, OperationIr, ReduceDimOpIr, ScalarIr,
    ScalarOpIr, TensorId, TensorIr, TensorStatus, UnaryOpIr,
};

/// Returns `operations` with arithmetic in the place of activations.
pub(crate) fn expanded(operations: &[OperationIr]) -> Vec<OperationIr> {
    let tensors = operations.iter().flat_map(|operation| operation.inputs().chain(operation.outputs()));
    let next = tensors.map(|tensor| tensor.id.value()).max().map_or(0, |last| last + 1);
    let mut expansion = Expansion { operations: Vec::with_capacity(operations.len()), next };
    operations.iter().for_each(|operation| expansion.add(operation));
    expansion.operations
}

struct Expansion {
    operations: Vec<OperationIr>,
    /// Id of the next tensor.
    next: u64,
}

/// The same tensor, which a later operation reads too.
fn shared(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::ReadOnly, ..tensor.clone() }
}

/// A number, whose value takes no memory.
const NUMBER: ScalarIr = ScalarIr::Float(0.0);

impl Expansion {
    fn add(&mut self, operation: &OperationIr) {
        match operation {
            OperationIr::Activation(activation) => self.add_activation(operation, activation),
            OperationIr::NumericFloat(dtype, Numeric::Sign(op)) => {
                let zeros = self.made(&op.out);
                let made = OperationIr::BaseFloat(Base::Zeros(CreationOpIr { out: initial(&zeros) }));
                self.operations.push(made);
                let is_below = self.compared(Numeric::LowerElem, shared(&op.input));
                let is_above = self.compared(Numeric::GreaterElem, op.input.clone());
                let out = self.made(&op.out);
                self.filled((zeros, is_below), out.clone());
                self.filled((out, is_above), TensorIr { dtype: *dtype, ..op.out.clone() });
            }
            OperationIr::NumericFloat(_, Numeric::ClampMin(op)) => {
                let mask = self.compared(Numeric::LowerElem, shared(&op.lhs));
                self.filled((op.lhs.clone(), mask), op.out.clone());
            }
            OperationIr::NumericFloat(_, Numeric::ClampMax(op)) => {
                let mask = self.compared(Numeric::GreaterElem, shared(&op.lhs));
                self.filled((op.lhs.clone(), mask), op.out.clone());
            }
            other => self.operations.push(other.clone()),
        }
    }

    fn add_activation(&mut self, operation: &OperationIr, activation: &Activation) {
        match activation {
            Activation::Relu(UnaryOpIr { input, out }) => {
                let mask = self.compared(Numeric::LowerEqualElem, shared(input));
                self.filled((input.clone(), mask), out.clone());
            }
            Activation::ReluBackward(BinaryOpIr { lhs, rhs, out }) => {
                let mask = self.compared(Numeric::LowerEqualElem, lhs.clone());
                self.filled((rhs.clone(), mask), out.clone());
            }
            Activation::Sigmoid(UnaryOpIr { input, out }) => self.add_sigmoid(input, out),
            Activation::SigmoidBackward(BinaryOpIr { lhs, rhs, out }) => {
                let negative = self.scaled(Numeric::MulScalar, shared(lhs), None);
                let rest = self.scaled(Numeric::AddScalar, negative, None);
                let value = self.binary(Numeric::Mul, (lhs.clone(), rest), None);
                self.binary(Numeric::Mul, (value, rhs.clone()), Some(out));
            }
            Activation::LogSigmoid(UnaryOpIr { input, out }) => self.add_log_sigmoid(input, out),
            Activation::Gelu(UnaryOpIr { input, out }) => {
                let x = self.scaled(Numeric::DivScalar, shared(input), None);
                let x = self.unary(Float::Erf, x);
                let x = self.scaled(Numeric::AddScalar, x, None);
                let x = self.binary(Numeric::Mul, (input.clone(), x), None);
                self.scaled(Numeric::DivScalar, x, Some(out));
            }
            Activation::Softmax(DimOpIr { input, out, axis }) => {
                let exponentials = self.exponentials((input, *axis));
                let sum = self.reduced(Numeric::SumDim, (shared(&exponentials), *axis));
                self.binary(Numeric::Div, (exponentials, sum), Some(out));
            }
            Activation::LogSoftmax(DimOpIr { input, out, axis }) => {
                let maximum = self.reduced(Numeric::MaxDim, (shared(input), *axis));
                let shifted = self.binary(Numeric::Sub, (input.clone(), maximum), None);
                let exponentials = self.unary(Float::Exp, shared(&shifted));
                let sum = self.reduced(Numeric::SumDim, (exponentials, *axis));
                let logarithm = self.unary(Float::Log, sum);
                self.binary(Numeric::Sub, (shifted, logarithm), Some(out));
            }
            _ => self.operations.push(operation.clone()),
        }
    }

    fn add_sigmoid(&mut self, input: &TensorIr, out: &TensorIr) {
        let x = self.scaled(Numeric::MulScalar, input.clone(), None);
        let x = self.unary(Float::Exp, x);
        let x = self.scaled(Numeric::AddScalar, x, None);
        let x = self.unary(Float::Log, x);
        let x = self.scaled(Numeric::MulScalar, x, None);
        let op = UnaryOpIr { input: x, out: out.clone() };
        self.operations.push(OperationIr::Float(out.dtype, Float::Exp(op)));
    }

    fn add_log_sigmoid(&mut self, input: &TensorIr, out: &TensorIr) {
        let negative = self.scaled(Numeric::MulScalar, input.clone(), None);
        let mask = self.compared(Numeric::LowerElem, shared(&negative));
        let largest = self.made(out);
        self.filled((shared(&negative), mask), largest.clone());
        let shift = self.scaled(Numeric::MulScalar, shared(&largest), None);
        let first = self.unary(Float::Exp, shared(&shift));
        let rest = self.binary(Numeric::Sub, (negative, largest), None);
        let second = self.unary(Float::Exp, rest);
        let sum = self.binary(Numeric::Add, (first, second), None);
        let logarithm = self.unary(Float::Log, sum);
        self.binary(Numeric::Sub, (shift, logarithm), Some(out));
    }

    /// Adds what a softmax along `axis` begins with.
    fn exponentials(&mut self, (input, axis): (&TensorIr, usize)) -> TensorIr {
        let maximum = self.reduced(Numeric::MaxDim, (shared(input), axis));
        let shifted = self.binary(Numeric::Sub, (input.clone(), maximum), None);
        self.unary(Float::Exp, shifted)
    }

    /// Returns a new tensor with the shape and the type of another, as its last reader has it.
    fn made(&mut self, like: &TensorIr) -> TensorIr {
        self.next += 1;
        TensorIr { id: TensorId::new(self.next - 1), status: TensorStatus::ReadWrite, ..like.clone() }
    }

    fn compared(&mut self, make: fn(ScalarOpIr) -> Numeric, lhs: TensorIr) -> TensorIr {
        let dtype = lhs.dtype;
        let mask = TensorIr { dtype: DType::Bool(BoolStore::U32), ..self.made(&lhs) };
        let op = ScalarOpIr { lhs, rhs: NUMBER, out: initial(&mask) };
        self.operations.push(OperationIr::NumericFloat(dtype, make(op)));
        mask
    }

    fn filled(&mut self, (tensor, mask): (TensorIr, TensorIr), out: TensorIr) {
        let op = MaskFillOpIr { tensor, mask, value: NUMBER, out: initial(&out) };
        self.operations.push(OperationIr::BaseFloat(Base::MaskFill(op)));
    }

    fn scaled(&mut self, make: fn(ScalarOpIr) -> Numeric, lhs: TensorIr, out: Option<&TensorIr>) -> TensorIr {
        let out = out.cloned().unwrap_or_else(|| self.made(&lhs));
        let op = ScalarOpIr { lhs, rhs: NUMBER, out: initial(&out) };
        self.operations.push(OperationIr::NumericFloat(out.dtype, make(op)));
        out
    }

    fn unary(&mut self, make: fn(UnaryOpIr) -> Float, input: TensorIr) -> TensorIr {
        let out = self.made(&input);
        let op = UnaryOpIr { input, out: initial(&out) };
        self.operations.push(OperationIr::Float(out.dtype, make(op)));
        out
    }

    fn binary(
        &mut self,
        make: fn(BinaryOpIr) -> Numeric,
        (lhs, rhs): (TensorIr, TensorIr),
        out: Option<&TensorIr>,
    ) -> TensorIr {
        let out = out.cloned().unwrap_or_else(|| self.made(&lhs));
        let op = BinaryOpIr { lhs, rhs, out: initial(&out) };
        self.operations.push(OperationIr::NumericFloat(out.dtype, make(op)));
        out
    }

    fn reduced(&mut self, make: fn(ReduceDimOpIr) -> Numeric, (input, axis): (TensorIr, usize)) -> TensorIr {
        let mut out = self.made(&input);
        out.shape[axis] = 1;
        let op = ReduceDimOpIr { accumulator_len: 1, axis, out: initial(&out), input };
        self.operations.push(OperationIr::NumericFloat(out.dtype, make(op)));
        out
    }
}

/// The tensor as the operation that makes it has it.
fn initial(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::NotInit, ..tensor.clone() }
}
