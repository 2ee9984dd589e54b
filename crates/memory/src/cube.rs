//! The memory use of Burn's GPU backends (CubeCL), with fusion of elementwise operations.
//!
//! Elementwise operations are collected until one comes that cannot be fused. Then one kernel computes the group, and
//! writes only those outputs that a later operation reads. An input that is read for the last time gives its memory to
//! an output of the same size. Layouts are followed as on the CPU.

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{
    BaseOperationIr as Base, ModuleOperationIr as Neural, NumericOperationIr as Numeric, OperationIr, TensorId,
    TensorIr, TensorStatus,
};
use rustc_hash::FxHashMap;

use crate::backend::BackendRules;
use crate::heap::{Heap, contiguous_strides};
use crate::operation_name::operation_name;

/// Alignment in bytes of a slice that is a view of its input. CUDA has 512 and Vulkan has less; with more, more slices
/// are predicted to be copies.
const SLICE_ALIGNMENT: usize = 512;

/// Largest number of operations in a fused kernel.
const FUSED_OPERATIONS_MAX: usize = 64;

/// Operations collected for one fused kernel: their outputs, and their inputs.
#[derive(Debug, Default)]
pub(crate) struct FusionGroup {
    made: Vec<TensorIr>,
    /// The only operation so far, if it fills memory or copies its input into another order.
    alone: Option<&'static str>,
    read: Vec<TensorId>,
    count: usize,
}

impl FusionGroup {
    /// Applies operation `index` to `heap`. `last` maps each tensor to the last operation that reads it, and
    /// `is_lasting` is true for tensors that outlive the recording.
    pub(crate) fn apply(
        &mut self,
        heap: &mut Heap,
        operation: &OperationIr,
        index: usize,
        last: &FxHashMap<TensorId, usize>,
        is_lasting: &dyn Fn(TensorId) -> bool,
    ) {
        if CustomOp::parse(operation).is_none() && is_fusible(operation) && self.count < FUSED_OPERATIONS_MAX {
            if apply_view(heap, operation) {
                for input in operation.inputs() {
                    if !is_lasting(input.id) && last.get(&input.id).is_none_or(|&last| last <= index) {
                        heap.drop_tensor(input.id);
                    }
                }
                return;
            }
            self.count += 1;
            self.alone = (self.count == 1 && is_fill_or_copy(operation)).then(|| operation_name(operation));
            self.read.extend(operation.inputs().map(|input| input.id));
            self.made.extend(operation.outputs().cloned());
            return;
        }
        self.run(heap, index, last, is_lasting);
        heap.begin(operation_name(operation));
        if is_fusible(operation) {
            return self.apply(heap, operation, index, last, is_lasting);
        }
        let is_over = |id: TensorId| !is_lasting(id) && last.get(&id).is_none_or(|&last| last <= index);
        if apply_slice(heap, operation) {
            // The slice is a view of its input.
        } else if let Some((input, out)) = overwritten(operation)
            && is_over(input.id)
            && heap.can_reuse(input.id, out.shape.num_elements() * heap.rules().width(out.dtype))
        {
            heap.reuse(input.id, out);
        } else {
            let columns = if heap.has_columns() { workspace(operation, heap.rules()) } else { [0; 3] };
            let workspace = columns.map(|bytes| heap.scratch(bytes));
            let output = |heap: &mut Heap, out: &TensorIr| {
                let width = heap.rules().width(out.dtype);
                match operation {
                    // A softmax is computed as reductions with fused kernels between them.
                    _ if is_reduction(operation) || matches!(operation, OperationIr::Activation(_)) => {
                        heap.fresh(&out.shape, width)
                    }
                    OperationIr::Module(module) if is_convolution(module) => heap.image(&out.shape, width),
                    // Our kernels for windows leave no gaps between rows.
                    _ if CustomOp::parse(operation) == Some(CustomOp::Make("windows")) => heap.fresh(&out.shape, width),
                    _ => heap.output(&out.shape, width),
                }
            };
            let outputs: Vec<_> = operation.outputs().map(|out| (out, output(heap, out))).collect();
            for (output, value) in outputs {
                heap.give(output, value);
            }
            workspace.into_iter().for_each(|value| heap.free(value));
        }
        for input in operation.inputs() {
            if !is_lasting(input.id) && last.get(&input.id).is_none_or(|&last| last <= index) {
                heap.drop_tensor(input.id);
            }
        }
        for output in operation.outputs() {
            if !is_lasting(output.id) && !last.contains_key(&output.id) {
                heap.drop_tensor(output.id);
            }
        }
    }

