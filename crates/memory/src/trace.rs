//! Traces one micro-batch: records the model without tensor memory, and replays the recording by the rules of a
//! backend.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};
use plimsoll_core::{Batch, BatchShape, Bytes, Choice, Key};
use plimsoll_tape::flat::{FlatLayout, FlatPart, LowParameters, MOST_VALUES};
use plimsoll_tape::ir::{OperationIr, TensorId, TensorStatus};
use plimsoll_tape::{CaptureError, CaptureSession, CustomOp, Noise, Pass, Task, backward, capture, inner_device};
use rustc_hash::FxHashSet;

use crate::backend::BackendRules;
use crate::cost::{Cost, Kernel};
use crate::cube::Fusion;
use crate::flex;
use crate::heap::Heap;
use crate::operation_name::operation_name;
use crate::operations::Operations;
use crate::timeline::{Owner, Phase, Timeline};
use crate::traceable::Traceable;

/// Memory over time and cost of one micro-batch, found from a recording of its operations.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Memory during forward and backward pass of the micro-batch. The weights exist from the start.
    pub timeline: Timeline,
    /// Number of values of each parameter that has a gradient, in the order in which the optimizer updates the
    /// parameters.
    pub parameters: Vec<u64>,
    /// Sizes of the flat tensors that hold all trained parameters; none on the CPU, where each parameter is updated alone.
    pub flat: Vec<Bytes>,
    /// Memory of the parameters and buffers of the model.
    pub weights: Bytes,
    /// Memory of the gradients of all parameters.
    pub gradients: Bytes,
    /// Number of reads from the device for which the loss waits.
    pub reads: u32,
    /// Cost of computing the micro-batch, for the cost model.
    pub cost: Cost,
}

/// Reason why a micro-batch cannot be traced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The model reads tensor values or uses something else that a recording cannot show.
    #[error(transparent)]
    Record(#[from] CaptureError),
    /// The loss has no gradient for any parameter.
    #[error("the loss depends on no trainable parameter")]
    NoGradient,
}

/// Tensors that stay alive after their last use in the recording, and other facts about the model that a replay needs.
#[derive(Default)]
struct LiveTensors {
    weights: Vec<TensorId>,
    /// Those of the weights that are trained.
    trained: Vec<TensorId>,
    gradients: Vec<TensorId>,
    batch: Vec<TensorId>,
    parameters: Vec<u64>,
    flat: Vec<Bytes>,
    /// Number of reads from the device for which the loss waits.
    reads: u32,
}

/// Operations of a micro-batch or of a validation, with the tensors that outlive them.
pub(crate) struct Recording {
    pub(crate) operations: Vec<OperationIr>,
    live: LiveTensors,
}

impl Recording {
    /// Lists numbers of values of tensors that do not depend on the batch: gradients, and flat tensors.
    pub(crate) fn fixed_sizes(&self) -> impl Iterator<Item = u64> {
        self.live.parameters.iter().copied().chain(self.live.flat.iter().map(|flat| flat.0))
    }
}

/// Records a micro-batch of `shape`, computed with `choice`, and replays the recording by the memory rules of a
/// backend.
///
/// # Errors
/// [`TraceError::Record`] where the model reads tensor values, and [`TraceError::NoGradient`] where nothing is trained.
pub fn trace<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<Trace, TraceError> {
    Ok(replay(&record(traceable, shape, choice, rules)?, rules))
}

/// Computes the memory over time of validating a batch of `shape`, without gradients, from a recording.
///
/// # Errors
/// [`TraceError::Record`] where validation reads tensor values.
pub fn trace_validation<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    rules: BackendRules,
) -> Result<Timeline, TraceError> {
    Ok(replay(&record_validation(traceable, shape, rules)?, rules).timeline)
}

