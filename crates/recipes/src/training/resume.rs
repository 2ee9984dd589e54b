//! Resumes a run from a checkpoint.

use std::path::Path;

use plimsoll_config::invocation::command;
use plimsoll_core::Position;
use plimsoll_tape::{Task, apply};
use plimsoll_train::{Checkpoint, CheckpointError, CheckpointStore, RunState, Trainer};

use super::RunContext;
use super::folder::{CONFIG, other_seed};
use crate::data::PreparedData;
use crate::earlier::EarlierRun;
use crate::error::{Failure, FailureExt};
use crate::fingerprint::{Changes, changed_features, changes};
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::resolve::extra_steps;

/// A run to resume.
#[derive(Clone, Copy, Debug)]
pub struct Resume<'a> {
    /// Folder of the run.
    pub folder: &'a Path,
    /// What to do if the data, or what decides its order, changed since the checkpoint.
    pub data_changed: DataChanged,
}

/// What a resumed run does if its data, or what decides the order of its data, changed since its checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataChanged {
    /// Refuses to go on.
    #[default]
    Refuse,
    /// Keeps the weights, and begins the current epoch again over the new data.
    RestartEpoch,
}

/// A run that is resumed from a checkpoint.
pub(super) struct ResumedRun {
    /// The run as it is in its folder.
    pub(super) earlier: EarlierRun,
    /// What to do if the data changed.
    pub(super) data_changed: DataChanged,
    /// Whether the current epoch begins again.
    pub(super) restarts_epoch: bool,
}

impl ResumedRun {
    /// Compares the checkpoint of `earlier` with the data of today, and decides whether the current epoch begins again.
    ///
    /// # Errors
    /// If the data changed and `data_changed` refuses this, or if the model would have other inputs or tokens.
    pub(super) fn compare(
        earlier: EarlierRun,
        data_changed: DataChanged,
        prepared: &PreparedData,
        reporter: &dyn Reporter,
    ) -> Result<Self, Failure> {
        let features = prepared.training.log_mel().config();
        let model = changed_features(&earlier.features, features);
        let found = match earlier.state.fingerprint.is_empty() {
            true => Changes { model, ..Changes::default() },
            false => {
                changes(&earlier.state.fingerprint, &prepared.fingerprint, earlier.corpus.as_ref(), &prepared.corpus)
            }
        };
        if !found.model.is_empty() {
            let message = format!(
                "the run cannot go on with other features or tokens, which its weights do not know: {}",
                found.model.join("; ")
            );
            return Err(Failure::invalid(message, "give the settings that it began with, or begin a new run"));
        }
        let restarts_epoch = if earlier.state.fingerprint.is_empty() {
            let text = "the checkpoint is of an older version, which did not record its data. Utterances to validate on \
                        are chosen in another way now: some were trained on before. The current epoch begins again.";
            reporter.line(Level::Note, text);
            true
        } else {
            restarts(&found, data_changed, reporter)?
        };
        Ok(Self { earlier, data_changed, restarts_epoch })
    }

    /// Returns whether the folder of the run needs the fingerprint of the utterances again: they changed, or an older version
    /// wrote it, without their audio.
    pub(super) fn writes_utterances(&self) -> bool {
        let corpus = self.earlier.corpus.as_ref();
        self.restarts_epoch || corpus.is_none_or(|corpus| corpus.audio_summary().is_none())
    }
}

/// Decides whether the current epoch begins again because of `found`, and reports it.
///
/// # Errors
/// If there are changes and `data_changed` refuses them.
fn restarts(found: &Changes, data_changed: DataChanged, reporter: &dyn Reporter) -> Result<bool, Failure> {
    if found.data.is_empty() {
        return Ok(false);
    }
    let words = found.data.join("; ");
    if data_changed == DataChanged::Refuse {
        let message = format!("the data of the run, or its order, changed since the last checkpoint: {words}");
        let help = "restore what changed; or keep the weights and begin the current epoch again over the new data: \
                    --data-changed restart-epoch";
        return Err(Failure::invalid(message, help));
    }
    let scores = if found.validation { ", and scores count anew: other utterances are held out" } else { "" };
    let text = format!("{words}. The current epoch begins again over the new data{scores}.");
    reporter.line(Level::Note, &text);
    Ok(true)
}

