//! Checkpoints of a run: in the background while it trains, at its end, and after an error.

use plimsoll_core::{MemoryGate, Stage, TimeOwner, error_chain, timing};
use plimsoll_tape::{Task, try_collect};

use super::TrainError;
use super::training_loop::TrainingLoop;
use crate::attempt::attempt;
use crate::checkpoint::{Snapshot, Written};
use crate::{CheckpointError, Event, StepError};

impl<T: Task> TrainingLoop<'_, T> {
    /// Starts to write a checkpoint in the background, on rank 0 only. If the device cannot return the state of the run,
    /// the run continues without this checkpoint.
    pub(super) fn save(&mut self) {
        if self.trainer.replica().rank() != 0 {
            return;
        }
        let _saving = timing::enter(TimeOwner::Checkpoint);
        let (step, position) = (self.state.step, self.state.position);
        let written = match self.snapshot() {
            Ok(snapshot) => self.write(snapshot),
            Err(error) => Some(Written { step, position, result: Err(error) }),
        };
        if let Some(written) = written {
            self.report_written(written);
        }
    }

    /// Writes `snapshot` in the background. Returns the result of a write that is done.
    fn write(&mut self, snapshot: Snapshot) -> Option<Written> {
        let watch = self.trainer.watch();
        // The copy is made: a device that fails in this check does not matter to it.
        match attempt(|| watch.check(Stage::Checkpoint)).unwrap_or(Ok(())) {
            Ok(()) => self.writer.start(snapshot),
            // Without memory for a copy, write in the foreground and free the snapshot directly.
            Err(failure) => {
                let before = self.writer.wait();
                let written = self.writer.write(&snapshot);
                drop(snapshot);
                self.trainer.clean_up();
                let (step, limit) = (self.state.step, 0);
                self.observe(&Event::OutOfMemory { step, failure, limit });
                before.into_iter().for_each(|before| self.report_written(before));
                Some(written)
            }
        }
    }

    /// Copies the state of the run from the device.
    fn snapshot(&mut self) -> Result<Snapshot, CheckpointError> {
        self.state.governor = self.trainer.governor.state().clone();
        self.state.scale = self.trainer.scale;
        self.state.ema_steps = self.trainer.ema.as_ref().map_or(0, crate::Ema::steps);
        let copy = || {
            let text = |error: &dyn std::error::Error| error.to_string();
            let weights = try_collect(&self.trainer.task).map_err(|error| text(&error))?;
            let optimizer = self.trainer.optimizer.state().map_err(|error| text(&error))?;
            let ema = self.trainer.ema.as_ref().map(|ema| try_collect(ema.model())).transpose();
            let ema = ema.map_err(|error| text(&error))?;
            Ok(Snapshot { state: self.state.clone(), weights, optimizer, ema })
        };
        attempt(copy).and_then(|copy| copy).map_err(|reason| CheckpointError::Device { reason })
    }

    pub(super) fn report_written(&mut self, Written { step, position, result }: Written) {
        let _recording = timing::enter(TimeOwner::Record);
        match result {
            Ok(path) => {
                self.written = Some((step, position));
                self.observe(&Event::Saved { step, path });
            }
            Err(error) => self.observe(&Event::NotSaved { step, reason: error_chain(&error) }),
        }
    }

    /// Waits for the checkpoint that is being written, and reports it.
    pub(super) fn wait_for_writer(&mut self) {
        let _saving = timing::enter(TimeOwner::Checkpoint);
        if let Some(written) = self.writer.wait() {
            self.report_written(written);
        }
    }

    /// Waits for the last checkpoint and writes the final checkpoint if it is missing. Returns an error if the final
    /// checkpoint cannot be written.
    pub(super) fn finish(&mut self) -> Result<(), TrainError> {
        let _saving = timing::enter(TimeOwner::Checkpoint);
        self.wait_for_writer();
        let is_written = self.written == Some((self.state.step, self.state.position));
        if is_written || self.trainer.replica().rank() != 0 {
            return Ok(());
        }
        let snapshot = self.snapshot()?;
        let Written { step, result, .. } = self.writer.write(&snapshot);
        self.observe(&Event::Saved { step, path: result? });
        Ok(())
    }

    /// Writes a checkpoint after an error, if the weights are good. Does not wait for other replicas.
    pub(super) fn save_after_error(&mut self, error: &TrainError) {
        let is_lost = matches!(error, TrainError::Step { source: StepError::WeightsLost { .. }, .. });
        if is_lost || matches!(error, TrainError::Checkpoint(_)) || self.state.step == 0 {
            return;
        }
        let saved = match self.may_block(error) {
            true => Err("the device may wait for another replica for ever, so nothing can be read from it".into()),
            false => self.finish().map_err(|error| error_chain(&error)),
        };
        if let Err(reason) = saved {
            self.observe(&Event::NotSaved { step: self.state.step, reason });
        }
    }

    /// Returns whether a read from the device may never end, because another replica did not start a sum with it.
    fn may_block(&self, error: &TrainError) -> bool {
        let is_replica =
            matches!(error, TrainError::Replica(_) | TrainError::Step { source: StepError::ReplicaLost { .. }, .. });
        is_replica && self.trainer.replica().may_block_device()
    }
}
