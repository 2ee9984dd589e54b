//! The plan of a run: all settings after defaults and data are known, as `plan.toml` in the run folder holds them.

use std::fmt;
use std::time::Duration;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::{ChosenValue, RunConfig};
use plimsoll_core::{Bytes, Choice, Key, PlanHeader, SCHEMA_VERSION, Seconds, counted};
use plimsoll_tape::lora::Rates;
use plimsoll_train::{Limits, OptimizerConfig, PlateauConfig, Schedule, StateForm, TrainerConfig, Unfit};
use serde::Serialize;

use crate::beginning::Begun;
use crate::families::{ModelPlan, family};
use crate::memory_plan::MemoryPlan;
use crate::trained::trained_parts;

/// Most held-out utterances that each validation of a synthesizer or a vocoder computes.
pub(crate) const VALIDATION_UTTERANCES: usize = 16;

/// Fewest steps of a run that is meant to learn. Shorter ones only show that it starts.
const LEARNING_MIN: u64 = 20;

/// The complete plan of a run. It leaves nothing open: equal plans on one machine give equal runs.
///
/// In `plan.toml` the fields that serde skips stand in the [header](Self::header).
#[derive(Clone, Debug, Serialize)]
pub struct RunPlan {
    /// Name of the run; `None` if the configuration gives none.
    #[serde(skip)]
    pub name: Option<String>,
    /// Version of Plimsoll that made the plan.
    #[serde(skip)]
    pub version: &'static str,
    /// Git commit that the program was built from, 12 digits.
    #[serde(skip)]
    pub commit: &'static str,
    /// Seed of all randomness.
    #[serde(skip)]
    pub seed: u64,
    /// Name of the device that trains.
    #[serde(skip)]
    pub device: String,
    /// Number of parameters that are trained; frozen parameters do not count.
    #[serde(skip)]
    pub parameters: u64,
    /// Plan of the data: utterances and batches.
    pub data: DataPlan,
    /// Plan of the training: its length, and the computation of a step.
    pub training: TrainingPlan,
    /// Configuration of the model, with the vocabulary and the statistics that come from the data.
    pub model: ModelPlan,
    /// Planned memory; `None` if the memory of the device is not known.
    pub memory: Option<MemoryPlan>,
    /// Settings of the log-mel features.
    pub features: LogMelConfig,
    /// Values that were chosen for the corpus, because they were not set.
    #[serde(skip)]
    pub recipe: Vec<ChosenValue>,
    /// Model that the run begins with, and what is taken of it; `None` if it begins at random, or goes on from a checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<Begun>,
    /// Configuration that the plan was made from.
    pub config: RunConfig,
}

/// Data of a run.
#[derive(Clone, Debug, Serialize)]
pub struct DataPlan {
    /// Number of training utterances.
    pub training_utterances: usize,
    /// Total duration of the training utterances.
    pub training_seconds: Seconds,
    /// Number of validation utterances.
    pub validation_utterances: usize,
    /// Method by which validation utterances were chosen: `voices` (all utterances of some speakers), `utterances`, or
    /// `another manifest`.
    pub held_out: &'static str,
    /// Number of utterances that are not used, by reason.
    pub left_out: std::collections::BTreeMap<&'static str, usize>,
    /// Number of batches in an epoch.
    pub batches_in_epoch: u64,
    /// Number of padded shapes (frames and tokens) of the batches of the first epoch. A GPU compiles and tunes its kernels
    /// when it first meets a shape.
    pub padded_shapes: usize,
    /// Share of the frames of the first epoch that is padding.
    pub padding: f64,
}

