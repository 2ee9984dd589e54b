//! A run in progress: what it does with a batch, with a validation, with a checkpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::{
    Batch, BatchShape, BatchSource, Bytes, DeliveredBatch, MemoryGate, OutOfMemory, Position, Skipped, SourceError,
    Stage,
};
use plimsoll_tape::{Task, collect};

use super::{Ending, RunOptions, Score, TrainError, Validate};
use crate::checkpoint::{Snapshot, Writer, Written};
use crate::step::clean_up;
use crate::{Careful, CheckpointStore, Event, Observer, RunState, StepError, StepEvent, StepReport, Trainer};

/// How much more than planned a step may take before it is told.
const DRIFT: f64 = 1.03;
/// A reading that takes no longer than this found its device idle.
const AT_ONCE: Duration = Duration::from_millis(1);

/// A run in progress.
pub(super) struct Voyage<'a, T: Task> {
    trainer: &'a mut Trainer<T>,
    writer: Writer,
    options: &'a RunOptions,
    observer: &'a mut dyn Observer,
    pub(super) state: RunState,
    best_kept: usize,
    /// Utterances validated at once, as far as it is known what fits.
    at_once: usize,
    /// The time that the observer took for the last step.
    telling: Duration,
    /// The step of the last checkpoint that was truly written.
    written: Option<u64>,
    /// The next batch, where it was asked for while the device computed.
    upcoming: Option<Result<DeliveredBatch<T::Batch>, SourceError>>,
}

impl<'a, T: Task> Voyage<'a, T> {
    pub(super) fn new(
        trainer: &'a mut Trainer<T>,
        store: &CheckpointStore,
        options: &'a RunOptions,
        observer: &'a mut dyn Observer,
        state: RunState,
    ) -> Self {
        let (writer, best_kept) = (Writer::new(store.clone()), store.best_kept());
        trainer.rate_factor = if options.plateau.is_some() { state.plateau.factor } else { 1.0 };
        // What it goes on from is there.
        let written = (state.step > 0).then_some(state.step);
        let (at_once, telling) = (usize::MAX, Duration::ZERO);
        Self { trainer, writer, options, observer, state, best_kept, at_once, telling, written, upcoming: None }
    }

    /// All that a run is, up to its end.
    pub(super) fn sail(
        &mut self,
        source: &mut dyn BatchSource<Batch = T::Batch>,
        validate: &mut Validate<'_, T>,
        stop: &AtomicBool,
        last_score: &mut Option<Score>,
    ) -> Result<Ending, TrainError> {
        let mut saved = self.state.step;
        let ending = loop {
            // Agreed upon by all replicas, as a signal comes to one a moment earlier, and clocks differ.
            if self.any(stop.load(Ordering::Relaxed))? {
                return Ok(Ending::Stopped);
            }
            if self.any(self.reached().is_some())? {
                break self.reached().unwrap_or(Ending::Complete);
            }
            let Some(delivered) = self.upcoming.take().or_else(|| source.next_batch()) else { break Ending::Complete };
            let before = self.state.position;
            self.step(delivered?, source)?;
            let new_epoch = self.state.position.epoch > before.epoch;
            let due = self.is_due(self.state.step, new_epoch);
            if due {
                *last_score = Some(self.validate(validate)?);
            }
            let is_kept = due && self.state.best_scores.iter().any(|(step, _)| *step == self.state.step);
            if is_kept || self.state.step >= saved + self.options.save_every {
                self.save();
                saved = self.state.step;
            }
        };
        if self.state.validated < self.state.step || self.state.step == 0 {
            if let Some(written) = self.writer.wait() {
                self.tell_written(written);
            }
            *last_score = Some(self.validate(validate)?);
            self.written = None;
        }
        Ok(ending)
    }

    /// Writes a checkpoint of a run that ends with `error`, where its weights are still good and nobody waits for others.
    pub(super) fn rescue(&mut self, error: &TrainError) {
        let is_lost = matches!(error, TrainError::Step { source: StepError::Lost { .. }, .. });
        if is_lost || matches!(error, TrainError::Checkpoint(_)) || self.state.step == 0 {
            return;
        }
        if let Err(error) = self.end() {
            self.observer.observe(&Event::NotSaved { step: self.state.step, reason: error.to_string() });
        }
    }

