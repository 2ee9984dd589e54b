//! Measures the memory of a run's steps on its GPU before the run begins, and plans again by what it found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::{BatchShape, Bytes, HostBatch, Key};
use plimsoll_memory::{BucketPlan, Plan, Traceable};
use plimsoll_tape::Task;
use plimsoll_train::pools::MeasuredMemory;
use plimsoll_train::{StepError, Trainer};

use super::RunContext;
use super::measured_plans::MeasuredPlans;
use super::task::Trainable;
use crate::error::{Failure, FailureExt};
use crate::memory::MemoryRequest;
use crate::memory_plan::{MeasuredStart, MemoryPlan};
use crate::reporter::Level;
use crate::with_model;

/// Most plans that are measured: the first, one by what was found, and one if that does not fit.
const ROUNDS: usize = 3;
/// Time after which no other length is measured. The heaviest steps come first, and their time does not count.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Share of the planned memory from which on another plan could not use what is left.
const GOOD: f64 = 0.97;
/// Share of the planned peak from which on a length decides how much a plan needs.
const NEAR: f64 = 0.9;
/// Factor on the memory of steps that did not fit: how much more they need is not known.
const EXCEEDED: f64 = 1.08;

/// Returns a batch of `shape` whose features and references are noise: silence has no variance, and norms would divide by zero.
pub fn noisy_batch<S: Traceable<Task: Task<Batch = HostBatch>>>(subject: &S, shape: BatchShape) -> HostBatch {
    let mut batch = subject.batch(shape);
    let values = batch.features.iter_mut().chain(&mut batch.references).enumerate();
    values.for_each(|(index, value)| *value = Key::new(2).at(index as u64).unit() as f32);
    batch
}

/// What was measured of a plan.
#[derive(Clone, Debug)]
struct Readings {
    /// Memory of the steps of each length, in the order of the plan; `None` where time was short.
    buckets: Vec<Option<MeasuredMemory>>,
    /// Memory of a validation of the longest utterances; `None` where it was not measured.
    validation: Option<MeasuredMemory>,
    /// Memory of steps of the shortest and the longest utterances after all of them, with the pages that they left.
    mixed: Option<MeasuredMemory>,
}

impl Readings {
    /// Returns what is known of a plan for which not even the model found memory.
    fn exceeded(plan: &Plan) -> Self {
        Self { buckets: vec![Some(MeasuredMemory::Exceeded); plan.buckets.len()], validation: None, mixed: None }
    }

    /// Pairs each planned peak that was measured with what was measured.
    fn beside(&self, plan: &Plan) -> Vec<(Bytes, MeasuredMemory)> {
        let steps = plan.buckets.iter().map(|bucket| bucket.peak).zip(self.buckets.iter().copied());
        let whole = [(plan.validation_peak, self.validation), (plan.peak, self.mixed)];
        steps.chain(whole).filter_map(|(planned, found)| found.map(|found| (planned, found))).collect()
    }

    /// Returns by how much the memory of what binds differs from that which `plan` expects: the highest ratio of reserved to planned
    /// memory, of what exceeds the budget, or else of what is planned with nearly as much as the peak. What needs little memory may be far off and
    /// binds nothing.
    fn ratio(&self, plan: &Plan) -> f64 {
        let budget = plan.in_pools(plan.budget);
        let all = self.beside(plan).into_iter().map(|(planned, found)| match found {
            MeasuredMemory::Reserved(bytes) => {
                let ratio = bytes.0 as f64 / plan.in_pools(planned).0.max(1) as f64;
                (planned, ratio, bytes > budget)
            }
            MeasuredMemory::Exceeded => (planned, EXCEEDED, true),
        });
        let (over, others): (Vec<_>, Vec<_>) = all.partition(|&(.., is_over)| is_over);
        let near = others.into_iter().filter(|&(planned, ..)| planned.0 as f64 >= NEAR * plan.peak.0 as f64).collect();
        let binding = if over.is_empty() { near } else { over };
        binding.into_iter().map(|(_, ratio, _)| ratio).fold(0.0, f64::max)
    }

    /// Returns whether all that was measured had enough memory.
    fn all_fit(&self) -> bool {
        !self
            .buckets
            .iter()
            .chain([&self.validation, &self.mixed])
            .any(|found| *found == Some(MeasuredMemory::Exceeded))
    }