/// Settings of the training, all with their final values.
#[derive(Clone, Debug, Serialize)]
pub struct TrainingPlan {
    /// Number of steps until the end; `None` if neither epochs nor steps are limited.
    pub total_steps: Option<u64>,
    /// Steps beyond the number of batches of whole epochs: not 0 after the data changed during the run.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_steps: i64,
    /// Number of epochs until the end; `None` if they are not limited.
    pub epochs: Option<u64>,
    /// Seconds of training until the end; `None` if they are not limited.
    pub max_seconds: Option<f64>,
    /// Size of the first micro-batch, in utterances. The governor may lower it.
    pub micro_batch: usize,
    /// Size of the first micro-batch before memory was planned.
    #[serde(skip)]
    pub(crate) unplanned_micro_batch: usize,
    /// Memory that the run may use; `None` if it is not limited.
    pub budget: Option<Bytes>,
    /// Number of steps between validations; 0 for one validation at the end of each epoch.
    pub validation_interval: u64,
    /// Number of steps between checkpoints.
    pub checkpoint_interval: u64,
    /// Number of newest checkpoints that are kept.
    pub keep_checkpoints: usize,
    /// Number of checkpoints with the best scores that are kept besides the newest checkpoints.
    pub keep_best: usize,
    /// Number of validations in a row without a better score after which the run ends; `None` if it never ends for this
    /// reason.
    pub early_stopping: Option<u32>,
    /// Decay of the exponential moving average of the weights; `None` for no average.
    pub ema_decay: Option<f64>,
    /// Name prefixes of the parameters that are not trained.
    pub freeze: Vec<String>,
    /// Factors of the learning rate of parts of the model.
    #[serde(skip_serializing_if = "Rates::is_empty")]
    pub rates: Rates,
    /// Treatment of an utterance that does not fit into memory even alone.
    pub does_not_fit: Unfit,
    /// Whether the device reports failures only when a result is read, as GPUs do.
    #[serde(rename = "tells_late")]
    pub async_errors: bool,
    /// Limit on the L2 norm of the gradient, to which the gradient is clipped.
    pub clip_norm: f64,
    /// Settings of the computation of a micro-batch: rematerialization, chunked attention, precision.
    pub choice: Choice,
    /// Number of replicas; each has a part of every batch.
    pub replicas: usize,
    /// Number of replicas in this process: all of them, or one where each process of the run has one.
    #[serde(skip)]
    pub own_replicas: usize,
    /// Number of lanes: micro-batches that each replica computes at the same time, each on its own thread.
    pub lanes: usize,
    /// Optimizer that updates the weights.
    pub optimizer: OptimizerConfig,
    /// Form of the optimizer's state: fp32, 8 bits, or in host memory.
    pub optimizer_state: StateForm,
    /// Schedule of the learning rate.
    pub schedule: Schedule,
    /// Settings that lower the learning rate when the validation score no longer improves; `None` for other schedules.
    pub plateau: Option<PlateauConfig>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(steps: &i64) -> bool {
    *steps == 0
}

impl TrainingPlan {
    /// Says that the warm-up is as long as the run, so that the learning rate never reaches its value; `None` if it does, or if
    /// the run only tries a few steps.
    pub(crate) fn endless_warm_up(&self) -> Option<String> {
        let Schedule { peak, warmup, .. } = self.schedule;
        let total = self.total_steps.filter(|&total| total >= LEARNING_MIN && warmup >= total)?;
        let last = self.schedule.rate(total);
        Some(format!(
            "the warm-up takes {warmup} steps and the run ends after {total}, so the learning rate ends at {last:.1e} and never \
             reaches {peak:.1e}; `--set training.warmup_share=0.1` shortens the warm-up to a tenth of the run"
        ))
    }

    /// Returns the limits that end the run; the first limit that is reached counts.
    pub fn limits(&self) -> Limits {
        let time = self.max_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Limits { steps: self.total_steps, epochs: self.epochs, time, stale: self.early_stopping }
    }

    /// Returns the number of steps between validations; `None` for one validation at the end of each epoch.
    pub fn validate_every(&self) -> Option<u64> {
        (self.validation_interval > 0).then_some(self.validation_interval)
    }
}

impl RunPlan {
    /// Returns the header of `plan.toml`. Programs that list runs read only this part, so its fields are stable.
    pub fn header(&self) -> PlanHeader {
        PlanHeader {
            schema_version: SCHEMA_VERSION,
            name: self.name.clone(),
            version: Some(self.version.into()),
            commit: Some(self.commit.into()),
            task: Some(self.config.task.as_str().into()),
            seed: Some(self.seed),
            device: Some(self.device.clone()),
            parameters: Some(self.parameters),
            total_steps: self.training.total_steps,
            hop_seconds: Some(self.features.hop_length as f64 / f64::from(self.features.sample_rate)),
        }
    }

    /// Sets the planned memory, and with it what the plan decides for the whole run: the form of the optimizer state, and
    /// the largest micro-batch.
    pub(crate) fn set_memory(&mut self, memory: Option<MemoryPlan>) {
        let is_host = !self.training.async_errors;
        if let Some(plan) = memory.as_ref().map(|memory| &memory.plan) {
            self.training.optimizer_state = plan.state.form;
            if self.training.budget.is_some() || !is_host {
                let largest = plan.buckets.iter().map(|bucket| bucket.micro_batch as usize).max().unwrap_or(1);
                let most = largest * self.training.lanes;
                self.training.micro_batch = self.training.unplanned_micro_batch.min(most).max(1);
            }
        }
        self.memory = memory;
    }

    /// Returns the largest number of utterances that validation computes at once: as planned, or all of a batch without a
    /// plan.
    pub(crate) fn validation_batch(&self) -> usize {
        self.memory.as_ref().map_or(usize::MAX, |memory| memory.plan.validation_batch as usize)
    }

    /// Returns the settings of the [`Trainer`](plimsoll_train::Trainer).
    pub fn trainer_config(&self) -> TrainerConfig {
        TrainerConfig {
            optimizer: self.training.optimizer,
            state: self.training.optimizer_state,
            schedule: self.training.schedule,
            rates: self.training.rates.clone(),
            clip_norm: self.training.clip_norm,
            choice: self.training.choice,
            lanes: self.training.lanes,
            async_errors: self.training.async_errors,
            unfit: self.training.does_not_fit,
            ema_decay: self.training.ema_decay,
            key: Key::new(self.seed).with("train"),
            debug: self.config.training.debug,
        }
    }

