//! Checks of a model's description, so that a damaged or hostile `model.json` is an error and no panic.

use std::fmt::Display;
use std::ops::RangeInclusive;

use plimsoll_audio::LogMelConfig;

/// Number of a model's description with which no model can be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` is {value}, expected {expected}")]
pub struct InvalidField {
    /// Name of the field in `model.json`.
    pub field: &'static str,
    /// Value of the field.
    pub value: String,
    /// Values that are possible.
    pub expected: String,
}

/// Largest width of a layer, and largest number of channels, mel bands or samples in a window.
pub(crate) const MAX_WIDTH: usize = 1 << 16;
/// Largest number of blocks or layers.
pub(crate) const MAX_LAYERS: usize = 1 << 10;
/// Largest number of tokens.
pub(crate) const MAX_VOCABULARY: usize = 1 << 24;
/// Most frames of features in a second.
const MAX_FRAME_RATE: f64 = 2e3;

/// Returns an error if `is_valid` is false.
pub(crate) fn require(
    is_valid: bool,
    field: &'static str,
    value: impl Display,
    expected: impl Into<String>,
) -> Result<(), InvalidField> {
    match is_valid {
        true => Ok(()),
        false => Err(InvalidField { field, value: value.to_string(), expected: expected.into() }),
    }
}

/// Checks that a number lies in `range`.
pub(crate) fn inside(field: &'static str, value: usize, range: RangeInclusive<usize>) -> Result<(), InvalidField> {
    let expected = format!("{} to {}", range.start(), range.end());
    require(range.contains(&value), field, value, expected)
}

/// Checks a share of activations that are set to zero.
pub(crate) fn dropout(field: &'static str, value: f64) -> Result<(), InvalidField> {
    require((0.0..1.0).contains(&value), field, value, "0 to below 1")
}

/// Checks that a number is finite and not below zero.
pub(crate) fn not_negative(field: &'static str, value: f64) -> Result<(), InvalidField> {
    require(value.is_finite() && value >= 0.0, field, value, "a number from 0 on")
}

/// Checks that a number is finite and above zero.
pub(crate) fn positive(field: &'static str, value: f64) -> Result<(), InvalidField> {
    require(value.is_finite() && value > 0.0, field, value, "a number above 0")
}

/// Checks a width with its number of heads.
pub(crate) fn heads(
    (width_field, width): (&'static str, usize),
    (field, heads): (&'static str, usize),
) -> Result<(), InvalidField> {
    inside(width_field, width, 1..=MAX_WIDTH)?;
    inside(field, heads, 1..=MAX_WIDTH)?;
    require(width.is_multiple_of(heads), width_field, width, format!("a multiple of `{field}`, which is {heads}"))
}

/// Checks that the sinusoids of positions fit into `width`.
pub(crate) fn even(field: &'static str, width: usize) -> Result<(), InvalidField> {
    require(width.is_multiple_of(2), field, width, "an even number")
}

/// Checks the sizes of features; [`LogMel::new`](plimsoll_audio::LogMel::new) checks the rest.
pub(crate) fn features(config: &LogMelConfig) -> Result<(), InvalidField> {
    inside("features.sample_rate", config.sample_rate as usize, 1_000..=384_000)?;
    inside("features.n_fft", config.n_fft, 16..=MAX_WIDTH)?;
    inside("features.n_mels", config.n_mels, 1..=MAX_WIDTH)?;
    inside("features.hop_length", config.hop_length, 1..=MAX_WIDTH)?;
    let rate = f64::from(config.sample_rate) / config.hop_length as f64;
    require(rate <= MAX_FRAME_RATE, "features.hop_length", config.hop_length, "at most 2000 frames a second")
}
