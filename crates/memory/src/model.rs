//! The memory model of a training run: a few traces from which every batch size is estimated, as memory and cost grow
//! linearly with the batch and with the rematerialized blocks.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{BatchShape, Bytes, Choice, Remat};

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::demand::Demand;
use crate::run_memory::{RunMemory, StepMemory};
use crate::trace::{Trace, TraceError, batch_bytes, trace, trace_validation};
use crate::traceable::Traceable;

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

/// A model, the demand of its training run, and the traces from which plans are made.
///
/// A memory model is independent of budget and GPU, so one serves the plans for many GPUs. Estimates are cached.
pub struct MemoryModel<'a, S> {
    traceable: &'a S,
    demand: Demand,
    costs: HashMap<(BatchShape, bool, Option<NonZeroU32>), [Cost; 2]>,
    pairs: Mutex<HashMap<(BatchShape, Choice), Pair>>,
    estimates: Mutex<HashMap<(BatchShape, u32, Choice), MemoryEstimate>>,
    validations: Mutex<HashMap<(BatchShape, u32), Bytes>>,
    parameters: Vec<u64>,
    weights: Bytes,
    gradients: Bytes,
}

/// Traces of one bucket with micro-batches of the two sizes in [`SAMPLED_UTTERANCES`], the smaller size first.
type Pair = Arc<[Trace; 2]>;

/// Sizes of the two micro-batches that are traced, in utterances; other sizes are interpolated or extrapolated
/// linearly.
const SAMPLED_UTTERANCES: [u32; 2] = [2, 5];

impl<'a, S: Traceable + Sync> MemoryModel<'a, S> {
    /// Traces every bucket of `demand`, in parallel on all cores.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced, or where `demand` has no buckets.
    pub fn new(traceable: &'a S, demand: Demand) -> Result<Self, TraceError> {
        let most = demand.remat_counts.iter().copied().max().unwrap_or(0);
        let mut jobs = Vec::new();
        for &bucket in &demand.buckets {
            for &chunk in &demand.chunks {
                for remat in [false, true] {
                    if !remat || most > 0 {
                        jobs.push((bucket, remat, chunk));
                    }
                }
            }
        }
        let choice = |&(_, remat, chunk): &(BatchShape, bool, Option<NonZeroU32>)| {
            let remat = if remat { Remat::All } else { Remat::None };
            Choice { remat, attention_chunk: chunk, precision: demand.precision }
        };
        let traced = in_parallel(&jobs, |job| pair(traceable, job.0, choice(job), demand.rules));
        let (mut costs, mut pairs) = (HashMap::new(), HashMap::new());
        for (job, pair) in jobs.into_iter().zip(traced) {
            let pair = pair?;
            costs.insert(job, pair.each_ref().map(|trace| trace.cost));
            pairs.insert((job.0, choice(&job)), Arc::new(pair));
        }
        let first = pairs.values().next().ok_or(TraceError::NoGradient)?;
        let Trace { parameters, weights, gradients, .. } = first[0].clone();
        let pairs = Mutex::new(pairs);
        let (estimates, validations) = (Mutex::default(), Mutex::default());
        Ok(Self { traceable, demand, costs, pairs, estimates, validations, parameters, weights, gradients })
    }

    /// Approximates the cost of a micro-batch, linear in utterances and rematerialized blocks, without a new trace.
    pub(crate) fn approximate_cost(
        &self,
        bucket: BatchShape,
        utterances: u32,
        remat_count: u32,
        chunk: Option<NonZeroU32>,
    ) -> Cost {
        let at = |remat: bool| -> Cost {
            let Some([few, more]) = self.costs.get(&(bucket, remat, chunk)) else { return Cost::default() };
            few.interpolate(more, share(utterances))
        };
        let remat = f64::from(remat_count) / f64::from(self.demand.blocks.max(1));
        if remat > 0.0 { at(false).interpolate(&at(true), remat.min(1.0)) } else { at(false) }
    }

