//! Gradient of a step: computed in micro-batches, summed over all replicas, and read before any update.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_core::{Batch, Choice, MemoryGate, MicroBatch, OutOfMemory, Stage, TimeOwner, error_chain, timing};
use plimsoll_tape::failure::FailureCause;
use plimsoll_tape::{BufferSnapshot, Task};

use super::accumulate::StepAccumulator;
use super::micro_batch::MicroBatchJob;
use super::prefetch::{NextBatchHook, PrefetchedMicroBatch};
use super::queue::{MicroBatchGroup, Queue};
use super::{StepError, Trainer, Unfit, gradients};
use crate::attempt::attempt;
use crate::fault::Fault;

/// Number of attempts to read the gradient norm of a step.
const NORM_READS: usize = 8;
/// Number of attempts to compute the gradient of a step if memory failures show only at the read of its norm.
const RESTARTS: usize = 8;

/// Message of a replica that was stopped between two micro-batches, in place of an error.
const STOPPED: &str = "stopped";

/// Batch and number of a step that is to be computed.
pub(super) struct StepRequest<'a, B> {
    pub(super) batch: &'a B,
    pub(super) step: u64,
    /// Micro-batches of a ledger, if the step is a replay; `None` to split the batch by the governor's limits.
    pub(super) micro_batches: Option<&'a [MicroBatch]>,
    /// Ends the step before the next micro-batch when it becomes true.
    pub(super) stop: &'a AtomicBool,
}

impl<B> Clone for StepRequest<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for StepRequest<'_, B> {}

impl<B: Batch> StepRequest<'_, B> {
    /// Returns the names of all samples of the batch, for messages.
    fn names(&self) -> Vec<String> {
        self.batch.names(0..self.batch.len())
    }
}