    /// Whether it is so for any replica.
    pub(super) fn any(&self, is_so: bool) -> Result<bool, TrainError> {
        Ok(!self.trainer.replica().agree(!is_so)?)
    }

    /// The limit that was reached, if one was.
    pub(super) fn reached(&self) -> Option<Ending> {
        let (limits, state) = (&self.options.limits, &self.state);
        if limits.stale.is_some_and(|stale| state.stale >= stale) {
            return Some(Ending::Stale);
        }
        let is_reached = limits.steps.is_some_and(|steps| state.step >= steps)
            || limits.epochs.is_some_and(|epochs| state.position.epoch >= epochs)
            || limits.time.is_some_and(|time| state.train_seconds >= time.as_secs_f64());
        is_reached.then_some(Ending::Complete)
    }

    /// Whether a validation is due after so many steps.
    fn is_due(&self, steps: u64, new_epoch: bool) -> bool {
        match self.options.validate_every {
            Some(every) => steps >= self.state.validated + every,
            None => new_epoch,
        }
    }

    /// Whether another step follows at once, as far as it can be known before the one on `delivered`.
    fn goes_on_after(&self, delivered: &DeliveredBatch<T::Batch>) -> bool {
        let (limits, step) = (&self.options.limits, self.state.step + 1);
        let epoch = delivered.position.epoch;
        let is_last = limits.steps.is_some_and(|steps| step >= steps) || limits.epochs.is_some_and(|all| epoch >= all);
        !is_last && !self.is_due(step, epoch > self.state.position.epoch)
    }

    /// One batch: a step, or a reason why there was none.
    pub(super) fn step(
        &mut self,
        delivered: DeliveredBatch<T::Batch>,
        source: &mut dyn BatchSource<Batch = T::Batch>,
    ) -> Result<(), TrainError> {
        if let Some(written) = self.writer.done() {
            self.tell_written(written);
        }
        let skipped = self.skipped_by_all(&delivered.skipped)?;
        if !skipped.is_empty() {
            self.observer.observe(&Event::LeftOut { samples: skipped });
        }
        let mut start = Instant::now();
        let goes_on = self.goes_on_after(&delivered);
        let (upcoming, mut apart) = (&mut self.upcoming, Duration::ZERO);
        let mut meanwhile = |send: &mut dyn FnMut(&T::Batch)| {
            if !goes_on {
                return;
            }
            let start = Instant::now();
            *upcoming = source.next_batch();
            apart += start.elapsed();
            if let Some(Ok(next)) = upcoming {
                send(&next.batch);
            }
        };
        let result = self.trainer.step_meanwhile(&delivered.batch, &mut meanwhile);
        // A device that had still to compute when the next batch was there has not waited for it.
        let is_hidden = result.as_ref().is_ok_and(|report| report.reading > AT_ONCE);
        match &mut self.upcoming {
            Some(Ok(next)) if is_hidden => next.waited = Duration::ZERO,
            // Told as the next step's waiting.
            _ => start += apart,
        }
        let step_seconds = start.elapsed().as_secs_f64();
        self.state.position = delivered.position;
        self.state.train_seconds += step_seconds + delivered.waited.as_secs_f64();
        self.state.scale = self.trainer.scale;
        match result {
            Ok(report) => self.tell(report, &delivered, step_seconds),
            Err(error) => return self.failed(error),
        }
        source.recycle(delivered.batch);
        Ok(())
    }

    /// What could not be read of a batch, here and by the other replicas.
    fn skipped_by_all(&self, own: &[Skipped]) -> Result<Vec<Skipped>, TrainError> {
        let others = self.trainer.replica();
        if others.ranks() == 1 {
            return Ok(own.to_vec());
        }
        let all = others.gather(serde_json::to_vec(own).expect("names and reasons are plain data"))?;
        Ok(all.iter().flat_map(|part| serde_json::from_slice::<Vec<Skipped>>(part).unwrap_or_default()).collect())
    }