    /// Estimates peak memory and cost of micro-batches of `utterances` utterances of `bucket`, computed with `choice`.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced with this choice.
    pub fn estimate(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<MemoryEstimate, TraceError> {
        let key = (bucket, utterances, choice);
        if let Some(found) = self.estimates.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*found);
        }
        let estimate = self.estimate_with_page(bucket, utterances, choice, Bytes(0))?;
        self.estimates.lock().unwrap_or_else(PoisonError::into_inner).insert(key, estimate);
        Ok(estimate)
    }

    /// Estimates peak memory and cost of micro-batches of `utterances` utterances of `bucket`, computed with `choice`,
    /// in a run whose GPU pages are large enough for an allocation of `largest` bytes.
    pub(crate) fn estimate_with_page(
        &self,
        bucket: BatchShape,
        utterances: u32,
        choice: Choice,
        largest: Bytes,
    ) -> Result<MemoryEstimate, TraceError> {
        let (trace, step) = (self.trace(bucket, utterances, choice)?, self.step(bucket, utterances)?);
        // Traces were up to 1 % below measurements on the CPU, and little more on a CubeCL device (docs/LOG.md).
        let (peak, percent) = match self.demand.rules {
            BackendRules::Flex { .. } => (RunMemory::new(&trace, None, step).peak(), 1),
            BackendRules::Cube { .. } => (trace.reserved_with_page(largest, step), 2),
        };
        let peak = Bytes(peak.0 + (peak.0 * percent).div_ceil(100));
        Ok(MemoryEstimate { peak, cost: trace.cost, largest: trace.largest() })
    }

    /// Computes the memory over time of a run with micro-batches of `utterances` utterances, without validation, and
    /// the cost of one micro-batch.
    ///
    /// # Errors
    /// [`TraceError`] where the model cannot be traced with this choice.
    pub fn run_memory(
        &self,
        bucket: BatchShape,
        utterances: u32,
        choice: Choice,
    ) -> Result<(RunMemory, Cost), TraceError> {
        let trace = self.trace(bucket, utterances, choice)?;
        Ok((RunMemory::new(&trace, None, self.step(bucket, utterances)?), trace.cost))
    }

    /// Computes the memory that a step of `bucket` needs in addition to one micro-batch, if each micro-batch has
    /// `utterances` utterances.
    fn step(&self, bucket: BatchShape, utterances: u32) -> Result<StepMemory, TraceError> {
        Ok(StepMemory {
            micro_batches: bucket.utterances.div_ceil(utterances.max(1)),
            ..self.beside_micro_batches(bucket)?
        })
    }

    /// Returns the trace of a micro-batch. On a GPU every allocation grows linearly with the utterances, so two traces
    /// suffice. The CPU backend changes its algorithms at certain sizes, so each size is traced separately there.
    fn trace(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<Trace, TraceError> {
        let exactly = || trace(self.traceable, bucket.with_utterances(utterances), choice, self.demand.rules);
        if matches!(self.demand.rules, BackendRules::Flex { .. }) {
            return exactly();
        }
        let known = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&(bucket, choice)).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let made = Arc::new(pair(self.traceable, bucket, choice, self.demand.rules)?);
                self.pairs.lock().unwrap_or_else(PoisonError::into_inner).insert((bucket, choice), made.clone());
                made
            }
        };
        known[0].interpolate(&known[1], share(utterances)).map_or_else(exactly, Ok)
    }

    /// Computes the peak memory of validating `utterances` utterances of `bucket`, without the weights.
    pub(crate) fn validation(&self, bucket: BatchShape, utterances: u32) -> Result<Bytes, TraceError> {
        let key = (bucket, utterances);
        if let Some(found) = self.validations.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*found);
        }
        let timeline = trace_validation(self.traceable, bucket.with_utterances(utterances), self.demand.rules)?;
        let found = Bytes(timeline.peak().0.saturating_sub(self.weights.0));
        self.validations.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found);
        Ok(found)
    }

    /// Computes the memory between steps: weights, optimizer state and workspace.
    pub fn idle(&self) -> Bytes {
        Bytes(self.weights.0 + self.demand.step.state_of(self.values()).0 + self.demand.step.workspace.0)
    }

    /// Computes the memory that does not depend on the batch: weights, gradients and optimizer state.
    pub fn fixed(&self) -> Bytes {
        Bytes(self.weights.0 + self.gradients.0 + self.demand.step.state_of(self.values()).0)
    }
}

