//! One training step as a transaction: it happens completely or changes nothing.

mod accumulate;
mod compute;
mod config;
mod finite;
mod gradients;
mod measure;
mod micro_batch;
mod prefetch;
mod queue;
mod report;
mod scale;
mod shapes;
mod update;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, Bytes, MemoryGate, MemoryMeter, OutOfMemory, SingleReplica, Stage, TimeOwner, timing};
use plimsoll_tape::failure::check_device;
use plimsoll_tape::gpu::{CallCounter, forget_kept};
use plimsoll_tape::{BufferSnapshot, PassObserver, Task, free_dropped_graphs, is_host_device};

use crate::attempt::attempt;
use crate::{Ema, Governor, Optimizer, Replica, Schedule};
use accumulate::StepAccumulator;
use compute::StepRequest;
pub use config::{TrainerConfig, Unfit};
use finite::{Both, FiniteSearch};
pub use measure::MeasuredMemory;
use micro_batch::FreshLeaves;
pub use plimsoll_core::MicroBatch;
pub use prefetch::NextBatchHook;
use prefetch::PrefetchedMicroBatch;
pub use queue::fallbacks;
pub use report::{StepError, StepReport};
pub use scale::LossScale;
use shapes::KnownShapes;
use update::StateReturn;
pub(crate) use watch::MemoryWatch;

/// Stop flag of a step that nothing stops.
static NEVER: AtomicBool = AtomicBool::new(false);

/// A model in training: computes gradients in micro-batches that fit into memory, and updates the weights.
pub struct Trainer<T: Task> {
    /// Model that is trained, with its loss.
    pub task: T,
    /// Optimizer with its state.
    pub optimizer: Optimizer,
    /// Governor, which limits the size of micro-batches.
    pub governor: Governor,
    /// Loss scale, which prevents the underflow of small gradients in fp16.
    pub scale: LossScale,
    /// Average of the weights; `None` if no average is kept.
    pub ema: Option<Ema<T>>,
    /// Factor on the scheduled learning rate. A run lowers it when validations no longer improve. Default: 1.
    pub rate_factor: f64,
    config: TrainerConfig,
    device: Device,
    watch: MemoryWatch,
    replica: Box<dyn Replica>,
    prefetched: Option<PrefetchedMicroBatch<T>>,
    state_return: StateReturn,
    /// Memory that the pools had reserved before they last returned what was unused.
    before_cleanup: Bytes,
    shapes: KnownShapes,
    /// Search for values that are infinite or NaN; `None` unless the run is debugged.
    finite: Option<Arc<FiniteSearch>>,
    observer: Option<Arc<dyn PassObserver>>,
    /// Counts what is asked of GPUs; `None` on the CPU.
    calls: Option<CallCounter>,
}

impl<T: Task> Trainer<T> {
    /// Makes a trainer of `task`, which must be on an autodiff device.
    ///
    /// # Panics
    /// If the model has no parameters.
    pub fn new(task: T, config: TrainerConfig, governor: Governor) -> Self {
        let device = task.devices().into_iter().next().expect("a model has parameters");
        let config = TrainerConfig { async_errors: config.async_errors || !is_host_device(&device), ..config };
        // Burn allocates a parameter at its first use, which would be between the tensors of the first micro-batches.
        // Allocated here they lie together, and the pages of a micro-batch become free again when it is done.
        task.visit(&mut InitializeParameters);
        let mut optimizer = Optimizer::new(config.optimizer, config.state).with_rates(config.rates.clone());
        let task = optimizer.attach(task);
        if config.async_errors {
            // A GPU keeps a block for each size of the values that Burn made first, and that others replaced.
            clean_up(&device, &MemoryWatch::disabled());
        }
        let finite = config.debug.then(|| Arc::new(FiniteSearch::new(&task)));
        Self {
            calls: config.async_errors.then(CallCounter::new),
            observer: finite.clone().map(|finite| finite as Arc<dyn PassObserver>),
            finite,
            ema: config.ema_decay.map(|decay| Ema::new(&task, decay)),
            scale: LossScale::for_precision(config.choice.precision),
            optimizer,
            rate_factor: 1.0,
            watch: MemoryWatch::disabled(),
            replica: Box::new(SingleReplica),
            prefetched: None,
            state_return: StateReturn::default(),
            before_cleanup: Bytes(0),
            shapes: KnownShapes::default(),
            task,
            governor,
            config,
            device,
        }
    }

