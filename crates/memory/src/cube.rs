//! What Burn's GPU backends (CubeCL) do with memory, with operations on single values joined to one kernel.
//!
//! Operations that compute each value from values at the same place are gathered until one comes that cannot join them.
//! Then one kernel computes them all, and of what they made only that is written which somebody still needs. What is
//! read for the last time in the kernel gives its memory to what is written. Layouts are followed as on the CPU.

use std::collections::HashMap;

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{
    BaseOperationIr as Base, ModuleOperationIr as Neural, NumericOperationIr as Numeric, OperationIr, TensorId,
    TensorIr,
};

use crate::heap::{Heap, in_order};

/// Sizes are multiples of so many bytes.
pub(crate) const GRAIN: usize = 256;

/// The most operations that one kernel computes.
const LONGEST: usize = 64;

/// What a kernel that is still being gathered has made, and when it will last be read.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    made: Vec<(TensorIr, &'static str)>,
    read: Vec<TensorId>,
    count: usize,
}

impl Gathered {
    /// Does operation `index` on `heap`; `last` says when each tensor is read for the last time.
    pub(crate) fn apply(
        &mut self,
        heap: &mut Heap,
        operation: &OperationIr,
        index: usize,
        last: &HashMap<TensorId, usize>,
        lasting: &dyn Fn(TensorId) -> bool,
    ) {
        if CustomOp::parse(operation).is_none() && is_joined(operation) && self.count < LONGEST {
            if looked(heap, operation) {
                for input in operation.inputs() {
                    if !lasting(input.id) && last.get(&input.id).is_none_or(|&last| last <= index) {
                        heap.drop_tensor(input.id);
                    }
                }
                return;
            }
            self.count += 1;
            self.read.extend(operation.inputs().map(|input| input.id));
            self.made.extend(operation.outputs().map(|output| (output.clone(), "joined kernel")));
            return;
        }
        self.run(heap, index, last, lasting);
        if is_joined(operation) {
            return self.apply(heap, operation, index, last, lasting);
        }
        let workspace = workspace(operation).map(|bytes| heap.scratch(bytes));
        let outputs: Vec<_> = operation.outputs().map(|o| (o, heap.fresh(&o.shape, o.dtype.size()))).collect();
        for (output, value) in outputs {
            heap.give(output, value);
        }
        workspace.into_iter().for_each(|value| heap.free(value));
        for input in operation.inputs() {
            if !lasting(input.id) && last.get(&input.id).is_none_or(|&last| last <= index) {
                heap.drop_tensor(input.id);
            }
        }
        for output in operation.outputs() {
            if !lasting(output.id) && !last.contains_key(&output.id) {
                heap.drop_tensor(output.id);
            }
        }
    }

    /// Runs the kernel that was gathered before operation `index`.
    pub(crate) fn run(
        &mut self,
        heap: &mut Heap,
        index: usize,
        last: &HashMap<TensorId, usize>,
        lasting: &dyn Fn(TensorId) -> bool,
    ) {
        let is_over = |id: TensorId| !lasting(id) && last.get(&id).is_none_or(|&last| last < index);
        let mut free: Vec<TensorId> = Vec::new();
        for id in std::mem::take(&mut self.read) {
            if is_over(id) && heap.has(id) && !free.contains(&id) {
                free.push(id);
            }
        }
        for (tensor, name) in std::mem::take(&mut self.made) {
            if is_over(tensor.id) {
                continue;
            }
            heap.begin(name);
            let size = tensor.shape.num_elements() * tensor.dtype.size();
            // What was read for the last time is written over where it is as large.
            if let Some(place) = free.iter().position(|&id| heap.can_become(id, size)) {
                heap.rename(free.swap_remove(place), &tensor);
            } else {
                let value = heap.fresh(&tensor.shape, tensor.dtype.size());
                heap.give(&tensor, value);
            }
        }
        free.into_iter().for_each(|id| heap.drop_tensor(id));
        self.count = 0;
    }
}

