//! From a configuration to what the planner is asked: the model, the lengths, and what may be changed.

use std::num::NonZeroU32;

use plimsoll_audio::LogMel;
use plimsoll_core::{BatchShape, Bytes, Choice, Frames, Precision, Remat};
use plimsoll_layers::LengthPolicy;
use plimsoll_memory::{BackendRules, Card, Demand, StepMemory};
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::SynthesizerConfig;

use crate::config::{PrecisionChoice, RematChoice, RunConfig, Task, TokenizerChoice};
use crate::failure::{Failure, Told};
use crate::train::plan::ModelPlan;
use crate::train::{data, resolve};
use plimsoll_train::StateForm;

/// Lengths that are planned, evenly up to the longest.
const LENGTHS: u32 = 5;
/// Tokens of a second of fast speech, where nothing limits the texts: half as many again as most people say.
const TOKENS_PER_SECOND: f64 = 20.0;
/// Letters that are taken for the vocabulary where neither the configuration nor a corpus says.
const LETTERS: usize = 64;
/// What the driver and the kernels take of a card before anything is trained. Not measured on a card yet.
const CONTEXT: Bytes = Bytes::mib(512);
/// Batches that wait on a card at most.
const PREFETCH: u32 = 1;

/// What is asked about.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The configuration.
    pub(crate) config: RunConfig,
    /// Its model.
    pub(crate) model: ModelPlan,
}

/// Where a run would take place.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A card, by the catalogue or because it is here, with what may be used of it.
    Card { card: Card, usable: Bytes },
    /// This machine's CPU and memory.
    Host { memory: Bytes, threads: usize },
}

impl Target {
    /// Its name for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Card { card, .. } => card.name.to_string(),
            Self::Host { threads, .. } => format!("the CPU, {threads} threads"),
        }
    }

    /// What may be used of it under `config`.
    pub(crate) fn budget(&self, config: &RunConfig) -> Bytes {
        let all = match self {
            Self::Card { usable, .. } => *usable,
            Self::Host { memory, .. } => *memory,
        };
        match (config.training.max_memory, config.training.max_memory_fraction) {
            (Some(bytes), _) => bytes.min(all),
            (None, Some(share)) => Bytes((all.0 as f64 * share) as u64),
            (None, None) => all,
        }
    }

    pub(crate) fn rules(&self) -> BackendRules {
        match self {
            Self::Card { .. } => BackendRules::card(),
            Self::Host { .. } => BackendRules::host(),
        }
    }

    pub(crate) fn speed(&self, precision: Precision) -> plimsoll_memory::Speed {
        match self {
            Self::Card { card, .. } => plimsoll_memory::Speed::of(card, precision),
            Self::Host { threads, .. } => plimsoll_memory::Speed::host(*threads),
        }
    }
}

impl Asked {
    /// What `config` asks for.
    pub(crate) fn of(config: RunConfig) -> Result<Self, Failure> {
        let log_mel = LogMel::new(&data::features(&config.features)).wrong()?;
        let vocabulary = config.model.vocabulary.map_or_else(|| guessed(&config), |vocabulary| vocabulary as usize);
        let model = match config.task {
            Task::Asr => ModelPlan::Recogniser(resolve::recogniser(&config, log_mel.n_mels(), vocabulary)),
            Task::Tts => ModelPlan::Synthesiser(resolve::synthesiser(&config, log_mel.n_mels(), vocabulary)),
        };
        Ok(Self { config, model })
    }

    /// The batches of a step, by length.
    pub(crate) fn buckets(&self) -> Vec<BatchShape> {
        let (config, features) = (&self.config, data::features(&self.config.features));
        // Slower speech is longer.
        let speeds =
            if config.augment.enabled && config.task == Task::Asr { config.augment.speeds.as_slice() } else { &[] };
        let slowest = speeds.iter().copied().fold(1.0, f64::min);
        let grid = config.data.frame_grid.max(1);
        let bucket = |part: u32| {
            let seconds = config.data.max_seconds.0 * f64::from(part) / f64::from(LENGTHS);
            let frames = seconds / slowest * f64::from(features.sample_rate) / features.hop_length as f64;
            let spoken = (seconds * TOKENS_PER_SECOND).ceil() as u32;
            let tokens = config.data.max_text_length.map_or(spoken, |most| spoken.min(most)).max(1);
            let utterances = match (config.data.effective_utterances(), config.data.batch_seconds) {
                (Some(utterances), _) => utterances,
                (None, whole) => (whole.unwrap_or_default().0 / seconds) as u32,
            };
            BatchShape {
                utterances: utterances.max(1),
                frames: Frames((frames.ceil() as u32 + 1).next_multiple_of(grid)),
                tokens: tokens.min(self.most_tokens(frames as u32)),
            }
        };
        (1..=LENGTHS).map(bucket).collect()
    }