    /// Sets the `gate` that checks whether memory suffices, and the `meter` that measures how much memory is in use.
    #[must_use]
    pub fn with_memory(self, gate: impl MemoryGate + 'static, meter: impl MemoryMeter + 'static) -> Self {
        Self { watch: MemoryWatch::new(Box::new(gate), Box::new(meter), !self.config.async_errors), ..self }
    }

    /// Makes this trainer one of several replicas of a model. Each replica receives its share of every batch, and all
    /// replicas make the same update.
    #[must_use]
    pub fn with_replica(self, replica: impl Replica + 'static) -> Self {
        Self { replica: Box::new(replica), ..self }
    }

    /// Sets who is called for each layer of each micro-batch, such as a profiler.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn PassObserver>) -> Self {
        let observer = match &self.finite {
            Some(finite) => Arc::new(Both(finite.clone(), observer)),
            None => observer,
        };
        Self { observer: Some(observer), ..self }
    }

    /// Returns the connection to the other replicas.
    pub fn replica(&self) -> &dyn Replica {
        &*self.replica
    }

    /// Returns the device of the model.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the memory gate and the memory meter of the trainer.
    pub(crate) fn watch(&self) -> &MemoryWatch {
        &self.watch
    }

    /// Lets the learning rate of [`Shape::Cosine`](crate::Shape::Cosine) end at step `total`, after a warm-up of `warmup` steps.
    pub(crate) fn end_rate_at(&mut self, total: u64, warmup: u64) {
        (self.config.schedule.total, self.config.schedule.warmup) = (total, warmup);
    }

    /// Returns the schedule of the learning rate.
    pub fn schedule(&self) -> &Schedule {
        &self.config.schedule
    }

    /// Returns the model to validate and to keep: the averaged model if an average is kept, otherwise `task`.
    pub fn evaluation_model(&self) -> &T {
        self.ema.as_ref().map_or(&self.task, Ema::model)
    }

    /// Takes one step on one effective batch: computes the gradient, reads its norm, then updates the weights.
    ///
    /// The governor decides the size of the micro-batches. A micro-batch that does not fit is split further, and the
    /// sum of the other micro-batches is kept. An asynchronous device reports failures when the norm is read; until
    /// then no weight changes. A panic of the model or of the device is an error of the step, too.
    ///
    /// # Errors
    /// See [`StepError`]. Unless it is [`StepError::WeightsLost`], weights and optimizer are unchanged, and the next
    /// step may be tried.
    pub fn step(&mut self, batch: &T::Batch) -> Result<StepReport, StepError> {
        self.step_by((batch, None), &NEVER, &mut |_| {})
    }

    /// Takes a step like [`step`](Self::step), and sends the first micro-batch of the next step to the device while the
    /// device computes this step.
    ///
    /// `hook` receives a function and calls it with the next batch, if there is one. The hook is called at most once,
    /// and not at all if the device is synchronous like a CPU, or if this step ran out of memory. If another batch
    /// comes next, by the ids and sizes of its samples, the prefetched tensors are dropped.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn step_with_prefetch(
        &mut self,
        batch: &T::Batch,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        self.step_by((batch, None), &NEVER, hook)
    }

    /// Takes a step like [`step_with_prefetch`](Self::step_with_prefetch), unless `stop` becomes true before its last
    /// micro-batch begins.
    ///
    /// # Errors
    /// As for [`step`](Self::step), and [`StepError::Stopped`] on all replicas if `stop` became true on one of them.
    pub fn step_unless(
        &mut self,
        stop: &AtomicBool,
        batch: &T::Batch,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        self.step_by((batch, None), stop, hook)
    }

    /// Repeats a recorded step: the same micro-batches in the same order give the same weights. They are equal to the last
    /// bit on the CPU; the kernels of a GPU may add numbers in another order each time.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn replay(&mut self, batch: &T::Batch, micro_batches: &[MicroBatch]) -> Result<StepReport, StepError> {
        self.step_by((batch, Some(micro_batches)), &NEVER, &mut |_| {})
    }

    /// Computes the gradient of `batch` before clipping, optionally with the given micro-batches. The weights do not
    /// change.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn gradient(
        &mut self,
        batch: &T::Batch,
        micro_batches: Option<&[MicroBatch]>,
    ) -> Result<GradientsParams, StepError> {
        let step = self.optimizer.steps() + 1;
        let before = BufferSnapshot::from_module(&self.task);
        self.prefetched = None;
        let computed = self.compute_gradient(
            StepRequest { batch, step, micro_batches, stop: &NEVER },
            &mut Vec::new(),
            &mut |_| {},
        );
        self.task = before.restore(&self.task);
        self.bring_state_back(step);
        let (mut sums, _) = computed?;
        let factor = sums.correction() / self.scale.factor();
        Ok(sums.take_gradients().scaled(&self.task, factor))
    }

    fn step_by(
        &mut self,
        (batch, micro_batches): (&T::Batch, Option<&[MicroBatch]>),
        stop: &AtomicBool,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        check_device(&self.device)?;
        let step = self.optimizer.steps() + 1;
        // Whatever fails outside the guarded parts is an error of the device, and no update has begun.
        let device = |reason| StepError::of_device(step, batch.names(0..batch.len()), reason);
        let before = attempt(|| BufferSnapshot::from_module(&self.task)).map_err(device)?;
        // What an earlier step left over belongs to that step.
        let _ = self.first_not_finite();
        let calls = |trainer: &Self| trainer.calls.as_ref().and_then(CallCounter::calls);
        let calls_before = calls(self);
        let mut report = attempt(|| self.transaction(StepRequest { batch, step, micro_batches, stop }, hook))
            .unwrap_or_else(|reason| {
                self.replica.fail(&reason);
                Err(device(reason))
            });
        if let Ok(report) = &mut report {
            report.calls = calls(self).zip(calls_before).map(|(now, before)| now.since(before));
        }
        if let Err(error) = &report {
            // A device that has failed cannot restore its buffers either, and the error of the step says why.
            if let Ok(task) = attempt(|| before.restore(&self.task)) {
                self.task = task;
            }
            if !error.is_of_device() {
                self.bring_state_back(step);
            }
        }
        report
    }

    fn transaction(
        &mut self,
        request: StepRequest<'_, T::Batch>,
        hook: &mut NextBatchHook<'_, T::Batch>,
    ) -> Result<StepReport, StepError> {
        let StepRequest { batch, step, .. } = request;
        let mut failures = Vec::new();
        self.watch.start_step();
        let begun = self.shapes.begin();
        let (mut sums, norm) = self.compute_gradient(request, &mut failures, hook)?;
        self.shapes.end(&begun, self.config.async_errors && failures.is_empty());
        if sums.is_nothing() {
            let names = if sums.unfit.is_empty() { batch.names(0..batch.len()) } else { sums.unfit };
            return Err(StepError::NothingFits { step, names });
        }
        let scale = self.scale.factor();
        let norm = norm / scale * sums.correction();
        let (loss, parts) = sums.losses();
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                let is_expected = self.scale.record_overflow();
                let (names, place) = (sums.suspects(batch), self.first_not_finite());
                return Err(StepError::NotFinite { step, what, value, names, is_expected, place });
            }
        }
        self.scale.record_success();
        let rate = self.config.schedule.rate(step) * self.rate_factor;
        // As in PyTorch's `clip_grad_norm_`, including its 1e-6.
        let clip = (self.config.clip_norm / (norm + 1e-6)).min(1.0);
        failures.extend(self.bring_state_back(step));
        let updating = timing::enter(TimeOwner::Optimizer);
        let is_checked = self.config.async_errors && (step <= 2 || !failures.is_empty());
        let gradients = sums.take_gradients();
        self.update((step, rate), gradients, clip * sums.correction() / scale, is_checked)?;
        drop(updating);
        let (is_above, returned) = self.check_update(step, sums.is_above_limit, &mut failures);
        let safety = sums.safety + self.learn(batch, &sums, is_above);
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
        let (peak, stage) = attempt(|| self.watch.end(Stage::Update)).unwrap_or((Bytes(0), Stage::Update));
        let peak = (peak.max(returned), stage);
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
            calls: None,
            read_time,
            loss_scale: scale,
            peak,
            safety,
        })
    }

    /// Checks the memory after an update, which cannot be undone: a failure is added to `failures`, to be reported with this step, so that the
    /// next one does not inherit it. Returns whether the step took more memory than it may, and the memory that was reserved before the pools
    /// returned what is unused; 0 if they did not.
    fn check_update(&mut self, step: u64, was_above: bool, failures: &mut Vec<OutOfMemory>) -> (bool, Bytes) {
        let over = attempt(|| self.watch.check(Stage::Update)).unwrap_or(Ok(())).err();
        // On the CPU no pages stay behind: the memory of the update says nothing about micro-batches.
        let is_above = self.config.async_errors && (was_above || over.is_some());
        let mut returned = Bytes(0);
        if self.config.async_errors && (step == 1 || is_above || !failures.is_empty()) {
            // Returns the memory of loading and of kernel tuning, or what the step took above the limit.
            self.clean_up();
            returned = self.before_cleanup;
        }
        failures.extend(over);
        (is_above, returned)
    }

    /// Returns the place of the first value of this step that is infinite or NaN; `None` if the trainer does not search.
    fn first_not_finite(&self) -> Option<String> {
        self.finite.as_ref()?.take()
    }

    /// Flushes the queue of an asynchronous device. Kernel fusion cannot cross a flush, so that retries and
    /// checkpoints between micro-batches do not change the rounding.
    fn flush(&self) {
        if self.config.async_errors {
            // An error here shows again at the read of a dependent value.
            let _ = self.device.flush();
        }
    }

    /// Returns unused memory to the device after a failure.
    pub(crate) fn clean_up(&mut self) {
        self.before_cleanup = attempt(|| self.watch.reserved()).unwrap_or_default();
        // Burn frees no part of a dropped graph while a leaf of it is in use, so the model gets other leaves.
        self.task = self.task.clone().map(&mut FreshLeaves);
        clean_up(&self.device, &self.watch);
    }

    /// Reports the micro-batches to the governor: as fitting, or as too large if the step ended above the limit of the
    /// memory, so that the next step splits further. Returns the time that this took.
    fn learn(&mut self, batch: &T::Batch, sums: &StepAccumulator, is_above: bool) -> Duration {
        let start = Instant::now();
        // With the longest utterance of the batch, as for the limit.
        let shape = sums.largest.map(|largest| batch.shape().with_utterances(largest.utterances));
        match (shape, is_above) {
            (Some(shape), true) => _ = self.governor.record_out_of_memory(shape),
            (Some(shape), false) => _ = self.governor.record_success(shape, batch.len()),
            (None, _) => {}
        }
        start.elapsed()
    }
}

impl<T: Task> std::fmt::Debug for Trainer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer").field("task", &self.task).field("config", &self.config).finish_non_exhaustive()
    }
}

/// Frees memory that nothing uses: graph nodes of abandoned passes, and tensors that are dropped but still in the
/// queue. Reports it to `gate`. A device that has failed fails again at the next use.
pub(crate) fn clean_up(device: &Device, gate: &dyn MemoryGate) {
    let _returning = timing::enter(TimeOwner::Retry);
    let _ = attempt(|| {
        free_dropped_graphs();
        let _ = device.flush();
        forget_kept();
        device.memory_cleanup();
        gate.cleaned_up();
    });
}

/// Reads every parameter once, which allocates its memory.
struct InitializeParameters;

impl ModuleVisitor for InitializeParameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}
