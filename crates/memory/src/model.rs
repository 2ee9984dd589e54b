//! The memory model of a training run: traces that stand for batches of any size, as memory and cost grow linearly with the
//! batch.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{BatchShape, Bytes, Choice, Remat};

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::demand::{Demand, StateOption};
use crate::envelope::greatest;
use crate::run_memory::{RunMemory, StepMemory};
use crate::scalable_trace::trace_validation_of_any_number;
use crate::timeline::Timeline;
use crate::trace::{Trace, TraceError, batch_bytes, trace, trace_validation};
use crate::traceable::Traceable;
use crate::traces::{Cache, Known, Traces, cached, in_parallel};

/// Memory and cost estimate for one size of micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryEstimate {
    /// Peak memory of a run with micro-batches of this size.
    pub peak: Bytes,
    /// Cost of computing one micro-batch.
    pub cost: Cost,
    /// Size of the largest single allocation of the run.
    pub largest: Bytes,
}

/// A model with its demand, and the traces from which plans are made.
///
/// A memory model is independent of budget and GPU, so one serves the plans for many GPUs, and with many
/// [`PlanOptions`](crate::PlanOptions). Traces and estimates are cached, and made when they are first needed.
pub struct MemoryModel<'a, S> {
    traceable: &'a S,
    demand: Demand,
    traces: Traces,
    /// Costs of 2 and of 3 utterances, where each size needs a trace of its own.
    costs: Cache<(BatchShape, Choice), [Cost; 2]>,
    /// Memory of sizes that need a trace of their own.
    sizes: Cache<Size, Arc<SizeMemory>>,
    peaks: Cache<(Size, StateOption, Bytes), Bytes>,
    /// The best pages of a run of one size alone, and its peak.
    alone: Cache<(Size, StateOption), (Bytes, Bytes)>,
    /// Memory beside the pages that hold larger tensors.
    beside: Cache<(Size, StateOption), Bytes>,
    /// Lower bounds of the peaks that were not computed to the end.
    exceeded: Cache<(Size, StateOption, Bytes), Bytes>,
    validations: Cache<(Size, u32, StateOption, Bytes), Bytes>,
    /// Peak and largest allocation of a validation alone.
    validated: Cache<(BatchShape, u32), (Bytes, Bytes)>,
    parameters: Vec<u64>,
    weights: Bytes,
    gradients: Bytes,
}

/// A micro-batch that is estimated: the batch shape of its step, its number of utterances, and its execution choice.
type Size = (BatchShape, u32, Choice);

/// Memory of a micro-batch whose size needs a trace of its own. The trace itself takes megabytes and is not kept.
#[derive(Debug)]
struct SizeMemory {
    in_use: Bytes,
    largest: Bytes,
    /// Peak of a run, for each form of the optimizer state.
    peaks: Vec<(StateOption, Bytes)>,
}

/// Factor by which an estimate may exceed a budget before it is taken as proof that the exact value does.
const HOPELESS: f64 = 1.02;

impl<'a, S: Traceable + Sync> MemoryModel<'a, S> {
    /// Traces every bucket of `demand` with the first of its options, in parallel on all cores. Other options are traced
    /// when a plan needs them.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced, or where `demand` has no buckets.
    pub fn new(traceable: &'a S, demand: Demand) -> Result<Self, TraceError> {
        Self::with_traces(traceable, demand, Traces::default())
    }

