//! A few traces that answer for all batches: memory and cost grow evenly with the batch, and with the second passes.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{BatchShape, Bytes, Choice, Remat};

use crate::backend::BackendRules;
use crate::cost::Cost;
use crate::life::{Life, StepMemory};
use crate::plan::Demand;
use crate::subject::Subject;
use crate::trace::{Trace, TraceError, trace, trace_validation};

/// What a piece weighs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighed {
    /// The most that is in memory at once while a run computes such pieces.
    pub peak: Bytes,
    /// What computing the piece takes.
    pub cost: Cost,
    /// The largest thing that is made.
    pub largest: Bytes,
}

/// The traces of a model that plans are made from.
///
/// It does not know a budget or a card: the same survey answers for all.
pub struct Survey<'a, S> {
    subject: &'a S,
    demand: Demand,
    costs: HashMap<(BatchShape, bool, Option<NonZeroU32>), [Cost; 2]>,
    pairs: Mutex<HashMap<(BatchShape, Choice), Pair>>,
    weighed: Mutex<HashMap<(BatchShape, u32, Choice), Weighed>>,
    validations: Mutex<HashMap<(BatchShape, u32), Bytes>>,
    parameters: Vec<u64>,
    weights: Bytes,
    gradients: Bytes,
}

/// Two traces of a length, of [`POINTS`] utterances.
type Pair = Arc<[Trace; 2]>;

/// Utterances of the two traces between which, and beyond which, lines are drawn.
const POINTS: [u32; 2] = [2, 5];

impl<'a, S: Subject + Sync> Survey<'a, S> {
    /// Traces what `demand` needs.
    pub fn of(subject: &'a S, demand: Demand) -> Result<Self, TraceError> {
        let most = demand.second_passes.iter().copied().max().unwrap_or(0);
        let mut jobs = Vec::new();
        for &bucket in &demand.buckets {
            for &chunk in &demand.chunks {
                for again in [false, true] {
                    if !again || most > 0 {
                        jobs.push((bucket, again, chunk));
                    }
                }
            }
        }
        let choice = |&(_, again, chunk): &(BatchShape, bool, Option<NonZeroU32>)| {
            let remat = if again { Remat::All } else { Remat::None };
            Choice { remat, attention_chunk: chunk, precision: demand.precision }
        };
        let traced = in_parallel(&jobs, |job| pair(subject, job.0, choice(job), demand.rules));
        let (mut costs, mut pairs) = (HashMap::new(), HashMap::new());
        for (job, pair) in jobs.into_iter().zip(traced) {
            let pair = pair?;
            costs.insert(job, pair.each_ref().map(|trace| trace.cost));
            pairs.insert((job.0, choice(&job)), Arc::new(pair));
        }
        let first = pairs.values().next().ok_or(TraceError::NoGradient)?;
        let Trace { parameters, weights, gradients, .. } = first[0].clone();
        let pairs = Mutex::new(pairs);
        let (weighed, validations) = (Mutex::default(), Mutex::default());
        Ok(Self { subject, demand, costs, pairs, weighed, validations, parameters, weights, gradients })
    }

    /// What computing a piece of `bucket` takes, about: costs grow evenly with the utterances and the second passes.
    pub(crate) fn about(
        &self,
        bucket: BatchShape,
        utterances: u32,
        second_passes: u32,
        chunk: Option<NonZeroU32>,
    ) -> Cost {
        let at = |again: bool| -> Cost {
            let Some([few, more]) = self.costs.get(&(bucket, again, chunk)) else { return Cost::default() };
            few.towards(more, share(utterances))
        };
        let again = f64::from(second_passes) / f64::from(self.demand.blocks.max(1));
        if again > 0.0 { at(false).towards(&at(true), again.min(1.0)) } else { at(false) }
    }

