//! One step, as a transaction: it either happened or it did not.

mod ahead;
mod compute;
mod config;
mod cut;
mod gather;
mod piece;
mod report;
mod scale;
mod watch;

use std::time::{Duration, Instant};

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, MemoryGate, MemoryMeter, SingleReplica, Stage};
use plimsoll_tape::{BufferSnapshot, Task, free_dropped_graphs};

use crate::{Ema, Governor, Optimizer, Replica, Schedule};
use ahead::Ahead;
pub use ahead::Meanwhile;
use compute::Asked;
pub use config::{TrainerConfig, Unfit};
pub use cut::{Cut, ways};
use gather::Gathered;
pub(crate) use piece::{Fault, is_out_of_memory};
pub use report::{StepError, StepReport};
pub use scale::LossScale;
pub(crate) use watch::Watch;

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
    watch: Watch,
    replica: Box<dyn Replica>,
    ahead: Option<Ahead<T>>,
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
        task.visit(&mut Made);
        Self {
            ema: config.ema_decay.map(|decay| Ema::of(&task, decay)),
            scale: LossScale::of(config.choice.precision),
            optimizer: Optimizer::new(config.optimizer, config.state),
            rate_factor: 1.0,
            watch: Watch::nobody(),
            replica: Box::new(SingleReplica),
            ahead: None,
            task,
            governor,
            config,
            device,
        }
    }

    /// The same trainer, asking `gate` whether memory has held, and `meter` how much was in use.
    #[must_use]
    pub fn watched(self, gate: impl MemoryGate + 'static, meter: impl MemoryMeter + 'static) -> Self {
        Self { watch: Watch::new(Box::new(gate), Box::new(meter), !self.config.tells_late), ..self }
    }

    /// The same trainer as one of several that train one model: each has its part of every batch, and all move alike.
    #[must_use]
    pub fn together(self, replica: impl Replica + 'static) -> Self {
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
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The learning rate over the run.
    pub fn schedule(&self) -> &Schedule {
        &self.config.schedule
    }

    /// The model to judge and to keep: the mean of the weights where there is one.
    pub fn judged(&self) -> &T {
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
    /// It is asked once at most, and not at all where a device computes on the caller's time, as a CPU does, or when memory
    /// has run out a moment ago. A batch that is not the next one after all, as the ids and the size of its
    /// samples tell, is sent in vain.
    pub fn step_meanwhile(
        &mut self,
        batch: &T::Batch,
        meanwhile: &mut Meanwhile<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        self.step_by(batch, None, meanwhile)
    }

    /// The step that a ledger tells of: the same pieces in the same order, which gives the same weights to the last bit.
    pub fn replay(&mut self, batch: &T::Batch, cuts: &[Cut]) -> Result<StepReport, StepError> {
        self.step_by(batch, Some(cuts), &mut |_| {})
    }

    /// The gradient that a step on `batch` would move by, before it is clipped; nothing moves. With `cuts`, by these pieces.
    pub fn gradient(&mut self, batch: &T::Batch, cuts: Option<&[Cut]>) -> Result<GradientsParams, StepError> {
        let step = self.optimizer.steps() + 1;
        let before = BufferSnapshot::from_module(&self.task);
        self.ahead = None;
        let computed = self.computed(Asked { batch, step, cuts }, &mut Vec::new(), &mut |_| {});
        self.task = before.restore(&self.task);
        let (mut gathered, _) = computed?;
        let factor = gathered.correction() / self.scale.factor();
        Ok(gather::scaled(&self.task, gathered.take_gradients(), factor))
    }

    fn step_by(
        &mut self,
        batch: &T::Batch,
        cuts: Option<&[Cut]>,
        meanwhile: &mut Meanwhile<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        let before = BufferSnapshot::from_module(&self.task);
        let report = self.attempt(batch, cuts, meanwhile);
        if report.is_err() {
            self.task = before.restore(&self.task);
        }
        report
    }

    fn attempt(
        &mut self,
        batch: &T::Batch,
        cuts: Option<&[Cut]>,
        meanwhile: &mut Meanwhile<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        let step = self.optimizer.steps() + 1;
        let mut failures = Vec::new();
        self.watch.start();
        let (mut gathered, norm) = self.computed(Asked { batch, step, cuts }, &mut failures, meanwhile)?;
        if gathered.is_nothing() {
            return Err(StepError::Nothing { step, names: batch.names(0..batch.len()) });
        }
        let scale = self.scale.factor();
        let norm = norm / scale * gathered.correction();
        let (loss, parts) = gathered.losses();
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                let is_usual = self.scale.failed();
                return Err(StepError::NotFinite { step, what, value, names: gathered.suspects(batch), is_usual });
            }
        }
        self.scale.went_well();
        let rate = self.config.schedule.rate(step) * self.rate_factor;
        // PyTorch's clip_grad_norm_, its small number included.
        let clip = (self.config.clip_norm / (norm + 1e-6)).min(1.0);
        let (task, gradients) = (self.task.clone(), gathered.take_gradients());
        self.task = self.optimizer.step(rate, task, gradients, clip * gathered.correction() / scale);
        self.put_in_queue();
        if let Some(ema) = &mut self.ema {
            ema.follow(&self.task);
        }
        if self.config.tells_late && (step <= 2 || !failures.is_empty()) && !gather::is_written(&self.task) {
            return Err(StepError::Lost { step });
        }
        // Nothing can be taken back any more, and nothing need be: it is told, and the next step is not blamed for it.
        failures.extend(self.watch.check(Stage::Update).err());
        if self.config.tells_late && step == 1 {
            // What loading and the trials of kernels left behind goes back before the run settles.
            self.device.memory_cleanup();
        }
        let safety = gathered.safety + self.learn(batch, &gathered);
        let Gathered { cuts, begun, was_ahead, unfit, left_out, cut, frames, reads, reading, .. } = gathered;
        let (loss_scale, peak) = (scale, self.watch.end(Stage::Update));
        Ok(StepReport {
            step,
            loss,
            parts,
            norm,
            rate,
            cuts,
            begun,
            was_ahead,
            failures,
            unfit,
            left_out,
            cut,
            frames,
            reads,
            reading,
            loss_scale,
            peak,
            safety,
        })
    }

    /// Has a device begin with all that was asked of it. A backend that joins operations into kernels joins none across this, so
    /// that what is rounded where does not depend on what comes between pieces and steps: a failure, a checkpoint.
    fn put_in_queue(&self) {
        if self.config.tells_late {
            // What fails here is told by what depends on it.
            let _ = self.device.flush();
        }
    }

    /// Tells the governor that the pieces of a step fitted.
    fn learn(&mut self, batch: &T::Batch, gathered: &Gathered) -> Duration {
        let start = Instant::now();
        if let Some(largest) = gathered.largest {
            // By the longest of the batch, as the limit was.
            self.governor.went_well(batch.shape().with_utterances(largest.utterances), batch.len());
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
    free_dropped_graphs();
    let _ = device.flush();
    device.memory_cleanup();
}

/// Reads every parameter once, so that it is there.
struct Made;

impl ModuleVisitor for Made {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}
