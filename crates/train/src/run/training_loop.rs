//! The loop of a run: steps, validations, checkpoints and their events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::{
    Batch, BatchShape, BatchSource, Bytes, DeliveredBatch, EndKind, OutOfMemory, Position, Skipped, SourceError, Stage,
    TimeOwner, TimeShares, timing,
};
use plimsoll_tape::Task;

use super::pace::Pace;
use super::skipped::SkippedBatches;
use super::{Ending, RunOptions, Score, TrainError, Validate};
use crate::attempt::attempt;
use crate::checkpoint::{TIE_MAX, Writer};
use crate::{
    CheckpointStore, Event, InferenceRunner, Observer, RunState, Schedule, Shape, StepError, StepEvent, StepReport,
    Trainer,
};

/// Ratio of peak memory to planned memory above which a step is reported as drift.
const DRIFT: f64 = 1.03;
/// Duration of a step's last read from the device up to which the device counts as finished before the read: the time
/// to fetch the next batch was then not hidden by the computation and counts as waiting.
const AT_ONCE: Duration = Duration::from_millis(1);

/// State of a run in progress.
pub(super) struct TrainingLoop<'a, T: Task> {
    pub(super) trainer: &'a mut Trainer<T>,
    pub(super) writer: Writer,
    options: &'a RunOptions,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) state: RunState,
    best_kept: usize,
    /// Largest number of utterances validated at once, as far as known.
    at_once: usize,
    /// Time that the observer took for the events of the last step.
    observer_time: Duration,
    /// Step and position of the last checkpoint on disk.
    pub(super) written: Option<(u64, Position)>,
    /// Batches of this call of `train` that led to no step.
    skipped: SkippedBatches,
    /// Measure of the steps that a limit of time allows; `None` without one, or if the learning rate does not follow steps.
    pace: Option<Pace>,
    /// Number of steps over which the learning rate falls without a limit of time.
    total_steps: u64,
    /// Number of steps of the warm-up without a limit of time.
    warmup: u64,
    /// Next batch, if it was fetched while the device computed the current step.
    next_batch: Option<Result<DeliveredBatch<T::Batch>, SourceError>>,
}

impl<'a, T: Task> TrainingLoop<'a, T> {
    pub(super) fn new(
        trainer: &'a mut Trainer<T>,
        store: &CheckpointStore,
        options: &'a RunOptions,
        observer: &'a mut dyn Observer,
        state: RunState,
    ) -> Self {
        let (writer, best_kept) = (Writer::new(store.clone()), store.best_kept());
        trainer.rate_factor = if options.plateau.is_some() { state.plateau.factor } else { 1.0 };
        let Schedule { shape, total: total_steps, warmup, .. } = *trainer.schedule();
        let pace = options.limits.time.filter(|_| shape == Shape::Cosine).map(|limit| Pace::new(limit, &state));
        if let (Some(_), Some(steps)) = (&pace, state.timed_steps) {
            let steps = steps.min(total_steps);
            trainer.end_rate_at(steps, Schedule::warmup_within(warmup, options.warmup_share, steps));
        }
        // A resumed run has its checkpoint.
        let written = (state.step > 0).then_some((state.step, state.position));
        let (at_once, observer_time, skipped) = (options.validation_batch, Duration::ZERO, SkippedBatches::default());
        Self {
            trainer,
            writer,
            options,
            observer,
            state,
            best_kept,
            at_once,
            observer_time,
            written,
            skipped,
            pace,
            total_steps,
            warmup,
            next_batch: None,
        }
    }