    /// The most tokens that so many frames can carry.
    fn most_tokens(&self, frames: u32) -> u32 {
        match &self.model {
            ModelPlan::Recogniser(model) => (frames / model.subsampling.max(1) as u32).saturating_sub(2).max(1),
            ModelPlan::Synthesiser(_) => frames.max(1),
        }
    }

    /// Blocks of the longest stack.
    pub(crate) fn blocks(&self) -> u32 {
        match &self.model {
            ModelPlan::Recogniser(RecognizerConfig { layers, decoder, .. }) => {
                (*layers).max(decoder.map_or(0, |decoder| decoder.layers)) as u32
            }
            ModelPlan::Synthesiser(SynthesizerConfig { text_layers, decoder_layers, .. }) => {
                (*text_layers).max(*decoder_layers) as u32
            }
        }
    }

    /// How the configuration computes a piece.
    pub(crate) fn choice(&self) -> Choice {
        Choice {
            remat: match self.config.training.remat {
                RematChoice::None => Remat::None,
                RematChoice::Half => Remat::Half,
                RematChoice::All => Remat::All,
            },
            attention_chunk: self.chunk(),
            precision: match self.config.training.precision {
                // What the trainer of this version computes in.
                PrecisionChoice::Auto | PrecisionChoice::Fp32 => Precision::Fp32,
                PrecisionChoice::Bf16 => Precision::Bf16,
                PrecisionChoice::Fp16 => Precision::Fp16,
            },
        }
    }

    fn chunk(&self) -> Option<NonZeroU32> {
        let length = match &self.model {
            ModelPlan::Recogniser(model) => model.length,
            ModelPlan::Synthesiser(model) => model.length,
        };
        match length {
            LengthPolicy::Chunked(chunk) => Some(chunk),
            _ => None,
        }
    }

    /// What the configuration asks of `target` as it is written.
    pub(crate) fn as_written(&self, target: &Target) -> Demand {
        let (config, choice, blocks) = (&self.config, self.choice(), self.blocks());
        let passes = match choice.remat {
            Remat::None => 0,
            Remat::Half => blocks.div_ceil(2),
            _ => blocks,
        };
        let (lanes, context) = match target {
            Target::Card { .. } => (1, CONTEXT),
            Target::Host { threads, .. } => (*threads as u32, Bytes(0)),
        };
        let micro_batch = match (config.training.micro_batch, config.training.gradient_accumulation_steps) {
            (Some(micro), _) => Some(micro),
            (None, Some(steps)) => config.data.effective_utterances().map(|whole| whole.div_ceil(steps.max(1))),
            (None, None) => None,
        };
        Demand {
            buckets: self.buckets(),
            blocks,
            second_passes: vec![passes],
            chunks: vec![choice.attention_chunk],
            precision: choice.precision,
            micro_batch,
            rules: target.rules(),
            step: StepMemory {
                lanes,
                workspace: context,
                state_bits: state_bits(config, kept(config, target)),
                snapshot: matches!(target, Target::Host { .. }),
                ..StepMemory::default()
            },
            prefetch: if matches!(target, Target::Card { .. }) { PREFETCH } else { 0 },
            lean_bits: state_bits(config, StateForm::Eight),
        }
    }

    /// What the configuration asks of `target` where everything may change that leaves the result as it is.
    pub(crate) fn free(&self, target: &Target) -> Demand {
        let (written, blocks) = (self.as_written(target), self.blocks());
        let mut second_passes = vec![0, blocks.div_ceil(2), blocks];
        second_passes.dedup();
        let mut chunks = written.chunks.clone();
        for chunk in [None, NonZeroU32::new(64)] {
            if !chunks.contains(&chunk) {
                chunks.push(chunk);
            }
        }
        Demand { second_passes, chunks, micro_batch: None, ..written }
    }
}

/// How the optimizer's state is kept.
fn kept(config: &RunConfig, target: &Target) -> StateForm {
    match (resolve::optimizer_state(config), target) {
        // The memory of the host is the device's.
        (StateForm::Host, Target::Host { .. }) => StateForm::Full,
        (form, _) => form,
    }
}

/// Bits that are kept on the device for each value beside it: the optimizer's state, and the mean of the weights.
fn state_bits(config: &RunConfig, form: StateForm) -> u64 {
    let mean = if config.training.ema_decay.is_some() { 8 * size_of::<f32>() as u64 } else { 0 };
    resolve::optimizer(config).state_bits(form) + mean
}

/// The tokens of a model whose texts nobody has seen yet.
fn guessed(config: &RunConfig) -> usize {
    match config.data.tokenizer {
        TokenizerChoice::Bpe => config.data.bpe_size as usize,
        TokenizerChoice::Characters => LETTERS,
    }
}
