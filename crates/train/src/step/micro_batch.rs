//! Loss and gradients of one micro-batch, on a separate thread where several micro-batches are computed at once.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use burn::module::{ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};
use plimsoll_core::{
    Batch, Choice, Key, MemoryGate, MicroBatch, OutOfMemory, SampleId, Stage, TimeOwner, TimeShares, timing,
};
use plimsoll_tape::failure::FailureCause;
use plimsoll_tape::flat::{FlatLayout, LowParameters};
use plimsoll_tape::{Noise, Pass, PassObserver, StepLoss, Task, backward};

use super::gradients::are_written;
use super::queue::fallbacks;
use crate::attempt::{attempt, panic_message};
use crate::fault::Fault;

/// Settings with which all micro-batches of a step are computed.
pub(super) struct MicroBatchJob<'a> {
    /// Factor by which the loss of each micro-batch is multiplied.
    pub(super) scale: f64,
    pub(super) key: Key,
    pub(super) choice: Choice,
    pub(super) device: &'a Device,
    pub(super) gate: &'a dyn MemoryGate,
    pub(super) observer: Option<Arc<dyn PassObserver>>,
    /// The weights in flat tensors, where the parameters are views of such.
    pub(super) flat: Option<(&'a FlatLayout, &'a [Tensor<1>])>,
}

/// Loss and gradients of a micro-batch.
pub(super) struct MicroBatchResult {
    pub(super) loss: Tensor<1>,
    pub(super) parts: Vec<(&'static str, Tensor<1>)>,
    pub(super) left_out: Vec<usize>,
    pub(super) truncated: Vec<usize>,
    /// Number of reads from the device for which the loss waited.
    pub(super) reads: u32,
    pub(super) gradients: GradientsParams,
}

impl MicroBatchResult {
    /// Checks that loss and gradients were computed, without a kernel and without waiting for the device.
    ///
    /// A kernel without memory fails when it enters the device's queue, and so does everything that depends on it. Asking for
    /// a value waits until its kernel is in the queue.
    pub(super) fn written<T: Task>(self, task: &T) -> Result<Self, Fault> {
        let check = || match self.loss.try_to_data() {
            Ok(_) => are_written(task, &self.gradients),
            Err(error) => Err(error.to_string()),
        };
        match attempt(check).and_then(|written| written) {
            Ok(()) => Ok(self),
            Err(reason) => Err(Fault::from_message(Stage::Backward, reason)),
        }
    }
}

impl MicroBatchJob<'_> {
    /// Computes the micro-batches of a group at the same time, and returns one result for each. `parts` are their
    /// utterances. A group of one micro-batch may come with tensors that were sent to the device before.
    pub(super) fn compute_group<T: Task>(
        &self,
        task: &T,
        micro_batches: &[MicroBatch],
        parts: &[Cow<'_, T::Batch>],
        sent: Option<T::Tensors>,
    ) -> Vec<Result<MicroBatchResult, Fault>> {
        if let ([micro_batch], [part]) = (micro_batches, parts) {
            return vec![self.guarded(task, *micro_batch, part, sent)];
        }
        // Each thread has leaves of its own: a shared graph has a lock on which the threads would wait.
        let lanes: Vec<T> = parts.iter().map(|_| task.clone().map(&mut FreshLeaves)).collect();
        let count = lanes.len() as f64;
        let (results, times): (Vec<_>, Vec<TimeShares>) = std::thread::scope(|scope| {
            let start = |((lane, micro_batch), part): ((T, &MicroBatch), _)| {
                let micro_batch = *micro_batch;
                scope.spawn(move || (self.guarded(&lane, micro_batch, part, None), timing::lap()))
            };
            let threads: Vec<_> =
                lanes.into_iter().zip(micro_batches).zip(parts.iter().map(|part| &**part)).map(start).collect();
            let broken = |panic: Box<dyn Any + Send>| {
                (Err(Fault::Other(FailureCause::Other, panic_message(&*panic))), TimeShares::default())
            };
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(broken)).unzip()
        });
        // Each lane has a clock of its own. What its owners took there, they took from computing, on average over the
        // lanes.
        timing::correct(|all| {
            for (owner, seconds) in
                times.iter().flat_map(TimeShares::iter).filter(|(owner, _)| *owner != TimeOwner::Unknown)
            {
                all.shift(TimeOwner::Compute, owner, seconds / count);
            }
        });
        results
    }

    /// Computes one micro-batch and catches panics: some backends have no other way to report that memory ran out.
    fn guarded<T: Task>(
        &self,
        task: &T,
        micro_batch: MicroBatch,
        part: &T::Batch,
        sent: Option<T::Tensors>,
    ) -> Result<MicroBatchResult, Fault> {
        let mut stage = Stage::Forward;
        let done = attempt(|| {
            let send = || timing::measure(TimeOwner::Transfer, || T::send(part, self.device));
            let tensors = sent.unwrap_or_else(send);
            self.compute(task, micro_batch, (part.ids(), &tensors), &mut stage)
        });
        match done {
            Ok(done) => done.map_err(Fault::Memory),
            Err(text) => Err(Fault::from_message(stage, text)),
        }
    }

    fn compute<T: Task>(
        &self,
        task: &T,
        micro_batch: MicroBatch,
        (ids, tensors): (&[SampleId], &T::Tensors),
        stage: &mut Stage,
    ) -> Result<MicroBatchResult, OutOfMemory> {
        let fallbacks = fallbacks(self.choice);
        let choice = fallbacks[(micro_batch.fallback_level as usize).min(fallbacks.len() - 1)];
        let observer = self.observer.as_deref();
        observer.inspect(|observer| observer.begin());
        let pass = Pass::new(choice, Noise::new(self.key, ids)).with_observer(self.observer.clone());
        let _low = self.lowered(task, &pass);
        let StepLoss { sum, parts, left_out, truncated, reads } = task.loss(tensors, &pass);
        self.gate.check(Stage::Forward)?;
        *stage = Stage::Backward;
        let loss = sum.clone().without_autodiff();
        let parts = parts.into_iter().map(|(name, part)| (name, part.without_autodiff())).collect();
        let gradients = backward(pass.observe_loss(sum) * self.scale, task);
        observer.inspect(|observer| observer.end());
        self.gate.check(Stage::Backward)?;
        Ok(MicroBatchResult { loss, parts, left_out, truncated, reads, gradients })
    }

    /// Casts all weights at once if `pass` computes in 16 bits and they lie in flat tensors.
    fn lowered<T: Task>(&self, task: &T, pass: &Pass) -> Option<LowParameters> {
        let (layout, values) = self.flat.filter(|_| pass.compute_dtype() != FloatDType::F32)?;
        let low = values.iter().map(|values| pass.to_compute_dtype(values.clone())).collect();
        Some(layout.lower(task, low))
    }
}

/// Gives a copy of the model an autodiff graph of its own: each parameter becomes a detached leaf with the same value. Threads then do
/// not wait for the lock of a shared graph, and the graph of the original can be freed when that is dropped.
pub(super) struct FreshLeaves;

impl ModuleMapper for FreshLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| {
            let required = value.is_require_grad();
            value.detach().set_require_grad(required)
        })
    }
}