    /// Returns device, memory budget and number of replicas of the run, as text.
    ///
    /// A checkpoint holds this text: the limits that the governor learned are used again only if the text is equal.
    pub fn memory_scope(&self) -> String {
        let budget = self.training.budget.map_or_else(|| "all its memory".into(), |budget| budget.to_string());
        format!("{}, {budget}, {} replicas", self.device, self.training.replicas)
    }

    /// Describes how many utterances are computed at once, for people: one number, or the range over all lengths.
    pub(crate) fn at_once(&self) -> String {
        let training = &self.training;
        let planned = self.memory.as_ref().filter(|memory| memory.budget.is_some() || training.async_errors);
        let each = planned.map(|memory| memory.governor_plan(training.lanes)).unwrap_or_default();
        let limits = || each.iter().map(|planned| planned.limit.min(training.micro_batch));
        match (limits().min(), limits().max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most} at once, by length"),
            (Some(most), _) => format!("{most} at once"),
            (None, _) => format!("{} at once", training.micro_batch),
        }
    }

    /// Describes the conditions that end the run, for the overview of the plan.
    fn end(&self) -> String {
        let (training, config) = (&self.training, &self.config.training);
        let mut ends = Vec::new();
        if let Some(steps) = training.total_steps {
            let batches = self.data.batches_in_epoch.max(1);
            let epochs = steps as f64 / batches as f64;
            let key = match (config.steps, config.epochs) {
                (Some(limit), Some(epochs)) if limit <= steps => {
                    format!(", by training.steps: it comes before training.epochs = {epochs}")
                }
                (Some(limit), Some(_)) => format!(", by training.epochs: it comes before training.steps = {limit}"),
                (None, Some(epochs)) if training.epochs.is_some_and(|passes| passes > u64::from(epochs)) => {
                    let least = config.min_steps.unwrap_or_default();
                    format!(", by training.min_steps = {least}: {epochs} epochs would have fewer")
                }
                _ => String::new(),
            };
            ends.push(format!("after {} ({epochs:.1} epochs){key}", counted(steps, "step")));
        }
        if let Some(validations) = training.early_stopping {
            ends.push(format!("after {} without a better score", counted(validations, "validation")));
        }
        if let Some(seconds) = training.max_seconds {
            ends.push(format!("after {} of training", Seconds(seconds)));
        }
        ends.join(" or ")
    }
}

impl RunPlan {
    /// Returns the number of parameters, in words, and of those that are trained if some are frozen.
    fn size(&self) -> String {
        match trained_parts(&self.config.training).is_all() {
            true => format!("{} parameters", self.parameters),
            false => format!("{} parameters, {} of them trained", self.model.parameters(), self.parameters),
        }
    }

    /// Returns the number of utterances of each validation; `None` if it has all that are held out.
    fn validated(&self) -> Option<usize> {
        let has_all = family(&self.config).validates_all() || self.data.validation_utterances <= VALIDATION_UTTERANCES;
        (!has_all).then_some(VALIDATION_UTTERANCES)
    }
}

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, training, model) = (&self.data, &self.training, &self.model);
        let batch = match self.config.effective_utterances() {
            Some(utterances) if utterances as usize >= data.training_utterances => {
                format!("all {}", counted(data.training_utterances, "utterance"))
            }
            Some(utterances) => counted(utterances, "utterance"),
            None => format!("{} of audio", self.config.data.batch_seconds.unwrap_or_default()),
        };
        let mut lines = vec![
            ("device", self.device.clone()),
            (
                "data",
                format!(
                    "{} ({}) to train on, {} held out by {}{}",
                    counted(data.training_utterances, "utterance"),
                    data.training_seconds,
                    data.validation_utterances,
                    data.held_out,
                    self.validated().map_or_else(String::new, |count| format!(", {count} of them in each validation"))
                ),
            ),
            ("model", format!("{model}, {}", self.size())),
            ("batch", format!("{batch} a step, {}, {}", self.at_once(), counted(data.padded_shapes, "padded shape"))),
            ("ends", self.end()),
        ];
        if let Some(begins) = &self.begins {
            lines.insert(3, ("begins", format!("as {begins}")));
        }
        if training.replicas > 1 {
            lines.push(("together", format!("{} replicas, each with its part of every batch", training.replicas)));
        }
        if let Some(memory) = &self.memory {
            lines.push(("memory", memory.text(training.lanes)));
        }
        for (reason, count) in &data.left_out {
            lines.push(("left out", format!("{}: {reason}", counted(count, "utterance"))));
        }
        writeln!(f, "What will happen")?;
        for (name, value) in lines {
            writeln!(f, "  {name:<9} {value}")?;
        }
        if !self.recipe.is_empty() {
            writeln!(f, "Chosen for this corpus; a flag or a configuration file sets any of it")?;
        }
        let of_model = self.recipe.iter().filter(|chosen| chosen.is_of_model).count();
        if of_model > 0 {
            writeln!(
                f,
                "  {} of [model], [features] and [data] follow the model that it begins with",
                counted(of_model, "key")
            )?;
        }
        for ChosenValue { key, value, reason, .. } in self.recipe.iter().filter(|chosen| !chosen.is_of_model) {
            writeln!(f, "  {:<36} {reason}", format!("{key} = {value}"))?;
        }
        Ok(())
    }
}