    fn tell(&mut self, report: StepReport, delivered: &DeliveredBatch<T::Batch>, step_seconds: f64) {
        let (start, batch) = (Instant::now(), &delivered.batch);
        self.state.failures = 0;
        self.state.step = report.step;
        let (peak_bytes, phase) = report.peak;
        let (step, shape) = (report.step, batch.shape());
        self.tell_failures(&report.failures, shape);
        if !report.unfit.is_empty() {
            self.observer.observe(&Event::Unfit { step, names: report.unfit });
        }
        self.tell_left_out(report.left_out);
        self.observer.observe(&Event::Step(StepEvent {
            step,
            position: delivered.position,
            loss: report.loss,
            parts: report.parts.into_iter().map(|(name, part)| (name.into(), part)).collect(),
            norm: report.norm,
            rate: report.rate,
            micro_batches: report.cuts.len(),
            ledger: report.cuts.into_iter().map(Into::into).collect(),
            attempts: report.begun,
            loss_scale: report.loss_scale,
            reads: report.reads,
            safety_seconds: (report.safety + self.telling).as_secs_f64(),
            truncated: report.cut.len(),
            frames: report.frames,
            padding: batch.padding(),
            step_seconds,
            wait_seconds: delivered.waited.as_secs_f64(),
            peak_bytes,
        }));
        if let Some(planned_bytes) = self.planned(shape)
            && peak_bytes.0 as f64 > planned_bytes.0 as f64 * DRIFT
        {
            self.observer.observe(&Event::Drift { step, phase, planned_bytes, peak_bytes });
        }
        self.telling = start.elapsed();
    }

    /// What was planned for a batch of `shape`.
    fn planned(&self, shape: BatchShape) -> Option<Bytes> {
        let covers = |other: &BatchShape| other.frames >= shape.frames && other.tokens >= shape.tokens;
        self.options.planned.iter().filter(|(other, _)| covers(other)).map(|(_, bytes)| *bytes).min()
    }

    fn tell_failures(&mut self, failures: &[OutOfMemory], shape: BatchShape) {
        let limit = self.trainer.governor.limit(shape);
        for failure in failures {
            let failure = failure.clone();
            self.observer.observe(&Event::OutOfMemory { step: self.state.step, failure, limit });
        }
    }

    fn tell_left_out(&mut self, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let reason = "fewer frames than its text needs";
        let samples = names.into_iter().map(|name| Skipped { name, reason: reason.into() });
        self.observer.observe(&Event::LeftOut { samples: samples.collect() });
    }

    fn failed(&mut self, error: StepError) -> Result<(), TrainError> {
        // A batch of nothing, as none of it could be read, is told already and no failure.
        if matches!(&error, StepError::Nothing { names, .. } if names.is_empty()) {
            return Ok(());
        }
        self.state.failures += 1;
        let failures = self.state.failures;
        let is_final = !matches!(error, StepError::NotFinite { .. } | StepError::Nothing { .. });
        // A loss scale looks for its size by failing: from the highest down to one takes it some tries.
        let most = match error {
            StepError::NotFinite { is_usual: true, .. } => self.options.failures_max.saturating_mul(4),
            _ => self.options.failures_max,
        };
        if is_final || failures >= most {
            return Err(TrainError::Step { failures, source: error });
        }
        self.observer.observe(&Event::Skipped { step: self.state.step + 1, reason: error.to_string() });
        Ok(())
    }

