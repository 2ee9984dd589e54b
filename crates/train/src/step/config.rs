//! What a trainer is told at its beginning.

use plimsoll_core::{Choice, Key};
use serde::{Deserialize, Serialize};

use crate::{OptimizerConfig, Schedule, StateForm};

/// What a [`Trainer`](crate::Trainer) is built from.
#[derive(Clone, Copy, Debug)]
pub struct TrainerConfig {
    /// The optimizer's numbers.
    pub optimizer: OptimizerConfig,
    /// Where and in what numbers it keeps its state.
    pub state: StateForm,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// The norm that the whole gradient is clipped to.
    pub clip_norm: f64,
    /// How pieces are computed. In fp16 the loss is [scaled](crate::LossScale).
    pub choice: Choice,
    /// Pieces computed at the same time, each on a thread of its own: the cores of a CPU, one for a GPU.
    ///
    /// Most of Burn's operations on the CPU use one core; pieces are what can be given to the others. The result does
    /// not depend on the threads' luck, as gradients are added in the order of the pieces.
    pub lanes: usize,
    /// Whether the device tells of a failure only when something that depends on it is read, as GPUs do.
    pub async_errors: bool,
    /// What becomes of an utterance that does not fit alone, whatever is tried.
    pub unfit: Unfit,
    /// How slowly the mean of the weights moves that is validated and kept; none is kept where `None`.
    pub ema_decay: Option<f64>,
    /// The root of the run's randomness.
    pub key: Key,
}

impl TrainerConfig {
    /// A configuration with the defaults of everything but the learning rate and the key: AdamW as PyTorch has it, one
    /// lane of a CPU, fp32.
    pub fn new(schedule: Schedule, key: Key) -> Self {
        Self {
            optimizer: OptimizerConfig::default(),
            state: StateForm::Full,
            schedule,
            clip_norm: 5.0,
            choice: Choice::default(),
            lanes: 1,
            async_errors: false,
            unfit: Unfit::Skip,
            ema_decay: None,
            key,
        }
    }
}

/// What becomes of an utterance that does not fit into memory alone, with every effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// It is left out, and told.
    #[default]
    Skip,
    /// The run stops.
    Stop,
}
