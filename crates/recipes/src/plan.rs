//! The plan of a run: what will happen, whole, as it is written into the run's folder.

use std::fmt;
use std::time::Duration;

use plimsoll_audio::LogMelConfig;
use plimsoll_core::{Bytes, Choice, Key, PlanHeader, SCHEMA_VERSION, Seconds};
use plimsoll_train::{Limits, OptimizerConfig, PlateauConfig, Schedule, StateForm, TrainerConfig, Unfit};
use serde::Serialize;

use crate::config::RunConfig;
use crate::mapping::ModelPlan;
use crate::memory_plan::MemoryPlan;

/// What will happen. Everything in it is settled; the same plan gives the same run.
///
/// In `plan.toml` the fields that are skipped here stand in the [header](Self::header).
#[derive(Clone, Debug, Serialize)]
pub struct RunPlan {
    /// The run's name, where a person gave one.
    #[serde(skip)]
    pub name: Option<String>,
    /// The program's version.
    #[serde(skip)]
    pub version: &'static str,
    /// The commit that the program was built from.
    #[serde(skip)]
    pub commit: &'static str,
    /// Where all randomness starts.
    #[serde(skip)]
    pub seed: u64,
    /// The device that trains.
    #[serde(skip)]
    pub device: String,
    /// Parameters of the model.
    #[serde(skip)]
    pub parameters: u64,
    /// The data.
    pub data: DataPlan,
    /// The training.
    pub training: TrainingPlan,
    /// The model.
    pub model: ModelPlan,
    /// The memory that it will take, where that can be known.
    pub memory: Option<MemoryPlan>,
    /// The features.
    pub features: LogMelConfig,
    /// The configuration that all this follows from.
    pub config: RunConfig,
}

/// What is trained and validated on.
#[derive(Clone, Debug, Serialize)]
pub struct DataPlan {
    /// Utterances to train on.
    pub training_utterances: usize,
    /// How long they are together.
    pub training_seconds: Seconds,
    /// Utterances held out.
    pub validation_utterances: usize,
    /// What was held out: whole voices, single utterances, another manifest.
    pub held_out: &'static str,
    /// Utterances left out, by reason.
    pub left_out: std::collections::BTreeMap<&'static str, usize>,
    /// Batches of an epoch.
    pub batches_in_epoch: u64,
}

/// How it is trained.
#[derive(Clone, Debug, Serialize)]
pub struct TrainingPlan {
    /// Steps until the end, where they can be known.
    pub total_steps: Option<u64>,
    /// Epochs until the end, where they are limited.
    pub epochs: Option<u64>,
    /// Seconds of training, where they are limited.
    pub max_seconds: Option<f64>,
    /// Utterances computed at once at the start.
    pub micro_batch: usize,
    /// The memory that may be used.
    pub budget: Option<Bytes>,
    /// Steps between validations; 0 for each epoch.
    pub validation_interval: u64,
    /// Steps between checkpoints.
    pub checkpoint_interval: u64,
    /// Checkpoints kept.
    pub keep_checkpoints: usize,
    /// Checkpoints kept for their scores.
    pub keep_best: usize,
    /// Validations without a better score after which the run ends.
    pub early_stopping: Option<u32>,
    /// How slowly the mean of the weights moves, where one is kept.
    pub ema_decay: Option<f64>,
    /// Parts of the model that keep their values.
    pub freeze: Vec<String>,
    /// What becomes of an utterance that does not fit alone.
    pub does_not_fit: Unfit,
    /// Whether the device tells of failures only when something is read.
    #[serde(rename = "tells_late")]
    pub async_errors: bool,
    /// Norm that the gradient is clipped to.
    pub clip_norm: f64,
    /// How pieces are computed.
    pub choice: Choice,
    /// Devices that train together.
    pub replicas: usize,
    /// Pieces computed at the same time, on each.
    pub lanes: usize,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// Where it keeps its state.
    pub optimizer_state: StateForm,
    /// The learning rate.
    pub schedule: Schedule,
    /// How it is lowered when validations no longer get better.
    pub plateau: Option<PlateauConfig>,
}

impl TrainingPlan {
    /// When the run ends.
    pub fn limits(&self) -> Limits {
        let time = self.max_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Limits { steps: self.total_steps, epochs: self.epochs, time, stale: self.early_stopping }
    }

    /// Steps between validations; `None` for one at the end of each epoch.
    pub fn validate_every(&self) -> Option<u64> {
        (self.validation_interval > 0).then_some(self.validation_interval)
    }
}

impl RunPlan {
    /// The head of `plan.toml`, which readers of runs rely on.
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

    /// What the trainer is built from.
    pub fn trainer(&self) -> TrainerConfig {
        TrainerConfig {
            optimizer: self.training.optimizer,
            state: self.training.optimizer_state,
            schedule: self.training.schedule,
            clip_norm: self.training.clip_norm,
            choice: self.training.choice,
            lanes: self.training.lanes,
            async_errors: self.training.async_errors,
            unfit: self.training.does_not_fit,
            ema_decay: self.training.ema_decay,
            key: Key::new(self.seed).with("train"),
        }
    }

    /// Where the run takes place, as far as memory is concerned.
    pub fn place(&self) -> String {
        let budget = self.training.budget.map_or_else(|| "all its memory".into(), |budget| budget.to_string());
        format!("{}, {budget}, {} replicas", self.device, self.training.replicas)
    }

    fn end(&self) -> String {
        let training = &self.training;
        let mut ends = Vec::new();
        if let Some(steps) = training.total_steps {
            let epochs = steps as f64 / self.data.batches_in_epoch.max(1) as f64;
            ends.push(format!("after {steps} steps ({epochs:.1} epochs)"));
        }
        if let Some(validations) = training.early_stopping {
            ends.push(format!("after {validations} validations without a better score"));
        }
        if let Some(seconds) = training.max_seconds {
            ends.push(format!("after {} of training", Seconds(seconds)));
        }
        ends.join(" or ")
    }
}

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, training, model) = (&self.data, &self.training, &self.model);
        let batch = match self.config.data.effective_utterances() {
            Some(utterances) => format!("{utterances} utterances"),
            None => format!("{} of audio", self.config.data.batch_seconds.unwrap_or_default()),
        };
        let mut lines = vec![
            ("device", self.device.clone()),
            (
                "data",
                format!(
                    "{} utterances ({}) to train on, {} held out by {}",
                    data.training_utterances, data.training_seconds, data.validation_utterances, data.held_out
                ),
            ),
            ("model", format!("{}, {} parameters", model, self.parameters)),
            ("batch", format!("{batch} a step, {} at once", training.micro_batch)),
            ("ends", self.end()),
        ];
        if training.replicas > 1 {
            lines.push(("together", format!("{} replicas, each with its part of every batch", training.replicas)));
        }
        if let Some(memory) = &self.memory {
            lines.push(("memory", memory.to_string()));
        }
        for (reason, count) in &data.left_out {
            lines.push(("left out", format!("{count} utterances: {reason}")));
        }
        writeln!(f, "What will happen")?;
        for (name, value) in lines {
            writeln!(f, "  {name:<9} {value}")?;
        }
        Ok(())
    }
}