    /// Simulates the kernel that computes the collected operations, just before operation `index`: its outputs that are
    /// read later get memory, and its inputs that are not read again give up theirs. The group is empty afterwards.
    pub(crate) fn run(
        &mut self,
        heap: &mut Heap,
        index: usize,
        last: &FxHashMap<TensorId, usize>,
        is_lasting: &dyn Fn(TensorId) -> bool,
    ) {
        let is_over = |id: TensorId| !is_lasting(id) && last.get(&id).is_none_or(|&last| last < index);
        let mut free: Vec<TensorId> = Vec::new();
        for id in std::mem::take(&mut self.read) {
            if is_over(id) && heap.has(id) && !free.contains(&id) {
                free.push(id);
            }
        }
        // A fill or a copy alone is no fused kernel.
        let alone = self.alone.take();
        heap.begin(alone.unwrap_or("fused kernel"));
        for tensor in std::mem::take(&mut self.made) {
            if is_over(tensor.id) {
                continue;
            }
            let width = heap.rules().width(tensor.dtype);
            let size = tensor.shape.num_elements() * width;
            // An output overwrites an input that is no longer needed, if it has the same size.
            if let Some(place) = free.iter().position(|&id| heap.can_reuse(id, size)) {
                heap.reuse(free.swap_remove(place), &tensor);
            } else {
                let value = match alone {
                    Some(_) => heap.output(&tensor.shape, width),
                    None => heap.fresh(&tensor.shape, width),
                };
                heap.give(&tensor, value);
            }
        }
        free.into_iter().for_each(|id| heap.drop_tensor(id));
        self.count = 0;
    }
}

/// Computes the working memory of a kernel as the bytes of up to three blocks. Where autotuning may choose among
/// several kernels, the kernel that needs the most counts. The gradients of a convolution are matrix products with its
/// columns (im2col): every value occurs once for each position of the convolution kernel that reads it (`burn-cubecl`,
/// `kernel/conv`).
fn workspace(operation: &OperationIr, rules: BackendRules) -> [usize; 3] {
    let OperationIr::Module(module) = operation else { return [0; 3] };
    let columns = |x: &TensorIr, weight: &TensorIr, above: &TensorIr| {
        let taps: usize = weight.shape[2..].iter().product();
        let places = above.shape[0] * above.shape[2..].iter().product::<usize>();
        let (width, channels) = (x.dtype.size(), x.shape[1]);
        let one = places * channels * width;
        // A row has all columns of a place. With groups it has all places of a column, and its padding, less than 512 bytes,
        // is left out: the size has to grow evenly with the utterances.
        let has_groups = weight.shape[1] < channels;
        let all = if has_groups { taps * one } else { places * rules.row_pitch(taps * channels, width) * width };
        // The gradient in another layout, all columns, and the columns of one position.
        if taps == 1 { [0; 3] } else { [above.shape.num_elements() * above.dtype.size(), all, one] }
    };
    match module {
        Neural::Conv1dXBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv2dXBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv1dWeightBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        Neural::Conv2dWeightBackward(op) => columns(&op.x, &op.weight, &op.output_grad),
        _ => [0; 3],
    }
}

