//! What was measured of a model: a number with its name and the way it is told.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that was measured of a model, such as an error rate.
///
/// ```
/// use plimsoll_core::Measure;
/// let cer = Measure::share("cer", "character error rate", 0.0512);
/// assert_eq!(cer.to_string(), "cer 5.12 %");
/// assert_eq!(cer.told(), "5.12 %");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Its short name, for lines and records.
    pub name: Cow<'static, str>,
    /// What it is, for people who meet it for the first time.
    pub label: Cow<'static, str>,
    /// How much.
    pub value: f64,
    /// How that is told.
    pub unit: MeasureUnit,
}

/// How a measured number is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    /// As a percentage: 1 is all.
    Share,
    /// As it is.
    Number,
}

impl Measure {
    /// A share of something, told as a percentage.
    pub fn share(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Share }
    }

    /// A number, such as a loss.
    pub fn number(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Number }
    }

    /// The value as it is told.
    pub fn told(&self) -> String {
        match self.unit {
            MeasureUnit::Share => format!("{:.2} %", self.value * 100.0),
            MeasureUnit::Number => format!("{:.4}", self.value),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.told())
    }
}
