//! What a family of models decides about a run of it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::choices::Task;
use plimsoll_config::{ChosenValue, CorpusSize, RunConfig};
use plimsoll_core::Seconds;
use plimsoll_data::{Augment, Dataset};
use plimsoll_layers::LengthPolicy;
use plimsoll_memory::Traceable;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_tape::NamedTensor;
use plimsoll_text::Tokenizer;
use serde_json::Value;

use super::ModelPlan;
use crate::error::{Failure, FailureExt};

/// Number of output frames for a number of feature frames.
pub type FrameCount = Box<dyn Fn(u32) -> u32 + Send + Sync>;

/// A family of models: what its runs need of a configuration, of their data and of their folder. Nothing here has a model yet.
///
/// A default is right for a model that reads texts and learns from log-mels as they are.
pub trait Family: Sync {
    /// Returns the name of the family in `model.json`.
    fn kind(&self) -> &'static str;

    /// Returns the task of its models.
    fn task(&self) -> Task;

    /// Returns whether a run of `config` trains a model of this family.
    fn trains(&self, config: &RunConfig) -> bool {
        config.task == self.task()
    }

    /// Returns the model of `config` with `features` mel bands and `vocabulary` tokens. What comes from data has its default.
    fn model(&self, config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan;

    /// Checks what the keys of `config` say together.
    ///
    /// # Errors
    /// If no model can be made of them.
    fn check(&self, _config: &RunConfig) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns whether the model reads texts.
    fn reads_text(&self) -> bool {
        true
    }

    /// Returns whether a text has a token for its language where a corpus has several.
    fn names_language(&self) -> bool {
        false
    }

    /// Returns the length of the longest utterance that the model hears whole.
    fn longest(&self, config: &RunConfig) -> Seconds {
        config.data.max_seconds
    }

    /// Returns whether a model that is trained further keeps all tokens that it was trained with, and takes no others.
    fn keeps_tokens(&self) -> bool {
        false
    }

    /// Returns whether each validation has every utterance that was held out, and not only a few.
    fn validates_all(&self) -> bool {
        false
    }

    /// Returns whether the result depends on the order in which micro-batches are computed, so that one thread computes them.
    fn needs_order(&self, _config: &RunConfig) -> bool {
        false
    }

    /// Returns the frames that the tokens of a text are aligned with, so that a longer text cannot be learned; `None` if nothing is
    /// aligned.
    fn aligned_frames(&self, _config: &RunConfig) -> Option<FrameCount> {
        None
    }

    /// Returns how training utterances are changed; `None` if they stay as they are.
    fn augment(&self, _config: &RunConfig) -> Option<Augment> {
        None
    }

    /// Returns `dataset` with samples as the model takes them.
    fn samples(&self, dataset: Dataset, _config: &RunConfig) -> Dataset {
        dataset
    }

    /// Returns the key and the value that decide the samples, and that a resumed run must keep.
    fn samples_key(&self, _config: &RunConfig) -> Option<(&'static str, String)> {
        None
    }

    /// Returns the samples of sound that each utterance has, if all have the same number and no features; `None` if utterances have
    /// their own lengths.
    fn crop(&self, _config: &RunConfig) -> Option<u32> {
        None
    }

    /// Returns what the names of parameters begin with in a run and not in an exported model.
    fn exported_without(&self) -> &'static str {
        ""
    }

    /// Returns `tokenizer` with tokens for the languages that the model names; the corpus has those of `found`.
    ///
    /// # Errors
    /// If the tokenizer has none for one of them, and cannot get one.
    fn with_languages(
        &self,
        tokenizer: Tokenizer,
        found: &CorpusLanguages<'_>,
        _config: &RunConfig,
    ) -> Result<Tokenizer, Failure> {
        let known = tokenizer.languages().iter().map(String::as_str);
        let all: BTreeSet<String> = known.chain(found.named.iter().copied()).map(String::from).collect();
        Ok(if self.names_language() && all.len() > 1 { tokenizer.with_languages(all) } else { tokenizer })
    }

    /// Reads the weights of the model in `folder`, by the names of our parameters, and why they may not be the best.
    ///
    /// # Errors
    /// If they are missing or damaged.
    fn weights(&self, folder: &Path) -> Result<(Vec<NamedTensor>, Vec<String>), Failure> {
        ModelFolder(folder).weights().invalid()
    }

