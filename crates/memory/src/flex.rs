//! The memory use of Burn's CPU backend (flex), operation by operation: views, writes in place, new blocks and scratch.
//!
//! Follows the sources of burn-flex 0.22.1; a method that models one of its functions names it. `memtest --verify`
//! compares whole steps with a counting allocator.

mod base;
mod convolution;
mod elementwise;
mod layers;
mod matmul;

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{OperationIr, TensorIr};

use crate::heap::{Heap, Value};

/// Applies `operation` to `heap` as flex does with `threads` threads.
pub(crate) fn apply(heap: &mut Heap, operation: &OperationIr, threads: usize) {
    if let Some(note) = CustomOp::parse(operation) {
        return apply_note(heap, operation, note, threads);
    }
    let mut flex = Flex { heap, threads };
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => flex.base(base),
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => flex.numeric(numeric),
        OperationIr::Float(_, float) => flex.float(float),
        OperationIr::Activation(activation) => flex.activation(activation),
        OperationIr::Module(module) => flex.module(module),
        other => flex.fresh_outputs(other),
    }
}

/// Applies an operation of `plimsoll-tape`. Its note describes the memory that the operation uses.
fn apply_note(heap: &mut Heap, operation: &OperationIr, note: CustomOp<'_>, threads: usize) {
    let inputs: Vec<Value> = operation.inputs().map(|input| heap.take(input)).collect();
    let outputs: Vec<&TensorIr> = operation.outputs().collect();
    match note {
        CustomOp::Mark(_) | CustomOp::Sent | CustomOp::Tape { .. } => {}
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
        CustomOp::Make(_) | CustomOp::Upload | CustomOp::Parts => {
            for output in outputs {
                let value = heap.fresh(&output.shape, output.dtype.size());
                heap.give(output, value);
            }
            let scratch = heap.scratch(CustomOp::scratch_of_make(operation, threads) as usize);
            heap.free(scratch);
        }
        CustomOp::Change { scratch, .. } => {
            let mut inputs = inputs.into_iter();
            let changed = inputs.next().expect("an operation that changes a tensor has one");
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

/// Simulates flex's `into_contiguous`: returns the value itself where it is a whole block in order, a copy otherwise.
fn contiguous(heap: &mut Heap, value: Value) -> Value {
    if heap.is_whole(&value) {
        return value;
    }
    let copy = heap.fresh(&value.shape, value.width);
    heap.free(value);
    copy
}

/// Simulates the memory of the flex backend on a heap. Its methods are grouped by kind of operation, in child modules.
struct Flex<'a> {
    heap: &'a mut Heap,
    /// CPU threads that share an operation; each has scratch memory of its own.
    threads: usize,
}

impl Flex<'_> {
    /// Simulates flex's `to_contiguous`, which reads a borrowed value: returns a second handle on the block of `value`,
    /// or a contiguous copy. `value` itself stays in memory until the caller frees it.
    fn read(&mut self, value: &Value) -> Value {
        let shared = self.heap.share(value);
        contiguous(self.heap, shared)
    }

    fn free(&mut self, values: impl IntoIterator<Item = Value>) {
        for value in values {
            self.heap.free(value);
        }
    }

    fn reshape(&mut self, value: Value, shape: &[usize]) -> Value {
        let mut value = if value.is_contiguous() { value } else { contiguous(self.heap, value) };
        value.shape = shape.to_vec();
        value.strides = crate::heap::contiguous_strides(shape);
        value
    }

    /// Simulates an operation that reads its inputs in any layout, and allocates a new block for each output.
    fn fresh_outputs(&mut self, operation: &OperationIr) {
        let inputs: Vec<Value> = operation.inputs().map(|input| self.heap.take(input)).collect();
        for output in operation.outputs() {
            let value = self.heap.fresh(&output.shape, output.dtype.size());
            self.heap.give(output, value);
        }
        self.free(inputs);
    }

    /// Simulates an operation that first makes its inputs contiguous, and then allocates a new block for its output.
    fn contiguous_inputs(&mut self, inputs: &[&TensorIr], out: &TensorIr) {
        let inputs: Vec<Value> = inputs.iter().map(|input| self.heap.take(input)).collect();
        let read: Vec<Value> = inputs.iter().map(|input| self.read(input)).collect();
        let value = self.heap.fresh(&out.shape, out.dtype.size());
        self.heap.give(out, value);
        self.free(read);
        self.free(inputs);
    }
}
