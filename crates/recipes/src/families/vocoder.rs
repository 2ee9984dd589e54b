//! The family of vocoders: log-mels become sound.

use std::path::Path;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::RunConfig;
use plimsoll_config::choices::Task;
use plimsoll_core::counted;
use plimsoll_data::Dataset;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_speech::vocoder::{
    DiscriminatorConfig, VocoderConfig, VocoderLossConfig, VocoderMetadata, VocoderTaskConfig,
};
use serde_json::{Value, json};

use super::ModelPlan;
use super::family::{Family, FamilyModel, ModelFacts};
use super::voice::check_features;
use crate::error::{Failure, FailureExt};
use crate::features::{crop, features as features_of};

/// The family of vocoders.
pub(super) struct VocoderFamily;

impl Family for VocoderFamily {
    fn kind(&self) -> &'static str {
        VocoderMetadata::KIND
    }

    fn task(&self) -> Task {
        Task::Vocoder
    }

    fn model(&self, config: &RunConfig, _: usize, _: usize) -> ModelPlan {
        ModelPlan::Vocoder(vocoder(config))
    }

    fn check(&self, config: &RunConfig) -> Result<(), Failure> {
        check_features(config)?;
        vocoder(config)
            .check()
            .map_err(|error| Failure::invalid(error.to_string(), "data.crop_seconds, [features] and [model] decide it"))
    }

    fn reads_text(&self) -> bool {
        false
    }

    fn samples(&self, dataset: Dataset, config: &RunConfig) -> Dataset {
        dataset.for_vocoding(crop(config))
    }

    fn samples_key(&self, config: &RunConfig) -> Option<(&'static str, String)> {
        Some(("data.crop_seconds", config.data.crop_seconds.0.to_string()))
    }

    fn crop(&self, config: &RunConfig) -> Option<u32> {
        Some(crop(config).0)
    }

    fn exported_without(&self) -> &'static str {
        // The discriminators are only there to train it.
        "vocoder."
    }

    fn facts(&self, folder: &Path) -> Result<ModelFacts, Failure> {
        let VocoderMetadata { model, run, .. } = VocoderMetadata::read(folder).invalid()?;
        let VocoderConfig { features, mel_mean, mel_std, .. } = model.vocoder.clone();
        let normalization = MelNormalization { mean: mel_mean as f32, std: mel_std as f32, harmonics: None };
        // It has no limits on lengths.
        let statistics = Some((normalization, LengthBounds::default()));
        Ok(ModelFacts { model: ModelPlan::Vocoder(model), run, tokenizer: None, features, statistics })
    }
}

impl FamilyModel for VocoderTaskConfig {
    fn summary(&self) -> String {
        let DiscriminatorConfig { periods, resolutions, .. } = &self.discriminators;
        let judges = counted(periods.len() + resolutions.len(), "discriminator");
        format!("vocoder: {}, and {judges}", self.size())
    }

    fn size(&self) -> String {
        format!("{} of width {}", counted(self.vocoder.layers, "block"), self.vocoder.dim)
    }

    fn blocks(&self) -> u32 {
        self.vocoder.layers as u32
    }

    fn tokens_max(&self, _: u32) -> u32 {
        1
    }

    fn features(&self) -> usize {
        self.vocoder.features.n_mels
    }

    fn vocabulary(&self) -> usize {
        1
    }

    fn keys(&self, _: &LogMelConfig) -> Vec<(&'static str, String)> {
        let number = |n: usize| n.to_string();
        let VocoderLossConfig { mel, spectrum, adversarial, features } = self.loss;
        let seconds = self.crop as f64 / f64::from(self.vocoder.features.sample_rate);
        vec![
            ("model.d_model", number(self.vocoder.dim)),
            ("model.vocoder_layers", number(self.vocoder.layers)),
            ("model.vocoder_kernel", number(self.vocoder.kernel)),
            ("model.feed_forward_multiplier", number(self.vocoder.feed_forward_multiplier)),
            ("model.discriminator_channels", number(self.discriminators.period_channels.first().copied().unwrap_or(1))),
            ("model.mel_loss_weight", mel.to_string()),
            ("model.spectrum_loss_weight", spectrum.to_string()),
            ("model.adversarial_loss_weight", adversarial.to_string()),
            ("model.feature_loss_weight", features.to_string()),
            ("data.crop_seconds", seconds.to_string()),
        ]
    }

    fn token_axis(&self, _: &str) -> Option<usize> {
        None
    }

    fn positions(&self, frames: u32) -> u32 {
        frames
    }

    fn sizes(&self) -> Value {
        json!({"d_model": self.vocoder.dim, "layers": self.vocoder.layers, "crop_samples": self.crop})
    }

    fn set_normalization(&mut self, normalization: MelNormalization) {
        self.vocoder.mel_mean = f64::from(normalization.mean);
        self.vocoder.mel_std = f64::from(normalization.std);
    }

    fn keeps_tables(&self) -> bool {
        self.check().is_ok()
    }
}

/// Maps `config` to the configuration of its vocoder with its discriminators. The statistics of log-mels come from data and
/// have their defaults here.
fn vocoder(config: &RunConfig) -> VocoderTaskConfig {
    let model = &config.model;
    let task = VocoderTaskConfig::recommended(features_of(&config.features));
    let channels = |multiples: &[usize]| multiples.iter().map(|n| n * model.discriminator_channels as usize).collect();
    VocoderTaskConfig {
        vocoder: VocoderConfig {
            dim: model.d_model as usize,
            layers: model.vocoder_layers as usize,
            kernel: model.vocoder_kernel as usize,
            feed_forward_multiplier: model.feed_forward_multiplier as usize,
            ..task.vocoder
        },
        discriminators: DiscriminatorConfig {
            period_channels: channels(&[1, 2, 4, 8]),
            resolution_channels: channels(&[1, 2, 2]),
            ..task.discriminators
        },
        loss: VocoderLossConfig {
            mel: model.mel_loss_weight,
            spectrum: model.spectrum_loss_weight,
            adversarial: model.adversarial_loss_weight,
            features: model.feature_loss_weight,
        },
        crop: crop(config).0 as usize,
    }
}
