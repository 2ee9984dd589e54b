//! Measures the memory of steps on a device with memory pools, before a run begins.

use std::sync::atomic::AtomicBool;

use plimsoll_core::{Batch, Bytes, MemoryGate, Stage};
use plimsoll_tape::Task;
use plimsoll_tape::failure::FailureCause;

use super::{StepError, Trainer};
use crate::attempt::attempt;
use crate::fault::Fault;

/// Memory of steps, as a device reserved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredMemory {
    /// The most that the memory pools of the device reserved.
    Reserved(Bytes),
    /// The memory did not suffice.
    Exceeded,
}

/// Steps of a measurement. The first takes what is needed once for a new length.
const STEPS: u32 = 2;
/// Steps of the first measurement. The first makes the state of the optimizer; the second sends the next batch where all later steps send it,
/// which decides what is left in one piece.
const FIRST_STEPS: u32 = 3;
/// Most steps without an update that a measurement makes: in fp16 each of them halves the factor on the loss.
const OVERFLOWS_MAX: u32 = 24;

impl<T: Task> Trainer<T> {
    /// Takes two or three steps on `batch`, in micro-batches as the governor says, and measures the memory that they reserve from the second on,
    /// and the very first of this trainer. As in a run, each step sends the batch of the next one to the device: `next` is that of the next
    /// measurement. Unless `keeps_pages`, the pools give back what is unused before the second. `stop` ends the measurement.
    ///
    /// The weights change: use a trainer that does nothing else, with the model, the optimizer, the governor and the memory gate of the run.
    /// After [`MeasuredMemory::Exceeded`] its weights may be lost.
    ///
    /// # Errors
    /// As for [`step_unless`](Self::step_unless), but for a lack of memory.
    pub fn measure(
        &mut self,
        stop: &AtomicBool,
        batch: &T::Batch,
        next: &T::Batch,
        keeps_pages: bool,
    ) -> Result<MeasuredMemory, StepError> {
        let micro_batches = batch.len().div_ceil(self.governor.limit(batch.shape()));
        let steps = if self.optimizer.steps() == 0 { FIRST_STEPS } else { STEPS };
        let (mut most, mut overflows, mut done) = (Bytes(0), 0, 0);
        while done < steps {
            if done == 1 && !keeps_pages {
                self.clean_up();
            }
            let report =
                match self.step_unless(stop, batch, &mut |send| send(if done + 1 < steps { batch } else { next })) {
                    Err(StepError::NotFinite { is_expected: true, .. }) if overflows < OVERFLOWS_MAX => {
                        overflows += 1;
                        continue;
                    }
                    Err(error) if error.is_of_memory() => return Ok(MeasuredMemory::Exceeded),
                    report => report?,
                };
            if !report.failures.is_empty() || report.micro_batches.len() > micro_batches {
                return Ok(MeasuredMemory::Exceeded);
            }
            done += 1;
            if report.step == 1 {
                most = self.before_cleanup;
            } else if done > 1 {
                most = most.max(self.watch.reserved());
            }
        }
        Ok(MeasuredMemory::Reserved(most))
    }

    /// Measures the memory of `work` with the model that a run validates, without gradients; `None` if `work` failed for another reason
    /// than memory. `work` must wait for the device. Unless `keeps_pages`, the pools give back what is unused before.
    pub fn measure_inference(&mut self, keeps_pages: bool, work: impl FnOnce(&T)) -> Option<MeasuredMemory> {
        if !keeps_pages {
            self.clean_up();
        }
        let done = attempt(|| work(&self.evaluation_model().clone().valid()));
        match done.map_err(|text| Fault::from_message(Stage::Validation, text)) {
            Err(Fault::Other(..)) => None,
            Err(Fault::Memory(_)) => Some(MeasuredMemory::Exceeded),
            Ok(()) => Some(match self.watch.check(Stage::Validation) {
                Ok(()) => MeasuredMemory::Reserved(self.watch.reserved()),
                Err(_) => MeasuredMemory::Exceeded,
            }),
        }
    }
}

impl StepError {
    /// Returns whether memory did not suffice for the step. An update that failed most likely found no memory, too: all before it is
    /// checked.
    fn is_of_memory(&self) -> bool {
        match self {
            Self::NothingFits { .. } | Self::OutOfMemory { .. } => true,
            Self::Device { cause, .. } => *cause == FailureCause::OutOfMemory,
            Self::WeightsLost { reason, .. } => {
                !matches!(FailureCause::from_message(reason), FailureCause::Kernel | FailureCause::DeviceLost)
            }
            _ => false,
        }
    }
}
