//! Builds the request to the memory planner: the batch shapes, and the settings that the planner may change.

use std::num::NonZeroU32;

use plimsoll_audio::LogMel;
use plimsoll_core::{BatchShape, Bytes, Choice, Remat};
use plimsoll_memory::{Demand, StepMemory};
use plimsoll_train::StateForm;

use crate::config::{RunConfig, TokenizerChoice};
use crate::error::{Failure, FailureExt};
use crate::mapping::{self, ModelPlan};
use crate::target::Target;

/// Vocabulary size of a character model, if neither the configuration nor a corpus gives it.
const CHARACTERS: usize = 64;
/// GPU memory that the driver and the kernels take before training starts. Not measured on a GPU yet.
const CONTEXT: Bytes = Bytes::mib(512);
/// Maximum number of batches that wait in GPU memory.
const PREFETCH: u32 = 1;

/// A configuration with its model and batch shapes. It builds the request to the memory planner, a [`Demand`], for any
/// target.
///
/// ```
/// use plimsoll_recipes::config::{ConfigArgs, load};
/// use plimsoll_recipes::demand::DemandBuilder;
/// use plimsoll_recipes::target::targets;
///
/// let args = ConfigArgs { d_model: Some("144".into()), ..ConfigArgs::default() };
/// let config = load(&args, std::iter::empty())?.config;
/// let builder = DemandBuilder::from_config(config)?;
/// let gpu = &targets(&["T4".to_string()])?[0];
/// assert_eq!(builder.as_written(gpu).buckets.len(), 5);
/// # Ok::<(), plimsoll_recipes::Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct DemandBuilder {
    /// Configuration of the run.
    pub config: RunConfig,
    /// The model of the configuration.
    pub model: ModelPlan,
    /// Shapes of whole batches, one for each utterance length that is planned.
    pub shapes: Vec<BatchShape>,
}

impl DemandBuilder {
    /// Makes the builder for a configuration without a corpus: the longest utterances and the vocabulary are the
    /// largest that `config` permits.
    ///
    /// # Errors
    /// If the feature settings of the configuration are impossible.
    pub fn from_config(config: RunConfig) -> Result<Self, Failure> {
        let log_mel = LogMel::new(&mapping::features(&config.features)).invalid()?;
        let vocabulary = config.model.vocabulary.map_or_else(|| assumed_vocabulary(&config), |size| size as usize);
        let model = mapping::model(&config, log_mel.n_mels(), vocabulary);
        let shapes = mapping::expected_shapes(&config, &model);
        Ok(Self { config, model, shapes })
    }

    /// Returns the settings with which `target` computes a micro-batch under the configuration: rematerialization,
    /// chunked attention, precision.
    pub fn choice(&self, target: &Target) -> Choice {
        mapping::choice(&self.config, &self.model, target.precision())
    }

    /// Computes the demand on `target` with the configuration as it is written; the planner may change nothing in it.
    pub fn as_written(&self, target: &Target) -> Demand {
        let (config, choice, blocks) = (&self.config, self.choice(target), self.model.blocks());
        let passes = match choice.remat {
            Remat::None => 0,
            Remat::Half => blocks.div_ceil(2),
            _ => blocks,
        };
        let (lanes, workspace) = match target {
            Target::Gpu { .. } => (1, CONTEXT),
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
                workspace,
                state_bits: mapping::state_bits(config, state_form(config, target)),
                snapshot: matches!(target, Target::Host { .. }),
                ..StepMemory::default()
            },
            prefetch: if matches!(target, Target::Gpu { .. }) { PREFETCH } else { 0 },
            eight_bit_state_bits: mapping::state_bits(config, StateForm::Eight),
        }
    }

    /// Computes the demand on `target` if the planner may change every setting that does not change the result:
    /// micro-batch, rematerialization, chunked attention.
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

/// Returns the form in which the optimizer keeps its state on `target`.
fn state_form(config: &RunConfig, target: &Target) -> StateForm {
    match (mapping::optimizer_state(config), target) {
        // On the CPU, host memory is device memory: moving the state there would save nothing.
        (StateForm::Host, Target::Host { .. }) => StateForm::Full,
        (form, _) => form,
    }
}

/// Returns the vocabulary size of a model whose training texts are not known.
fn assumed_vocabulary(config: &RunConfig) -> usize {
    match config.data.tokenizer {
        TokenizerChoice::Bpe => config.data.bpe_size as usize,
        TokenizerChoice::Characters => CHARACTERS,
    }
}