impl<S> MemoryModel<'_, S> {
    /// Returns the demand from which this memory model was made.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Returns the number of trainable parameter values.
    pub fn values(&self) -> u64 {
        self.parameters.iter().sum()
    }
}

impl<S: Traceable> MemoryModel<'_, S> {
    /// Computes the memory that a step of `bucket` needs in addition to its micro-batches: the values of the demand,
    /// with the memory of the batch on the host and of the prefetched batches.
    fn beside_micro_batches(&self, bucket: BatchShape) -> Result<StepMemory, TraceError> {
        let demand = self.demand();
        let one = batch_bytes(self.traceable, bucket.with_utterances(1), demand.rules)?;
        let batch = Bytes(one.0 * u64::from(bucket.utterances));
        let is_host = matches!(demand.rules, BackendRules::Flex { .. });
        Ok(StepMemory {
            host_batch: if is_host { Bytes(batch.0 + demand.step.host_batch.0) } else { demand.step.host_batch },
            prefetch: Bytes(batch.0 * u64::from(demand.prefetch)),
            ..demand.step
        })
    }
}

/// Returns the position of `utterances` between the two [`SAMPLED_UTTERANCES`]: 0 at the first, 1 at the second.
fn share(utterances: u32) -> f64 {
    (f64::from(utterances) - f64::from(SAMPLED_UTTERANCES[0]))
        / f64::from(SAMPLED_UTTERANCES[1] - SAMPLED_UTTERANCES[0])
}

/// Traces micro-batches of both sizes in [`SAMPLED_UTTERANCES`], from which all sizes of a bucket are interpolated.
fn pair<S: Traceable>(
    traceable: &S,
    bucket: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<[Trace; 2], TraceError> {
    let [few, more] =
        SAMPLED_UTTERANCES.map(|utterances| trace(traceable, bucket.with_utterances(utterances), choice, rules));
    Ok([few?, more?])
}

impl Trace {
    /// Interpolates linearly from this trace (`share` 0) to `other` (`share` 1). Returns `None` if the traces differ in
    /// more than sizes.
    fn interpolate(&self, other: &Self, share: f64) -> Option<Self> {
        let (mine, theirs) = (&self.timeline, &other.timeline);
        if mine.allocations.len() != theirs.allocations.len() || mine.phases != theirs.phases {
            return None;
        }
        let between =
            |a: Bytes, b: Bytes| Bytes((a.0 as f64 + (b.0 as f64 - a.0 as f64) * share).ceil().max(0.0) as u64);
        let mut timeline = mine.clone();
        for (one, (few, more)) in timeline.allocations.iter_mut().zip(mine.allocations.iter().zip(&theirs.allocations))
        {
            if (few.birth, few.death) != (more.birth, more.death) {
                return None;
            }
            one.size = between(few.size, more.size);
        }
        let cost = self.cost.interpolate(&other.cost, share);
        Some(Self { timeline, cost, ..self.clone() })
    }
}

/// Runs `work` on each of `jobs` on all cores, and returns the results in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let (work, next) = (&work, &next);
        let start = |_| {
            scope.spawn(move || {
                let mut mine = Vec::new();
                loop {
                    let place = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(job) = jobs.get(place) else { return mine };
                    mine.push((place, work(job)));
                }
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a trace returns its failures and does not panic"))
            .collect()
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}