    /// Returns whether nothing is unknown.
    fn is_whole(&self) -> bool {
        self.buckets.iter().chain([&self.validation, &self.mixed]).all(Option::is_some)
    }

    /// Returns `plan` with the measured memory in the place of the planned. What was not measured is taken to exceed its plan as the most that
    /// was.
    fn corrected(&self, plan: &Plan) -> Plan {
        let ratio = self.ratio(plan).max(1.0);
        let peak = |planned: Bytes, found: Option<MeasuredMemory>| {
            let pools = match found {
                Some(MeasuredMemory::Reserved(bytes)) => bytes.0,
                Some(MeasuredMemory::Exceeded) | None => (plan.in_pools(planned).0 as f64 * ratio) as u64,
            };
            Bytes(pools + plan.workspace.0)
        };
        let mut corrected = plan.clone();
        for (bucket, found) in corrected.buckets.iter_mut().zip(&self.buckets) {
            bucket.peak = peak(bucket.peak, *found);
        }
        corrected.validation_peak = peak(plan.validation_peak, self.validation);
        let steps = corrected.buckets.iter().map(|bucket| bucket.peak).max().unwrap_or_default();
        let mixed = self.mixed.map_or(Bytes(0), |found| peak(plan.peak, Some(found)));
        corrected.peak = steps.max(corrected.validation_peak).max(mixed);
        corrected
    }
}

/// Returns whether two plans compute every length alike.
fn computes_alike(one: &Plan, other: &Plan) -> bool {
    let layout = |plan: &Plan| -> Vec<_> {
        plan.buckets.iter().map(|bucket| (bucket.bucket, bucket.micro_batch, bucket.choice)).collect()
    };
    layout(one) == layout(other) && one.state == other.state && one.validation_batch == other.validation_batch
}

/// A plan that was measured.
struct Found {
    plan: Plan,
    /// Size of the pages with which it was measured.
    page: Bytes,
    /// Whether the next start may take it: all was measured and fits, and no other process stood in the way.
    may_be_kept: bool,
}