    /// Runs steps until the run ends, and writes the result of each validation to `last_score`. The caller then calls
    /// `finish` or `save_after_error`.
    pub(super) fn run(
        &mut self,
        source: &mut dyn BatchSource<Batch = T::Batch>,
        validate: &mut Validate<'_, T>,
        stop: &AtomicBool,
        last_score: &mut Option<Score>,
    ) -> Result<Ending, TrainError> {
        // The time of the run begins here.
        timing::lap();
        let mut saved = self.state.step;
        let is_epoch_start = self.state.position == Position::epoch_start(self.state.position.epoch.max(1));
        // The validation of this step failed, and the run was resumed.
        if self.state.validated < self.state.step && self.is_due(self.state.step, is_epoch_start) {
            let Some(score) = self.validate(validate, stop)? else { return Ok(Ending::Stopped) };
            *last_score = Some(score);
        }
        let ending = loop {
            // All replicas agree: a signal may reach one of them earlier, and clocks differ.
            if self.any_replica(stop.load(Ordering::Relaxed))? {
                return Ok(Ending::Stopped);
            }
            if self.any_replica(self.reached().is_some())? {
                break self.reached().unwrap_or(Ending::Complete);
            }
            let fetch = || timing::measure(TimeOwner::Data, || source.next_batch());
            let Some(delivered) = self.next_batch.take().or_else(fetch) else {
                break Ending::Complete;
            };
            let before = self.state.position;
            if !self.step(delivered?, source, stop)? {
                return Ok(Ending::Stopped);
            }
            self.fit_rate_to_time()?;
            if let Some(error) = self.skipped.error_without_data(|| source.batches_in_epoch()) {
                return Err(error);
            }
            let new_epoch = self.state.position.epoch > before.epoch;
            let due = self.is_due(self.state.step, new_epoch);
            if due {
                let Some(score) = self.validate(validate, stop)? else { return Ok(Ending::Stopped) };
                *last_score = Some(score);
            }
            let is_kept = due && self.state.best_scores.iter().any(|(step, ..)| *step == self.state.step);
            if is_kept || self.state.step >= saved + self.options.save_every {
                self.save();
                saved = self.state.step;
            }
        };
        if let Some(error) = self.skipped.error_without_step() {
            return Err(error);
        }
        if self.state.validated < self.state.step || self.state.step == 0 {
            self.wait_for_writer();
            let Some(score) = self.validate(validate, stop)? else { return Ok(Ending::Stopped) };
            *last_score = Some(score);
            self.written = None;
        }
        Ok(ending)
    }

    /// Reports `event`. The time that the observer takes is its own.
    pub(super) fn observe(&mut self, event: &Event) {
        let _recording = timing::enter(TimeOwner::Record);
        self.observer.observe(event);
    }

    /// Returns whether `is_so` is true on any replica.
    pub(super) fn any_replica(&self, is_so: bool) -> Result<bool, TrainError> {
        Ok(!self.trainer.replica().agree(!is_so)?)
    }