    pub(super) fn validate(&mut self, validate: &mut Validate<'_, T>) -> Result<Score, TrainError> {
        let watch = self.trainer.watch();
        watch.start();
        let start = Instant::now();
        let others = self.trainer.replica();
        let mut careful = Careful::new(self.trainer.device(), watch, self.at_once).among(others);
        let mut score =
            validate(self.trainer.judged(), self.state.step, &mut careful).map_err(TrainError::Validation)?;
        // Whatever follows from a score must follow for all replicas.
        let first = others.broadcast(0, score.value.to_le_bytes().to_vec())?;
        score.value = first[..].try_into().map_or(f64::NAN, f64::from_le_bytes);
        let (failures, limit) = (careful.failures().to_vec(), careful.limit());
        let (peak_bytes, _) = watch.end(Stage::Validation);
        self.at_once = if failures.is_empty() { limit.saturating_mul(2) } else { limit };
        self.state.validated = self.state.step;
        for failure in failures {
            self.observer.observe(&Event::OutOfMemory { step: self.state.step, failure, limit });
        }
        let best = self.judge(&score);
        let Position { epoch, .. } = self.state.position;
        let (step, seconds, scores) = (self.state.step, start.elapsed().as_secs_f64(), score.all.clone());
        self.observer.observe(&Event::Validated { step, epoch, scores, seconds, best, peak_bytes });
        if let Some(config) = &self.options.plateau
            && self.state.plateau.saw(best, config)
        {
            let factor = self.state.plateau.factor;
            self.trainer.rate_factor = factor;
            self.observer.observe(&Event::RateLowered { step, factor });
        }
        Ok(score)
    }

    /// Takes down a score; true where it is the best so far.
    fn judge(&mut self, score: &Score) -> bool {
        let state = &mut self.state;
        // What is no number is better than nothing that is one, and cannot be written down.
        let is_number = score.value.is_finite();
        let best = is_number && state.best.is_none_or(|best| score.value < best);
        if best {
            state.best = Some(score.value);
            state.best_step = Some(state.step);
        }
        state.stale = if best { 0 } else { state.stale + 1 };
        state.best_scores.retain(|(step, _)| *step != state.step);
        if is_number {
            state.best_scores.push((state.step, score.value));
        }
        state.best_scores.sort_by(|a, b| a.1.total_cmp(&b.1));
        state.best_scores.truncate(self.best_kept);
        best
    }

    /// Begins to write a checkpoint, where this is the first replica; training goes on meanwhile.
    pub(super) fn save(&mut self) {
        if self.trainer.replica().rank() != 0 {
            return;
        }
        let snapshot = self.snapshot();
        // Without a copy's room there is no writing beside training: what is written is not held any longer than it must.
        let written = match self.trainer.watch().check(Stage::Checkpoint) {
            Ok(()) => self.writer.start(snapshot),
            Err(failure) => {
                let before = self.writer.wait();
                let written = self.writer.write(&snapshot);
                drop(snapshot);
                clean_up(self.trainer.device());
                let (step, limit) = (self.state.step, 0);
                self.observer.observe(&Event::OutOfMemory { step, failure, limit });
                before.into_iter().for_each(|before| self.tell_written(before));
                Some(written)
            }
        };
        if let Some(written) = written {
            self.tell_written(written);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        self.state.governor = self.trainer.governor.knowledge().clone();
        self.state.scale = self.trainer.scale;
        self.state.ema_steps = self.trainer.ema.as_ref().map_or(0, crate::Ema::steps);
        Snapshot {
            state: self.state.clone(),
            weights: collect(&self.trainer.task),
            optimizer: self.trainer.optimizer.state(),
            ema: self.trainer.ema.as_ref().map(|ema| collect(ema.model())),
        }
    }

    fn tell_written(&mut self, (step, written): Written) {
        match written {
            Ok(path) => {
                self.written = Some(step);
                self.observer.observe(&Event::Saved { step, path });
            }
            Err(error) => {
                let mut reason = error.to_string();
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    reason = format!("{reason}: {cause}");
                    source = cause.source();
                }
                self.observer.observe(&Event::NotSaved { step, reason });
            }
        }
    }

    /// Waits for the last checkpoint, and writes that of the last step where there is none. This one must succeed.
    pub(super) fn end(&mut self) -> Result<(), TrainError> {
        if let Some(written) = self.writer.wait() {
            self.tell_written(written);
        }
        if self.written == Some(self.state.step) || self.trainer.replica().rank() != 0 {
            return Ok(());
        }
        let snapshot = self.snapshot();
        let (step, written) = self.writer.write(&snapshot);
        self.observer.observe(&Event::Saved { step, path: written? });
        Ok(())
    }
}
