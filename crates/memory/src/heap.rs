//! The memory of a device: blocks, and the tensors that use them.
//!
//! A [`Value`] is a handle on a block, with a layout, like the tensor of a backend. Handles are counted: an operation
//! may overwrite a block that has one handle, and a block is freed with its last handle. `flex` and `cube` follow the
//! code of the backends and move these handles without any numbers.

use plimsoll_core::Bytes;
use plimsoll_tape::ir::{TensorId, TensorIr, TensorStatus};
use rustc_hash::FxHashMap;

use crate::backend::BackendRules;
use crate::timeline::{Allocation, Owner, Phase, PhaseSpan, Timeline};

/// A handle on a block of memory, with its layout.
#[derive(Debug)]
pub(crate) struct Value {
    block: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    pub(crate) offset: usize,
    /// Bytes of one element of the value.
    pub(crate) width: usize,
}

impl Value {
    /// Returns the number of elements of the value.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the elements are in row-major order without gaps. Axes of length 1 do not count.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&length, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if length == 1 {
                continue;
            }
            if stride != expected {
                return false;
            }
            expected *= length as isize;
        }
        true
    }

    /// Computes the strides with which the value has the shape `shape`, or `None` if that takes a copy. As in `burn-std`
    /// (`reshape_action`), gaps between rows stay where axes are split, and axes with gaps between them are not joined.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<Vec<isize>> {
        if self.is_contiguous() {
            return Some(contiguous_strides(shape));
        }
        if self.shape == shape {
            return Some(self.strides.clone());
        }
        if shape.len() <= self.shape.len() {
            return None;
        }
        let mut strides = Vec::with_capacity(shape.len());
        let mut old = self.shape.iter().zip(&self.strides).filter(|(length, _)| **length > 1);
        let mut rest = 1;
        let mut stride = 0;
        for &length in shape {
            if rest == 1 && length > 1 {
                (rest, stride) = old.next().map(|(&length, &stride)| (length, stride))?;
            }
            if !rest.is_multiple_of(length) {
                return None;
            }
            rest /= length;
            strides.push(stride * rest as isize);
        }
        Some(strides)
    }

    /// Returns whether the elements are next to each other without gaps, in any order of the axes.
    fn is_dense(&self) -> bool {
        let lengths = self.shape.iter().map(|&length| length as isize - 1);
        let last: isize = lengths.zip(&self.strides).map(|(steps, stride)| steps * stride).sum();
        last + 1 == self.count() as isize
    }
}

/// Computes the strides of `shape` in row-major order.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

#[derive(Debug)]
struct Block {
    size: usize,
    /// Size before it was rounded up.
    exact: usize,
    handles: usize,
    birth: usize,
    death: Option<usize>,
    phase: Phase,
    owner: Option<Owner>,
    made_by: &'static str,
}

/// Memory of a device while operations are replayed.
#[derive(Debug)]
pub(crate) struct Heap {
    blocks: Vec<Block>,
    tensors: FxHashMap<TensorId, Value>,
    now: usize,
    phase: Phase,
    phases: Vec<PhaseSpan>,
    operation: &'static str,
    /// Alignment in bytes: sizes are rounded up to its multiples, as by the allocator of the device.
    alignment: usize,
    /// Rules of the backend, which decide how much memory a tensor takes.
    rules: BackendRules,
    /// Number of utterances of the recording, if sizes that are its multiples stand for those of any number.
    utterances: Option<usize>,
}

impl Heap {
    /// Makes an empty heap with the sizes that the backend of `rules` allocates.
    pub(crate) fn new(rules: BackendRules) -> Self {
        Self {
            blocks: Vec::new(),
            tensors: FxHashMap::default(),
            now: 0,
            phase: Phase::Forward,
            phases: Vec::new(),
            operation: "",
            alignment: rules.alignment(),
            rules,
            utterances: None,
        }
    }

    /// Makes an empty heap for a recording of `utterances` utterances, a prime number, that stands for those of any number.
    /// Tensors whose sizes grow with the utterances and others do not share blocks, and the timeline has exact sizes.
    pub(crate) fn of_any_number(rules: BackendRules, utterances: u32) -> Self {
        Self { utterances: Some(utterances as usize), ..Self::new(rules) }
    }

    /// Begins `phase` in the timeline.
    pub(crate) fn enter(&mut self, phase: Phase) {
        let start = self.now + 1;
        if let Some(last) = self.phases.last_mut() {
            last.end = start;
        }
        self.phases.push(PhaseSpan { phase, start, end: start });
        self.phase = phase;
    }