    /// Chooses the values of keys with which a trained model of the family goes on learning from a corpus of this `size`, where they
    /// are not those of a new model.
    fn going_on(&self, _model: &ModelPlan, _size: Option<&CorpusSize>) -> Vec<ChosenValue> {
        Vec::new()
    }

    /// Reads the facts of the model in `folder`.
    ///
    /// # Errors
    /// If it is no model of this family, or cannot be read.
    fn facts(&self, folder: &Path) -> Result<ModelFacts, Failure>;
}

/// Languages of the utterances of a corpus.
#[derive(Clone, Debug, Default)]
pub struct CorpusLanguages<'a> {
    /// Languages that utterances name.
    pub named: BTreeSet<&'a str>,
    /// Whether an utterance names none.
    pub has_unnamed: bool,
}

/// Facts of a trained model that another run, or an evaluation, keeps.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// The model itself.
    pub model: ModelPlan,
    /// Identity of the run that trains it; `None` for an exported model.
    pub run: Option<String>,
    /// Its tokenizer; `None` if it reads no text.
    pub tokenizer: Option<Tokenizer>,
    /// Its features.
    pub features: LogMelConfig,
    /// Statistics of its training data; `None` if it has none.
    pub statistics: Option<(MelNormalization, LengthBounds)>,
}

/// The model of a family, as a configuration describes it: what planning asks of it.
pub trait FamilyModel: Traceable + Clone + Sync {
    /// Describes the model in a few words, with its [size](Self::size).
    fn summary(&self) -> String;

    /// Returns the number of blocks and their width, in words.
    fn size(&self) -> String;

    /// Returns the number of blocks of the longest stack, which is the unit of rematerialization.
    fn blocks(&self) -> u32;

    /// Returns the maximum number of tokens of an utterance with `frames` feature frames.
    fn tokens_max(&self, frames: u32) -> u32;

    /// Returns the number of mel bands.
    fn features(&self) -> usize;

    /// Returns the number of tokens; 1 if the model reads no text.
    fn vocabulary(&self) -> usize;

    /// Lists the keys of a configuration that make this model, with their values as TOML. `features` are its features.
    fn keys(&self, features: &LogMelConfig) -> Vec<(&'static str, String)>;

    /// Returns the axis of the parameter called `name` that has an entry for each token; `None` if it has none.
    fn token_axis(&self, name: &str) -> Option<usize>;

    /// Returns whether the parameter called `name` is zero in a run that begins with a model without it, so that the run begins with what
    /// that model does.
    fn begins_at_zero(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Returns the number of positions that are computed for `frames` feature frames.
    fn positions(&self, frames: u32) -> u32;

    /// Returns what the positions are, in words that follow their number.
    fn positions_label(&self) -> &'static str {
        "all at once"
    }

    /// Returns the sizes of the model, by name.
    fn sizes(&self) -> Value;

    /// Returns how attention over frames takes long utterances; `None` without such attention.
    fn length_policy(&mut self) -> Option<&mut LengthPolicy> {
        None
    }

    /// Returns the limits on the length of synthesized speech; only those of a synthesizer have a meaning.
    fn length_bounds(&self) -> LengthBounds {
        LengthBounds::default()
    }

    /// Sets the limits on the length of synthesized speech, if the model has some.
    fn set_length_bounds(&mut self, _bounds: LengthBounds) {}

    /// Sets the normalization of log-mels, if the model has one.
    fn set_normalization(&mut self, _normalization: MelNormalization) {}

    /// Returns whether statistics of the training data are a part of the model.
    fn has_statistics(&self) -> bool {
        true
    }

    /// Returns whether a model makes tables that stay in memory after it.
    fn keeps_tables(&self) -> bool {
        false
    }
}

/// Returns a word as a value of TOML.
pub(super) fn quoted(word: impl Display) -> String {
    format!("\"{word}\"")
}

/// Returns the word of a key whose choices are mapped to parts of models, for the part that `is_part` accepts.
pub(super) fn word_of<C: Copy + Default + Display>(choices: &[C], is_part: impl Fn(C) -> bool) -> String {
    quoted(choices.iter().copied().find(|choice| is_part(*choice)).unwrap_or_default())
}
