//! Families of models. This file is the only one that lists them.

mod autoregressive;
mod family;
mod parallel;
mod recognizer;
mod vocoder;
mod voice;
mod whisper;

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use burn::tensor::Device;
use plimsoll_audio::LogMelConfig;
use plimsoll_config::{RunConfig, nearest_word};
use plimsoll_core::Choice;
use plimsoll_layers::LengthPolicy;
use plimsoll_memory::Trained;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::{LengthBounds, MelNormalization, ParallelConfig, SynthesizerConfig};
use plimsoll_speech::vocoder::VocoderTaskConfig;
use plimsoll_speech::whisper::WhisperConfig;
use plimsoll_tape::lora::TrainedParts;
use plimsoll_tape::{count, on_capture_device};
use serde::Serialize;

use crate::error::{Failure, FailureExt};
use crate::parameters::shapes_of;
use recognizer::RecognizerFamily;
use vocoder::VocoderFamily;
use voice::VoiceFamily;
use whisper::WhisperFamily;

pub use family::{CorpusLanguages, Family, FamilyModel, FrameCount, ModelFacts};

/// Every family.
pub const FAMILIES: [&dyn Family; 5] = [
    &RecognizerFamily,
    &WhisperFamily,
    &VoiceFamily::<SynthesizerConfig>(PhantomData),
    &VoiceFamily::<ParallelConfig>(PhantomData),
    &VocoderFamily,
];

/// Configuration of a model of any family.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ModelPlan {
    /// A speech recognizer.
    Recognizer(RecognizerConfig),
    /// A Whisper model.
    Whisper(WhisperConfig),
    /// An autoregressive speech synthesizer.
    Synthesizer(SynthesizerConfig),
    /// A parallel speech synthesizer.
    Parallel(ParallelConfig),
    /// A vocoder with its discriminators.
    Vocoder(VocoderTaskConfig),
}

/// Evaluates `$body` with `$config` as the configuration in the model `$plan`, a [`FamilyModel`] whatever its family.
#[macro_export]
macro_rules! with_model {
    ($plan:expr, $config:ident => $body:expr) => {
        match $plan {
            $crate::families::ModelPlan::Recognizer($config) => $body,
            $crate::families::ModelPlan::Whisper($config) => $body,
            $crate::families::ModelPlan::Synthesizer($config) => $body,
            $crate::families::ModelPlan::Parallel($config) => $body,
            $crate::families::ModelPlan::Vocoder($config) => $body,
        }
    };
}

/// Evaluates `$body` with `$subject` as the model that a run of the builder `$builder` trains: with frozen parts, or with adapters.
#[macro_export]
macro_rules! with_trained {
    ($builder:expr, $subject:ident => $body:expr) => {
        $crate::with_model!(&$builder.model, model => {
            let parts = $crate::trained_parts(&$builder.config.training);
            let $subject = &plimsoll_memory::Trained::new(model, &parts);
            $body
        })
    };
}

/// Returns the family whose model a run of `config` trains.
pub fn family(config: &RunConfig) -> &'static dyn Family {
    let family = FAMILIES.into_iter().find(|family| family.trains(config));
    family.expect("every task of a configuration has a family")
}

/// Returns the family of the model in `folder`.
///
/// # Errors
/// If the folder holds no model, or one of a family that this version does not have.
pub fn family_of(folder: ModelFolder<'_>) -> Result<&'static dyn Family, Failure> {
    let kind = folder.kind().invalid()?;
    FAMILIES.into_iter().find(|family| family.kind() == kind).ok_or_else(|| {
        if kind == "unknown" {
            let message = format!("{} names no kind of model", folder.metadata_file().display());
            return Failure::invalid(message, "copy the file back, or name the folder of a run or an exported model");
        }
        let message =
            format!("{} holds a model of the kind `{kind}`, which this version does not have", folder.0.display());
        let near = match nearest_word(&kind, FAMILIES.map(Family::kind).into_iter()) {
            Some(near) => format!("the nearest kind is `{near}`"),
            None => format!("it has {}", FAMILIES.map(Family::kind).join(", ")),
        };
        Failure::invalid(message, format!("use the version of Plimsoll that trained it; {near}"))
    })
}

/// Returns the model of `config`, with `features` mel bands and `vocabulary` tokens.
///
/// The statistics of log-mels and the length bounds of a synthesizer come from data and have their defaults here.
pub fn model(config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan {
    family(config).model(config, features, vocabulary)
}

impl fmt::Display for ModelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_model!(self, model => model.summary()))
    }
}

