//! Maps a configuration to the settings of a step: optimizer, precision, micro-batch, memory limit.

use std::num::NonZeroU32;

use plimsoll_config::choices::{
    AttentionChoice, OptimizerChoice, PrecisionChoice, RematChoice, RematWord, StateChoice,
};
use plimsoll_config::{RunConfig, TrainingConfig};
use plimsoll_core::{Bytes, Choice, Precision, Remat};
use plimsoll_data::BatchSize;
use plimsoll_train::{AdamWConfig, LionConfig, OptimizerConfig, SgdConfig, StateForm};

use super::batches::batching;
use crate::families::{ModelPlan, family};

/// Returns the optimizer of `config`, with its settings.
pub fn optimizer(config: &RunConfig) -> OptimizerConfig {
    let &TrainingConfig { beta_1, beta_2, epsilon, weight_decay, momentum, optimizer, .. } = &config.training;
    match optimizer {
        OptimizerChoice::AdamW => AdamWConfig { beta_1, beta_2, epsilon, weight_decay }.into(),
        OptimizerChoice::Lion => LionConfig { beta_1, beta_2, weight_decay }.into(),
        OptimizerChoice::Sgd => SgdConfig { momentum, nesterov: false, weight_decay }.into(),
    }
}

/// Returns the form of the optimizer's state without a memory plan: fp32, 8 bits, or in host memory. A plan may replace
/// `auto`, which is fp32 on the device here, by host memory.
pub fn optimizer_state(config: &RunConfig) -> StateForm {
    match config.training.optimizer_state {
        StateChoice::Auto | StateChoice::Full => StateForm::Full,
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
        remat: remat(config, model).unwrap_or_default(),
        attention_chunk: chunk(config),
        precision: match config.training.precision {
            PrecisionChoice::Auto => fastest,
            PrecisionChoice::Fp32 => Precision::Fp32,
            PrecisionChoice::Bf16 => Precision::Bf16,
            PrecisionChoice::Fp16 => Precision::Fp16,
        },
    }
}

/// Returns the number of queries per chunk that the configuration fixes; `None` if it computes attention at once, or leaves
/// the choice to the planner.
fn chunk(config: &RunConfig) -> Option<NonZeroU32> {
    match config.model.attention {
        AttentionChoice::Chunked => NonZeroU32::new(config.model.attention_chunk),
        AttentionChoice::Auto | AttentionChoice::Exact | AttentionChoice::Truncate => None,
    }
}

/// Returns the rematerialized blocks that the configuration fixes; `None` if the planner chooses them.
pub(super) fn remat(config: &RunConfig, model: &ModelPlan) -> Option<Remat> {
    match config.training.remat {
        RematChoice::Word(RematWord::Auto) => None,
        RematChoice::Word(RematWord::None) => Some(Remat::None),
        RematChoice::Word(RematWord::Half) => Some(Remat::Half),
        RematChoice::Word(RematWord::All) => Some(Remat::All),
        RematChoice::Blocks(blocks) => Some(Remat::count_of(blocks, model.blocks())),
    }
}

/// Returns the size of the first micro-batch: the fixed size, or a whole batch. `utterances` is the size of the corpus.
pub fn first_micro_batch(config: &RunConfig, utterances: usize) -> usize {
    let whole = match batching(config).size {
        BatchSize::Utterances(whole) => whole.get(),
        // A batch in seconds has no fixed number of utterances: take all as the limit, and the governor lowers it.
        BatchSize::Seconds(_) => utterances as u32,
    };
    config.fixed_micro_batch().map_or(whole, |micro| micro.min(whole)).max(1) as usize
}

/// Returns the number of micro-batches that each of `replicas` of a process computes at the same time on a device with
/// `threads`: threads of the CPU, or 1 on a GPU.
pub fn lanes(config: &RunConfig, threads: usize, replicas: usize) -> usize {
    if family(config).needs_order(config) { 1 } else { (threads / replicas.max(1)).max(1) }
}

/// Computes the memory limit of the configuration on a device with `memory` in total; `None` if it sets no limit.
pub fn budget(training: &TrainingConfig, memory: Bytes) -> Option<Bytes> {
    let share = |share: f64| Bytes((memory.0 as f64 * share) as u64);
    training.max_memory.or(training.max_memory_fraction.map(share))
}
