//! A measured quality of a model: a number with its name and its unit.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A measured quality of a model, such as an error rate.
///
/// ```
/// use plimsoll_core::Measure;
/// let cer = Measure::share("cer", "character error rate", 0.0512);
/// assert_eq!(cer.to_string(), "cer 5.12 %");
/// assert_eq!(cer.formatted_value(), "5.12 %");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Short name of the measure, for lines and records.
    pub name: Cow<'static, str>,
    /// Full name of the measure, for readers who see it for the first time.
    #[serde(default)]
    pub label: Cow<'static, str>,
    /// Measured number. NaN is `null` in JSON.
    #[serde(deserialize_with = "number_or_nan")]
    pub value: f64,
    /// Unit in which the measured number is printed.
    #[serde(default)]
    pub unit: MeasureUnit,
}

/// Unit in which a measured number is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "Cow<'_, str>")]
#[non_exhaustive]
pub enum MeasureUnit {
    /// Share of a whole, printed as a percentage: 1 is 100 %.
    Share,
    /// Plain number, printed unchanged. A unit that only a newer program has is read as `Number`.
    #[default]
    Number,
}

impl From<Cow<'_, str>> for MeasureUnit {
    fn from(name: Cow<'_, str>) -> Self {
        if name == "share" { Self::Share } else { Self::Number }
    }
}

impl Measure {
    /// Creates a measure of a share of a whole, printed as a percentage.
    pub fn share(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Share }
    }

    /// Creates a measure that is a plain number, such as a loss.
    pub fn number(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Number }
    }

    /// Formats the value with its unit, without the name.
    pub fn formatted_value(&self) -> String {
        match self.unit {
            MeasureUnit::Share => format!("{:.2} %", self.value * 100.0),
            MeasureUnit::Number => format!("{:.4}", self.value),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of a recognizer: the same rate where the language of the texts helps.
        match self.name.strip_prefix("lm_") {
            Some(name) => write!(f, "{name} with the language of its texts {}", self.formatted_value()),
            None => write!(f, "{} {}", self.name, self.formatted_value()),
        }
    }
}

fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
