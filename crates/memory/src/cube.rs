//! The memory use of Burn's GPU backends (CubeCL), with fusion of elementwise operations.
//!
//! Operations are collected in their order until one comes that no kernel computes together with them ([`group`]). One
//! kernel computes the group, and writes only those outputs that a later operation reads, without gaps between rows. An
//! operation that is not fused is a kernel of its own, whose rows begin at aligned addresses. In both cases an input that is
//! read for the last time gives its memory to an output of the same shape. Layouts are followed as on the CPU.
//!
//! Burn's fusion also runs operations in another order: chains without common tensors wait beside each other. An imitation of
//! that took a third of the time of a plan and made its pages no safer
//! (docs/log/memory-accuracy.md, "CUDA, without the order of Burn's queue").

use std::cmp::Reverse;

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{
    BaseOperationIr as Base, ModuleOperationIr as Neural, OperationIr, TensorId, TensorIr, TensorStatus,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::BackendRules;
use crate::cost::{Kernel, products};
use crate::heap::{Heap, Value};
use crate::operation_name::operation_name;
use crate::operations::Operations;

use group::{Group, Role, role};

mod group;
#[cfg(test)]
mod tests;

/// Alignment in bytes of a slice that is a view of its input. CUDA has 512 and Vulkan has less; with more, more slices
/// are predicted to be copies.
const SLICE_ALIGNMENT: usize = 512;

/// Follows the operations of a recording, and collects those that one fused kernel computes.
#[derive(Debug)]
pub(crate) struct Fusion<'a> {
    operations: &'a Operations<'a>,
    /// Maps each tensor to the last operation that reads it.
    last: &'a FxHashMap<TensorId, usize>,
    /// Tensors that outlive the recording.
    lasting: &'a FxHashSet<TensorId>,
    group: Group<'a>,
}

impl<'a> Fusion<'a> {
    /// Makes a state in which no operation is collected. `last` maps each tensor to the last operation that reads it, and the
    /// tensors in `lasting` outlive the recording.
    pub(crate) fn new(
        operations: &'a Operations<'a>,
        last: &'a FxHashMap<TensorId, usize>,
        lasting: &'a FxHashSet<TensorId>,
    ) -> Self {
        Self { operations, last, lasting, group: Group::default() }
    }