/// What a kernel needs beside what goes in and comes out: of several that may be chosen by trying them, the one that needs
/// most. The gradients of a convolution are matrix products with columns, where every value stands once for each place of
/// the kernel that reads it (`burn-cubecl`, `kernel/conv`).
fn workspace(operation: &OperationIr) -> [usize; 3] {
    let OperationIr::Module(module) = operation else { return [0; 3] };
    let columns = |x: &TensorIr, weight: &TensorIr, above: &TensorIr| {
        let taps: usize = weight.shape[2..].iter().product();
        let places = above.shape[0] * above.shape[2..].iter().product::<usize>();
        let one = places * x.shape[1] * x.dtype.size();
        // The gradient in another order, the columns, and those of one place while they are gathered.
        if taps == 1 { [0; 3] } else { [above.shape.num_elements() * above.dtype.size(), taps * one, one] }
    };
    match module {
        Neural::Conv1dXBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv2dXBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv1dWeightBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv2dWeightBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        _ => [0; 3],
    }
}

/// Does an operation that only looks at what is there in another way, if it is one and that is there already.
fn looked(heap: &mut Heap, operation: &OperationIr) -> bool {
    let (OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base)) = operation else {
        return false;
    };
    let (input, out) = match base {
        Base::Reshape(op) if heap.lies_in_order(op.input.id) => (&op.input, &op.out),
        Base::SwapDims(op) => (&op.input, &op.out),
        Base::Permute(op) => (&op.input, &op.out),
        Base::Expand(op) => (&op.input, &op.out),
        _ => return false,
    };
    if !heap.has(input.id) {
        return false;
    }
    let mut value = heap.take(input);
    match base {
        Base::Reshape(_) => value.strides = in_order(&out.shape),
        Base::SwapDims(op) => value.strides.swap(op.dim1, op.dim2),
        Base::Permute(op) => value.strides = op.axes.iter().map(|&axis| value.strides[axis]).collect(),
        _ => value.strides = vec![0; out.shape.len()],
    }
    value.shape = out.shape.to_vec();
    heap.give(out, value);
    true
}

/// Whether an operation joins others in one kernel: it computes each value from values at the same place, or only looks
/// at them in another order.
fn is_joined(operation: &OperationIr) -> bool {
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => matches!(
            base,
            Base::Reshape(_)
                | Base::SwapDims(_)
                | Base::Permute(_)
                | Base::Expand(_)
                | Base::Cast(_)
                | Base::MaskFill(_)
                | Base::MaskWhere(_)
                | Base::Equal(_)
                | Base::EqualElem(_)
                | Base::NotEqual(_)
                | Base::NotEqualElem(_)
                | Base::Zeros(_)
                | Base::Ones(_)
        ),
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => is_value_by_value(numeric),
        OperationIr::Float(_, float) => {
            use plimsoll_tape::ir::FloatOperationIr as Float;
            !matches!(float, Float::Matmul(_) | Float::Cross(_) | Float::Random(_) | Float::GridSample2d(_))
        }
        OperationIr::Int(int) => !matches!(int, plimsoll_tape::ir::IntOperationIr::Matmul(_)),
        OperationIr::Bool(_) => true,
        OperationIr::Activation(activation) => {
            use plimsoll_tape::ir::ActivationOperationIr as Activation;
            !matches!(activation, Activation::Softmax(_) | Activation::LogSoftmax(_) | Activation::Softmin(_))
        }
        _ => false,
    }
}

fn is_value_by_value(numeric: &Numeric) -> bool {
    matches!(
        numeric,
        Numeric::Add(_)
            | Numeric::AddScalar(_)
            | Numeric::Sub(_)
            | Numeric::SubScalar(_)
            | Numeric::Mul(_)
            | Numeric::MulScalar(_)
            | Numeric::Div(_)
            | Numeric::DivScalar(_)
            | Numeric::Abs(_)
            | Numeric::Neg(_)
            | Numeric::Sign(_)
            | Numeric::Clamp(_)
            | Numeric::ClampMin(_)
            | Numeric::ClampMax(_)
            | Numeric::Greater(_)
            | Numeric::GreaterElem(_)
            | Numeric::GreaterEqual(_)
            | Numeric::GreaterEqualElem(_)
            | Numeric::Lower(_)
            | Numeric::LowerElem(_)
            | Numeric::LowerEqual(_)
            | Numeric::LowerEqualElem(_)
            | Numeric::PowiScalar(_)
            | Numeric::Full(_)
    )
}
