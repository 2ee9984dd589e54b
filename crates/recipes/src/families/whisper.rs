//! The family of Whisper models: speech becomes text, by an encoder and a decoder that were trained elsewhere.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::choices::{FamilyChoice, Task};
use plimsoll_config::{ChosenValue, CorpusSize, RunConfig, RunLength};
use plimsoll_core::{Seconds, counted};
use plimsoll_data::{Augment, Dataset};
use plimsoll_layers::LengthPolicy;
use plimsoll_speech::ModelKind;
use plimsoll_speech::whisper::{self, WhisperConfig, WhisperMetadata};
use plimsoll_tape::NamedTensor;
use plimsoll_text::Tokenizer;
use serde_json::{Value, json};

use super::ModelPlan;
use super::family::{CorpusLanguages, Family, FamilyModel, ModelFacts, quoted};
use super::recognizer::{self, length, length_keys};
use crate::error::{Failure, FailureExt};
use crate::features::features;

/// The family of Whisper models.
pub(super) struct WhisperFamily;

impl Family for WhisperFamily {
    fn kind(&self) -> &'static str {
        WhisperConfig::KIND
    }

    fn task(&self) -> Task {
        Task::Asr
    }

    fn trains(&self, config: &RunConfig) -> bool {
        config.task == Task::Asr && config.model.family == FamilyChoice::Whisper
    }

    fn model(&self, config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan {
        let model = &config.model;
        ModelPlan::Whisper(WhisperConfig {
            features,
            vocabulary: vocabulary.max(Tokenizer::RESERVED_IDS + 1),
            d_model: model.d_model as usize,
            heads: model.attention_heads as usize,
            encoder_layers: model.encoder_layers as usize,
            decoder_layers: model.decoder_layers.unwrap_or(model.encoder_layers).max(1) as usize,
            feed_forward_multiplier: model.feed_forward_multiplier as usize,
            positions: model.audio_positions as usize,
            text_positions: model.text_positions as usize,
            length: length(model),
            dropout: model.dropout,
        })
    }

    fn check(&self, config: &RunConfig) -> Result<(), Failure> {
        match (&config.training.from, &config.data.tokenizer_file) {
            (None, None) => Err(without_tokens()),
            _ => Ok(()),
        }
    }

    fn keeps_tokens(&self) -> bool {
        true
    }

    fn longest(&self, config: &RunConfig) -> Seconds {
        let features = features(&config.features);
        let samples = f64::from(2 * config.model.audio_positions) * features.hop_length as f64;
        Seconds(config.data.max_seconds.0.min(samples / f64::from(features.sample_rate)))
    }

    fn validates_all(&self) -> bool {
        true
    }

    fn augment(&self, config: &RunConfig) -> Option<Augment> {
        recognizer::augment(config)
    }

    fn samples(&self, dataset: Dataset, _config: &RunConfig) -> Dataset {
        dataset.for_whisper()
    }

    fn with_languages(
        &self,
        tokenizer: Tokenizer,
        found: &CorpusLanguages<'_>,
        config: &RunConfig,
    ) -> Result<Tokenizer, Failure> {
        if tokenizer.whisper_frame(None).is_none() {
            return Err(without_tokens());
        }
        let asked = config.data.language.as_deref();
        if tokenizer.languages().is_empty() {
            // A model for English alone.
            return match asked.filter(|asked| *asked != "en") {
                None => Ok(tokenizer),
                Some(asked) => Err(Failure::invalid(
                    format!("`data.language` is `{asked}`, and the model is for English alone"),
                    "begin with a model for many languages",
                )),
            };
        }
        let wanted: BTreeSet<&str> = match asked {
            Some(asked) => BTreeSet::from([asked]),
            None => found.named.clone(),
        };
        if let Some(unknown) = wanted.iter().find(|name| !tokenizer.has_whisper_language(name)) {
            return Err(Failure::invalid(
                format!("the model has no language `{unknown}`"),
                "`--set data.language=CODE` names the language of all texts, with a code of the model such as `de`",
            ));
        }
        // Utterances without a language have that of the model.
        let has_others = asked.is_none() && (found.has_unnamed || wanted.is_empty());
        let known = tokenizer.languages().iter().filter(|_| has_others);
        let languages: Vec<String> = known.cloned().chain(wanted.into_iter().map(String::from)).collect();
        Ok(tokenizer.with_languages(languages))
    }

    fn weights(&self, folder: &Path) -> Result<(Vec<NamedTensor>, Vec<String>), Failure> {
        whisper::weights(folder).invalid()
    }

    fn facts(&self, folder: &Path) -> Result<ModelFacts, Failure> {
        let WhisperMetadata { run, tokenizer, features, model, .. } = whisper::read_metadata(folder).invalid()?;
        let (model, tokenizer) = (ModelPlan::Whisper(model), Some(tokenizer));
        Ok(ModelFacts { model, run, tokenizer, features, statistics: None })
    }

    fn going_on(&self, model: &ModelPlan, size: Option<&CorpusSize>) -> Vec<ChosenValue> {
        let width = if let ModelPlan::Whisper(model) = model { model.d_model } else { 0 };
        let mut chosen = Vec::new();
        let mut choose = |key, value: String, reason: &str| {
            chosen.push(ChosenValue { key, value, reason: reason.into(), is_of_model: false });
        };
        let rate = RATES.iter().find(|(widest, _)| width <= *widest).map_or(LAST_RATE, |(_, rate)| *rate);
        choose(
            "training.learning_rate",
            rate.into(),
            "a fortieth of the rate that a model of this size was trained with",
        );
        choose("training.final_learning_rate", "0.0".into(), "as above");
        choose("training.schedule", "\"cosine\"".into(), "the rate falls to the end of the run");
        choose("training.warmup_steps", "50".into(), "the rate rises in the first steps");
        choose("training.warmup_share", "0.1".into(), "but not for longer than a tenth of the run");
        choose("augment.speeds", "[1.0]".into(), "the model has heard many voices");
        choose("augment.time_masks", "0".into(), "as above");
        choose("augment.frequency_masks", "0".into(), "as above");
        choose("data.batch_size", "16".into(), "as is usual for this model");
        if let Some(size) = size {
            let hours = (size.seconds.0 / 3600.0).max(1e-3);
            let passes = (PASSES / hours.sqrt()).round().clamp(2.0, 20.0);
            let read = format!("{} of {}", counted(passes as u64, "pass"), Seconds(size.seconds.0));
            choose("training.epochs", passes.to_string(), &read);
            let of_passes = |passes: f64| size.utterances as f64 * passes / 16.0;
            let steps = match size.asked {
                Some(RunLength::Steps(steps)) => steps as f64,
                Some(RunLength::Passes(asked)) => of_passes(asked.into()),
                None => of_passes(passes),
            };
            let interval = (steps / 4.0).clamp(20.0, 1000.0).round();
            choose("training.validation_interval", interval.to_string(), "about four times in the run");
            choose("training.checkpoint_interval", interval.to_string(), "with each validation");
        }
        chosen
    }
}

