//! Resumes a run from a checkpoint.

use plimsoll_tape::{Task, apply};
use plimsoll_train::{Checkpoint, CheckpointError, CheckpointStore, RunState, Trainer};

use super::RunContext;
use super::folder::other_seed;
use super::task::TrainingTask;
use crate::error::{Failure, FailureExt};
use crate::reporter::Level;

impl RunContext<'_> {
    /// Restores the newest checkpoint that is not damaged; `None` if the run has no checkpoint yet.
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or belongs to another seed, other data or another model.
    pub(super) fn resume<T: TrainingTask>(
        &self,
        task: &T,
        store: &CheckpointStore,
        trainer: &mut Trainer<T::Model>,
    ) -> Result<Option<RunState>, Failure> {
        let (checkpoint, damaged) = match store.newest() {
            Err(CheckpointError::None { .. }) => {
                let text = format!("{} has no checkpoint yet: it begins again", self.folder.path().display());
                self.reporter.line(Level::Info, &text);
                return Ok(None);
            }
            newest => newest.invalid()?,
        };
        for error in damaged {
            self.reporter.line(Level::Warning, &format!("{error}; using the checkpoint before it"));
        }
        if checkpoint.state.seed != self.plan.seed {
            return Err(other_seed(checkpoint.state.seed, self.plan.seed));
        }
        if !task.has_same_inputs(self)? {
            let message = "the data changed since the run began: the model would have other tokens";
            return Err(Failure::invalid(message, "give the corpus that it began with, or begin a new run"));
        }
        let text = format!("Going on after step {} from {}", checkpoint.state.step, checkpoint.path.display());
        self.reporter.line(Level::Info, &text);
        self.restore(checkpoint, trainer).map(Some)
    }

    /// Loads the weights, the optimizer and the state of `checkpoint` into `trainer`; returns the state.
    ///
    /// # Errors
    /// If the checkpoint does not belong to this model.
    pub(super) fn restore<M: Task>(
        &self,
        checkpoint: Checkpoint,
        trainer: &mut Trainer<M>,
    ) -> Result<RunState, Failure> {
        let state = checkpoint.state;
        trainer.task = apply(trainer.task.clone(), checkpoint.weights).invalid()?;
        trainer.optimizer.restore(state.step, checkpoint.optimizer, &trainer.task).invalid()?;
        trainer.scale = state.scale.or_fresh(trainer.scale);
        if let Some(ema) = &mut trainer.ema {
            match checkpoint.ema {
                Some(values) => ema.restore(apply(trainer.task.clone(), values).invalid()?, state.ema_steps),
                // The average was switched on for the resumed run: it starts with these weights.
                None => ema.restore(trainer.task.clone(), 0),
            }
        }
        // Limits that were learned on another device, or with another budget, are of no use here.
        if state.learned_on == self.plan.memory_scope() {
            trainer.governor.restore(state.governor.clone());
        }
        Ok(RunState { learned_on: self.plan.memory_scope(), ..state })
    }
}
