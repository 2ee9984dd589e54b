//! One piece: its loss and its gradients, on a thread of its own where several are computed at once.

use std::any::Any;
use std::borrow::Cow;

use burn::module::{ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Batch, Choice, Key, MemoryGate, OutOfMemory, SampleId, Stage};
use plimsoll_tape::{Noise, Pass, StepLoss, Task, backward};

use super::cut::{Cut, ways};
use super::gather::square_sum;
use crate::attempt::{attempt, told};

/// What the pieces of a step share.
pub(super) struct Job<'a> {
    /// What losses are multiplied by.
    pub(super) scale: f64,
    pub(super) key: Key,
    pub(super) choice: Choice,
    pub(super) device: &'a Device,
    pub(super) gate: &'a dyn MemoryGate,
}

/// What a piece gives.
pub(super) struct Done {
    pub(super) loss: Tensor<1>,
    pub(super) parts: Vec<(&'static str, Tensor<1>)>,
    pub(super) left_out: Vec<usize>,
    pub(super) cut: Vec<usize>,
    pub(super) gradients: GradientsParams,
}

/// Why a piece gave nothing.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Memory ran out: with less of it at once, it may work.
    Memory(OutOfMemory),
    /// Something else, which would happen again.
    Broken(String),
}

impl Fault {
    /// What `text`, said by a device or a panic, means.
    pub(crate) fn told(stage: Stage, text: String) -> Self {
        match is_out_of_memory(&text) {
            true => Self::Memory(OutOfMemory { stage, reason: text }),
            false => Self::Broken(text),
        }
    }
}

/// Whether `text`, said by a device or a panic, says that memory ran out.
pub(crate) fn is_out_of_memory(text: &str) -> bool {
    // CubeCL, wgpu and CUDA have no common type for it, and a panic has none at all.
    const SIGNS: [&str; 11] = [
        "out of memory",
        "out_of_memory",
        "outofmemory",
        "out of device memory",
        "needed memory",
        "not enough memory",
        "was never allocated",
        "was never initialized",
        "bytes were never written",
        "can't allocate",
        "failed to allocate",
    ];
    let lower = text.to_lowercase();
    SIGNS.iter().any(|sign| lower.contains(sign))
}

impl Done {
    /// Asks whether all of it was written, which takes no waiting for the device.
    ///
    /// What a kernel needed and could not have is known when the kernel is put into the device's queue, and rides on all
    /// that depends on it. The square of the gradients depends on everything, and asking for a value that is not looked at
    /// only waits until its kernels are in the queue.
    pub(super) fn written<T: Task>(self, task: &T, device: &Device) -> Result<Self, Fault> {
        let witness = Tensor::cat(vec![self.loss.clone(), square_sum(task, &self.gradients, device)], 0);
        match witness.try_to_data() {
            Ok(_) => Ok(self),
            Err(error) => Err(Fault::told(Stage::Backward, error.to_string())),
        }
    }
}

impl Job<'_> {
    /// Computes the pieces of a wave at the same time; one that comes alone may have been sent already.
    pub(super) fn wave<T: Task>(
        &self,
        task: &T,
        cuts: &[Cut],
        pieces: &[Cow<'_, T::Batch>],
        sent: Option<T::Tensors>,
    ) -> Vec<Result<Done, Fault>> {
        if let ([cut], [piece]) = (cuts, pieces) {
            return vec![self.guarded(task, *cut, piece, sent)];
        }
        // Leaves of their own keep the tapes of the threads apart: a shared one has a lock that they would wait for.
        let lanes: Vec<T> = pieces.iter().map(|_| task.clone().map(&mut FreshLeaves)).collect();
        std::thread::scope(|scope| {
            let start = |((lane, cut), piece): ((T, &Cut), _)| {
                let cut = *cut;
                scope.spawn(move || self.guarded(&lane, cut, piece, None))
            };
            let threads: Vec<_> =
                lanes.into_iter().zip(cuts).zip(pieces.iter().map(|piece| &**piece)).map(start).collect();
            let broken = |panic: Box<dyn Any + Send>| Err(Fault::Broken(told(&*panic)));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(broken)).collect()
        })
    }

    /// A piece whose panic is an answer: some backends have no other way to say that memory ran out.
    fn guarded<T: Task>(&self, task: &T, cut: Cut, piece: &T::Batch, sent: Option<T::Tensors>) -> Result<Done, Fault> {
        let mut stage = Stage::Forward;
        let done = attempt(|| {
            let tensors = sent.unwrap_or_else(|| T::send(piece, self.device));
            self.piece(task, cut, (piece.ids(), &tensors), &mut stage)
        });
        match done {
            Ok(done) => done.map_err(Fault::Memory),
            Err(text) => Err(Fault::told(stage, text)),
        }
    }

    fn piece<T: Task>(
        &self,
        task: &T,
        cut: Cut,
        (ids, tensors): (&[SampleId], &T::Tensors),
        stage: &mut Stage,
    ) -> Result<Done, OutOfMemory> {
        let ways = ways(self.choice);
        let choice = ways[(cut.effort as usize).min(ways.len() - 1)];
        let pass = Pass::new(choice, Noise::new(self.key, ids));
        let StepLoss { sum, parts, left_out, truncated: cut } = task.loss(tensors, &pass);
        self.gate.check(Stage::Forward)?;
        *stage = Stage::Backward;
        let loss = sum.clone().without_autodiff();
        let parts = parts.into_iter().map(|(name, part)| (name, part.without_autodiff())).collect();
        let gradients = backward(sum * self.scale, task);
        self.gate.check(Stage::Backward)?;
        Ok(Done { loss, parts, left_out, cut, gradients })
    }
}

/// The same parameters, as leaves of another tape.
struct FreshLeaves;

impl ModuleMapper for FreshLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| {
            let required = value.is_require_grad();
            value.detach().set_require_grad(required)
        })
    }
}