fn without_tokens() -> Failure {
    Failure::invalid(
        "a Whisper model needs the tokens that it was trained with",
        "begin with a trained model: `--from FOLDER`, with its config.json, model.safetensors and tokenizer.json",
    )
}

/// Passes over an hour of speech; over more, fewer in proportion to the root of the hours.
const PASSES: f64 = 5.0;
/// Rates by the largest width that they are for.
const RATES: [(usize, &str); 4] = [(384, "3.75e-5"), (512, "2.5e-5"), (768, "1.25e-5"), (1024, "6.25e-6")];
/// Rate of wider models.
const LAST_RATE: &str = "4.4e-6";

impl FamilyModel for WhisperConfig {
    fn summary(&self) -> String {
        format!("{}, {}", self.size(), counted(self.vocabulary, "token"))
    }

    fn size(&self) -> String {
        let Self { encoder_layers, decoder_layers, d_model, .. } = self;
        format!("Whisper: {encoder_layers} + {decoder_layers} blocks of width {d_model}")
    }

    fn blocks(&self) -> u32 {
        self.encoder_layers.max(self.decoder_layers) as u32
    }

    fn tokens_max(&self, frames: u32) -> u32 {
        // Some seven tokens a second are fast speech.
        (frames / 14).clamp(TOKENS_AROUND, self.text_positions as u32)
    }

