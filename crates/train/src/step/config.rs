//! Configuration of a trainer.

use plimsoll_core::{Choice, Key};
use plimsoll_tape::lora::Rates;
use serde::{Deserialize, Serialize};

use crate::{OptimizerConfig, Schedule, StateForm};

/// Configuration of a [`Trainer`](crate::Trainer).
#[derive(Clone, Debug)]
pub struct TrainerConfig {
    /// Optimizer rule with its hyperparameters. Default: AdamW with PyTorch's defaults.
    pub optimizer: OptimizerConfig,
    /// Place and precision in which the optimizer keeps its state. Default: fp32 on the device.
    pub state: StateForm,
    /// Schedule of the learning rate.
    pub schedule: Schedule,
    /// Parts with a learning rate of their own, as factors of the schedule's. Default: none.
    pub rates: Rates,
    /// Largest norm of the gradient; gradients with a larger norm are scaled down to it. Default: 5.
    pub clip_norm: f64,
    /// Execution choice of micro-batches, where the governor has no plan. In fp16 the loss is
    /// [scaled](crate::LossScale). Default: fp32.
    pub choice: Choice,
    /// Number of lanes: micro-batches computed at the same time, each on its own thread. Default: 1. Use the number of
    /// cores on a CPU and 1 on a GPU.
    ///
    /// Most of Burn's CPU operations use one core; several micro-batches use the other cores. The result does not
    /// depend on timing, because gradients are added in the order of the micro-batches.
    pub lanes: usize,
    /// Whether the device reports a failure only when a dependent value is read. A trainer of a model on a GPU sets this
    /// itself. Default: false.
    pub async_errors: bool,
    /// Treatment of an utterance that does not fit alone at any fallback level. Default: skip it.
    pub unfit: Unfit,
    /// Decay of the averaged weights, such as 0.999. The averaged weights are then validated and kept. Default: `None`,
    /// no average.
    pub ema_decay: Option<f64>,
    /// Root key of the run's random numbers.
    pub key: Key,
    /// Whether the output of each layer and its gradient are read back, so that an error names the layer where the first
    /// infinite or NaN value appeared. This makes steps much slower. Default: false.
    pub debug: bool,
}

impl TrainerConfig {
    /// Makes the default configuration, with the given learning rate schedule and key.
    pub fn new(schedule: Schedule, key: Key) -> Self {
        Self {
            optimizer: OptimizerConfig::default(),
            state: StateForm::Full,
            schedule,
            rates: Rates::default(),
            clip_norm: 5.0,
            choice: Choice::default(),
            lanes: 1,
            async_errors: false,
            unfit: Unfit::Skip,
            ema_decay: None,
            key,
            debug: false,
        }
    }
}

/// Treatment of an utterance that does not fit into memory alone at any fallback level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// The utterance is left out and reported.
    #[default]
    Skip,
    /// The run stops with an error.
    Stop,
}
