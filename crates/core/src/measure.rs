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
    /// Short name, for lines and records.
    pub name: Cow<'static, str>,
    /// Full name, for readers who see it for the first time.
    #[serde(default)]
    pub label: Cow<'static, str>,
    /// The number. JSON has `null` for NaN.
    #[serde(deserialize_with = "number_or_nan")]
    pub value: f64,
    /// How the number is printed.
    #[serde(default)]
    pub unit: MeasureUnit,
}

/// How a measured number is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "Cow<'_, str>")]
#[non_exhaustive]
pub enum MeasureUnit {
    /// As a percentage: 1 is everything.
    Share,
    /// As it is. A unit of a newer program is read as this one.
    #[default]
    Number,
}

impl From<Cow<'_, str>> for MeasureUnit {
    fn from(name: Cow<'_, str>) -> Self {
        if name == "share" { Self::Share } else { Self::Number }
    }
}

impl Measure {
    /// A share of a whole, printed as a percentage.
    pub fn share(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Share }
    }

    /// A plain number, such as a loss.
    pub fn number(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Number }
    }

    /// The value with its unit, without the name.
    pub fn formatted_value(&self) -> String {
        match self.unit {
            MeasureUnit::Share => format!("{:.2} %", self.value * 100.0),
            MeasureUnit::Number => format!("{:.4}", self.value),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.formatted_value())
    }
}

fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