    /// What a piece of so many utterances of `bucket` weighs by its own trace.
    pub fn weigh(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<Weighed, TraceError> {
        let key = (bucket, utterances, choice);
        if let Some(found) = self.weighed.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*found);
        }
        let weighed = self.weigh_beside(bucket, utterances, choice, Bytes(0))?;
        self.weighed.lock().unwrap_or_else(PoisonError::into_inner).insert(key, weighed);
        Ok(weighed)
    }

    /// The same in a run that also makes something of `largest` bytes, for which a card lays out its pages.
    pub(crate) fn weigh_beside(
        &self,
        bucket: BatchShape,
        utterances: u32,
        choice: Choice,
        largest: Bytes,
    ) -> Result<Weighed, TraceError> {
        let (piece, step) = (self.piece(bucket, utterances, choice)?, self.step(bucket, utterances)?);
        // Traces have been up to 1 % below what was measured, and not much more on a device of CubeCL (docs/LOG.md).
        let (peak, percent) = match self.demand.rules {
            BackendRules::Flex { .. } => (Life::of(&piece, None, step).peak(), 1),
            BackendRules::Cube { .. } => (piece.reserved_beside(largest, step), 2),
        };
        let peak = Bytes(peak.0 + (peak.0 * percent).div_ceil(100));
        Ok(Weighed { peak, cost: piece.cost, largest: piece.largest() })
    }

    /// The life of a run with such pieces, without validation.
    pub fn life(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<(Life, Cost), TraceError> {
        let piece = self.piece(bucket, utterances, choice)?;
        Ok((Life::of(&piece, None, self.step(bucket, utterances)?), piece.cost))
    }

    fn step(&self, bucket: BatchShape, utterances: u32) -> Result<StepMemory, TraceError> {
        Ok(StepMemory { pieces: bucket.utterances.div_ceil(utterances.max(1)), ..self.around(bucket)? })
    }

    /// The trace of a piece. On a card every size grows evenly with the utterances, and two traces say all; the CPU's
    /// backend does things in other ways from certain sizes on, and is traced as it is asked.
    fn piece(&self, bucket: BatchShape, utterances: u32, choice: Choice) -> Result<Trace, TraceError> {
        let exactly = || trace(self.subject, bucket.with_utterances(utterances), choice, self.demand.rules);
        if matches!(self.demand.rules, BackendRules::Flex { .. }) {
            return exactly();
        }
        let known = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&(bucket, choice)).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let made = Arc::new(pair(self.subject, bucket, choice, self.demand.rules)?);
                self.pairs.lock().unwrap_or_else(PoisonError::into_inner).insert((bucket, choice), made.clone());
                made
            }
        };
        known[0].towards(&known[1], share(utterances)).map_or_else(exactly, Ok)
    }

    /// What validating so many utterances of `bucket` takes beyond weights and state.
    pub(crate) fn validation(&self, bucket: BatchShape, utterances: u32) -> Result<Bytes, TraceError> {
        let key = (bucket, utterances);
        if let Some(found) = self.validations.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*found);
        }
        let timeline = trace_validation(self.subject, bucket.with_utterances(utterances), self.demand.rules)?;
        let found = Bytes(timeline.peak().0.saturating_sub(self.weights.0));
        self.validations.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found);
        Ok(found)
    }

    /// What is there between steps: weights and optimizer state.
    pub fn idle(&self) -> Bytes {
        Bytes(self.weights.0 + self.demand.step.state_of(self.values()).0 + self.demand.step.workspace.0)
    }

    /// Weights, gradients and optimizer state.
    pub fn fixed(&self) -> Bytes {
        Bytes(self.weights.0 + self.gradients.0 + self.demand.step.state_of(self.values()).0)
    }
}

impl<S> Survey<'_, S> {
    /// What it was made for.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// The model.
    pub(crate) fn subject(&self) -> &S {
        self.subject
    }

    /// Values of all parameters that are trained.
    pub fn values(&self) -> u64 {
        self.parameters.iter().sum()
    }
}

/// How far `utterances` are on the way from the first of [`POINTS`] to the second.
fn share(utterances: u32) -> f64 {
    (f64::from(utterances) - f64::from(POINTS[0])) / f64::from(POINTS[1] - POINTS[0])
}

/// The two traces that stand for all batches of a length.
fn pair<S: Subject>(
    subject: &S,
    bucket: BatchShape,
    choice: Choice,
    rules: BackendRules,
) -> Result<[Trace; 2], TraceError> {
    let [few, more] = POINTS.map(|utterances| trace(subject, bucket.with_utterances(utterances), choice, rules));
    Ok([few?, more?])
}

impl Trace {
    /// The trace on the line through both, `share` of the way from this one; none where they differ in more than sizes.
    fn towards(&self, other: &Self, share: f64) -> Option<Self> {
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
        let cost = self.cost.towards(&other.cost, share);
        Some(Self { timeline, cost, ..self.clone() })
    }
}

/// `work` on each of `jobs`, on all cores, in order.
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
        workers.into_iter().flat_map(|worker| worker.join().expect("a trace tells its failures")).collect()
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}