    fn features(&self) -> usize {
        self.features
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn keys(&self, _: &LogMelConfig) -> Vec<(&'static str, String)> {
        let number = |n: usize| n.to_string();
        let mut keys = vec![
            ("model.family", quoted(FamilyChoice::Whisper)),
            ("model.d_model", number(self.d_model)),
            ("model.attention_heads", number(self.heads)),
            ("model.encoder_layers", number(self.encoder_layers)),
            ("model.decoder_layers", number(self.decoder_layers)),
            ("model.feed_forward_multiplier", number(self.feed_forward_multiplier)),
            ("model.audio_positions", number(self.positions)),
            ("model.text_positions", number(self.text_positions)),
            ("model.vocabulary", number(self.vocabulary)),
            ("model.dropout", self.dropout.to_string()),
        ];
        keys.extend(length_keys(self.length));
        keys
    }

    /// A table of tokens has always the same.
    fn token_axis(&self, _: &str) -> Option<usize> {
        None
    }

    fn positions(&self, _: u32) -> u32 {
        self.positions as u32
    }

    fn positions_label(&self) -> &'static str {
        "of a whole window"
    }

    fn sizes(&self) -> Value {
        json!({
            "d_model": self.d_model,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            "audio_positions": self.positions,
        })
    }

    fn length_policy(&mut self) -> Option<&mut LengthPolicy> {
        Some(&mut self.length)
    }

    fn has_statistics(&self) -> bool {
        false
    }
}

/// Tokens that begin and end a text.
const TOKENS_AROUND: u32 = 5;

#[cfg(test)]
mod tests {
    use plimsoll_config::{ConfigArgs, ConfigError, Loaded, Recipe, load_with_recipe};
    use plimsoll_core::Bytes;

    use super::*;

    /// A training of each published size is a valid configuration, whatever the size of the corpus.
    #[test]
    fn every_published_size_has_a_recipe() {
        for name in WhisperConfig::NAMES {
            let model = WhisperConfig::named(name).unwrap();
            for hours in [None, Some(0.01), Some(0.3), Some(1.0), Some(500.0)] {
                let size = hours.map(|hours: f64| CorpusSize {
                    utterances: (hours * 900.0) as usize,
                    seconds: Seconds(hours * 3600.0),
                    asked: None,
                });
                let keys = FamilyModel::keys(&model, &LogMelConfig::default()).into_iter();
                let of_model =
                    keys.map(|(key, value)| ChosenValue { key, value, reason: String::new(), is_of_model: true });
                let chosen = WhisperFamily.going_on(&ModelPlan::Whisper(model), size.as_ref());
                let recipe = Recipe::for_trained_model(Task::Asr, of_model.chain(chosen).collect(), size.as_ref());
                let choose = |_: &Loaded| Ok::<_, ConfigError>(Some(recipe.clone()));
                let args = ConfigArgs::default();
                let loaded = load_with_recipe(&args, std::iter::empty(), &|| Bytes::gib(8), choose);
                let config = loaded.unwrap_or_else(|error| panic!("{name}, {hours:?}: {error:?}")).config;
                assert!(WhisperFamily.trains(&config));
                let ModelPlan::Whisper(again) = WhisperFamily.model(&config, model.features, model.vocabulary) else {
                    panic!("it is a Whisper model")
                };
                assert_eq!(again, model);
            }
        }
    }
}