    /// Sets the name of the operation to which later allocations belong.
    pub(crate) fn begin(&mut self, operation: &'static str) {
        self.operation = operation;
    }

    /// Returns the rules of the backend.
    pub(crate) fn rules(&self) -> BackendRules {
        self.rules
    }

    /// Allocates a contiguous value with elements of `width` bytes.
    pub(crate) fn fresh(&mut self, shape: &[usize], width: usize) -> Value {
        let size = shape.iter().product::<usize>() * width;
        let block = self.block(size);
        Value { block, shape: shape.to_vec(), strides: contiguous_strides(shape), offset: 0, width }
    }

    /// Allocates the output of a kernel. On devices with padded rows, each row of the last axis begins at an aligned address,
    /// with unused bytes before it.
    pub(crate) fn output(&mut self, shape: &[usize], width: usize) -> Value {
        let mut rows = shape.to_vec();
        if let Some(row) = rows.last_mut() {
            *row = self.rules.row_pitch(*row, width);
        }
        let block = self.block(rows.iter().product::<usize>() * width);
        Value { block, shape: shape.to_vec(), strides: contiguous_strides(&rows), offset: 0, width }
    }

    /// Allocates the output of a convolution. Its rows are the channels of a place, which are on the second axis.
    pub(crate) fn image(&mut self, shape: &[usize], width: usize) -> Value {
        let places =
            shape.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, &length)| length).product::<usize>();
        let channels = shape.get(1).map_or(1, |&channels| self.rules.row_pitch(channels, width));
        let block = self.block(places * channels * width);
        Value { block, shape: shape.to_vec(), strides: contiguous_strides(shape), offset: 0, width }
    }

    /// Allocates a value that exists twice for a moment: flex allocates plain bytes first, and then copies them to
    /// aligned bytes.
    pub(crate) fn aligned(&mut self, shape: &[usize], width: usize) -> Value {
        let bytes = self.scratch(shape.iter().product::<usize>() * width);
        let value = self.fresh(shape, width);
        self.free(bytes);
        value
    }

    /// Allocates working memory that is in use until [`free`](Self::free).
    pub(crate) fn scratch(&mut self, bytes: usize) -> Value {
        self.fresh(&[bytes], 1)
    }

    fn block(&mut self, size: usize) -> usize {
        self.now += 1;
        self.blocks.push(Block {
            size: size.next_multiple_of(self.alignment),
            exact: size,
            handles: 1,
            birth: self.now,
            death: None,
            phase: self.phase,
            owner: None,
            made_by: self.operation,
        });
        self.blocks.len() - 1
    }

    /// Returns another handle on the block of `value`, with the same layout.
    pub(crate) fn share(&mut self, value: &Value) -> Value {
        self.blocks[value.block].handles += 1;
        Value {
            block: value.block,
            shape: value.shape.clone(),
            strides: value.strides.clone(),
            offset: value.offset,
            width: value.width,
        }
    }

    /// Drops a handle on a block, and frees the block with its last handle.
    pub(crate) fn free(&mut self, value: Value) {
        let block = &mut self.blocks[value.block];
        block.handles -= 1;
        if block.handles == 0 {
            block.death = Some(self.now + 1);
        }
    }

    /// Returns whether `value` is the only handle on its block.
    pub(crate) fn is_unique(&self, value: &Value) -> bool {
        self.blocks[value.block].handles == 1
    }

    /// Returns whether the elements of `value` fill its block from the start to the end, in row-major order.
    pub(crate) fn is_whole(&self, value: &Value) -> bool {
        let size = (value.count() * value.width).next_multiple_of(self.alignment);
        value.is_contiguous() && value.offset == 0 && self.blocks[value.block].size == size
    }

    /// Gives an operation a handle on the memory of its input: the tensor's own handle if the operation consumes the
    /// tensor, and otherwise a second handle.
    pub(crate) fn take(&mut self, tensor: &TensorIr) -> Value {
        if tensor.status == TensorStatus::ReadWrite
            && let Some(value) = self.tensors.remove(&tensor.id)
        {
            return value;
        }
        match self.tensors.get(&tensor.id) {
            Some(value) => {
                let (block, width, offset) = (value.block, value.width, value.offset);
                let (shape, strides) = (value.shape.clone(), value.strides.clone());
                self.blocks[block].handles += 1;
                Value { block, shape, strides, offset, width }
            }
            // The tensor is older than the recording; it counts from its first use.
            None => {
                let width = self.rules.width(tensor.dtype);
                let value = self.fresh(&tensor.shape, width);
                let handle = self.share(&value);
                self.tensors.insert(tensor.id, value);
                handle
            }
        }
    }

    /// Makes `value` the memory of `tensor`.
    pub(crate) fn give(&mut self, tensor: &TensorIr, mut value: Value) {
        if value.shape != tensor.shape[..] {
            // Rules that track the size and not the layout.
            value.shape = tensor.shape.to_vec();
            value.strides = contiguous_strides(&tensor.shape);
        }
        if let Some(old) = self.tensors.insert(tensor.id, value) {
            self.free(old);
        }
    }

    /// Returns whether tensor `id` has memory.
    pub(crate) fn has(&self, id: TensorId) -> bool {
        self.tensors.contains_key(&id)
    }

    /// Returns whether the elements of tensor `id` are next to each other without gaps.
    pub(crate) fn is_dense(&self, id: TensorId) -> bool {
        self.tensors.get(&id).is_some_and(Value::is_dense)
    }

    /// Returns whether tensor `id` gets the shape `shape` by other strides alone.
    pub(crate) fn can_reshape(&self, id: TensorId, shape: &[usize]) -> bool {
        self.tensors.get(&id).is_some_and(|value| value.reshaped(shape).is_some())
    }

    /// Returns whether `out` can take over the memory of tensor `id`, which is as large: the block has one handle and no owner,
    /// and the tensor has the same shape and no element twice.
    pub(crate) fn can_overwrite(&self, id: TensorId, out: &TensorIr) -> bool {
        self.tensors.get(&id).is_some_and(|value| {
            let block = &self.blocks[value.block];
            let is_alike = value.shape == out.shape[..] && value.width == self.rules.width(out.dtype);
            let has_copies = value.shape.iter().zip(&value.strides).any(|(&length, &stride)| length > 1 && stride == 0);
            block.handles == 1 && block.owner.is_none() && is_alike && !has_copies
        })
    }

    /// Moves the memory of tensor `id` to `tensor`.
    pub(crate) fn reuse(&mut self, id: TensorId, tensor: &TensorIr) {
        if let Some(value) = self.tensors.remove(&id) {
            self.give(tensor, value);
        }
    }

    /// Drops the handle of tensor `id` on its block, and frees the block with its last handle.
    pub(crate) fn drop_tensor(&mut self, id: TensorId) {
        if let Some(value) = self.tensors.remove(&id) {
            self.free(value);
        }
    }

    /// Sets the owner of the block of tensor `id`.
    pub(crate) fn set_owner(&mut self, id: TensorId, owner: Owner) {
        if let Some(value) = self.tensors.get(&id) {
            self.blocks[value.block].owner = Some(owner);
        }
    }

    /// Sums the bytes of the blocks of `ids`, each block counted once.
    pub(crate) fn bytes_of(&self, ids: &[TensorId]) -> Bytes {
        let mut blocks: Vec<usize> = ids.iter().filter_map(|id| Some(self.tensors.get(id)?.block)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        Bytes(blocks.into_iter().map(|block| self.blocks[block].size as u64).sum())
    }

    /// Makes a timeline of every allocation. The owner of a block without one follows from the block's lifetime: a
    /// block that was allocated before the backward pass and is alive when that pass begins is an activation, any other
    /// block is temporary. The sizes are exact if the recording stands for any number of utterances, and rounded otherwise.
    pub(crate) fn into_timeline(mut self) -> Timeline {
        let end = self.now + 1;
        if let Some(last) = self.phases.last_mut() {
            last.end = end;
        }
        let backward = self.phases.iter().find(|span| span.phase == Phase::Backward).map(|span| span.start);
        let allocations = self.blocks.iter().filter(|block| block.size > 0 && block.death != Some(block.birth));
        let allocations = allocations.map(|block| {
            let death = block.death.unwrap_or(end);
            let saved = backward.is_some_and(|start| block.birth < start && death > start);
            let inferred = if saved { Owner::Activations } else { Owner::Temporaries };
            let size = if self.utterances.is_some() { block.exact } else { block.size };
            Allocation {
                size: Bytes(size as u64),
                birth: block.birth,
                death,
                owner: block.owner.unwrap_or(inferred),
                phase: block.phase,
                made_by: block.made_by,
            }
        });
        Timeline { allocations: allocations.collect(), phases: self.phases, moments: end }
    }
}