impl<T: Task> Trainer<T> {
    /// Computes the gradient of the whole batch, and its norm. Out-of-memory failures are added to `failures`. `hook`
    /// supplies the next batch while the device computes.
    pub(super) fn compute_gradient(
        &mut self,
        request: StepRequest<'_, T::Batch>,
        failures: &mut Vec<OutOfMemory>,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<(StepAccumulator, f64), StepError> {
        let step = request.step;
        let lost_replica = |source| StepError::ReplicaLost { step, source };
        // With several replicas a failed micro-batch must not enter the sum, which would be lost for all.
        let mut check_each = self.replica.ranks() > 1;
        let before = BufferSnapshot::from_module(&self.task);
        let mut attempts = 0;
        for restart in 0..RESTARTS {
            if restart > 0 {
                self.task = before.restore(&self.task);
                // The prefetched micro-batch belongs to the next step.
                self.prefetched = None;
            }
            let begun = timing::so_far();
            let sums = self.accumulated(request, check_each, failures);
            let mut sums = self.agree_on(step, sums)?;
            let joined = timing::measure(TimeOwner::Optimizer, || sums.join(&self.task, &*self.replica));
            joined.map_err(lost_replica)?;
            if self.config.async_errors && restart == 0 && failures.is_empty() {
                // All work is in the device's queue, and the host would only wait.
                let (mut prefetched, governor, device) = (None, &self.governor, &self.device);
                // If the prefetch fails, the next step sends the micro-batch itself.
                hook(&mut |next| {
                    prefetched = attempt(|| PrefetchedMicroBatch::send(next, governor, device)).ok().flatten();
                });
                self.prefetched = prefetched;
            }
            // Includes the micro-batches of abandoned attempts.
            attempts += sums.attempts;
            sums.attempts = attempts;
            if let Some(norm) = self.read(&mut sums, request, check_each, failures)? {
                sums.share_report(&*self.replica, request.batch).map_err(lost_replica)?;
                return Ok((sums, norm));
            }
            timing::reassign_since(&begun, TimeOwner::Retry);
            if !self.config.async_errors {
                break;
            }
            // A failed sum does not say which micro-batch failed: start again and check each of them.
            check_each = true;
        }
        let reason = "the norm of the gradient could not be read".into();
        let source = failures.last().cloned().unwrap_or(OutOfMemory { stage: Stage::Norm, reason });
        Err(StepError::OutOfMemory { step, names: request.names(), source })
    }

    /// Reads the norm of the gradient, and tries again until all replicas have read it or the attempts are used up.
    /// Returns `None` if memory failures prevent the read.
    fn read(
        &mut self,
        sums: &mut StepAccumulator,
        request: StepRequest<'_, T::Batch>,
        check_each: bool,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<Option<f64>, StepError> {
        let step = request.step;
        let lost_replica = |source| StepError::ReplicaLost { step, source };
        for _ in 0..NORM_READS {
            // An asynchronous device computes the step while the host waits here.
            let owner = if self.config.async_errors { TimeOwner::Compute } else { TimeOwner::Optimizer };
            let read = timing::measure(owner, || sums.read(&self.task, &self.device));
            let read = read.and_then(|norm| {
                let checked = self.watch.check(Stage::Norm);
                sums.is_above_limit |= checked.is_err();
                checked.map(|()| norm).map_err(Fault::Memory)
            });
            let all = self.replica.agree(read.is_ok()).map_err(lost_replica)?;
            match read {
                Ok(norm) if all => {
                    // The sum may differ between GPUs in the last bit, but all replicas must update alike.
                    let first = self.replica.broadcast(0, norm.to_le_bytes().to_vec()).map_err(lost_replica)?;
                    return Ok(Some(first[..].try_into().map_or(f64::NAN, f64::from_le_bytes)));
                }
                Ok(_) => {}
                Err(Fault::Memory(failure)) => {
                    self.check_weights(step)?;
                    failures.push(failure);
                }
                // A failed sum does not say which micro-batch failed; a second attempt with checks will.
                Err(Fault::Other(FailureCause::Other, reason)) if self.config.async_errors && !check_each => {
                    failures.push(OutOfMemory { stage: Stage::Norm, reason });
                }
                Err(Fault::Other(cause, reason)) => {
                    return Err(StepError::Device { step, names: request.names(), cause, reason });
                }
            }
            self.clean_up();
            // If the sum itself is lost, reading it again does not help; if only the read failed, nothing is lost. All
            // replicas must decide alike, so one lost sum counts for all.
            if self.config.async_errors && !self.replica.agree(sums.is_written(&self.task)).map_err(lost_replica)? {
                break;
            }
        }
        Ok(None)
    }

    /// Checks after a failure that an asynchronous device has computed the weights. If the update of an earlier step failed,
    /// everything that reads them fails, and no retry helps.
    fn check_weights(&self, step: u64) -> Result<(), StepError> {
        if self.config.async_errors && !gradients::is_written(&self.task) {
            let reason = "the update of an earlier step was not computed".into();
            return Err(StepError::WeightsLost { step, reason });
        }
        Ok(())
    }

    /// Sums the gradients of all micro-batches, and takes the memory for their sum over all replicas.
    fn accumulated(
        &mut self,
        request: StepRequest<'_, T::Batch>,
        check_each: bool,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<StepAccumulator, StepError> {
        let (step, names) = (request.step, || request.names());
        let computed = attempt(|| self.accumulate(request, check_each, failures));
        let mut sums = computed.map_err(|reason| StepError::of_device(step, names(), reason))??;
        let prepared = sums.prepare_join(&self.task, &*self.replica);
        prepared.map_err(|reason| match Fault::from_message(Stage::Accumulate, reason) {
            Fault::Memory(source) => StepError::OutOfMemory { step, names: names(), source },
            Fault::Other(cause, reason) => StepError::Device { step, names: names(), cause, reason },
        })?;
        Ok(sums)
    }

    /// Returns the result of this replica if no replica has failed or stopped. Otherwise all replicas return an error, and
    /// name the one that has failed.
    fn agree_on<R>(&self, step: u64, own: Result<R, StepError>) -> Result<R, StepError> {
        if self.replica.ranks() == 1 {
            return own;
        }
        let message = match &own {
            Ok(_) => String::new(),
            Err(StepError::Stopped { .. }) => STOPPED.into(),
            Err(error) => error_chain(error),
        };
        let all =
            self.replica.gather(message.into_bytes()).map_err(|source| StepError::ReplicaLost { step, source })?;
        let is_failure = |message: &Arc<[u8]>| !message.is_empty() && **message != *STOPPED.as_bytes();
        match (own, all.iter().position(is_failure)) {
            (Ok(_) | Err(StepError::Stopped { .. }), Some(rank)) => {
                let reason = String::from_utf8_lossy(&all[rank]).into_owned();
                Err(StepError::OtherReplica { step, rank, reason })
            }
            (Ok(_), None) if all.iter().any(|message| !message.is_empty()) => Err(StepError::Stopped { step }),
            (own, _) => own,
        }
    }

    /// Returns the weight of the batch over all replicas.
    fn weight_of_all(&self, request: StepRequest<'_, T::Batch>) -> Result<f64, StepError> {
        let StepRequest { batch, step, .. } = request;
        let lost_replica = |source| StepError::ReplicaLost { step, source };
        let mut weight = [self.task.weight(batch)];
        self.replica.sum(&mut weight).map_err(lost_replica)?;
        if weight[0] != 0.0 {
            return Ok(weight[0]);
        }
        // Without a weight the mean loss would be a division of zero by zero. Every replica comes here.
        let own = serde_json::to_vec(&request.names()).expect("names are plain data");
        let all = self.replica.gather(own).map_err(lost_replica)?;
        let names = |names: &Arc<[u8]>| serde_json::from_slice::<Vec<String>>(names).unwrap_or_default();
        Err(StepError::Nothing { step, names: all.iter().flat_map(names).collect() })
    }

    /// Sums the gradients of all micro-batches of this replica.
    fn accumulate(
        &mut self,
        request: StepRequest<'_, T::Batch>,
        check_each: bool,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<StepAccumulator, StepError> {
        let StepRequest { batch, micro_batches, .. } = request;
        let mut sums = StepAccumulator::new(self.weight_of_all(request)?, self.optimizer.lay_out(&self.task));
        let mut queue = Queue::new(batch, micro_batches);
        let mut prefetched = self.prefetched.take();
        while let Some(group) = queue.next_group(batch, &self.governor, self.config.lanes) {
            if request.stop.load(Relaxed) {
                return Err(StepError::Stopped { step: request.step });
            }
            if let [micro_batch] = group.micro_batches[..]
                && micro_batch.fallback_level == MicroBatch::LEFT_OUT
            {
                sums.leave_out(
                    micro_batch,
                    self.task.weight(&batch.part(micro_batch.range())),
                    batch.names(micro_batch.range()),
                );
                continue;
            }
            let is_only = sums.is_empty() && queue.is_empty() && group.micro_batches.len() == 1;
            let mut has_fitted = true;
            let before = BufferSnapshot::from_module(&self.task);
            for micro_batch in &group.micro_batches {
                let shape = group.shape.with_utterances(micro_batch.len);
                has_fitted &= self.shapes.has_fitted(shape, micro_batch.fallback_level);
                if self.shapes.record(shape, micro_batch.fallback_level) {
                    self.watch.expect_growth();
                }
            }
            // A check launches kernels for each parameter. Where it is left out, the read of the norm shows a failure.
            let asks = self.config.async_errors && (check_each || !is_only && !has_fitted);
            let begun = timing::so_far();
            let failed = self.compute_group(request, &group, asks, (&mut sums, prefetched.take()))?;
            if failed.is_empty() {
                sums.fitted(group.shape);
                continue;
            }
            let _retry = timing::enter(TimeOwner::Retry);
            self.check_weights(request.step)?;
            // If several lanes moved buffers and only some failed, the buffers cannot be separated; models with such
            // buffers use one lane.
            if failed.len() == group.micro_batches.len() {
                self.task = before.restore(&self.task);
                timing::reassign_since(&begun, TimeOwner::Retry);
            }
            self.clean_up();
            let (failed, new): (Vec<MicroBatch>, Vec<OutOfMemory>) = failed.into_iter().unzip();
            for micro_batch in &failed {
                self.shapes.forget(group.shape.with_utterances(micro_batch.len), micro_batch.fallback_level);
            }
            for micro_batch in queue.requeue_failed(&failed, &group, &mut self.governor) {
                // Before an utterance is left out, the optimizer's state makes room for it.
                if self.makes_room(request, micro_batch, failures)? {
                    queue.retry_with_all_fallbacks(micro_batch);
                } else {
                    self.leave_out(request, micro_batch, new.first(), &mut sums)?;
                }
            }
            failures.extend(new);
        }
        Ok(sums)
    }

    /// Moves the optimizer's state to the host for a micro-batch that does not fit in any other way. Returns whether that
    /// made room; a move that failed has changed nothing.
    fn makes_room(
        &mut self,
        request: StepRequest<'_, T::Batch>,
        micro_batch: MicroBatch,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<bool, StepError> {
        if !self.can_move_state() {
            return Ok(false);
        }
        match self.move_state_to_host() {
            Ok(()) => {
                // Now the memory of the state can be returned.
                self.clean_up();
                Ok(true)
            }
            Err(Fault::Memory(failure)) => {
                self.clean_up();
                failures.push(failure);
                Ok(false)
            }
            Err(Fault::Other(cause, reason)) => {
                let names = request.batch.names(micro_batch.range());
                Err(StepError::Device { step: request.step, names, cause, reason })
            }
        }
    }

    /// Leaves out a micro-batch that fits nowhere, or ends the step, as the configuration says.
    fn leave_out(
        &self,
        StepRequest { batch, step, .. }: StepRequest<'_, T::Batch>,
        micro_batch: MicroBatch,
        failure: Option<&OutOfMemory>,
        sums: &mut StepAccumulator,
    ) -> Result<(), StepError> {
        let names = batch.names(micro_batch.range());
        match (self.config.unfit, failure) {
            (Unfit::Stop, Some(source)) => Err(StepError::OutOfMemory { step, names, source: source.clone() }),
            _ => {
                sums.leave_out(micro_batch, self.task.weight(&batch.part(micro_batch.range())), names);
                Ok(())
            }
        }
    }

    /// Computes a group of micro-batches and adds it to the sum. Returns the micro-batches that did not fit.
    fn compute_group(
        &self,
        request: StepRequest<'_, T::Batch>,
        group: &MicroBatchGroup,
        asks: bool,
        (sums, prefetched): (&mut StepAccumulator, Option<PrefetchedMicroBatch<T>>),
    ) -> Result<Vec<(MicroBatch, OutOfMemory)>, StepError> {
        let StepRequest { batch, step, .. } = request;
        let job = MicroBatchJob {
            scale: self.scale.factor() / sums.weight(),
            key: self.config.key.with("step").at(step),
            choice: Choice {
                // The scale of the loss goes with it.
                precision: self.config.choice.precision,
                ..self.governor.choice(batch.shape()).unwrap_or(self.config.choice)
            },
            device: &self.device,
            gate: &self.watch,
            observer: self.observer.clone(),
            flat: self.optimizer.flat_values_of(&self.task),
        };
        let part = |micro_batch: &MicroBatch| match micro_batch.len as usize == batch.len() {
            true => Cow::Borrowed(batch),
            false => Cow::Owned(batch.part(micro_batch.range())),
        };
        let parts: Vec<Cow<'_, T::Batch>> = group.micro_batches.iter().map(part).collect();
        sums.attempts += parts.len();
        let sent = match (prefetched, &group.micro_batches[..], &parts[..]) {
            (Some(prefetched), [micro_batch], [part]) => prefetched.of(*micro_batch, part),
            _ => None,
        };
        sums.was_prefetched |= sent.is_some();
        let mut failed = Vec::new();
        // The host of an asynchronous device only queues the work.
        let owner = if self.config.async_errors { TimeOwner::Submit } else { TimeOwner::Compute };
        let computing = timing::enter(owner);
        let done = job.compute_group(&self.task, &group.micro_batches, &parts, sent);
        self.flush();
        drop(computing);
        let _adding = timing::enter(if self.config.async_errors { owner } else { TimeOwner::Optimizer });
        for ((&micro_batch, part), done) in group.micro_batches.iter().zip(&parts).zip(done) {
            let done = if asks { done.and_then(|done| done.written(&self.task)) } else { done };
            match done.and_then(|done| sums.add(&self.task, &self.watch, (micro_batch, part), done)) {
                Ok(()) => {}
                Err(Fault::Memory(failure)) => failed.push((micro_batch, failure)),
                Err(Fault::Other(cause, reason)) => {
                    return Err(StepError::Device { step, names: part.names(0..part.len()), cause, reason });
                }
            }
        }
        Ok(failed)
    }
}