impl ModelPlan {
    /// Returns the number of blocks of the longest stack, which is the unit of rematerialization.
    pub fn blocks(&self) -> u32 {
        with_model!(self, model => model.blocks())
    }

    /// Returns the number of blocks and their width, in words.
    pub fn size(&self) -> String {
        with_model!(self, model => model.size())
    }

    /// Lists the keys of a configuration that make this model, with their values as TOML. `features` are its features.
    pub(crate) fn keys(&self, features: &LogMelConfig) -> Vec<(&'static str, String)> {
        with_model!(self, model => FamilyModel::keys(model, features))
    }

    /// Returns the axis of the parameter called `name` that has an entry for each token; `None` if it has none.
    pub(crate) fn token_axis(&self, name: &str) -> Option<usize> {
        with_model!(self, model => model.token_axis(name))
    }

    /// Returns whether the parameter called `name` is zero in a run that begins with a model without it.
    pub(crate) fn begins_at_zero(&self, name: &str) -> bool {
        with_model!(self, model => model.begins_at_zero(name))
    }

    /// Returns the maximum number of tokens of an utterance with `frames` feature frames.
    pub(crate) fn tokens_max(&self, frames: u32) -> u32 {
        with_model!(self, model => model.tokens_max(frames))
    }

    /// Returns the number of mel bands.
    pub fn features(&self) -> usize {
        with_model!(self, model => FamilyModel::features(model))
    }

    /// Returns the number of tokens; 1 for a vocoder, which reads no text.
    pub fn vocabulary(&self) -> usize {
        with_model!(self, model => FamilyModel::vocabulary(model))
    }

    /// Returns the limits on the length of synthesized speech; only those of a synthesizer have a meaning.
    pub(crate) fn length_bounds(&self) -> LengthBounds {
        with_model!(self, model => FamilyModel::length_bounds(model))
    }