impl RunContext<'_> {
    /// Measures the memory that the steps of the run reserve on its GPU, plans again if they need more than there is, or if
    /// there is room for a faster plan, and keeps the result for the next start. What the steps of the longest batches reserve is
    /// then known and not estimated. `stop` ends it early; the plan is then as it was.
    ///
    /// Nothing is measured on the CPU, where a plan was never far off; for several replicas, which would wait for each other; and if
    /// `training.measure_memory` is false.
    ///
    /// # Errors
    /// If the GPU fails for a reason other than memory.
    pub fn measure_memory(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let is_one = self.processes.is_alone() && self.device.replicas <= 1;
        if self.device.is_host || !is_one || !self.plan.config.training.measure_memory || self.is_complete() {
            return Ok(());
        }
        let Some(planned) = self.plan.memory.clone() else { return Ok(()) };
        // Like a run that fails before its first step.
        let unstarted = self.folder.removed_unless_kept();
        let kept = MeasuredPlans::of(&self.plan, &self.device, self.target.as_ref());
        if let Some(plan) = kept.as_ref().and_then(|kept| kept.find(&planned.plan)) {
            self.use_measured(&planned, plan, None);
        } else {
            let begun = Instant::now();
            match self.measured_plan(&planned, stop)? {
                Some(found) => {
                    if let Some(kept) = kept.filter(|_| found.may_be_kept) {
                        kept.keep(&planned.plan, &found.plan);
                    }
                    self.use_measured(&planned, found.plan, Some(begun.elapsed()));
                }
                None => self.plan.set_memory(Some(planned)),
            }
        }
        if let Some(folder) = unstarted {
            folder.keep();
        }
        Ok(())
    }

    /// Returns whether the run is resumed and has all of its steps: nothing will be computed.
    fn is_complete(&self) -> bool {
        let state = self.resumed.as_ref().map(|resumed| &resumed.earlier.state);
        state.is_some_and(|state| self.plan.training.limits().reached(state).is_some())
    }

    /// Measures `planned` and what follows from it; `None` if it was stopped, or nothing could be measured.
    fn measured_plan(&mut self, planned: &MemoryPlan, stop: &AtomicBool) -> Result<Option<Found>, Failure> {
        let budget = planned.plan.budget;
        let (mut plan, mut is_alone) = (planned.plan.clone(), true);
        let mut best: Option<Found> = None;
        for round in 0..ROUNDS {
            self.plan.set_memory(Some(MemoryPlan { plan: plan.clone(), ..planned.clone() }));
            let found = match self.readings(&plan, stop) {
                // A bolder plan than the first may find no memory at all.
                Err(_) if round > 0 && !stop.load(Ordering::Relaxed) => Readings::exceeded(&plan),
                found => match found? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            // What needs much less than there is was in the way of another process: that says nothing about the plan.
            if !found.all_fit() && best.is_none() && (plan.peak.0 as f64) < NEAR * budget.0 as f64 && round == 0 {
                return Ok(None);
            }
            let corrected = found.corrected(&plan);
            let fits = found.all_fit() && corrected.peak <= budget;
            let ratio = found.ratio(&plan);
            is_alone &= found.all_fit() || round > 0;
            let is_better = best.as_ref().is_none_or(|best| corrected.seconds() < best.plan.seconds());
            if fits && is_better || best.is_none() && round + 1 == ROUNDS {
                let (page, may_be_kept) =
                    (self.largest_page().max(planned.plan.page), fits && is_alone && found.is_whole());
                best = Some(Found { plan: corrected, page, may_be_kept });
            }
            // After a plan that fits, one that does not is the end. More is tried only where all is known.
            if fits && (ratio > GOOD || !found.is_whole()) || !fits && best.is_some() {
                break;
            }
            let Some(next) = self.next_plan(&plan, ratio, fits) else { break };
            plan = Plan { budget, ..next };
        }
        let is_doubtful = best.as_ref().is_none_or(|best| best.plan.peak > budget);
        if is_doubtful {
            let text =
                "the steps of this run may need more memory than there is: they are cut further where that is seen";
            self.reporter.line(Level::Warning, text);
        }
        let Some(mut best) = best else { return Ok(None) };
        // Pages of the pools become larger, and never smaller: the next start begins with those.
        let page = self.largest_page().max(planned.plan.page);
        best.may_be_kept &= best.page == page;
        best.plan.page = page;
        Ok(Some(best))
    }

    /// Returns the largest tensor of the pools of the GPU, which decides the size of their pages.
    fn largest_page(&self) -> Bytes {
        let pools = self.device.meter(self.memory).pools();
        let pages = pools.iter().flat_map(|pools| &pools.pages).filter(|pages| pages.most > 0);
        pages.map(|pages| pages.largest_bytes).max().unwrap_or_default()
    }

    /// Plans again, where `plan` needs `ratio` times the memory that was planned; `None` if no other plan follows.
    fn next_plan(&self, plan: &Plan, ratio: f64, fits: bool) -> Option<Plan> {
        let mut ratio = ratio.max(f64::MIN_POSITIVE);
        for _ in 0..ROUNDS {
            let room = plan.in_pools(plan.budget).0 as f64 / ratio;
            let next = self.planned_within(Bytes(room as u64 + plan.workspace.0))?;
            if !computes_alike(&next, plan) {
                return Some(next);
            }
            if fits {
                return None;
            }
            // Less has to be planned, by more than the planner sees.
            ratio *= EXCEEDED;
        }
        None
    }

    /// Plans the run again, within `available`; `None` if it does not fit.
    fn planned_within(&self, available: Bytes) -> Option<Plan> {
        let request = MemoryRequest {
            run: &self.plan,
            prepared: &self.prepared,
            target: self.target.as_ref(),
            in_use: self.in_use,
            available: Some(available),
            reporter: self.reporter,
        };
        Some(request.plan().ok()??.plan)
    }

    /// Trains by `plan`, which was measured now, in this time, or at an earlier start.
    fn use_measured(&mut self, planned: &MemoryPlan, plan: Plan, time: Option<Duration>) {
        let measured = MeasuredStart { traced: planned.plan.peak, seconds: time.map(|time| time.as_secs_f64()) };
        let plan = Plan { budget: planned.plan.budget, ..plan };
        let memory = MemoryPlan { plan, measured: Some(measured), ..planned.clone() };
        self.plan.set_memory(Some(memory.clone()));
        let text = format!("memory    {}, {}", memory.text(self.plan.training.lanes), self.plan.at_once());
        self.reporter.line(Level::Info, &text);
    }

    /// Measures the steps of `plan` on the GPU; `None` if it was stopped, or no step could be measured.
    fn readings(&self, plan: &Plan, stop: &AtomicBool) -> Result<Option<Readings>, Failure> {
        let tokens = self.prepared.tokenizer.size();
        with_model!(&self.plan.model, config => {
            let replica = self.device.replicas(&self.processes, self.plan.config.training.sums).remove(0);
            let trainer = self.trainer(&config.training(tokens), replica)?;
            Measuring { run: self, subject: config, plan, stop, trainer }.readings()
        })
    }
}

