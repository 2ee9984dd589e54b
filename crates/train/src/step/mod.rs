//! One step, as a transaction: it either happened or it did not.

mod accumulate;
mod compute;
mod config;
mod gradients;
mod micro_batch;
mod prefetch;
mod queue;
mod report;
mod scale;
mod watch;

use std::time::{Duration, Instant};

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, MemoryGate, MemoryMeter, SingleReplica, Stage};
use plimsoll_tape::{Statistics, Task, sweep};

use crate::{Ema, Governor, Optimizer, Replica, Schedule};
use accumulate::StepAccumulator;
use compute::StepRequest;
pub use config::{TrainerConfig, Unfit};
pub use plimsoll_core::MicroBatch;
pub use prefetch::NextBatchHook;
use prefetch::PrefetchedMicroBatch;
pub use queue::fallbacks;
pub use report::{StepError, StepReport};
pub use scale::LossScale;
pub(crate) use watch::MemoryWatch;

/// A model in training.
pub struct Trainer<T: Task> {
    /// The model.
    pub task: T,
    /// Its optimizer.
    pub optimizer: Optimizer,
    /// Who cuts the steps.
    pub governor: Governor,
    /// What the loss is multiplied by, so that small gradients are not lost in fp16.
    pub scale: LossScale,
    /// The mean of the weights, where one is kept.
    pub ema: Option<Ema<T>>,
    /// What the learning rate is multiplied by, for whoever lowers it when a run no longer gets better.
    pub rate_factor: f64,
    config: TrainerConfig,
    device: Device,
    watch: MemoryWatch,
    replica: Box<dyn Replica>,
    prefetched: Option<PrefetchedMicroBatch<T>>,
}

impl<T: Task> Trainer<T> {
    /// A trainer of `task`, which is on an autodiff device.
    ///
    /// # Panics
    /// Where the model has no parameters.
    pub fn new(task: T, config: TrainerConfig, governor: Governor) -> Self {
        let device = task.devices().into_iter().next().expect("a model has parameters");
        // Burn makes a parameter when it is first read, which is amid what the first pieces need. Made at once they lie
        // together, and the pages around them are free again when a piece is done.
        task.visit(&mut InitializeParameters);
        Self {
            ema: config.ema_decay.map(|decay| Ema::new(&task, decay)),
            scale: LossScale::for_precision(config.choice.precision),
            optimizer: Optimizer::new(config.optimizer, config.state),
            rate_factor: 1.0,
            watch: MemoryWatch::disabled(),
            replica: Box::new(SingleReplica),
            prefetched: None,
            task,
            governor,
            config,
            device,
        }
    }

    /// The same trainer, asking `gate` whether memory has held, and `meter` how much was in use.
    #[must_use]
    pub fn with_memory(self, gate: impl MemoryGate + 'static, meter: impl MemoryMeter + 'static) -> Self {
        Self { watch: MemoryWatch::new(Box::new(gate), Box::new(meter), !self.config.async_errors), ..self }
    }

    /// The same trainer as one of several that train one model: each has its part of every batch, and all move alike.
    #[must_use]
    pub fn with_replica(self, replica: impl Replica + 'static) -> Self {
        Self { replica: Box::new(replica), ..self }
    }

    /// Its way to the other replicas.
    pub fn replica(&self) -> &dyn Replica {
        &*self.replica
    }

    /// The device that the model is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Who looks after memory.
    pub(crate) fn watch(&self) -> &MemoryWatch {
        &self.watch
    }

    /// The learning rate over the run.
    pub fn schedule(&self) -> &Schedule {
        &self.config.schedule
    }

    /// The model to judge and to keep: the mean of the weights where there is one.
    pub fn evaluation_model(&self) -> &T {
        self.ema.as_ref().map_or(&self.task, Ema::model)
    }

    /// One step on one effective batch: compute, read, and only then move.
    ///
    /// The batch is cut as the governor says; what does not fit is cut further while the rest is kept. Then the gradient's
    /// norm is read, which is where a device admits what went wrong, and until which nothing has moved.
    pub fn step(&mut self, batch: &T::Batch) -> Result<StepReport, StepError> {
        self.step_by(batch, None, &mut |_| {})
    }

    /// The same, and while the device computes, `meanwhile` shows the batch of the next step, whose first piece is sent ahead.
    ///
    /// It is request once at most, and not at all where a device computes on the caller's time, as a CPU does, or when memory
    /// has run out a moment ago. A batch that is not the next one after all, as the ids and the size of its
    /// samples tell, is sent in vain.
    pub fn step_with_prefetch(
        &mut self,
        batch: &T::Batch,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        self.step_by(batch, None, hook)
    }

    /// The step that a ledger tells of: the same pieces in the same order, which gives the same weights to the last bit.
    pub fn replay(&mut self, batch: &T::Batch, micro_batches: &[MicroBatch]) -> Result<StepReport, StepError> {
        self.step_by(batch, Some(micro_batches), &mut |_| {})
    }