/// Records a micro-batch of `shape`, computed with `choice`.
pub(crate) fn record<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<Recording, TraceError> {
    let batch = traceable.batch(shape);
    let (mut live, mut sent) = (LiveTensors::default(), None);
    let operations = capture(rules.played(), |recorder| {
        let task = traceable.init(recorder.device());
        (live.weights, live.trained) = weights(recorder, &task);
        let pass = Pass::new(choice, Noise::new(Key::new(0), batch.ids()));
        let layout = matches!(rules, BackendRules::Cube { .. }).then(|| FlatLayout::new(&task, 0, MOST_VALUES));
        live.flat = layout.iter().flat_map(FlatLayout::parts).map(|part| Bytes(part.len as u64 * 4)).collect();
        recorder.mark("forward");
        let _low = layout.and_then(|layout| low_parameters(&layout, &task, &pass, recorder));
        let start = recorder.next_id();
        let tensors = <S::Task as Task>::send(&batch, recorder.device());
        sent = Some((start, recorder.next_id()));
        let loss = task.loss(&tensors, &pass);
        live.reads = loss.reads;
        recorder.mark("backward");
        let found = backward(loss.sum * 0.5, &task);
        (live.gradients, live.parameters) = gradients(recorder, &task, found);
    })?;
    if live.gradients.is_empty() {
        return Err(TraceError::NoGradient);
    }
    live.batch = sent.map_or_else(Vec::new, |ends| made_between(&operations, ends));
    Ok(Recording { operations, live })
}

/// Records a validation of `shape`.
pub(crate) fn record_validation<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    rules: BackendRules,
) -> Result<Recording, TraceError> {
    let batch = traceable.batch(shape);
    let (mut live, mut sent) = (LiveTensors::default(), None);
    let operations = capture(rules.played(), |recorder| {
        let task = traceable.init(recorder.device());
        live.weights = weights(recorder, &task).0;
        let task = recorder.without_autodiff(task);
        recorder.mark("validation");
        let start = recorder.next_id();
        let tensors = <S::Task as Task>::send(&batch, &inner_device(recorder.device()));
        sent = Some((start, recorder.next_id()));
        traceable.validate(&task, &tensors);
    })?;
    live.batch = sent.map_or_else(Vec::new, |ends| made_between(&operations, ends));
    Ok(Recording { operations, live })
}

/// Computes the memory of a batch of `shape` on its device.
pub(crate) fn batch_bytes<S: Traceable>(
    traceable: &S,
    shape: BatchShape,
    rules: BackendRules,
) -> Result<Bytes, TraceError> {
    let batch = traceable.batch(shape);
    let mut sent = None;
    let operations = capture(rules.played(), |recorder| {
        let start = recorder.next_id();
        let _tensors = <S::Task as Task>::send(&batch, recorder.device());
        sent = Some((start, recorder.next_id()));
    })?;
    let made: FxHashSet<TensorId> =
        sent.map_or_else(Vec::new, |ends| made_between(&operations, ends)).into_iter().collect();
    let outputs = operations.iter().flat_map(OperationIr::outputs).filter(|output| made.contains(&output.id));
    Ok(Bytes(outputs.map(|output| rules.output_bytes(&output.shape, output.dtype.size()) as u64).sum()))
}

/// Replays `recording` by the memory rules `rules`, and returns its memory over time and its cost.
fn replay(recording: &Recording, rules: BackendRules) -> Trace {
    let mut cost = Cost::default();
    let heap = Heap::new(rules);
    let operations = Operations::new(&recording.operations);
    let trace = replay_on(heap, (recording, &operations), rules, |kernel| cost.add(&Cost::of(kernel), 1.0));
    Trace { cost, ..trace }
}