/// A measurement of one plan, with a trainer that does nothing else.
struct Measuring<'a, S: Traceable<Task: Task<Batch = HostBatch>>> {
    run: &'a RunContext<'a>,
    subject: &'a S,
    plan: &'a Plan,
    stop: &'a AtomicBool,
    trainer: Trainer<S::Task>,
}

impl<S: Traceable<Task: Task<Batch = HostBatch>>> Measuring<'_, S> {
    /// Measures each length, the heaviest first, then a validation, then steps of the shortest and the longest without a cleanup
    /// between them; `None` if it was stopped, or no step could be measured.
    fn readings(mut self) -> Result<Option<Readings>, Failure> {
        let plan = self.plan;
        let mut order: Vec<usize> = (0..plan.buckets.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(plan.buckets[index].peak));
        let alone = order.len();
        let frames = |&index: &usize| plan.buckets[index].bucket.frames;
        let shortest = (0..alone).min_by_key(frames).filter(|_| alone > 1);
        order.extend(shortest.into_iter().chain((0..alone).max_by_key(frames)));
        let progress = self.run.reporter.progress("measuring memory", Some(alone as u64 + 2));
        let mut found = Readings { buckets: vec![None; alone], validation: None, mixed: None };
        let mut begun = Instant::now();
        let Some(&first) = order.first() else { return Ok(None) };
        let mut batch = self.batch(&plan.buckets[first]);
        for (done, &index) in order.iter().enumerate() {
            // The weights may be lost.
            if !found.all_fit() {
                break;
            }
            if done == alone {
                if found.buckets.iter().all(Option::is_none) {
                    break;
                }
                progress.set(alone as u64);
                found.validation = self.validation();
                progress.set(alone as u64 + 1);
                if !found.all_fit() {
                    break;
                }
            }
            let next = order.get(done + 1).map_or_else(|| batch.clone(), |&next| self.batch(&plan.buckets[next]));
            if done >= alone {
                found.mixed = self.steps(&batch, &next, true)?;
            } else if begun.elapsed() <= TIME_MAX {
                progress.set(done as u64);
                found.buckets[index] = self.steps(&batch, &next, false)?;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // The first steps compile kernels.
            if done == 0 {
                begun = Instant::now();
            }
            batch = next;
        }
        if found.buckets.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok((!self.stop.load(Ordering::Relaxed)).then_some(found))
    }

    /// Makes a batch of the length of `bucket`: of two micro-batches where there are several, since all others take the memory of the
    /// second.
    fn batch(&self, bucket: &BucketPlan) -> HostBatch {
        let utterances = bucket.bucket.utterances.min(bucket.micro_batch * 2).max(1);
        noisy_batch(self.subject, bucket.bucket.with_utterances(utterances))
    }

    /// Measures steps on `batch`, the last of which sends `next`. `None` if they have no result.
    fn steps(
        &mut self,
        batch: &HostBatch,
        next: &HostBatch,
        keeps_pages: bool,
    ) -> Result<Option<MeasuredMemory>, Failure> {
        match self.trainer.measure(self.stop, batch, next, keeps_pages) {
            Ok(memory) => Ok(Some(memory)),
            // Noise may have no finite loss, or none at all. What a run meets is another thing.
            Err(StepError::NotFinite { .. } | StepError::Nothing { .. } | StepError::Stopped { .. }) => Ok(None),
            Err(error) => Err(error).failed(),
        }
    }

    /// Measures a validation of the longest utterances, with as many at once as planned.
    fn validation(&mut self) -> Option<MeasuredMemory> {
        let longest = self.plan.buckets.iter().map(|bucket| bucket.bucket).max_by_key(|shape| shape.frames)?;
        let batch = noisy_batch(self.subject, longest.with_utterances(self.plan.validation_batch.max(1)));
        let device = self.trainer.device().clone().inner();
        self.trainer.measure_inference(false, |model| {
            let tensors = S::Task::send(&batch, &device);
            self.subject.validate(model, &tensors);
            device.sync().expect("the device computed the validation");
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use plimsoll_core::{Choice, Frames, Precision};
    use plimsoll_memory::StateOption;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns a plan with 512 MiB of workspace and steps whose pools reserve `pools` MiB.
    pub(in crate::training) fn plan(pools: &[u64], validation: u64) -> Plan {
        let bytes = |mib: u64| Bytes((mib + 512) * MIB);
        let bucket = |(index, &mib): (usize, &u64)| BucketPlan {
            bucket: BatchShape { utterances: 8, frames: Frames(100 * (index as u32 + 1)), tokens: 10 },
            micro_batch: 4,
            accumulation: 2,
            choice: Choice::default(),
            peak: bytes(mib),
            seconds: 1.0,
        };
        Plan {
            budget: bytes(4000),
            peak: pools.iter().chain([&validation]).map(|&mib| bytes(mib)).max().unwrap(),
            page: Bytes(64 * MIB),
            precision: Precision::Fp32,
            state: StateOption::FULL,
            prefetch: 1,
            fixed: Bytes(100 * MIB),
            workspace: Bytes(512 * MIB),
            validation_batch: 8,
            validation_peak: bytes(validation),
            buckets: pools.iter().enumerate().map(bucket).collect(),
        }
    }

    fn reserved(mib: u64) -> MeasuredMemory {
        MeasuredMemory::Reserved(Bytes(mib * MIB))
    }

    fn readings(steps: &[Option<MeasuredMemory>], validation: MeasuredMemory, mixed: MeasuredMemory) -> Readings {
        Readings { buckets: steps.to_vec(), validation: Some(validation), mixed: Some(mixed) }
    }

    #[test]
    fn what_was_measured_replaces_what_was_traced() {
        let planned = plan(&[1000, 2000, 400], 800);
        let found = readings(&[Some(reserved(900)), Some(reserved(2200)), None], reserved(700), reserved(2210));
        assert!(found.all_fit() && !found.is_whole());
        assert_eq!(found.ratio(&planned), 1.105);
        // The workspace is beside what the pools reserve, and the length that was not measured is as far off as the worst.
        let corrected = found.corrected(&planned);
        let expected = Plan { peak: Bytes((2210 + 512) * MIB), ..plan(&[900, 2200, 442], 700) };
        assert_eq!(corrected, expected);
        assert_eq!(corrected.in_pools(corrected.peak), Bytes(2210 * MIB));
        // Where all needs less, that which was not measured is not taken to need less.
        let less = readings(&[Some(reserved(900)), Some(reserved(1500)), None], reserved(700), reserved(1500));
        assert_eq!((less.ratio(&planned), less.corrected(&planned).buckets[2].peak), (0.75, planned.buckets[2].peak));
    }

    #[test]
    fn what_binds_decides_how_far_a_plan_is_off() {
        // A short length that is far off needs little; one that exceeds the budget counts.
        let planned = plan(&[300, 4000], 100);
        let near = readings(&[Some(reserved(400)), Some(reserved(3900))], reserved(150), reserved(3920));
        assert_eq!(near.ratio(&planned), 0.98);
        let over = readings(&[Some(reserved(400)), Some(reserved(4040))], reserved(150), reserved(3900));
        assert_eq!(over.ratio(&planned), 1.01);
        assert!(over.all_fit() && over.corrected(&planned).peak > planned.budget);
    }

    #[test]
    fn what_exceeds_the_memory_does_not_fit() {
        let planned = plan(&[1000], 1000);
        let validated = readings(&[Some(reserved(800))], reserved(1200), reserved(900));
        assert_eq!(validated.corrected(&planned).peak, Bytes(1712 * MIB));
        let exceeded = Readings { buckets: vec![Some(MeasuredMemory::Exceeded)], validation: None, mixed: None };
        assert!(!exceeded.all_fit() && !exceeded.is_whole());
        assert_eq!(exceeded.ratio(&planned), EXCEEDED);
        assert_eq!(Readings::exceeded(&planned).ratio(&planned), EXCEEDED);
    }

    #[test]
    fn plans_compute_alike_whatever_they_need() {
        let (one, mut other) = (plan(&[1000, 2000], 1), plan(&[900, 1900], 7));
        assert!(computes_alike(&one, &other));
        other.buckets[1].micro_batch = 5;
        assert!(!computes_alike(&one, &other));
    }
}
