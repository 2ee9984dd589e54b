//! What the planner is asked: the model, the batch shapes, and what may change.

use std::num::NonZeroU32;

use plimsoll_audio::LogMel;
use plimsoll_core::{BatchShape, Bytes, Choice, Remat};
use plimsoll_memory::{Demand, StepMemory};
use plimsoll_train::StateForm;

use crate::config::{RunConfig, TokenizerChoice};
use crate::error::{Failure, FailureExt};
use crate::mapping::{self, ModelPlan};
use crate::target::Target;

/// Vocabulary size that is assumed where neither the configuration nor a corpus says.
const CHARACTERS: usize = 64;
/// What the driver and the kernels take of a GPU before anything is trained. Not measured on a GPU yet.
const CONTEXT: Bytes = Bytes::mib(512);
/// Batches that wait on a GPU at most.
const PREFETCH: u32 = 1;

/// A configuration with its model and batch shapes, from which the planner's [`Demand`] on any target follows.
#[derive(Clone, Debug)]
pub struct DemandBuilder {
    /// The configuration.
    pub config: RunConfig,
    /// Its model.
    pub model: ModelPlan,
    /// The batches of a step, one for each length that is planned.
    pub shapes: Vec<BatchShape>,
}

impl DemandBuilder {
    /// The demand of `config` alone, where no corpus is at hand: lengths and vocabulary are what the configuration allows.
    ///
    /// # Errors
    /// Where the features of the configuration are not possible.
    pub fn from_config(config: RunConfig) -> Result<Self, Failure> {
        let log_mel = LogMel::new(&mapping::features(&config.features)).invalid()?;
        let vocabulary = config.model.vocabulary.map_or_else(|| assumed_vocabulary(&config), |size| size as usize);
        let model = mapping::model(&config, log_mel.n_mels(), vocabulary);
        let shapes = mapping::expected_shapes(&config, &model);
        Ok(Self { config, model, shapes })
    }

    /// How the configuration computes a micro-batch on `target`.
    pub fn choice(&self, target: &Target) -> Choice {
        mapping::choice(&self.config, &self.model, target.precision())
    }

    /// What the configuration asks of `target` as it is written.
    pub fn as_written(&self, target: &Target) -> Demand {
        let (config, choice, blocks) = (&self.config, self.choice(target), self.model.blocks());
        let passes = match choice.remat {
            Remat::None => 0,
            Remat::Half => blocks.div_ceil(2),
            _ => blocks,
        };
        let (lanes, context) = match target {
            Target::Card { .. } => (1, CONTEXT),
            Target::Host { threads, .. } => (*threads as u32, Bytes(0)),
        };
        Demand {
            buckets: self.shapes.clone(),
            blocks,
            remat_counts: vec![passes],
            chunks: vec![choice.attention_chunk],
            precision: choice.precision,
            micro_batch: mapping::fixed_micro_batch(config),
            rules: target.rules(),
            step: StepMemory {
                parallel_micro_batches: lanes,
                workspace: context,
                state_bits: mapping::state_bits(config, state_form(config, target)),
                snapshot: matches!(target, Target::Host { .. }),
                ..StepMemory::default()
            },
            prefetch: if matches!(target, Target::Card { .. }) { PREFETCH } else { 0 },
            eight_bit_state_bits: mapping::state_bits(config, StateForm::Eight),
        }
    }

    /// What the configuration asks of `target` where everything may change that leaves the result as it is: micro-batch,
    /// rematerialization, attention in chunks.
    pub fn at_best(&self, target: &Target) -> Demand {
        let (written, blocks) = (self.as_written(target), self.model.blocks());
        let mut remat_counts = vec![0, blocks.div_ceil(2), blocks];
        remat_counts.dedup();
        let mut chunks = written.chunks.clone();
        for chunk in [None, NonZeroU32::new(64)] {
            if !chunks.contains(&chunk) {
                chunks.push(chunk);
            }
        }
        Demand { remat_counts, chunks, micro_batch: None, ..written }
    }
}

/// How the optimizer's state is kept on `target`.
fn state_form(config: &RunConfig, target: &Target) -> StateForm {
    match (mapping::optimizer_state(config), target) {
        // The memory of the host is the device's.
        (StateForm::Host, Target::Host { .. }) => StateForm::Full,
        (form, _) => form,
    }
}

/// Vocabulary size of a model whose texts are not known yet.
fn assumed_vocabulary(config: &RunConfig) -> usize {
    match config.data.tokenizer {
        TokenizerChoice::Bpe => config.data.bpe_size as usize,
        TokenizerChoice::Characters => CHARACTERS,
    }
}