/// Returns the input that an operation writes its output over, if nothing else needs that input, and the output. The
/// gradient of a slice is such an operation: zeros, with the gradient assigned to a part (`burn-cubecl`, `kernel/index`).
fn overwritten(operation: &OperationIr) -> Option<(&TensorIr, &TensorIr)> {
    let (OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base)) = operation else {
        return None;
    };
    match base {
        Base::SliceAssign(op) => Some((&op.tensor, &op.out)),
        Base::SelectAssign(op) => Some((&op.tensor, &op.out)),
        Base::Scatter(op) => Some((&op.tensor, &op.out)),
        _ => None,
    }
}

/// Applies a slice to `heap` if it is a view: where it starts and how far before the end of its input it ends are
/// multiples of the alignment of the device. Returns `false`, without an effect, for any other operation.
fn apply_slice(heap: &mut Heap, operation: &OperationIr) -> bool {
    let (OperationIr::BaseFloat(Base::Slice(op)) | OperationIr::BaseInt(Base::Slice(op))) = operation else {
        return false;
    };
    if !heap.has(op.tensor.id) || op.ranges.iter().any(|range| range.step != 1) {
        return false;
    }
    let mut value = heap.take(&op.tensor);
    let ranges = op.ranges.iter().zip(&op.tensor.shape[..]).map(|(range, &length)| range.to_range(length));
    let (mut before, mut after) = (0, 0);
    for ((range, &length), &stride) in ranges.zip(&op.tensor.shape[..]).zip(&value.strides) {
        before += range.start * stride as usize;
        after += (length - range.end) * stride as usize;
    }
    let is_view = [before, after].iter().all(|places| (places * value.width).is_multiple_of(SLICE_ALIGNMENT));
    if is_view {
        value.offset += before;
        value.shape = op.out.shape.to_vec();
        heap.give(&op.out, value);
    } else if op.tensor.status == TensorStatus::ReadWrite {
        heap.give(&op.tensor, value);
    } else {
        heap.free(value);
    }
    is_view
}

/// Applies `operation` to `heap` if it only makes a view of an input that has memory already. Returns `false`, without
/// an effect, for any other operation.
fn apply_view(heap: &mut Heap, operation: &OperationIr) -> bool {
    let (OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base)) = operation else {
        return false;
    };
    let (input, out) = match base {
        Base::Reshape(op) if heap.is_contiguous(op.input.id) => (&op.input, &op.out),
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
        Base::Reshape(_) => value.strides = contiguous_strides(&out.shape),
        Base::SwapDims(op) => value.strides.swap(op.dim1, op.dim2),
        Base::Permute(op) => value.strides = op.axes.iter().map(|&axis| value.strides[axis]).collect(),
        _ => value.strides = vec![0; out.shape.len()],
    }
    value.shape = out.shape.to_vec();
    heap.give(out, value);
    true
}

/// Returns whether an operation can be fused: it is elementwise or a view.
fn is_fusible(operation: &OperationIr) -> bool {
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
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => is_elementwise(numeric),
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

/// Returns whether an operation makes a tensor of one value, or gives its input another shape, order or format.
fn is_fill_or_copy(operation: &OperationIr) -> bool {
    let (OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base)) = operation else {
        return false;
    };
    matches!(
        base,
        Base::Reshape(_)
            | Base::SwapDims(_)
            | Base::Permute(_)
            | Base::Expand(_)
            | Base::Cast(_)
            | Base::Zeros(_)
            | Base::Ones(_)
    )
}

/// Returns whether an operation is a convolution or one of its gradients: their kernels keep the channels of a place together.
fn is_convolution(module: &Neural) -> bool {
    matches!(
        module,
        Neural::Conv1d(_)
            | Neural::Conv2d(_)
            | Neural::Conv1dXBackward(_)
            | Neural::Conv2dXBackward(_)
            | Neural::Conv1dWeightBackward(_)
            | Neural::Conv2dWeightBackward(_)
    )
}

/// Returns whether an operation reduces an axis: its kernel writes rows without padding.
fn is_reduction(operation: &OperationIr) -> bool {
    match operation {
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => !is_elementwise(numeric),
        _ => false,
    }
}

fn is_elementwise(numeric: &Numeric) -> bool {
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
