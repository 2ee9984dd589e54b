//! Maps a configuration to features, and to the lengths of recordings that models read in parts.

use plimsoll_audio::LogMelConfig;
use plimsoll_config::choices::FeaturePreset;
use plimsoll_config::{FeaturesConfig, RunConfig};
use plimsoll_core::Frames;

/// Returns the feature settings of `config`: a preset, with the numbers that `config` overrides.
pub fn features(config: &FeaturesConfig) -> LogMelConfig {
    let mut features = LogMelConfig::preset(config.preset.as_str()).expect("every value of the key names a preset");
    let &FeaturesConfig { sample_rate, n_fft, win_length, hop_length, n_mels, .. } = config;
    let whole = |number: Option<u32>, old: usize| number.map_or(old, |n| n as usize);
    features.sample_rate = sample_rate.unwrap_or(features.sample_rate);
    features.n_fft = whole(n_fft, features.n_fft);
    features.win_length = whole(win_length, features.win_length);
    features.hop_length = whole(hop_length, features.hop_length);
    features.n_mels = whole(n_mels, features.n_mels);
    features
}

/// Computes the maximum number of frames of a reference recording, from which a synthesizer learns a voice; at least 1.
pub(crate) fn reference_frames(config: &RunConfig) -> Frames {
    let features = features(&config.features);
    let frames = config.data.reference_seconds.0 * f64::from(features.sample_rate) / features.hop_length as f64;
    Frames((frames.ceil() as u32).max(1))
}

/// Computes the number of samples of the crops that a vocoder learns from: whole hops, at least one.
pub(crate) fn crop(config: &RunConfig) -> Frames {
    let features = features(&config.features);
    let samples = config.data.crop_seconds.0 * f64::from(features.sample_rate);
    let hops = (samples / features.hop_length as f64).round().max(1.0);
    Frames((hops * features.hop_length as f64) as u32)
}

/// Lists the keys of `[features]` that give `wanted`, with their values as TOML; `None` if no preset has its other settings.
pub(crate) fn feature_keys(wanted: &LogMelConfig) -> Option<Vec<(&'static str, String)>> {
    let numbers = |preset: FeaturePreset| FeaturesConfig {
        preset,
        sample_rate: Some(wanted.sample_rate),
        n_fft: Some(wanted.n_fft as u32),
        win_length: Some(wanted.win_length as u32),
        hop_length: Some(wanted.hop_length as u32),
        n_mels: Some(wanted.n_mels as u32),
    };
    let preset = FeaturePreset::ALL.iter().find(|preset| features(&numbers(**preset)) == *wanted)?;
    Some(vec![
        ("features.preset", format!("\"{preset}\"")),
        ("features.sample_rate", wanted.sample_rate.to_string()),
        ("features.n_fft", wanted.n_fft.to_string()),
        ("features.win_length", wanted.win_length.to_string()),
        ("features.hop_length", wanted.hop_length.to_string()),
        ("features.n_mels", wanted.n_mels.to_string()),
    ])
}