/// Replays `recording`, whose operations are listed in `operations`, on `heap`, and calls `count` for each kernel of forward and backward pass. The cost of the
/// result is left to the caller.
pub(crate) fn replay_on(
    mut heap: Heap,
    (recording, operations): (&Recording, &Operations<'_>),
    rules: BackendRules,
    mut count: impl FnMut(&Kernel<'_>),
) -> Trace {
    let live = &recording.live;
    let lasting: FxHashSet<TensorId> = live.weights.iter().chain(&live.gradients).chain(&live.batch).copied().collect();
    let last = operations.last_uses();
    let mut phase = None;
    let handles = rules.handle_bytes();
    heap.begin("parameter handles");
    let _handles = heap.scratch(live.weights.len() * handles.parameter);
    // Number of rematerialized blocks, one inside of the other, whose first pass runs.
    let mut blocks = 0_u32;
    let is_lasting = |id: TensorId| lasting.contains(&id);
    // Tensors that depend on a trained parameter: autodiff follows them.
    let mut tracked: FxHashSet<TensorId> = live.trained.iter().copied().collect();
    let mut fusion = Fusion::new(operations, &last, &lasting);
    for (index, operation) in operations.all().iter().enumerate() {
        let note = CustomOp::parse(operation);
        if let Some(CustomOp::Mark(_) | CustomOp::Sent) = note {
            fusion.run(&mut heap, &mut |kernel| phase.iter().for_each(|_| count(kernel)));
            if let Some(CustomOp::Mark(name)) = note {
                phase = phase_of(name).or(phase);
                phase.into_iter().for_each(|phase| heap.enter(phase));
            }
            continue;
        }
        if let Some(CustomOp::Tape { is_on, parameters }) = note {
            blocks = if is_on { blocks.saturating_sub(1) } else { blocks + 1 };
            heap.begin("parameter handles");
            let _again = heap.scratch(parameters as usize * handles.parameter);
            continue;
        }
        heap.begin(operation_name(operation));
        let BackendRules::Flex { threads } = rules else {
            fusion.apply(&mut heap, index, &mut |kernel| phase.iter().for_each(|_| count(kernel)));
            continue;
        };
        let (inputs, outputs) = (operations.inputs(index), operations.outputs(index));
        phase.iter().for_each(|_| count(&Kernel::with_tensors(operation, operations.tensors(index))));
        let is_tracked = phase == Some(Phase::Forward) && inputs.iter().any(|input| tracked.contains(&input.id));
        if is_tracked {
            tracked.extend(outputs.iter().map(|output| output.id));
        }
        if is_tracked && blocks == 0 {
            let _node = heap.scratch(handles.operation);
        }
        flex::apply(&mut heap, operation, threads);
        let mut done = |id: TensorId| {
            if !is_lasting(id) && last.get(&id).is_none_or(|&last| last <= index) {
                heap.drop_tensor(id);
            }
        };
        inputs.iter().chain(outputs).for_each(|tensor| done(tensor.id));
    }
    fusion.run(&mut heap, &mut |kernel| phase.iter().for_each(|_| count(kernel)));
    for (ids, owner) in
        [(&live.weights, Owner::Weights), (&live.batch, Owner::Batch), (&live.gradients, Owner::Gradients)]
    {
        ids.iter().for_each(|&id| heap.set_owner(id, owner));
    }
    let (weights, gradients) = (heap.bytes_of(&live.weights), heap.bytes_of(&live.gradients));
    let (parameters, flat, reads) = (live.parameters.clone(), live.flat.clone(), live.reads);
    Trace { timeline: heap.into_timeline(), parameters, flat, weights, gradients, reads, cost: Cost::default() }
}

/// Records the copies of parameters in 16 bits that a trainer makes; `None` in fp32.
fn low_parameters<M: Module>(
    layout: &FlatLayout,
    module: &M,
    pass: &Pass,
    recorder: &CaptureSession,
) -> Option<LowParameters> {
    let (dtype, device) = (pass.compute_dtype(), inner_device(recorder.device()));
    let copy = |part: &FlatPart| Tensor::zeros([part.len], (&device, DType::from(dtype)));
    (dtype != FloatDType::F32).then(|| layout.lower(module, layout.parts().iter().map(copy).collect()))
}

/// Lists the tensors whose ids lie between `start` and `end`, except those that were used up to make another tensor of
/// this range.
fn made_between(operations: &[OperationIr], (start, end): (TensorId, TensorId)) -> Vec<TensorId> {
    let is_between = |id: TensorId| start < id && id < end;
    let mut made = BTreeSet::new();
    for operation in operations {
        if operation.outputs().any(|output| output.id > end) {
            break;
        }
        made.extend(operation.inputs().map(|input| input.id).filter(|&id| is_between(id)));
        let before = made.len();
        made.extend(operation.outputs().map(|output| output.id).filter(|&id| is_between(id)));
        if made.len() > before {
            for input in operation.inputs().filter(|input| input.status == TensorStatus::ReadWrite) {
                made.remove(&input.id);
            }
        }
    }
    made.into_iter().collect()
}

fn phase_of(mark: &str) -> Option<Phase> {
    match mark {
        "forward" => Some(Phase::Forward),
        "backward" => Some(Phase::Backward),
        "validation" => Some(Phase::Validation),
        _ => None,
    }
}

/// Lists the float parameters of `module`, and those of them that are trained.
fn weights<M: Module>(recorder: &CaptureSession, module: &M) -> (Vec<TensorId>, Vec<TensorId>) {
    struct Ids<'a> {
        recorder: &'a CaptureSession,
        all: Vec<TensorId>,
        trained: Vec<TensorId>,
    }
    impl ModuleVisitor for Ids<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let id = self.recorder.id(&value);
            self.all.push(id);
            self.trained.extend(value.is_require_grad().then_some(id));
        }
    }
    let mut ids = Ids { recorder, all: Vec::new(), trained: Vec::new() };
    module.visit(&mut ids);
    (ids.all, ids.trained)
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
