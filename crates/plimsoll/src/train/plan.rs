//! The plan of a run: what will happen, whole, as it is written into the run's folder.

use std::fmt::Write;
use std::time::Duration;

use plimsoll_core::{Bytes, Choice, Key, PlanHeader, SCHEMA_VERSION, Seconds};
use plimsoll_data::LogMelConfig;
use plimsoll_speech::asr::RecogniserConfig;
use plimsoll_speech::tts::SynthesiserConfig;
use plimsoll_train::{Limits, OptimizerConfig, PlateauConfig, Schedule, StateForm, TrainerConfig, Unfit};
use serde::Serialize;

use super::memory::MemoryPlan;
use crate::config::RunConfig;

/// What will happen. Everything in it is settled; the same plan gives the same run.
///
/// In `plan.toml` the fields that are skipped here stand in the [header](Self::header).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunPlan {
    /// The run's name, where a person gave one.
    #[serde(skip)]
    pub(crate) name: Option<String>,
    /// The program's version.
    #[serde(skip)]
    pub(crate) version: &'static str,
    /// The commit that the program was built from.
    #[serde(skip)]
    pub(crate) commit: &'static str,
    /// Where all randomness starts.
    #[serde(skip)]
    pub(crate) seed: u64,
    /// The device that trains.
    #[serde(skip)]
    pub(crate) device: String,
    /// Parameters of the model.
    #[serde(skip)]
    pub(crate) parameters: u64,
    /// The data.
    pub(crate) data: DataPlan,
    /// The training.
    pub(crate) training: TrainingPlan,
    /// The model.
    pub(crate) model: ModelPlan,
    /// The memory that it will take, where that can be known.
    pub(crate) memory: Option<MemoryPlan>,
    /// The features.
    pub(crate) features: LogMelConfig,
    /// The configuration that all this follows from.
    pub(crate) config: RunConfig,
}

/// The model of either task.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ModelPlan {
    /// A recogniser.
    Recogniser(RecogniserConfig),
    /// A synthesiser.
    Synthesiser(SynthesiserConfig),
}

impl ModelPlan {
    /// The model in a line.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Recogniser(model) => {
                let decoder = match &model.decoder {
                    Some(decoder) => format!("CTC and a decoder of {} blocks", decoder.layers),
                    None => "CTC".into(),
                };
                let RecogniserConfig { layers, d_model, vocabulary, .. } = model;
                format!("Conformer with {decoder}: {layers} blocks of width {d_model}, {vocabulary} tokens")
            }
            Self::Synthesiser(model) => {
                let SynthesiserConfig { text_layers, text_dim, decoder_layers, decoder_dim, .. } = model;
                format!(
                    "synthesiser: {text_layers} + {decoder_layers} blocks of width {text_dim} and {decoder_dim}, \
                     {} frames a step, {} tokens",
                    model.reduction, model.vocabulary
                )
            }
        }
    }
}

/// What is trained and validated on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DataPlan {
    /// Utterances to train on.
    pub(crate) training_utterances: usize,
    /// How long they are together.
    pub(crate) training_seconds: Seconds,
    /// Utterances held out.
    pub(crate) validation_utterances: usize,
    /// What was held out: whole voices, single utterances, another manifest.
    pub(crate) held_out: &'static str,
    /// Utterances left out, by reason.
    pub(crate) left_out: std::collections::BTreeMap<&'static str, usize>,
    /// Batches of an epoch.
    pub(crate) batches_in_epoch: u64,
}