    /// The gradient that a step on `batch` would move by, before it is clipped; nothing moves. With `cuts`, by these pieces.
    pub fn gradient(
        &mut self,
        batch: &T::Batch,
        micro_batches: Option<&[MicroBatch]>,
    ) -> Result<GradientsParams, StepError> {
        let step = self.optimizer.steps() + 1;
        let before = Statistics::of(&self.task);
        self.prefetched = None;
        let computed = self.compute_gradient(StepRequest { batch, step, micro_batches }, &mut Vec::new(), &mut |_| {});
        self.task = before.put_back(&self.task);
        let (mut sums, _) = computed?;
        let factor = sums.correction() / self.scale.factor();
        Ok(gradients::scaled(&self.task, sums.take_gradients(), factor))
    }

    fn step_by(
        &mut self,
        batch: &T::Batch,
        micro_batches: Option<&[MicroBatch]>,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        let before = Statistics::of(&self.task);
        let report = self.attempt(batch, micro_batches, hook);
        if report.is_err() {
            self.task = before.put_back(&self.task);
        }
        report
    }

    fn attempt(
        &mut self,
        batch: &T::Batch,
        micro_batches: Option<&[MicroBatch]>,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        let step = self.optimizer.steps() + 1;
        let mut failures = Vec::new();
        self.watch.start();
        let (mut sums, norm) =
            self.compute_gradient(StepRequest { batch, step, micro_batches }, &mut failures, hook)?;
        if sums.is_nothing() {
            return Err(StepError::NothingFits { step, names: batch.names(0..batch.len()) });
        }
        let scale = self.scale.factor();
        let norm = norm / scale * sums.correction();
        let (loss, parts) = sums.losses();
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                let is_expected = self.scale.record_overflow();
                return Err(StepError::NotFinite { step, what, value, names: sums.suspects(batch), is_expected });
            }
        }
        self.scale.record_success();
        let rate = self.config.schedule.rate(step) * self.rate_factor;
        // PyTorch's clip_grad_norm_, its small number included.
        let clip = (self.config.clip_norm / (norm + 1e-6)).min(1.0);
        let (task, gradients) = (self.task.clone(), sums.take_gradients());
        self.task = self.optimizer.step(rate, task, gradients, clip * sums.correction() / scale);
        self.flush();
        if let Some(ema) = &mut self.ema {
            ema.update(&self.task);
        }
        if self.config.async_errors && (step <= 2 || !failures.is_empty()) && !gradients::is_written(&self.task) {
            return Err(StepError::WeightsLost { step });
        }
        // Nothing can be taken back any more, and nothing need be: it is told, and the next step is not blamed for it.
        failures.extend(self.watch.check(Stage::Update).err());
        if self.config.async_errors && step == 1 {
            // What loading and the trials of kernels left behind goes back before the run settles.
            self.device.memory_cleanup();
        }
        let safety = sums.safety + self.learn(batch, &sums);
        let StepAccumulator {
            micro_batches,
            attempts,
            was_prefetched,
            unfit,
            left_out,
            truncated,
            frames,
            reads,
            read_time,
            ..
        } = sums;
        let (loss_scale, peak) = (scale, self.watch.end(Stage::Update));
        Ok(StepReport {
            step,
            loss,
            parts,
            norm,
            rate,
            micro_batches,
            attempts,
            was_prefetched,
            failures,
            unfit,
            left_out,
            truncated,
            frames,
            reads,
            read_time,
            loss_scale,
            peak,
            safety,
        })
    }

    /// Has a device begin with all that was request of it. A backend that joins operations into kernels joins none across this, so
    /// that what is rounded where does not depend on what comes between pieces and steps: a failure, a checkpoint.
    fn flush(&self) {
        if self.config.async_errors {
            // What fails here is told by what depends on it.
            let _ = self.device.flush();
        }
    }

    /// Tells the governor that the pieces of a step fitted.
    fn learn(&mut self, batch: &T::Batch, sums: &StepAccumulator) -> Duration {
        let start = Instant::now();
        if let Some(largest) = sums.largest {
            // By the longest of the batch, as the limit was.
            self.governor.record_success(batch.shape().with_utterances(largest.utterances), batch.len());
        }
        start.elapsed()
    }
}

impl<T: Task> std::fmt::Debug for Trainer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer").field("task", &self.task).field("config", &self.config).finish_non_exhaustive()
    }
}

/// Gives back what nobody holds: what a pass kept that was given up, and what was dropped and is on its way in a queue.
pub(crate) fn clean_up(device: &Device) {
    sweep();
    let _ = device.flush();
    device.memory_cleanup();
}

/// Reads every parameter once, so that it is there.
struct InitializeParameters;

impl ModuleVisitor for InitializeParameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}