    /// Measures how many steps the limit of time allows, if that is due, and lets the learning rate end with them. The first
    /// replica's clock counts.
    fn fit_rate_to_time(&mut self) -> Result<(), TrainError> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let (is_due, replica) = (pace.is_due(&self.state), self.trainer.replica());
        if replica.agree(!is_due)? {
            return Ok(());
        }
        let steps = pace.steps(&self.state);
        let sent = replica.broadcast(0, steps.to_le_bytes().to_vec())?;
        let steps = sent[..].try_into().map_or(steps, u64::from_le_bytes);
        self.state.timed_steps = Some(steps);
        let total = steps.min(self.total_steps);
        self.trainer.end_rate_at(total, Schedule::warmup_within(self.warmup, self.options.warmup_share, total));
        let (step, seconds) = (self.state.step, self.state.train_seconds);
        self.observe(&Event::Paced { step, steps, seconds });
        Ok(())
    }

    /// Returns how the run ends if one of its limits is reached; `None` if the run goes on.
    pub(super) fn reached(&self) -> Option<Ending> {
        self.options.limits.reached(&self.state)
    }

    /// Returns whether a validation is due after `steps` steps. `new_epoch`: whether the last of these steps ended an
    /// epoch.
    fn is_due(&self, steps: u64, new_epoch: bool) -> bool {
        match self.options.validate_every {
            Some(every) => steps >= self.state.validated + every,
            None => new_epoch,
        }
    }

    /// Returns whether the next step follows the step on `delivered` without a validation or the end of the run between
    /// them, as far as known in advance. Only then is the next batch fetched early.
    fn continues_after(&self, delivered: &DeliveredBatch<T::Batch>) -> bool {
        let (limits, step) = (&self.options.limits, self.state.step + 1);
        let epoch = delivered.position.epoch;
        let is_last = limits.steps.is_some_and(|steps| step >= steps) || limits.epochs.is_some_and(|all| epoch >= all);
        !is_last && !self.is_due(step, epoch > self.state.position.epoch)
    }

    /// Processes one batch: takes a step, or reports an event with the reason why there was no step. Returns false if the step
    /// was stopped; the batch then belongs to the next step.
    pub(super) fn step(
        &mut self,
        delivered: DeliveredBatch<T::Batch>,
        source: &mut dyn BatchSource<Batch = T::Batch>,
        stop: &AtomicBool,
    ) -> Result<bool, TrainError> {
        if let Some(written) = self.writer.done() {
            self.report_written(written);
        }
        let skipped = self.skipped_by_all(&delivered.skipped)?;
        if !skipped.is_empty() {
            self.observe(&Event::LeftOut { samples: skipped });
        }
        let mut start = Instant::now();
        let goes_on = self.continues_after(&delivered);
        let (next_batch, mut apart, mut beside) = (&mut self.next_batch, Duration::ZERO, TimeShares::default());
        let mut hook = |send: &mut dyn FnMut(&T::Batch)| {
            if !goes_on {
                return;
            }
            let (start, before) = (Instant::now(), timing::so_far());
            *next_batch = timing::measure(TimeOwner::Data, || source.next_batch());
            apart += start.elapsed();
            if let Some(Ok(next)) = next_batch {
                send(&next.batch);
            }
            beside = timing::so_far().since(&before);
        };
        let result = self.trainer.step_unless(stop, &delivered.batch, &mut hook);
        if matches!(result, Err(StepError::Stopped { .. })) {
            return Ok(false);
        }
        // The device still computed when the next batch arrived, so it did not wait for data.
        let is_hidden = result.as_ref().is_ok_and(|report| report.read_time > AT_ONCE);
        match &mut self.next_batch {
            Some(Ok(next)) if is_hidden => {
                next.waited = Duration::ZERO;
                // The device computed meanwhile.
                timing::correct(|times| {
                    for owner in [TimeOwner::Data, TimeOwner::Transfer] {
                        times.shift(owner, TimeOwner::Compute, beside.get(owner));
                    }
                });
            }
            // Counted as waiting time of the next step.
            _ => start += apart,
        }
        let step_seconds = start.elapsed().as_secs_f64();
        // Before the state changes: an error that ends the run leaves the position before the batch, so that a resumed
        // run uses the batch.
        let failures = match result.as_ref().map_err(|error| self.failures_after(error)) {
            Ok(_) => 0,
            Err(Ok(failures)) => failures,
            Err(Err(failures)) => return result.map(|_| true).map_err(|source| TrainError::Step { failures, source }),
        };
        self.state.position = delivered.position;
        self.state.train_seconds += step_seconds + delivered.waited.as_secs_f64();
        self.state.scale = self.trainer.scale;
        match result {
            Ok(report) => {
                self.skipped.record_step();
                self.report_step(report, &delivered, step_seconds);
                if let Some(cleanup) = self.options.cleanup
                    && self.state.step.is_multiple_of(cleanup.every.max(1))
                    && (cleanup.above == Bytes(0) || self.trainer.watch().reserved() > cleanup.above)
                {
                    self.trainer.clean_up();
                }
            }
            Err(error) => self.report_skipped(error, failures),
        }
        source.recycle(delivered.batch);
        Ok(true)
    }

    /// Gathers from all replicas the samples of the current batch that could not be read. `own` are the samples that
    /// this replica could not read.
    fn skipped_by_all(&self, own: &[Skipped]) -> Result<Vec<Skipped>, TrainError> {
        let others = self.trainer.replica();
        if others.ranks() == 1 {
            return Ok(own.to_vec());
        }
        let all = others.gather(serde_json::to_vec(own).expect("names and reasons are plain data"))?;
        Ok(all.iter().flat_map(|part| serde_json::from_slice::<Vec<Skipped>>(part).unwrap_or_default()).collect())
    }

    fn report_step(&mut self, report: StepReport, delivered: &DeliveredBatch<T::Batch>, step_seconds: f64) {
        let times = timing::lap();
        let _recording = timing::enter(TimeOwner::Record);
        let (start, batch) = (Instant::now(), &delivered.batch);
        self.state.failures = 0;
        self.state.step = report.step;
        let (peak_bytes, phase) = report.peak;
        let (step, shape) = (report.step, batch.shape());
        self.report_failures(&report.failures, shape);
        if !report.unfit.is_empty() {
            self.observe(&Event::Unfit { step, names: report.unfit });
        }
        self.report_left_out(report.left_out);
        self.observe(&Event::Step(StepEvent {
            step,
            position: delivered.position,
            loss: report.loss,
            parts: report.parts.into_iter().map(|(name, part)| (name.into(), part)).collect(),
            norm: report.norm,
            rate: report.rate,
            micro_batches: report.micro_batches.len(),
            ledger: report.micro_batches,
            attempts: report.attempts,
            loss_scale: report.loss_scale,
            reads: report.reads,
            launches: report.calls.map(|calls| calls.launches.try_into().unwrap_or(u32::MAX)),
            uploads: report.calls.map(|calls| calls.uploads.try_into().unwrap_or(u32::MAX)),
            safety_seconds: (report.safety + self.observer_time).as_secs_f64(),
            truncated: report.truncated.len(),
            frames: report.frames,
            shape: Some(shape),
            padding: batch.padding(),
            step_seconds,
            wait_seconds: delivered.waited.as_secs_f64(),
            peak_bytes,
            times,
        }));
        if let Some(planned_bytes) = self.options.planned.of(shape)
            && peak_bytes.0 as f64 > planned_bytes.0 as f64 * DRIFT
        {
            self.observe(&Event::Drift { step, phase, planned_bytes, peak_bytes });
        }
        self.observer_time = start.elapsed();
    }

    fn report_failures(&mut self, failures: &[OutOfMemory], shape: BatchShape) {
        let limit = self.trainer.governor.limit(shape);
        for failure in failures {
            let failure = failure.clone();
            self.observe(&Event::OutOfMemory { step: self.state.step, failure, limit });
        }
    }

    fn report_left_out(&mut self, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let skipped = |name| Skipped { name, reason: "fewer frames than its text needs".into() };
        self.observe(&Event::LeftOut { samples: names.into_iter().map(skipped).collect() });
    }

    /// Returns the number of failed steps in a row after `error`, as an error if the run cannot continue.
    fn failures_after(&self, error: &StepError) -> Result<u32, u32> {
        // A batch without anything to learn is no failure.
        if matches!(error, StepError::Nothing { .. }) {
            return Ok(self.state.failures);
        }
        let failures = self.state.failures + 1;
        let is_final = !matches!(error, StepError::NotFinite { .. } | StepError::NothingFits { .. });
        // A dynamic loss scale overflows several times while it falls from its start to 1.
        let most = match error {
            StepError::NotFinite { is_expected: true, .. } => self.options.failures_max.saturating_mul(4),
            _ => self.options.failures_max,
        };
        if is_final || failures >= most { Err(failures) } else { Ok(failures) }
    }

    /// Reports that a batch led to no step because of `error`, after which there are `failures` failed steps in a row.
    fn report_skipped(&mut self, error: StepError, failures: u32) {
        self.state.failures = failures;
        let (step, reason) = (self.state.step + 1, error.to_string());
        match &error {
            // An empty batch, because no sample could be read, is already reported.
            StepError::Nothing { names, .. } if names.is_empty() => {}
            StepError::Nothing { names, .. } => {
                self.report_left_out(names.clone());
                self.observe(&Event::Skipped { step, reason });
            }
            _ => self.observe(&Event::Skipped { step, reason }),
        }
        self.skipped.record(error);
    }

    /// Reports the end of the run, with the reason if it failed.
    pub(super) fn report_end(&mut self, end: EndKind, reason: String) {
        if end == EndKind::Failed {
            // Another replica would wait for this one.
            self.trainer.replica().fail(&reason);
        }
        // A device that has failed may not answer any more.
        if end != EndKind::Failed
            && let Some(memory) = self.trainer.watch().pools()
        {
            self.observe(&Event::Pools { step: self.state.step, memory });
        }
        let times = timing::lap();
        self.observe(&Event::Ended { step: self.state.step, end, reason, times });
    }

    pub(super) fn validate(
        &mut self,
        validate: &mut Validate<'_, T>,
        stop: &AtomicBool,
    ) -> Result<Option<Score>, TrainError> {
        let _validating = timing::enter(TimeOwner::Validation);
        let watch = self.trainer.watch();
        watch.start();
        let start = Instant::now();
        let others = self.trainer.replica();
        let runner = InferenceRunner::new(self.trainer.device(), watch, self.at_once);
        let mut runner = runner.with_collective(others).with_stop(stop);
        let validated = attempt(|| validate(self.trainer.evaluation_model(), self.state.step, &mut runner));
        if runner.was_stopped() {
            return Ok(None);
        }
        let mut score = validated.and_then(|score| score).map_err(TrainError::Validation)?;
        // All replicas must draw the same conclusions from a score.
        for number in [&mut score.value, &mut score.tie] {
            let first = others.broadcast(0, number.to_le_bytes().to_vec())?;
            *number = first[..].try_into().map_or(f64::NAN, f64::from_le_bytes);
        }
        let (failures, limit) = (runner.failures().to_vec(), runner.limit());
        let (peak_bytes, _) = watch.end(Stage::Validation);
        self.at_once =
            if failures.is_empty() { limit.saturating_mul(2).min(self.options.validation_batch) } else { limit };
        self.state.validated = self.state.step;
        for failure in failures {
            self.observe(&Event::OutOfMemory { step: self.state.step, failure, limit });
        }
        let best = self.record_score(&score);
        let Position { epoch, .. } = self.state.position;
        let (step, seconds, scores) = (self.state.step, start.elapsed().as_secs_f64(), score.all.clone());
        self.observe(&Event::Validated { step, epoch, scores, seconds, best, peak_bytes });
        if let Some(config) = &self.options.plateau
            && self.state.plateau.update(best, config)
        {
            let factor = self.state.plateau.factor;
            self.trainer.rate_factor = factor;
            self.observe(&Event::RateLowered { step, factor });
        }
        Ok(Some(score))
    }

    /// Records the score of a validation. Returns whether it is the best so far.
    fn record_score(&mut self, score: &Score) -> bool {
        let state = &mut self.state;
        // NaN and infinity never count as an improvement, and JSON cannot hold them.
        let is_number = score.value.is_finite();
        let tie = if score.tie.is_finite() { score.tie } else { TIE_MAX };
        let compare = |a: &(u64, f64, f64), b: &(u64, f64, f64)| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2));
        let found = (state.step, score.value, tie);
        let best = is_number && state.best_scores.first().is_none_or(|best| compare(&found, best).is_lt());
        if best {
            state.best = Some(score.value);
            state.best_step = Some(state.step);
        }
        state.stale = if best { 0 } else { state.stale + 1 };
        state.best_scores.retain(|(step, ..)| *step != state.step);
        if is_number {
            state.best_scores.push(found);
        }
        state.best_scores.sort_by(compare);
        state.best_scores.truncate(self.best_kept);
        best
    }
}
