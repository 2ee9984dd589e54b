//! Traces that stand for any number of utterances.

use std::sync::OnceLock;

use plimsoll_core::{BatchShape, Bytes, Choice};

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::envelope::Envelope;
use crate::heap::Heap;
use crate::operations::Operations;
use crate::pool_run::{Lives, PoolRun};
use crate::trace::{Recording, Trace, TraceError, record, record_validation, replay_on};
use crate::traceable::Traceable;

/// Numbers of utterances of which one is traced to stand for any number: prime numbers, so that a size that grows with
/// the utterances is known by its factor.
const STANDING_FOR_ANY: [u32; 6] = [101, 103, 107, 109, 113, 127];

/// The trace of a micro-batch or of a validation of any number of utterances.
///
/// On a GPU a batch of more utterances is computed by the same operations on larger tensors. So one recording suffices if
/// it shows which sizes grow: it has a prime number of utterances, which divides those sizes and no others.
#[derive(Debug)]
pub(crate) struct ScalableTrace {
    /// The trace of `utterances` utterances, with exact sizes.
    trace: Trace,
    utterances: u32,
    /// Cost that does not depend on the number of utterances, and cost of `utterances` utterances beyond it.
    costs: [Cost; 2],
    lives: Lives,
    /// Bytes of each allocation that do not depend on the number of utterances, and bytes for each utterance. One of the two is
    /// 0.
    sizes: Vec<(u64, u64)>,
    envelope: OnceLock<Envelope>,
}

impl ScalableTrace {
    /// Makes the trace from the first recording that `record` makes of a suitable number of utterances; `None` if there is
    /// none.
    fn new(
        rules: BackendRules,
        record: impl Fn(u32) -> Result<Recording, TraceError>,
    ) -> Result<Option<Self>, TraceError> {
        for utterances in STANDING_FOR_ANY {
            let recording = record(utterances)?;
            let square = (utterances * utterances) as usize;
            let operations = Operations::new(&recording.operations);
            let mut outputs = (0..recording.operations.len()).flat_map(|index| operations.outputs(index));
            // Nearly every tensor has an axis of utterances, so the number in another axis would show as a square. An empty tensor shows
            // nothing.
            let is_square = |elements: usize| elements > 0 && elements.is_multiple_of(square);
            if outputs.any(|output| is_square(output.shape.num_elements())) {
                continue;
            }
            let grows = |size: u64| size.is_multiple_of(u64::from(utterances));
            // Gradients and flat tensors have the same size for any number.
            if recording.fixed_sizes().any(grows) {
                continue;
            }
            let mut costs = [Cost::default(); 2];
            let heap = Heap::of_any_number(rules, utterances);
            let trace = replay_on(heap, (&recording, &operations), rules, |kernel| {
                let parts = Cost::parts(kernel, grows);
                costs.iter_mut().zip(&parts).for_each(|(cost, part)| cost.add(part, 1.0));
            });
            let lives = Lives::new(&trace.timeline);
            let parts = |size: u64| if grows(size) { (0, size / u64::from(utterances)) } else { (size, 0) };
            let sizes = trace.timeline.allocations.iter().map(|one| parts(one.size.0)).collect();
            return Ok(Some(Self { trace, utterances, costs, lives, sizes, envelope: OnceLock::new() }));
        }
        Ok(None)
    }

    /// Computes the size of an allocation of `size` bytes if there are `utterances` utterances, before it is rounded.
    fn scaled(&self, size: Bytes, utterances: u32) -> u64 {
        match size.0.is_multiple_of(u64::from(self.utterances)) {
            true => size.0 / u64::from(self.utterances) * u64::from(utterances),
            false => size.0,
        }
    }

    /// Computes the cost of `utterances` utterances.
    pub(crate) fn cost(&self, utterances: u32) -> Cost {
        let mut cost = self.costs[0];
        cost.add(&self.costs[1], f64::from(utterances) / f64::from(self.utterances));
        cost
    }

    /// Returns the memory of micro-batches of every size.
    pub(crate) fn envelope(&self) -> &Envelope {
        self.envelope
            .get_or_init(|| Envelope::new(&self.trace.timeline, |size, utterances| self.scaled(size, utterances)))
    }

    /// Calls `compute` with a run of micro-batches of `utterances` utterances, whose memory beside the pages for larger tensors is
    /// `beside_pages`, if that is known.
    pub(crate) fn with_run<R>(
        &self,
        (utterances, rules): (u32, BackendRules),
        beside_pages: Option<Bytes>,
        compute: impl FnOnce(&PoolRun<'_>) -> R,
    ) -> R {
        let (alignment, utterances) = (rules.alignment() as u64, u64::from(utterances));
        debug_assert!(alignment.is_power_of_two());
        let aligned = |size: u64| (size + alignment - 1) & !(alignment - 1);
        let sizes: Vec<u64> = self.sizes.iter().map(|(fixed, each)| aligned(fixed + each * utterances)).collect();
        let Trace { flat, reads, .. } = &self.trace;
        compute(&PoolRun { lives: &self.lives, sizes: &sizes, flat, reads: *reads, beside_pages })
    }

    /// Makes the trace of `utterances` utterances.
    pub(crate) fn at(&self, utterances: u32, rules: BackendRules) -> Trace {
        let mut trace = Trace { cost: self.cost(utterances), ..self.trace.clone() };
        for allocation in &mut trace.timeline.allocations {
            let size = self.scaled(allocation.size, utterances);
            allocation.size = Bytes(size.next_multiple_of(rules.alignment() as u64));
        }
        trace
    }
}

/// Traces micro-batches of any number of utterances with one recording; `None` if one recording does not determine them.
///
/// # Errors
/// As [`trace`].
pub(crate) fn trace_of_any_number<S: Traceable>(
    traceable: &S,
    bucket: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<Option<ScalableTrace>, TraceError> {
    ScalableTrace::new(rules, |utterances| record(traceable, bucket.with_utterances(utterances), choice, rules))
}

/// Traces validations of any number of utterances, as [`trace_of_any_number`] does micro-batches.
///
/// # Errors
/// As [`trace_validation`].
pub(crate) fn trace_validation_of_any_number<S: Traceable>(
    traceable: &S,
    bucket: BatchShape,
    rules: BackendRules,
) -> Result<Option<ScalableTrace>, TraceError> {
    ScalableTrace::new(rules, |utterances| record_validation(traceable, bucket.with_utterances(utterances), rules))
}
