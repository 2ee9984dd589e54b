//! Inference in micro-batches that fit into memory, as in a validation during a run.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use burn::tensor::Device;
use plimsoll_core::{Batch, Collective, MemoryGate, OutOfMemory, SingleReplica, Stage};

use crate::attempt::attempt;
use crate::fault::Fault;
use crate::step::clean_up;

/// Runs inference on batches, split into micro-batches that fit into memory.
///
/// The runner starts with whole batches. When a micro-batch does not fit, its size is halved and becomes the limit for
/// all later micro-batches, because the batches of one validation have similar lengths.
pub struct InferenceRunner<'a> {
    gate: &'a dyn MemoryGate,
    device: Device,
    limit: usize,
    failures: Vec<OutOfMemory>,
    collective: &'a dyn Collective,
    stop: Option<&'a AtomicBool>,
    was_stopped: bool,
}

/// Failure to compute a micro-batch, with its cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (in the micro-batch that starts with `{name}`)")]
pub struct InferenceError {
    /// Message of the device or of the panic.
    pub reason: String,
    /// Name of the first utterance in the micro-batch.
    pub name: String,
}

impl<'a> InferenceRunner<'a> {
    /// Number of attempts for a single utterance before the inference fails.
    const ATTEMPTS: usize = 8;

    /// Makes a runner on `device` that starts with at most `limit` utterances at once. `gate` reports whether memory
    /// sufficed.
    pub fn new(device: &Device, gate: &'a dyn MemoryGate, limit: usize) -> Self {
        let (limit, failures, collective) = (limit.max(1), Vec::new(), &SingleReplica);
        Self { gate, device: device.clone(), limit, failures, collective, stop: None, was_stopped: false }
    }

    /// Makes this runner one of several replicas that share a validation; `collective` connects it to the others.
    #[must_use]
    pub fn with_collective(self, collective: &'a dyn Collective) -> Self {
        Self { collective, ..self }
    }

    /// Ends the inference with an error before the next micro-batch when `stop` becomes true. Replicas that share a
    /// validation wait for each other's results, so there it goes on.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Returns whether the stop flag ended the inference.
    pub fn was_stopped(&self) -> bool {
        self.was_stopped
    }

    /// Returns the collective of the replicas, through which a shared validation adds up its results.
    pub fn collective(&self) -> &'a dyn Collective {
        self.collective
    }

    /// Splits `batch` into micro-batches, runs `work` on each of them in order, and returns the results in that order.
    /// A micro-batch that does not fit into memory is split and tried again.
    ///
    /// `work` must read its result from the device, because an asynchronous device reports failures only then.
    ///
    /// # Errors
    /// If a single utterance does not fit after 8 attempts, if `work` panics for another reason, or if the stop flag is true.
    pub fn run<B: Batch, R>(&mut self, batch: &B, mut work: impl FnMut(&B) -> R) -> Result<Vec<R>, InferenceError> {
        let (mut done, mut results, mut attempts) = (0, Vec::new(), 0);
        while done < batch.len() {
            let end = (done + self.limit).min(batch.len());
            let part = batch.part(done..end);
            if self.collective.ranks() == 1 && self.stop.is_some_and(|stop| stop.load(Relaxed)) {
                self.was_stopped = true;
                return Err(InferenceError { reason: "it was stopped".into(), name: part.name(0) });
            }
            match self.attempt(|| work(&part)) {
                Ok(result) => {
                    results.push(result);
                    (done, attempts) = (end, 0);
                }
                Err(Fault::Other(_, reason)) => return Err(InferenceError { reason, name: part.name(0) }),
                Err(Fault::Memory(failure)) => {
                    attempts += usize::from(part.len() == 1);
                    if attempts == Self::ATTEMPTS {
                        return Err(InferenceError { reason: failure.to_string(), name: part.name(0) });
                    }
                    // The failure of a single utterance says nothing about others.
                    if part.len() > 1 {
                        self.limit = part.len() / 2;
                    }
                    self.failures.push(failure);
                    clean_up(&self.device, self.gate);
                }
            }
        }
        Ok(results)
    }

    fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, Fault> {
        let result = attempt(work).map_err(|text| Fault::from_message(Stage::Validation, text))?;
        self.gate.check(Stage::Validation).map_err(Fault::Memory)?;
        Ok(result)
    }

    /// Returns the largest number of utterances that are computed at once; it falls when a micro-batch does not fit
    /// into memory.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns all out-of-memory failures of this runner so far, oldest first.
    pub fn failures(&self) -> &[OutOfMemory] {
        &self.failures
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use plimsoll_core::{Grid, HostBatch, HostSample, OpenGate, SampleId};

    use super::*;

    fn batch(utterances: u64) -> HostBatch {
        let sample = |i: u64| HostSample {
            id: SampleId(i),
            name: format!("u{i}"),
            features: vec![0.0; 4],
            tokens: vec![],
            reference: vec![],
        };
        HostBatch::collate(&(0..utterances).map(sample).collect::<Vec<_>>(), 2, &Grid::default()).unwrap()
    }

    #[test]
    fn batches_that_do_not_fit_are_halved_and_no_utterance_runs_twice() {
        let mut runner = InferenceRunner::new(&Device::flex(), &OpenGate, 100);
        let work = |part: &HostBatch| {
            assert!(part.len() <= 3, "out of memory: {} utterances", part.len());
            part.names.clone()
        };
        let names = runner.run(&batch(11), work).unwrap();
        assert_eq!(names.concat(), batch(11).names);
        assert_eq!(runner.failures().len(), 2);
        assert_eq!(runner.run(&batch(3), HostBatch::len).unwrap(), [2, 1]);
    }

    #[test]
    fn a_stop_flag_ends_the_inference_before_the_next_micro_batch() {
        let stop = AtomicBool::new(false);
        let mut runner = InferenceRunner::new(&Device::flex(), &OpenGate, 2).with_stop(&stop);
        let tries = Cell::new(0);
        let found = runner.run(&batch(9), |part| {
            tries.set(tries.get() + 1);
            stop.store(tries.get() == 2, Relaxed);
            part.len()
        });
        assert_eq!((found.unwrap_err().name.as_str(), tries.get(), runner.was_stopped()), ("u4", 2, true));
    }

    #[test]
    fn errors_name_the_first_utterance_and_other_panics_are_not_retried() {
        let mut runner = InferenceRunner::new(&Device::flex(), &OpenGate, 4);
        let error = runner.run(&batch(2), |_| panic!("out of memory")).unwrap_err().to_string();
        assert_eq!(error, "out of memory in the validation: out of memory (in the micro-batch that starts with `u0`)");
        let tries = Cell::new(0);
        let error = runner.run(&batch(2), |_| {
            tries.set(tries.get() + 1);
            panic!("a bug")
        });
        assert_eq!((error.unwrap_err().reason.as_str(), tries.get()), ("a bug", 1));
    }
}
