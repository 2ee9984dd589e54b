//! Changes of a trainer that are outside the gradient: the update of a step, and moves of the optimizer's state.

use plimsoll_core::{MemoryGate, OutOfMemory, Stage, TimeOwner, timing};
use plimsoll_tape::Task;

use super::gradients::GradientSum;
use super::{StepError, Trainer, gradients};
use crate::StateForm;
use crate::attempt::attempt;
use crate::fault::Fault;

/// Number of steps after which a state that could not return to the device tries again. It doubles with each failure.
const RETURN_WAIT: u64 = 10;

/// Next attempt to return the optimizer's state to the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateReturn {
    /// First step that may try.
    not_before: u64,
    /// Number of steps to wait after the next failure; 0 before the first.
    wait: u64,
}

impl<T: Task> Trainer<T> {
    /// Updates weights, optimizer and average. The update cannot be undone: if it fails, the weights are lost.
    ///
    /// If `is_checked`, waits until the weights are known to be computed.
    pub(super) fn update(
        &mut self,
        (step, rate): (u64, f64),
        gradients: GradientSum,
        scale: f64,
        is_checked: bool,
    ) -> Result<(), StepError> {
        let update = || {
            let task = self.task.clone();
            self.task = gradients.step(&mut self.optimizer, rate, task, scale);
            self.flush();
            if let Some(ema) = &mut self.ema {
                match self.optimizer.flat_values() {
                    Some((layout, values)) => ema.update_flat(layout, values),
                    None => ema.update(&self.task),
                }
            }
        };
        attempt(update).map_err(|reason| StepError::WeightsLost { step, reason })?;
        if is_checked && !gradients::is_written(&self.task) {
            return Err(StepError::WeightsLost { step, reason: "the weights were not computed".into() });
        }
        Ok(())
    }

    /// Moves the optimizer's state to the host, which makes room on the device for an utterance that fits nowhere.
    ///
    /// The state goes back before the update of the step. On a failure it stays where it is, with every value. In fp32
    /// the host keeps the same bits; 8-bit state would change, so it does not move.
    pub(super) fn move_state_to_host(&mut self) -> Result<(), Fault> {
        self.convert_state(StateForm::Host)
    }

    /// Returns whether the optimizer's state may move to the host.
    pub(super) fn can_move_state(&self) -> bool {
        self.config.async_errors && self.optimizer.form() == StateForm::Full
    }

    /// Returns the optimizer's state to the device if a step moved it to the host. If there is no room it stays on the
    /// host, where updates are slower, and tries again some steps later.
    pub(super) fn bring_state_back(&mut self, step: u64) -> Option<OutOfMemory> {
        let is_away = self.config.state == StateForm::Full && self.optimizer.form() == StateForm::Host;
        if !is_away || step < self.state_return.not_before {
            return None;
        }
        let _retry = timing::enter(TimeOwner::Retry);
        // The memory of the micro-batches, which the state needs.
        self.clean_up();
        match self.convert_state(StateForm::Full) {
            Ok(()) => {
                self.state_return = StateReturn::default();
                None
            }
            Err(fault) => {
                let wait = (self.state_return.wait * 2).max(RETURN_WAIT);
                self.state_return = StateReturn { not_before: step + wait, wait };
                self.clean_up();
                Some(match fault {
                    Fault::Memory(failure) => failure,
                    Fault::Other(_, reason) => OutOfMemory { stage: Stage::Update, reason },
                })
            }
        }
    }

    /// Converts the optimizer's state, if the memory suffices for both forms at once.
    fn convert_state(&mut self, form: StateForm) -> Result<(), Fault> {
        let converted = self.optimizer.converted(form);
        let converted = converted.map_err(|error| Fault::from_message(Stage::Update, error.to_string()))?;
        self.watch.check(Stage::Update).map_err(Fault::Memory)?;
        self.optimizer.adopt(converted);
        Ok(())
    }
}
