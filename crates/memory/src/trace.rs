//! A piece of a step on paper: what it asks of a device, and what it has in memory from moment to moment.

use std::collections::{BTreeSet, HashMap, HashSet};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use plimsoll_core::{Batch, BatchShape, Bytes, Choice, Key, Remat};
use plimsoll_tape::ir::{OperationIr, TensorId, TensorStatus};
use plimsoll_tape::{CaptureError, CaptureSession, CustomOp, Noise, Pass, Task, backward, capture};

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::cube::Gathered;
use crate::flex;
use crate::heap::Heap;
use crate::names::name_of;
use crate::subject::Subject;
use crate::timeline::{Owner, Phase, Timeline};

/// One piece of a step, traced.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What is in memory while the piece is computed, forward and backward; the weights are there from the start.
    pub timeline: Timeline,
    /// The number of values of each parameter that has a gradient, in the order in which the optimizer moves them.
    pub parameters: Vec<u64>,
    /// The weights, and what the model keeps beside them.
    pub weights: Bytes,
    /// The gradients of the piece.
    pub gradients: Bytes,
    /// What computing the piece takes.
    pub cost: Cost,
}

/// Why there is no trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// The model could not be recorded.
    #[error(transparent)]
    Record(#[from] CaptureError),
    /// Nothing was left to train.
    #[error("the loss depends on no parameter that is trained")]
    NoGradient,
}

/// Who is alive beyond what the recording shows.
#[derive(Default)]
struct Held {
    weights: Vec<TensorId>,
    gradients: Vec<TensorId>,
    batch: Vec<TensorId>,
    parameters: Vec<u64>,
    /// How many of a thousand blocks keep handles on their parameters for a second pass.
    covered_thousandths: usize,
}

/// Traces a piece of `shape` of `subject`, computed by `choice`, as `rules` use memory.
pub fn trace<S: Subject>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<Trace, TraceError> {
    let batch = subject.batch(shape);
    let mut held = Held { covered_thousandths: covered_thousandths(choice.remat), ..Held::default() };
    let mut sent = None;
    let operations = capture(rules.played(), |recorder| {
        let task = subject.init(recorder.device());
        held.weights = weights(recorder, &task);
        recorder.mark("forward");
        let start = recorder.next_id();
        let tensors = <S::Task as Task>::send(&batch, recorder.device());
        sent = Some((start, recorder.next_id()));
        let pass = Pass::new(choice, Noise::new(Key::new(0), batch.ids()));
        let loss = task.loss(&tensors, &pass);
        recorder.mark("backward");
        let found = backward(loss.sum * 0.5, &task);
        (held.gradients, held.parameters) = gradients(recorder, &task, found);
    })?;
    if held.gradients.is_empty() {
        return Err(TraceError::NoGradient);
    }
    held.batch = sent.map_or_else(Vec::new, |ends| made_between(&operations, ends));
    Ok(played(&operations, held, rules))
}

/// Traces what `subject` does with a batch of `shape` when it is validated, outside the tape.
pub fn trace_validation<S: Subject>(
    subject: &S,
    shape: BatchShape,
    rules: BackendRules,
) -> Result<Timeline, TraceError> {
    let batch = subject.batch(shape);
    let (mut held, mut sent) = (Held::default(), None);
    let operations = capture(rules.played(), |recorder| {
        let task = subject.init(recorder.device());
        held.weights = weights(recorder, &task);
        let task = recorder.without_autodiff(task);
        recorder.mark("validation");
        let start = recorder.next_id();
        let tensors = <S::Task as Task>::send(&batch, &plimsoll_tape::inner_device(recorder.device()));
        sent = Some((start, recorder.next_id()));
        subject.validate(&task, &tensors);
    })?;
    held.batch = sent.map_or_else(Vec::new, |ends| made_between(&operations, ends));
    Ok(played(&operations, held, rules).timeline)
}

/// What a batch of `shape` takes on a device.
pub(crate) fn batch_bytes<S: Subject>(
    subject: &S,
    shape: BatchShape,
    rules: BackendRules,
) -> Result<Bytes, TraceError> {
    let batch = subject.batch(shape);
    let mut sent = None;
    let operations = capture(rules.played(), |recorder| {
        let start = recorder.next_id();
        let _tensors = <S::Task as Task>::send(&batch, recorder.device());
        sent = Some((start, recorder.next_id()));
    })?;
    let made: HashSet<TensorId> =
        sent.map_or_else(Vec::new, |ends| made_between(&operations, ends)).into_iter().collect();
    let outputs = operations.iter().flat_map(OperationIr::outputs).filter(|output| made.contains(&output.id));
    Ok(Bytes(outputs.map(|output| (output.shape.num_elements() * output.dtype.size()) as u64).sum()))
}

