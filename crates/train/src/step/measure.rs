//! Measures the memory of steps on a device with memory pools, before a run begins.

use std::sync::atomic::AtomicBool;

use plimsoll_core::{Batch, Bytes, MemoryGate, Stage};
use plimsoll_tape::Task;
use plimsoll_tape::failure::FailureCause;

use super::{StepError, Trainer};
use crate::Governor;
use crate::attempt::attempt;
use crate::fault::Fault;
use crate::planned::PlannedLimit;

/// Memory of steps, as a device reserved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredMemory {
    /// The most that the memory pools of the device reserved.
    Reserved(Bytes),
    /// The memory did not suffice.
    Exceeded,
}

/// Steps of a measurement. The first makes the state of the optimizer, or takes what is needed once for a new length.
const STEPS: u32 = 2;
/// Most steps without an update that a measurement makes: in fp16 each of them halves the factor on the loss.
const OVERFLOWS_MAX: u32 = 24;

impl<T: Task> Trainer<T> {
    /// Takes two steps on `batch`, in micro-batches as `planned` says, and measures the memory that the second reserves, and the very
    /// first of this trainer. Unless `keeps_pages`, the pools give back what is unused before the second. `stop` ends the measurement.
    ///
    /// The weights change, and the governor holds only `planned` afterwards: use a trainer that does nothing else, with the model,
    /// the optimizer and the memory gate of the run. After [`MeasuredMemory::Exceeded`] its weights may be lost.
    ///
    /// # Errors
    /// As for [`step_unless`](Self::step_unless), but for a lack of memory.
    pub fn measure(
        &mut self,
        stop: &AtomicBool,
        batch: &T::Batch,
        planned: PlannedLimit,
        keeps_pages: bool,
    ) -> Result<MeasuredMemory, StepError> {
        self.governor = Governor::from_plan(vec![planned], planned.limit);
        let (mut most, mut overflows, mut done) = (Bytes(0), 0, 0);
        while done < STEPS {
            if done > 0 && !keeps_pages {
                self.clean_up();
            }
            let report = match self.step_unless(stop, batch, &mut |_| {}) {
                Err(StepError::NotFinite { is_expected: true, .. }) if overflows < OVERFLOWS_MAX => {
                    overflows += 1;
                    continue;
                }
                Err(error) if error.is_of_memory() => return Ok(MeasuredMemory::Exceeded),
                report => report?,
            };
            if !report.failures.is_empty() || report.micro_batches.len() > batch.len().div_ceil(planned.limit.max(1)) {
                return Ok(MeasuredMemory::Exceeded);
            }
            done += 1;
            if report.step == 1 {
                most = self.before_cleanup;
            } else if done == STEPS {
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
