//! Maps a configuration to the settings of a step: optimizer, precision, micro-batch, memory limit.

use plimsoll_core::{Bytes, Choice, Precision, Remat};
use plimsoll_data::BatchSize;
use plimsoll_train::{AdamWConfig, LionConfig, OptimizerConfig, SgdConfig, StateForm};

use super::batches::batching;
use super::model::ModelPlan;
use crate::config::{OptimizerChoice, PrecisionChoice, RematChoice, RunConfig, StateChoice, TrainingConfig};

/// Returns the optimizer of `config`, with its settings.
pub fn optimizer(config: &RunConfig) -> OptimizerConfig {
    let &TrainingConfig { beta_1, beta_2, epsilon, weight_decay, momentum, optimizer, .. } = &config.training;
    match optimizer {
        OptimizerChoice::AdamW => AdamWConfig { beta_1, beta_2, epsilon, weight_decay }.into(),
        OptimizerChoice::Lion => LionConfig { beta_1, beta_2, weight_decay }.into(),
        OptimizerChoice::Sgd => SgdConfig { momentum, nesterov: false, weight_decay }.into(),
    }
}

/// Returns the form of the optimizer's state: fp32, 8 bits, or in host memory.
pub fn optimizer_state(config: &RunConfig) -> StateForm {
    match config.training.optimizer_state {
        StateChoice::Full => StateForm::Full,
        StateChoice::Eight => StateForm::Eight,
        StateChoice::Host => StateForm::Host,
    }
}

/// Computes the bits of device memory that each parameter value takes beside the value itself: the optimizer state in
/// `form`, and the moving average of the weights if the configuration asks for it.
pub fn state_bits(config: &RunConfig, form: StateForm) -> u64 {
    let mean = if config.training.ema_decay.is_some() { 8 * size_of::<f32>() as u64 } else { 0 };
    optimizer(config).state_bits(form) + mean
}

/// Returns the settings with which a micro-batch of `model` is computed: rematerialization, chunked attention,
/// precision. `fastest` is the fastest safe precision of the device, which the setting `auto` selects.
pub fn choice(config: &RunConfig, model: &ModelPlan, fastest: Precision) -> Choice {
    Choice {
        remat: match config.training.remat {
            RematChoice::None => Remat::None,
            RematChoice::Half => Remat::Half,
            RematChoice::All => Remat::All,
        },
        attention_chunk: model.attention_chunk(),
        precision: match config.training.precision {
            PrecisionChoice::Auto => fastest,
            PrecisionChoice::Fp32 => Precision::Fp32,
            PrecisionChoice::Bf16 => Precision::Bf16,
            PrecisionChoice::Fp16 => Precision::Fp16,
        },
    }
}

/// Returns the size of the micro-batch in utterances, if the configuration fixes it; `None` if the planner chooses it.
pub fn fixed_micro_batch(config: &RunConfig) -> Option<u32> {
    let training = &config.training;
    match (training.micro_batch, training.gradient_accumulation_steps, batching(&config.data).size) {
        (Some(micro), ..) => Some(micro),
        (None, Some(steps), BatchSize::Utterances(whole)) => Some(whole.get().div_ceil(steps.max(1))),
        _ => None,
    }
}

/// Returns the size of the first micro-batch: the fixed size, or a whole batch. `utterances` is the size of the corpus.
pub fn first_micro_batch(config: &RunConfig, utterances: usize) -> usize {
    let whole = match batching(&config.data).size {
        BatchSize::Utterances(whole) => whole.get(),
        // A batch in seconds has no fixed number of utterances: take all as the limit, and the governor lowers it.
        BatchSize::Seconds(_) => utterances as u32,
    };
    fixed_micro_batch(config).map_or(whole, |micro| micro.min(whole)).max(1) as usize
}

/// Computes the memory limit of the configuration on a device with `memory` in total; `None` if it sets no limit.
pub fn budget(training: &TrainingConfig, memory: Bytes) -> Option<Bytes> {
    let share = |share: f64| Bytes((memory.0 as f64 * share) as u64);
    training.max_memory.or(training.max_memory_fraction.map(share))
}