/// How it is trained.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrainingPlan {
    /// Steps until the end, where they can be known.
    pub(crate) total_steps: Option<u64>,
    /// Epochs until the end, where they are limited.
    pub(crate) epochs: Option<u64>,
    /// Seconds of training, where they are limited.
    pub(crate) max_seconds: Option<f64>,
    /// Utterances computed at once at the start.
    pub(crate) micro_batch: usize,
    /// The memory that may be used.
    pub(crate) budget: Option<Bytes>,
    /// Steps between validations; 0 for each epoch.
    pub(crate) validation_interval: u64,
    /// Steps between checkpoints.
    pub(crate) checkpoint_interval: u64,
    /// Checkpoints kept.
    pub(crate) keep_checkpoints: usize,
    /// Checkpoints kept for their scores.
    pub(crate) keep_best: usize,
    /// Validations without a better score after which the run ends.
    pub(crate) early_stopping: Option<u32>,
    /// How slowly the mean of the weights moves, where one is kept.
    pub(crate) ema_decay: Option<f64>,
    /// Parts of the model that keep their values.
    pub(crate) freeze: Vec<String>,
    /// What becomes of an utterance that does not fit alone.
    pub(crate) does_not_fit: Unfit,
    /// Whether the device tells of failures only when something is read.
    pub(crate) tells_late: bool,
    /// Norm that the gradient is clipped to.
    pub(crate) clip_norm: f64,
    /// How pieces are computed.
    pub(crate) choice: Choice,
    /// Devices that train together.
    pub(crate) replicas: usize,
    /// Pieces computed at the same time, on each.
    pub(crate) lanes: usize,
    /// The optimizer.
    pub(crate) optimizer: OptimizerConfig,
    /// Where it keeps its state.
    pub(crate) optimizer_state: StateForm,
    /// The learning rate.
    pub(crate) schedule: Schedule,
    /// How it is lowered when validations no longer get better.
    pub(crate) plateau: Option<PlateauConfig>,
}

impl TrainingPlan {
    pub(crate) fn limits(&self) -> Limits {
        let time = self.max_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Limits { steps: self.total_steps, epochs: self.epochs, time, stale: self.early_stopping }
    }

    pub(crate) fn validate_every(&self) -> Option<u64> {
        (self.validation_interval > 0).then_some(self.validation_interval)
    }
}

impl RunPlan {
    /// The head of `plan.toml`, which readers of runs rely on.
    pub(crate) fn header(&self) -> PlanHeader {
        PlanHeader {
            schema_version: SCHEMA_VERSION,
            name: self.name.clone(),
            version: Some(self.version.into()),
            commit: Some(self.commit.into()),
            task: Some(self.config.task.word().into()),
            seed: Some(self.seed),
            device: Some(self.device.clone()),
            parameters: Some(self.parameters),
            total_steps: self.training.total_steps,
            hop_seconds: Some(self.features.hop_length as f64 / f64::from(self.features.sample_rate)),
        }
    }

    pub(crate) fn trainer(&self) -> TrainerConfig {
        TrainerConfig {
            optimizer: self.training.optimizer,
            state: self.training.optimizer_state,
            schedule: self.training.schedule,
            clip_norm: self.training.clip_norm,
            choice: self.training.choice,
            lanes: self.training.lanes,
            tells_late: self.training.tells_late,
            unfit: self.training.does_not_fit,
            ema_decay: self.training.ema_decay,
            key: Key::new(self.seed).with("train"),
        }
    }

    /// Where the run takes place, as far as memory is concerned.
    pub(crate) fn place(&self) -> String {
        let budget = self.training.budget.map_or_else(|| "all its memory".into(), |budget| budget.to_string());
        format!("{}, {budget}, {} replicas", self.device, self.training.replicas)
    }

    /// The plan in a few lines, for whoever starts the run.
    pub(crate) fn told(&self) -> String {
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
            ("model", format!("{}, {} parameters", model.told(), self.parameters)),
            ("batch", format!("{batch} a step, {} at once", training.micro_batch)),
            ("ends", self.told_end()),
        ];
        if training.replicas > 1 {
            lines.push(("together", format!("{} replicas, each with its part of every batch", training.replicas)));
        }
        if let Some(memory) = &self.memory {
            lines.push(("memory", memory.told()));
        }
        for (reason, count) in &data.left_out {
            lines.push(("left out", format!("{count} utterances: {reason}")));
        }
        let mut text = String::from("What will happen\n");
        for (name, value) in lines {
            let _ = writeln!(text, "  {name:<9} {value}");
        }
        text
    }

    fn told_end(&self) -> String {
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