/// Checks that a run began with the seed of `plan`'s configuration.
///
/// # Errors
/// If it began with another seed.
pub(super) fn check_seed(earlier: &EarlierRun, seed: u64) -> Result<(), Failure> {
    if earlier.state.seed == seed {
        return Ok(());
    }
    Err(other_seed(earlier.state.seed, seed))
}

impl RunContext<'_> {
    /// Returns the state of a new run.
    pub(super) fn initial_state(&self) -> RunState {
        RunState {
            seed: self.plan.seed,
            learned_on: self.plan.memory_scope(),
            run: self.id.clone(),
            fingerprint: self.prepared.fingerprint.clone(),
            ..RunState::default()
        }
    }

    /// Restores the newest checkpoint that is not damaged; `None` if the run has no checkpoint yet.
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or belongs to another run or another model.
    pub(super) fn resume<M: Task>(
        &self,
        store: &CheckpointStore,
        trainer: &mut Trainer<M>,
    ) -> Result<Option<RunState>, Failure> {
        let (checkpoint, damaged) = match store.newest() {
            Err(CheckpointError::None { .. }) => {
                let text = format!("{} has no checkpoint yet: it begins again", self.folder.path().display());
                self.reporter.line(Level::Info, &text);
                return Ok(None);
            }
            Err(error @ CheckpointError::Damaged { .. }) => {
                let again =
                    command(&format!("train --config {} --name NAME", self.folder.path().join(CONFIG).display()));
                let help =
                    format!("no checkpoint of the run is whole: restore one from a copy, or begin again: `{again}`");
                return Err(Failure::caused_by(&error, help));
            }
            newest => newest.invalid()?,
        };
        for error in damaged {
            self.reporter.line(Level::Warning, &format!("{error}; using the checkpoint before it"));
        }
        let text = format!("Going on after step {} from {}", checkpoint.state.step, checkpoint.path.display());
        self.reporter.line(Level::Info, &text);
        self.restore(checkpoint, trainer).map(Some)
    }

    /// Loads the weights, the optimizer and the state of `checkpoint` into `trainer`; returns the state.
    ///
    /// # Errors
    /// If the checkpoint does not belong to this model, or the data changed since it was written.
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
        let state = RunState { learned_on: self.plan.memory_scope(), ..state };
        self.at_data_of_today(state)
    }

    /// Moves `state` to the start of its epoch if the data changed since its checkpoint.
    ///
    /// # Errors
    /// If the data changed, and the run was not asked to go on.
    fn at_data_of_today(&self, state: RunState) -> Result<RunState, Failure> {
        let Some(resumed) = &self.resumed else { return Ok(state) };
        let restarts_epoch = match state.fingerprint == resumed.earlier.state.fingerprint {
            true => resumed.restarts_epoch,
            // The newest checkpoint is damaged, and the one before it is from before a change of the data.
            false => {
                let found = changes(&state.fingerprint, &self.prepared.fingerprint, None, &self.prepared.corpus);
                state.fingerprint.is_empty() || restarts(&found, resumed.data_changed, self.reporter)?
            }
        };
        if !restarts_epoch {
            // A checkpoint of an older version gets the values that it did not record.
            return Ok(RunState { fingerprint: self.prepared.fingerprint.clone(), ..state });
        }
        let is_other_split =
            resumed.earlier.corpus.as_ref().is_none_or(|before| before.held_out() != self.prepared.corpus.held_out());
        Ok(restarted(state, &self.plan, &self.prepared, is_other_split))
    }
}

/// Returns `state` at the start of its epoch, over the data of `prepared`. Scores on other utterances are forgotten.
fn restarted(state: RunState, plan: &RunPlan, prepared: &PreparedData, is_other_split: bool) -> RunState {
    let extra_steps = extra_steps(&state, true, plan.data.batches_in_epoch);
    let (position, fingerprint) = (Position::epoch_start(state.position.epoch), prepared.fingerprint.clone());
    let state = RunState { position, fingerprint, extra_steps, ..state };
    match is_other_split {
        true => RunState { best: None, best_step: None, best_scores: Vec::new(), stale: 0, ..state },
        false => state,
    }
}
