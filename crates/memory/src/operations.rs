//! The operations of a recording, with their tensors in one list.

use plimsoll_tape::ir::{OperationIr, TensorId, TensorIr};
use rustc_hash::FxHashMap;

/// Operations of a recording, and the tensors of each. `OperationIr::inputs` allocates memory at each call, and a replay
/// asks for the tensors of an operation often.
#[derive(Debug)]
pub(crate) struct Operations<'a> {
    all: &'a [OperationIr],
    /// Inputs of the first operation, its outputs, inputs of the second operation, and so on.
    tensors: Vec<&'a TensorIr>,
    /// For each operation the ends of its inputs and of its outputs in `tensors`.
    ends: Vec<(usize, usize)>,
}

impl<'a> Operations<'a> {
    /// Lists the tensors of `all` operations.
    pub(crate) fn new(all: &'a [OperationIr]) -> Self {
        let mut tensors = Vec::with_capacity(all.len() * 3);
        let mut ends = Vec::with_capacity(all.len());
        for operation in all {
            tensors.extend(operation.inputs());
            let inputs = tensors.len();
            tensors.extend(operation.outputs());
            ends.push((inputs, tensors.len()));
        }
        Self { all, tensors, ends }
    }

    /// Returns the operations.
    pub(crate) fn all(&self) -> &'a [OperationIr] {
        self.all
    }

    /// Returns the inputs of operation `index`.
    pub(crate) fn inputs(&self, index: usize) -> &[&'a TensorIr] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        &self.tensors[start..self.ends[index].0]
    }

    /// Returns the outputs of operation `index`.
    pub(crate) fn outputs(&self, index: usize) -> &[&'a TensorIr] {
        let (start, end) = self.ends[index];
        &self.tensors[start..end]
    }

    /// Returns the inputs and the outputs of operation `index`.
    pub(crate) fn tensors(&self, index: usize) -> &[&'a TensorIr] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        &self.tensors[start..self.ends[index].1]
    }

    /// Finds the index of the last operation that reads each tensor. A recording does not show when a handle is dropped, so
    /// a tensor is freed after its last read, which is right for nearly all tensors.
    pub(crate) fn last_uses(&self) -> FxHashMap<TensorId, usize> {
        let mut last = FxHashMap::with_capacity_and_hasher(self.all.len() * 2, Default::default());
        for index in 0..self.all.len() {
            last.extend(self.inputs(index).iter().map(|input| (input.id, index)));
        }
        last
    }
}