    /// Makes the memory model as [`new`](Self::new) does. It uses `traces`, and adds those that are missing. They must be of
    /// this model on this backend, or empty.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_traces(traceable: &'a S, demand: Demand, traces: Traces) -> Result<Self, TraceError> {
        let options = &demand.options;
        let choice = Choice {
            remat: options.remat.first().copied().unwrap_or_default(),
            attention_chunk: options.chunks.first().copied().flatten(),
            precision: options.precisions.first().copied().unwrap_or_default(),
        };
        let traced = in_parallel(&demand.buckets, |&bucket| traces.step(traceable, bucket, choice, demand.rules));
        let traced: Vec<Known> = traced.into_iter().collect::<Result<_, _>>()?;
        let (bucket, first) = demand.buckets.iter().zip(traced).next().ok_or(TraceError::NoGradient)?;
        let Trace { parameters, weights, gradients, .. } = match first {
            Some(known) => known.at(1, demand.rules),
            None => trace(traceable, bucket.with_utterances(1), choice, demand.rules)?,
        };
        Ok(Self {
            traceable,
            demand,
            traces,
            costs: Mutex::default(),
            sizes: Mutex::default(),
            peaks: Mutex::default(),
            alone: Mutex::default(),
            beside: Mutex::default(),
            exceeded: Mutex::default(),
            validations: Mutex::default(),
            validated: Mutex::default(),
            parameters,
            weights,
            gradients,
        })
    }

    /// Approximates the cost of a micro-batch, linear in utterances and rematerialized blocks.
    pub(crate) fn approximate_cost(
        &self,
        bucket: BatchShape,
        utterances: u32,
        choice: Choice,
    ) -> Result<Cost, TraceError> {
        let share_of_blocks = f64::from(choice.remat.count(self.demand.blocks)) / f64::from(self.demand.blocks.max(1));
        let at = |remat: Remat| -> Result<Cost, TraceError> {
            let choice = Choice { remat, ..choice };
            Ok(match self.known(bucket, choice)? {
                Some(known) => known.cost(utterances),
                None => {
                    let [few, more] = cached(&self.costs, (bucket, choice), || {
                        let [few, more] = [2, 3].map(|utterances| self.trace(bucket, utterances, choice));
                        Ok::<_, TraceError>([few?.cost, more?.cost])
                    })?;
                    few.interpolate(&more, f64::from(utterances) - 2.0)
                }
            })
        };
        Ok(match share_of_blocks {
            0.0 => at(Remat::None)?,
            1.0.. => at(Remat::All)?,
            between => at(Remat::None)?.interpolate(&at(Remat::All)?, between),
        })
    }

    /// Estimates micro-batches of `utterances` utterances of `bucket`, computed with `choice`, with the first optimizer
    /// state of the options.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced with this choice.
    pub fn estimate(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<MemoryEstimate, TraceError> {
        let size = (bucket, utterances, choice);
        let (_, peak) = self.alone(size, self.first_state())?;
        Ok(MemoryEstimate { peak, cost: self.trace(bucket, utterances, choice)?.cost, largest: self.largest(size)? })
    }

    /// Returns the first optimizer state of the options.
    pub(crate) fn first_state(&self) -> StateOption {
        self.demand.options.states.first().copied().unwrap_or(StateOption::FULL)
    }

    /// Estimates the peak memory of a run with micro-batches of this `size` and the optimizer state `state`, whose GPU
    /// pages are large enough for an allocation of `page` bytes.
    pub(crate) fn peak(&self, size: Size, state: StateOption, page: Bytes) -> Result<Bytes, TraceError> {
        self.peak_up_to(size, state, page, Bytes(u64::MAX))
    }

    /// Returns whether [`peak`](Self::peak) is at most `budget`.
    pub(crate) fn fits(&self, size: Size, state: StateOption, page: Bytes, budget: Bytes) -> Result<bool, TraceError> {
        Ok(self.peak_up_to(size, state, page, budget)? <= budget)
    }

    /// Estimates the same as [`peak`](Self::peak) if that is at most `limit`; otherwise a part of it that exceeds `limit`.
    pub(crate) fn peak_up_to(
        &self,
        size: Size,
        state: StateOption,
        page: Bytes,
        limit: Bytes,
    ) -> Result<Bytes, TraceError> {
        if matches!(self.demand.rules, BackendRules::Flex { .. }) {
            return self.peak_on_host(size, state);
        }
        let key = (size, state, page);
        if let Some(&peak) = self.peaks.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(peak);
        }
        if let Some(&part) = self.exceeded.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && part > limit
        {
            return Ok(part);
        }
        let peak = self.peak_within(size, state, page, limit)?;
        let known = if peak <= limit { &self.peaks } else { &self.exceeded };
        known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, peak);
        Ok(peak)
    }

    /// Estimates the same as [`peak`](Self::peak), but stops as soon as it exceeds `limit`, and then returns a part of it
    /// that does.
    fn peak_within(&self, size: Size, state: StateOption, page: Bytes, limit: Bytes) -> Result<Bytes, TraceError> {
        let (bucket, utterances, choice) = size;
        let (rules, step) = (self.demand.rules, self.step(bucket, utterances, state)?);
        if let Some(known) = self.known(bucket, choice)? {
            let beside = Some(self.beside_pages(size, state)?);
            return Ok(known.with_run((utterances, rules), beside, |run| run.reserved_within(page, step, None, limit)));
        }
        Ok(self.trace(bucket, utterances, choice)?.reserved_within(page, step, None, limit))
    }

    /// Estimates the peak memory of a run on the CPU, which has no pages.
    fn peak_on_host(&self, size: Size, state: StateOption) -> Result<Bytes, TraceError> {
        let known = self.size_memory(size)?;
        match known.peaks.iter().find(|(of, _)| *of == state) {
            Some(&(_, peak)) => Ok(peak),
            None => cached(&self.peaks, (size, state, Bytes(0)), || {
                self.peak_of_run(&self.trace(size.0, size.1, size.2)?, size, state)
            }),
        }
    }

    /// Computes the peak memory on the CPU of a run with micro-batches of this `size`, which `trace` is of.
    fn peak_of_run(&self, trace: &Trace, size: Size, state: StateOption) -> Result<Bytes, TraceError> {
        Ok(with_margin(RunMemory::new(trace, None, self.step(size.0, size.1, state)?).peak()))
    }

    /// Returns the memory of a size that needs a trace of its own.
    fn size_memory(&self, size: Size) -> Result<Arc<SizeMemory>, TraceError> {
        cached(&self.sizes, size, || {
            let trace = self.trace(size.0, size.1, size.2)?;
            let mut peaks: Vec<(StateOption, Bytes)> = Vec::new();
            if matches!(self.demand.rules, BackendRules::Flex { .. }) {
                let states = self.demand.options.states.iter().chain(&self.demand.remedies.states);
                for &state in states {
                    if peaks.iter().all(|(known, _)| *known != state) {
                        peaks.push((state, self.peak_of_run(&trace, size, state)?));
                    }
                }
            }
            Ok(Arc::new(SizeMemory { in_use: trace.timeline.peak(), largest: trace.largest(), peaks }))
        })
    }

    /// Returns the GPU pages with which a run of micro-batches of this `size` alone needs the least memory, and its peak.
    pub(crate) fn alone(&self, size: Size, state: StateOption) -> Result<(Bytes, Bytes), TraceError> {
        cached(&self.alone, (size, state), || {
            let (bucket, utterances, choice) = size;
            let (rules, step) = (self.demand.rules, self.step(bucket, utterances, state)?);
            if let Some(known) = self.known(bucket, choice)? {
                let beside = Some(self.beside_pages(size, state)?);
                return Ok(known.with_run((utterances, rules), beside, |run| run.best_page(step, Bytes(u64::MAX))));
            }
            let page = match rules {
                BackendRules::Flex { .. } => Bytes(0),
                BackendRules::Cube { .. } => self.trace(bucket, utterances, choice)?.page(step, Bytes(u64::MAX)),
            };
            Ok((page, self.peak(size, state, page)?))
        })
    }

    /// Computes the GPU memory beside the pages for larger tensors: the pool of small tensors, and what is outside of the
    /// pools.
    pub(crate) fn beside_pages(&self, size: Size, state: StateOption) -> Result<Bytes, TraceError> {
        cached(&self.beside, (size, state), || {
            let (bucket, utterances, choice) = size;
            let step = self.step(bucket, utterances, state)?;
            Ok(match self.known(bucket, choice)? {
                Some(known) => known.with_run((utterances, self.demand.rules), None, |run| run.beside_pages(step)),
                None => Bytes(0),
            })
        })
    }

    /// Computes a lower bound of [`peak`](Self::peak) on a GPU: all memory in use at once, as if pages had no gaps. It
    /// grows with the utterances.
    pub(crate) fn least(&self, size: Size, state: StateOption) -> Result<Bytes, TraceError> {
        let (bucket, utterances, _) = size;
        let in_use = self.in_use(size)?;
        let step = self.step(bucket, utterances, state)?;
        let gradients = if step.micro_batches > 1 { self.gradients.0 } else { 0 };
        let beside = step.state_of(self.values()).0 + step.workspace.0;
        Ok(Bytes(in_use.0 + gradients + beside))
    }

    /// Computes the peak memory of a micro-batch alone, with the weights.
    fn in_use(&self, size: Size) -> Result<Bytes, TraceError> {
        let (bucket, utterances, choice) = size;
        if let Some(known) = self.known(bucket, choice)? {
            return Ok(Bytes(greatest(&known.envelope().in_use, utterances)));
        }
        Ok(self.size_memory(size)?.in_use)
    }

    /// Returns whether a micro-batch of this `size` needs far more than `budget`, by the traces of no and of full
    /// rematerialization alone. `false` if that is not known without another trace.
    pub(crate) fn is_hopeless(&self, size: Size, state: StateOption, budget: Bytes) -> Result<bool, TraceError> {
        let (bucket, utterances, choice) = size;
        let share = f64::from(choice.remat.count(self.demand.blocks)) / f64::from(self.demand.blocks.max(1));
        if share == 0.0 || share >= 1.0 || matches!(self.demand.rules, BackendRules::Flex { .. }) {
            return Ok(false);
        }
        let at = |remat| self.least((bucket, utterances, Choice { remat, ..choice }), state);
        let (none, all) = (at(Remat::None)?.0 as f64, at(Remat::All)?.0 as f64);
        Ok(none + (all - none) * share > budget.0 as f64 * HOPELESS)
    }

    /// Computes the peak memory of a micro-batch beside weights and gradients.
    pub(crate) fn activations(&self, size: Size) -> Result<Bytes, TraceError> {
        Ok(Bytes(self.in_use(size)?.0.saturating_sub(self.weights.0 + self.gradients.0)))
    }

    /// Returns the size of the largest single allocation of a micro-batch.
    pub(crate) fn largest(&self, (bucket, utterances, choice): Size) -> Result<Bytes, TraceError> {
        match self.known(bucket, choice)? {
            Some(known) => {
                let alignment = self.demand.rules.alignment() as u64;
                Ok(Bytes(greatest(&known.envelope().largest, utterances).next_multiple_of(alignment)))
            }
            None => Ok(self.size_memory((bucket, utterances, choice))?.largest),
        }
    }

    /// Computes the memory over time of a run with micro-batches of `utterances` utterances and the optimizer state
    /// `state`, without validation, and the cost of one micro-batch.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced with this choice.
    pub fn run_memory(
        &self,
        bucket: BatchShape,
        utterances: u32,
        choice: Choice,
        state: StateOption,
    ) -> Result<(RunMemory, Cost), TraceError> {
        let trace = self.trace(bucket, utterances, choice)?;
        Ok((RunMemory::new(&trace, None, self.step(bucket, utterances, state)?), trace.cost))
    }

    /// Computes what a step of `bucket` needs in addition to one micro-batch, if each micro-batch has `utterances`
    /// utterances and the optimizer keeps its state as in `state`.
    fn step(&self, bucket: BatchShape, utterances: u32, state: StateOption) -> Result<StepMemory, TraceError> {
        let demand = &self.demand;
        let one = cached(&self.traces.0.batches, bucket.with_utterances(1), || {
            batch_bytes(self.traceable, bucket.with_utterances(1), demand.rules)
        })?;
        let batch = Bytes(one.0 * u64::from(bucket.utterances));
        // The first micro-batch of the next step.
        let sent = Bytes(one.0 * u64::from(bucket.utterances.min(utterances.max(1))));
        let is_host = matches!(demand.rules, BackendRules::Flex { .. });
        Ok(StepMemory {
            micro_batches: bucket.utterances.div_ceil(utterances.max(1)),
            host_batch: if is_host { Bytes(batch.0 + demand.step.host_batch.0) } else { demand.step.host_batch },
            prefetch: Bytes(sent.0 * u64::from(demand.prefetch)),
            state_bits: state.bits,
            ..demand.step
        })
    }

    /// Returns the trace of a micro-batch. On a GPU one trace of the bucket suffices. The CPU backend changes its algorithms
    /// at certain sizes, so each size is traced separately there.
    fn trace(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<Trace, TraceError> {
        match self.known(bucket, choice)? {
            Some(known) => Ok(known.at(utterances, self.demand.rules)),
            None => trace(self.traceable, bucket.with_utterances(utterances), choice, self.demand.rules),
        }
    }

    /// Returns the trace that stands for all sizes of a bucket.
    fn known(&self, bucket: BatchShape, choice: Choice) -> Result<Known, TraceError> {
        self.traces.step(self.traceable, bucket, choice, self.demand.rules)
    }

    /// Computes the peak memory of a run that trains with micro-batches of `size` and validates `utterances` utterances of
    /// the same bucket between two steps, with the optimizer state `state` and GPU pages that are large enough for an
    /// allocation of `page` bytes.
    pub(crate) fn validation(
        &self,
        size: Size,
        utterances: u32,
        state: StateOption,
        page: Bytes,
    ) -> Result<Bytes, TraceError> {
        cached(&self.validations, (size, utterances, state, page), || {
            Ok(match self.demand.rules {
                BackendRules::Flex { .. } => {
                    let (peak, _) = self.validation_memory(size.0, utterances)?;
                    with_margin(Bytes(self.idle(state).0 + peak.0.saturating_sub(self.weights.0)))
                }
                BackendRules::Cube { .. } => {
                    let (trace, step) = (self.trace(size.0, size.1, size.2)?, self.step(size.0, size.1, state)?);
                    let timeline = self.validation_timeline(size.0, utterances)?;
                    trace.reserved_within(page, step, Some(&timeline), Bytes(u64::MAX))
                }
            })
        })
    }

    /// Returns the size of the largest single allocation of validating `utterances` utterances of `bucket`.
    pub(crate) fn largest_in_validation(&self, bucket: BatchShape, utterances: u32) -> Result<Bytes, TraceError> {
        Ok(self.validation_memory(bucket, utterances)?.1)
    }

    /// Computes the peak and the largest single allocation of validating `utterances` utterances of `bucket`.
    fn validation_memory(&self, bucket: BatchShape, utterances: u32) -> Result<(Bytes, Bytes), TraceError> {
        cached(&self.validated, (bucket, utterances), || {
            let timeline = self.validation_timeline(bucket, utterances)?;
            let largest = timeline.allocations.iter().map(|one| one.size).max().unwrap_or_default();
            Ok((timeline.peak(), largest))
        })
    }

    /// Returns the memory over time of validating `utterances` utterances of `bucket`.
    fn validation_timeline(&self, bucket: BatchShape, utterances: u32) -> Result<Timeline, TraceError> {
        let rules = self.demand.rules;
        let known = cached(&self.traces.0.validations, bucket, || match rules {
            BackendRules::Flex { .. } => Ok::<Known, TraceError>(None),
            BackendRules::Cube { .. } => {
                Ok(trace_validation_of_any_number(self.traceable, bucket, rules)?.map(Arc::new))
            }
        })?;
        match known {
            Some(known) => Ok(known.at(utterances, rules).timeline),
            None => trace_validation(self.traceable, bucket.with_utterances(utterances), rules),
        }
    }

    /// Computes the memory between steps with the optimizer state `state`: weights, state and workspace.
    pub fn idle(&self, state: StateOption) -> Bytes {
        Bytes(self.weights.0 + self.state_bytes(state) + self.demand.step.workspace.0)
    }

    /// Computes the memory that does not depend on the batch with the optimizer state `state`: weights, gradients and
    /// state.
    pub fn fixed(&self, state: StateOption) -> Bytes {
        Bytes(self.weights.0 + self.gradients.0 + self.state_bytes(state))
    }

    fn state_bytes(&self, state: StateOption) -> u64 {
        StepMemory { state_bits: state.bits, ..self.demand.step }.state_of(self.values()).0
    }
}

impl<S> MemoryModel<'_, S> {
    /// Returns the demand from which this memory model was made.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Returns the traces that the model has made so far. A model of the same traceable on the same backend can start with
    /// them.
    pub fn traces(&self) -> Traces {
        self.traces.clone()
    }

    /// Returns the number of trainable parameter values.
    pub fn values(&self) -> u64 {
        self.parameters.iter().sum()
    }

    /// Returns the number of trainable parameters, each a tensor.
    pub(crate) fn tensors(&self) -> usize {
        self.parameters.len()
    }
}

/// Adds the share by which traces were below measurements on the CPU: up to 1 %
/// (docs/log/memory-accuracy.md, "CPU, first matrix"). On a GPU a part of each page is kept free instead.
fn with_margin(peak: Bytes) -> Bytes {
    Bytes(peak.0 + peak.0.div_ceil(100))
}