    /// Takes operation `index`, applies what runs now to `heap`, and calls `count` for each kernel.
    pub(crate) fn apply(&mut self, heap: &mut Heap, index: usize, count: &mut dyn FnMut(&Kernel<'_>)) {
        if self.group.takes(self.operations, index) {
            return;
        }
        self.run(heap, count);
        if !self.group.takes(self.operations, index) {
            self.run_alone(heap, index, count);
        }
    }

    /// Applies the operations that are collected to `heap`, and calls `count` for each kernel.
    pub(crate) fn run(&mut self, heap: &mut Heap, count: &mut dyn FnMut(&Kernel<'_>)) {
        let group = std::mem::take(&mut self.group);
        let Some(&end) = group.members().last() else { return };
        if group.is_worth_a_kernel(|id| self.is_over(id, end)) {
            self.run_fused(heap, (&group, end), count);
        } else {
            group.members().iter().for_each(|&member| self.run_alone(heap, member, count));
        }
    }

    /// Simulates the kernel that computes the operations of `group`, of which `end` is the last: its outputs that are read
    /// later get memory, and its inputs that are not read again give up theirs.
    fn run_fused(&self, heap: &mut Heap, (group, end): (&Group<'a>, usize), count: &mut dyn FnMut(&Kernel<'_>)) {
        heap.begin("fused kernel");
        // Where no fused kernel multiplies as fast, the product is a tensor of its own.
        let product = group.product().map(|out| heap.output(&out.shape, heap.rules().width(out.dtype)));
        let is_over = |id: TensorId| self.is_over(id, end);
        let read = group.read().iter().map(|tensor| tensor.id);
        let mut free: Vec<TensorId> = read.filter(|&id| is_over(id) && heap.has(id)).collect();
        let is_written = |tensor: &&TensorIr| !is_over(tensor.id) || group.keeps(tensor.id);
        let mut written: Vec<&TensorIr> = group.made().iter().copied().filter(is_written).collect();
        written.sort_by_key(|tensor| Reverse(tensor.shape.iter().sum::<usize>()));
        for tensor in &written {
            // An output overwrites an input that is no longer needed, if it has the same shape and no gaps. A kernel with a
            // reduction reads its inputs more than once.
            let width = heap.rules().width(tensor.dtype);
            let can_overwrite = |&id: &TensorId| heap.is_dense(id) && heap.can_overwrite(id, tensor);
            if let Some(place) = free.iter().position(can_overwrite).filter(|_| !group.has_reduction()) {
                heap.reuse(free.swap_remove(place), tensor);
            } else {
                let value = heap.fresh(&tensor.shape, width);
                heap.give(tensor, value);
            }
        }
        product.into_iter().for_each(|value| heap.free(value));
        let indexed = group.indexed().iter().map(|tensor| tensor.id).filter(|&id| is_over(id));
        free.into_iter().chain(indexed).for_each(|id| heap.drop_tensor(id));
        let made = group.made().iter().map(|tensor| tensor.id);
        made.filter(|&id| group.keeps(id) && is_over(id)).for_each(|id| heap.drop_tensor(id));
        let operations = group.members().iter().map(|&member| &self.operations.all()[member]);
        count(&Kernel {
            name: "fused kernel",
            products: operations.map(products).sum(),
            launches: if group.product().is_some() { 2 } else { 1 },
            tensors: group.read().iter().chain(group.indexed()).copied().chain(written).collect(),
        });
    }

    /// Returns whether no operation after `index` reads the tensor.
    fn is_over(&self, id: TensorId, index: usize) -> bool {
        self.last.get(&id).is_none_or(|&last| last <= index) && !self.lasting.contains(&id)
    }

    /// Simulates operation `index` as a kernel of its own.
    fn run_alone(&self, heap: &mut Heap, index: usize, count: &mut dyn FnMut(&Kernel<'_>)) {
        let operation = &self.operations.all()[index];
        let is_over = |id: TensorId| self.is_over(id, index);
        heap.begin(operation_name(operation));
        let is_view = apply_slice(heap, operation) || apply_view(heap, operation) || apply_parts(heap, operation);
        if is_view {
            // The output has the memory of the input.
        } else if let Some((input, out)) =
            overwritten(operation, |input, out| is_over(input.id) && heap.can_overwrite(input.id, out))
        {
            heap.reuse(input.id, out);
        } else {
            let workspace = workspace(operation, heap.rules()).map(|bytes| heap.scratch(bytes));
            let outputs: Vec<_> =
                self.operations.outputs(index).iter().map(|out| (*out, output(heap, operation, out))).collect();
            for (output, value) in outputs {
                heap.give(output, value);
            }
            workspace.into_iter().for_each(|value| heap.free(value));
        }
        let tensors = self.operations.tensors(index);
        tensors.iter().filter(|tensor| is_over(tensor.id)).for_each(|tensor| heap.drop_tensor(tensor.id));
        if !is_view {
            let kernel = Kernel::with_tensors(operation, tensors);
            let more = u32::from(adds_sums(operation) && !heap.rules().shows_writes());
            count(&Kernel { launches: kernel.launches + more, ..kernel });
        }
    }
}

/// Allocates the output `out` of `operation`.
fn output(heap: &mut Heap, operation: &OperationIr, out: &TensorIr) -> Value {
    let width = heap.rules().width(out.dtype);
    match operation {
        // A softmax is computed as reductions with fused kernels between them.
        _ if is_reduction(operation) || matches!(operation, OperationIr::Activation(_)) => {
            heap.fresh(&out.shape, width)
        }
        OperationIr::Module(module) if is_convolution(module) => heap.image(&out.shape, width),
        _ if has_no_gaps(operation) => heap.fresh(&out.shape, width),
        _ => heap.output(&out.shape, width),
    }
}

/// Returns whether an operation also adds up sums over segments.
fn adds_sums(operation: &OperationIr) -> bool {
    matches!(CustomOp::parse(operation), Some(CustomOp::Make(name)) if name.ends_with(CustomOp::WITH_SUMS))
}

/// Returns whether an operation is one of our kernels that leave no gaps between rows.
fn has_no_gaps(operation: &OperationIr) -> bool {
    let names = ["convolution", "convolution gradient", "piece of a convolution", "windows"];
    matches!(CustomOp::parse(operation), Some(CustomOp::Make(name)) if names.contains(&name))
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

/// Returns the input that an operation, computed alone, writes its output over, and the output. That is the first input
/// with the type and the shape of the output for which `can` is true. The gradient of a slice is such an operation: zeros,
/// with the gradient assigned to a part (`burn-cubecl`, `kernel/index`). A sum of two tensors is another.
fn overwritten(operation: &OperationIr, can: impl Fn(&TensorIr, &TensorIr) -> bool) -> Option<(&TensorIr, &TensorIr)> {
    let out = operation.outputs().next()?;
    let input = match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => match base {
            Base::SliceAssign(op) => Some(&op.tensor),
            Base::SelectAssign(op) => Some(&op.tensor),
            Base::Scatter(op) => Some(&op.tensor),
            Base::MaskFill(op) => Some(&op.tensor),
            Base::MaskWhere(op) => [&op.tensor, &op.value].into_iter().find(|input| can(input, out)),
            _ => None,
        },
        _ if CustomOp::parse(operation).is_none() && role(operation) == Some(Role::Elementwise) => {
            operation.inputs().find(|input| input.dtype == out.dtype && can(input, out))
        }
        _ => None,
    };
    input.filter(|input| can(input, out)).map(|input| (input, out))
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
        Base::Reshape(op) if heap.can_reshape(op.input.id, &op.out.shape) => (&op.input, &op.out),
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
        Base::Reshape(_) => value.strides = value.reshaped(&out.shape).unwrap_or_default(),
        Base::SwapDims(op) => value.strides.swap(op.dim1, op.dim2),
        Base::Permute(op) => value.strides = op.axes.iter().map(|&axis| value.strides[axis]).collect(),
        _ => value.strides = vec![0; out.shape.len()],
    }
    value.shape = out.shape.to_vec();
    heap.give(out, value);
    true
}

/// Applies `operation` to `heap` if its outputs are parts of its input, in the memory of that. Returns `false`, without an
/// effect, for any other operation.
fn apply_parts(heap: &mut Heap, operation: &OperationIr) -> bool {
    let (Some(CustomOp::Parts), Some(flat)) = (CustomOp::parse(operation), operation.inputs().next()) else {
        return false;
    };
    let value = heap.take(flat);
    for part in operation.outputs() {
        // Its place in the memory is of no account: a part is whole, and nothing overwrites what has several handles.
        let part_value = heap.share(&value);
        heap.give(part, part_value);
    }
    heap.free(value);
    true
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
        OperationIr::NumericFloat(..) | OperationIr::NumericInt(..) => role(operation).is_none(),
        _ => false,
    }
}