    /// Lists the names and shapes of the parameters.
    pub(crate) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        on_capture_device(|device| with_model!(self, model => shapes_of(&model.init_unseeded(device))))
    }

    /// Counts the parameters.
    pub(crate) fn parameters(&self) -> u64 {
        on_capture_device(|device| with_model!(self, model => count(&model.init_unseeded(device))))
    }

    /// Counts the parameters that are trained if `parts` are.
    ///
    /// # Errors
    /// If a name is that of no part, or nothing is left to train.
    pub fn trained_parameters(&self, parts: &TrainedParts) -> Result<u64, Failure> {
        let count = |device: &Device| {
            with_model!(self, model => {
                let whole = model.init_unseeded(device);
                Trained::new(model, parts).apply(whole).map(|trained| count(&trained))
            })
        };
        match on_capture_device(count).invalid()? {
            0 => Err(Failure::invalid(
                "`training.freeze` freezes the whole model",
                "leave out a part that is to be trained",
            )),
            trained => Ok(trained),
        }
    }

    /// Returns whether statistics of the training data are a part of the model.
    pub(crate) fn has_statistics(&self) -> bool {
        with_model!(self, model => model.has_statistics())
    }

    /// Returns whether a model makes tables that stay in memory after it.
    pub(crate) fn keeps_tables(&self) -> bool {
        with_model!(self, model => model.keeps_tables())
    }

    /// Returns the model with the limits `bounds` on the length of synthesized speech; other models stay as they are.
    pub(crate) fn with_length_bounds(mut self, bounds: LengthBounds) -> Self {
        with_model!(&mut self, model => model.set_length_bounds(bounds));
        self
    }

    /// Returns the model with the statistics of its training data: the normalization of log-mels and the limits `bounds` on
    /// the length of synthesized speech; a recognizer stays as it is.
    pub(crate) fn with_statistics(self, normalization: MelNormalization, bounds: LengthBounds) -> Self {
        let mut model = self.with_length_bounds(bounds);
        with_model!(&mut model, model => model.set_normalization(normalization));
        model
    }

    /// Returns the model for planning: without attention chunks of its own, because a plan says for each length whether
    /// attention is chunked.
    pub(crate) fn for_planning(mut self) -> Self {
        if let Some(length) = with_model!(&mut self, model => model.length_policy())
            && let LengthPolicy::Chunked(_) = length
        {
            *length = LengthPolicy::Exact;
        }
        self
    }

    /// Returns the choice that computes a micro-batch of this model as `choice` says for a model without attention
    /// chunks of its own.
    pub(crate) fn with_own_chunks(&self, choice: Choice) -> Choice {
        match (self.attention_chunk(), choice.attention_chunk) {
            // Only a chunk that is longer than any text makes this model compute all queries at once.
            (Some(_), None) => Choice { attention_chunk: Some(NonZeroU32::MAX), ..choice },
            _ => choice,
        }
    }

    /// Returns the number of queries per chunk of chunked attention; `None` if the model computes attention at once.
    pub(crate) fn attention_chunk(&self) -> Option<NonZeroU32> {
        match with_model!(&mut self.clone(), model => model.length_policy()) {
            Some(LengthPolicy::Chunked(chunk)) => Some(*chunk),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_config::ConfigArgs;
    use plimsoll_config::choices::{FamilyChoice, Task};
    use plimsoll_memory::{BackendRules, trace};

    use super::*;
    use crate::demand::DemandBuilder;
    use crate::load;

    /// Each configuration has one family, whose name is its own.
    #[test]
    fn every_configuration_has_one_family() {
        let mut kinds = Vec::new();
        for (task, choice) in [
            (Task::Asr, FamilyChoice::Parallel),
            (Task::Asr, FamilyChoice::Whisper),
            (Task::Tts, FamilyChoice::Parallel),
            (Task::Tts, FamilyChoice::Autoregressive),
            (Task::Vocoder, FamilyChoice::Autoregressive),
        ] {
            let mut config = RunConfig { task, ..RunConfig::default() };
            config.model.family = choice;
            assert_eq!(FAMILIES.iter().filter(|family| family.trains(&config)).count(), 1);
            kinds.push(family(&config).kind());
        }
        assert_eq!(kinds, ["asr", "whisper", "parallel_tts", "tts", "vocoder"]);
    }

    /// A frozen part has no gradient, and never costs memory.
    #[test]
    fn each_part_of_each_family_can_be_frozen() {
        for family in FAMILIES {
            let set = [format!("task={}", family.task()), "model.vocabulary=40".into()].to_vec();
            let mut config = load(&ConfigArgs { set, ..ConfigArgs::default() }, std::iter::empty()).unwrap().config;
            if !family.trains(&config) {
                let other = [FamilyChoice::Autoregressive, FamilyChoice::Whisper];
                config.model.family = other[usize::from(family.task() == Task::Asr)];
                assert!(family.trains(&config));
            }
            let DemandBuilder { model, shapes, .. } = DemandBuilder::from_config(config.clone()).unwrap();
            let shape = shapes[0].with_utterances(2);
            let traced = |parts: &TrainedParts| {
                let (choice, rules) = (Choice::default(), BackendRules::host());
                with_model!(&model, model => trace(&Trained::new(model, parts), shape, choice, rules)).unwrap()
            };
            let without = |frozen: &[String]| TrainedParts { frozen: frozen.to_vec(), ..TrainedParts::default() };
            let whole = traced(&TrainedParts::default());
            let parts = model.shapes().into_iter().map(|(name, _)| name.split('.').next().unwrap().to_string());
            for part in parts.collect::<BTreeSet<String>>() {
                let parts = without(std::slice::from_ref(&part));
                let frozen = traced(&parts);
                let trained = model.trained_parameters(&parts).unwrap();
                assert_eq!(frozen.parameters.iter().sum::<u64>(), trained, "{part}");
                assert!(trained < model.parameters() && frozen.weights == whole.weights, "{part}");
                assert!(frozen.timeline.peak() <= whole.timeline.peak(), "{part}");
            }
            let all = model.shapes().into_iter().map(|(name, _)| name).collect();
            for (frozen, expected) in
                [(vec!["encodr".into()], "begins with `encodr`: its parts are"), (all, "freezes the whole model")]
            {
                config.training.freeze = frozen;
                let error = DemandBuilder::from_config(config.clone()).unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_named_with_the_nearest() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, expected) in [("vocodor", "the nearest kind is `vocoder`"), ("segmenter", "it has asr, whisper, ")] {
            std::fs::write(folder.path().join("model.json"), format!(r#"{{"kind": "{kind}"}}"#)).unwrap();
            let failure = family_of(ModelFolder(folder.path())).err().unwrap();
            let help = failure.report().help().unwrap().to_string();
            assert!(failure.to_string().contains(kind) && help.contains(expected), "{failure} {help}");
        }
    }
}
