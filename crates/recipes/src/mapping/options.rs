//! Maps a configuration to the settings that a memory plan may choose from.

use plimsoll_config::RunConfig;
use plimsoll_config::choices::{AttentionChoice, StateChoice};
use plimsoll_core::{Precision, Remat, StateForm};
use plimsoll_memory::{PlanOptions, StateOption};

use super::step::{choice, optimizer, optimizer_state, remat, state_bits};
use crate::families::ModelPlan;

/// Properties of a device that decide which settings a plan may choose from.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTraits {
    /// Fastest safe precision of the device, which the setting `auto` selects.
    pub precision: Precision,
    /// Fastest 16-bit format of the device, if it has one.
    pub low_precision: Option<Precision>,
    /// Whether the device has memory of its own: then optimizer state on the host takes none of it.
    pub has_own_memory: bool,
}

/// Returns the settings that a plan may choose from with `config` as it is written: only those that are `auto`.
pub fn as_written(config: &RunConfig, model: &ModelPlan, device: DeviceTraits) -> PlanOptions {
    let choice = choice(config, model, device.precision);
    let free = free(model);
    PlanOptions {
        remat: match remat(config, model) {
            Some(fixed) => vec![fixed],
            None => free.remat,
        },
        chunks: match config.model.attention {
            AttentionChoice::Auto => free.chunks,
            _ => vec![choice.attention_chunk],
        },
        micro_batch: config.fixed_micro_batch(),
        precisions: vec![choice.precision],
        activations: config.training.remat_budget,
        states: match (config.training.optimizer_state, device.has_own_memory) {
            (StateChoice::Auto, true) => {
                vec![state(config, StateForm::Full), state(config, StateForm::Host)]
            }
            // On the CPU, host memory is device memory: moving the state there would save nothing.
            (StateChoice::Auto | StateChoice::Host, false) => vec![state(config, StateForm::Full)],
            _ => vec![state(config, optimizer_state(config))],
        },
    }
}

/// Returns the settings that a plan may choose from if it may change everything that does not change the result:
/// micro-batch, rematerialization, attention chunk, and where the optimizer state is.
pub fn at_best(config: &RunConfig, model: &ModelPlan, device: DeviceTraits) -> PlanOptions {
    let written = as_written(config, model, device);
    let PlanOptions { remat, mut chunks, .. } = free(model);
    for chunk in &written.chunks {
        if !chunks.contains(chunk) {
            chunks.push(*chunk);
        }
    }
    let mut states = written.states.clone();
    let host = state(config, StateForm::Host);
    if device.has_own_memory && !states.contains(&host) {
        states.push(host);
    }
    PlanOptions { remat, chunks, micro_batch: None, activations: None, states, ..written }
}

/// Returns all settings that advice may name: those of [`at_best`], 16-bit precision, and optimizer state in 8 bits.
pub fn remedies(config: &RunConfig, model: &ModelPlan, device: DeviceTraits) -> PlanOptions {
    let mut all = at_best(config, model, device);
    if let Some(low) = device.low_precision
        && !all.precisions.contains(&low)
    {
        all.precisions.push(low);
    }
    let eight = state(config, StateForm::Eight);
    if !all.states.contains(&eight) {
        all.states.push(eight);
    }
    all
}

/// Returns the settings of a run without a memory plan: nothing is left to choose.
pub fn fixed(config: &RunConfig, model: &ModelPlan, device: DeviceTraits, micro_batch: u32) -> PlanOptions {
    let choice = choice(config, model, device.precision);
    let written = as_written(config, model, device);
    PlanOptions {
        remat: vec![choice.remat],
        chunks: vec![choice.attention_chunk],
        micro_batch: Some(micro_batch),
        states: vec![written.states[0]],
        ..written
    }
}

/// Returns the options of `model` with nothing fixed that does not change the result.
fn free(model: &ModelPlan) -> PlanOptions {
    PlanOptions::new().with_free_computation(model.blocks())
}

/// Returns the optimizer state of `config` in `form`, as the planner counts it.
fn state(config: &RunConfig, form: StateForm) -> StateOption {
    let moved = match form {
        // Each value goes to the device and back.
        StateForm::Host => 2 * optimizer(config).state_bits(StateForm::Full) / 8,
        StateForm::Full | StateForm::Eight => 0,
    };
    StateOption { form, bits: state_bits(config, form), moved_bytes: moved }
}

/// Returns the number of rematerialized blocks of `remat`, as the key `training.remat` takes it.
pub fn remat_word(remat: Remat) -> String {
    match remat {
        Remat::None => "none".into(),
        Remat::Half => "half".into(),
        Remat::All => "all".into(),
        Remat::First(blocks) => blocks.to_string(),
    }
}