fn played(operations: &[OperationIr], held: Held, rules: BackendRules) -> Trace {
    let mut heap = Heap::new(rules.grain());
    let lasting: HashSet<TensorId> = held.weights.iter().chain(&held.gradients).chain(&held.batch).copied().collect();
    let last = last_uses(operations);
    let mut cost = Cost::default();
    let mut phase = None;
    let small = rules.small_things();
    heap.begin("handles of parameters");
    let copies = held.weights.len() * (1000 + held.covered_thousandths) / 1000;
    let _handles = heap.scratch(copies * small.parameter);
    let is_lasting = |id: TensorId| lasting.contains(&id);
    let mut gathered = Gathered::default();
    for (index, operation) in operations.iter().enumerate() {
        if let Some(CustomOp::Mark(name)) = CustomOp::parse(operation) {
            gathered.run(&mut heap, index, &last, &is_lasting);
            phase = phase_of(name).or(phase);
            if let Some(phase) = phase {
                heap.enter(phase);
            }
            continue;
        }
        heap.begin(name_of(operation));
        if phase.is_some() {
            cost.count(operation);
        }
        let BackendRules::Flex { threads } = rules else {
            gathered.apply(&mut heap, operation, index, &last, &is_lasting);
            continue;
        };
        if phase == Some(Phase::Forward) {
            // Blocks that are computed again leave no operations on the tape; about half of all are outside of blocks.
            let _node = heap.scratch(small.operation * (1000 - held.covered_thousandths / 2) / 1000);
        }
        flex::apply(&mut heap, operation, threads);
        let mut done = |id: TensorId| {
            if !is_lasting(id) && last.get(&id).is_none_or(|&last| last <= index) {
                heap.drop_tensor(id);
            }
        };
        operation.inputs().for_each(|input| done(input.id));
        operation.outputs().for_each(|output| done(output.id));
    }
    gathered.run(&mut heap, operations.len(), &last, &is_lasting);
    for (ids, owner) in
        [(&held.weights, Owner::Weights), (&held.batch, Owner::Batch), (&held.gradients, Owner::Gradients)]
    {
        ids.iter().for_each(|&id| heap.own(id, owner));
    }
    let (weights, gradients) = (heap.bytes_of(&held.weights), heap.bytes_of(&held.gradients));
    Trace { timeline: heap.into_timeline(), parameters: held.parameters, weights, gradients, cost }
}

/// The tensors that were made between two ids, except those that were consumed there to make others.
fn made_between(operations: &[OperationIr], (start, end): (TensorId, TensorId)) -> Vec<TensorId> {
    let is_between = |id: TensorId| start < id && id < end;
    let all = operations.iter().flat_map(|operation| operation.inputs().chain(operation.outputs()));
    let mut made: BTreeSet<TensorId> = all.map(|tensor| tensor.id).filter(|&id| is_between(id)).collect();
    for operation in operations.iter().filter(|operation| operation.outputs().any(|output| is_between(output.id))) {
        for input in operation.inputs().filter(|input| input.status == TensorStatus::ReadWrite) {
            made.remove(&input.id);
        }
    }
    made.into_iter().collect()
}

/// About how many of a thousand blocks `remat` covers: what hangs on it is small.
fn covered_thousandths(remat: Remat) -> usize {
    match remat {
        Remat::None => 0,
        Remat::Half => 500,
        Remat::First(blocks) => (blocks as usize * 80).min(1000),
        Remat::All => 1000,
    }
}

fn phase_of(mark: &str) -> Option<Phase> {
    match mark {
        "forward" => Some(Phase::Forward),
        "backward" => Some(Phase::Backward),
        "validation" => Some(Phase::Validation),
        _ => None,
    }
}

/// The last operation that reads each tensor. A recording does not tell when a handle is dropped; a tensor is taken to be
/// gone after it was read for the last time, which is when nearly all are.
fn last_uses(operations: &[OperationIr]) -> HashMap<TensorId, usize> {
    let reads = |(index, operation): (usize, &OperationIr)| -> Vec<(TensorId, usize)> {
        operation.inputs().map(|input| (input.id, index)).collect()
    };
    operations.iter().enumerate().flat_map(reads).collect()
}

fn weights<M: Module>(recorder: &CaptureSession, module: &M) -> Vec<TensorId> {
    struct Ids<'a>(&'a CaptureSession, Vec<TensorId>);
    impl ModuleVisitor for Ids<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(self.0.id(&param.val()));
        }
    }
    let mut ids = Ids(recorder, Vec::new());
    module.visit(&mut ids);
    ids.1
}

fn gradients<M: Module>(recorder: &CaptureSession, module: &M, found: GradientsParams) -> (Vec<TensorId>, Vec<u64>) {
    struct Ids<'a> {
        recorder: &'a CaptureSession,
        found: GradientsParams,
        ids: Vec<TensorId>,
        counts: Vec<u64>,
    }
    impl ModuleVisitor for Ids<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.found.get::<D>(param.id) {
                self.counts.push(gradient.shape().num_elements() as u64);
                self.ids.push(self.recorder.id(&gradient));
            }
        }
    }
    let mut ids = Ids { recorder, found, ids: Vec::new(), counts: Vec::new() };
    module.visit(&mut ids);
    (ids.ids, ids.counts)
}
