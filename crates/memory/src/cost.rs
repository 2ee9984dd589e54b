//! What computing takes, counted from a recording: operations, bytes and launches.

use plimsoll_core::Precision;
use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{FloatOperationIr, ModuleOperationIr, OperationIr, TensorIr};
use serde::Serialize;

use crate::catalogue::Card;

/// What a piece takes of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Additions and multiplications of matrix products and convolutions.
    pub operations: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Kernels that are started.
    pub launches: f64,
}

/// How fast a device is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Additions and multiplications a second in matrix products, as they come out in practice.
    pub operations: f64,
    /// Bytes a second to and from memory, as they come out in practice.
    pub bytes: f64,
    /// Seconds to start a kernel.
    pub launch: f64,
}

impl Speed {
    /// The card in the catalogue, at the shares of its peaks that training reaches: half of its arithmetic, 70 % of its
    /// bandwidth, and 5 microseconds a kernel.
    pub fn of(card: &Card, precision: Precision) -> Self {
        Self { operations: card.rate(precision) * 0.5, bytes: card.bandwidth * 0.7, launch: 5e-6 }
    }

    /// A CPU with so many cores, each with wide registers.
    pub fn host(threads: usize) -> Self {
        let threads = threads as f64;
        Self { operations: 6e10 * threads, bytes: 5e9 * threads, launch: 1e-6 }
    }

    /// Seconds that `cost` takes: arithmetic and memory in turn, as kernels seldom do both at once.
    pub fn seconds(&self, cost: &Cost) -> f64 {
        cost.operations / self.operations + cost.bytes / self.bytes + cost.launches * self.launch
    }
}

impl Cost {
    /// The point on the line through both, `share` of the way from this one.
    pub(crate) fn towards(&self, other: &Self, share: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * share;
        Self {
            operations: between(self.operations, other.operations),
            bytes: between(self.bytes, other.bytes),
            launches: between(self.launches, other.launches),
        }
    }

    /// Adds one operation of a recording.
    pub(crate) fn count(&mut self, operation: &OperationIr) {
        if is_free(operation) {
            return;
        }
        let size = |tensor: &TensorIr| (tensor.shape.num_elements() * tensor.dtype.size()) as f64;
        self.bytes += operation.inputs().map(size).sum::<f64>() + operation.outputs().map(size).sum::<f64>();
        self.launches += 1.0;
        self.operations += products(operation);
    }
}

/// Whether only the way of looking changes.
fn is_free(operation: &OperationIr) -> bool {
    use plimsoll_tape::ir::BaseOperationIr as Base;
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => {
            matches!(base, Base::Reshape(_) | Base::SwapDims(_) | Base::Permute(_) | Base::Expand(_) | Base::Slice(_))
        }
        OperationIr::Init(_) | OperationIr::Drop(_) => true,
        _ => matches!(
            CustomOp::parse(operation),
            Some(CustomOp::Mark(_) | CustomOp::Contiguous | CustomOp::Scratch { .. })
        ),
    }
}

/// Additions and multiplications.
fn products(operation: &OperationIr) -> f64 {
    let count = |tensor: &TensorIr| tensor.shape.num_elements() as f64;
    // Each output of a convolution is a sum over a kernel, and so is each part of its gradients.
    let convolved =
        |out: &TensorIr, weight: &TensorIr| 2.0 * count(out) * weight.shape[1..].iter().product::<usize>() as f64;
    match operation {
        OperationIr::Float(_, FloatOperationIr::Matmul(op)) => {
            2.0 * count(&op.out) * op.lhs.shape.last().copied().unwrap_or(1) as f64
        }
        OperationIr::Module(module) => match module {
            ModuleOperationIr::Conv1d(op) => convolved(&op.out, &op.weight),
            ModuleOperationIr::Conv2d(op) => convolved(&op.out, &op.weight),
            ModuleOperationIr::Conv1dXBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv2dXBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv1dWeightBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv2dWeightBackward(op) => convolved(&op.output_grad, &op.weight),
            _ => 0.0,
        },
        _ => 0.0,
    }
}
