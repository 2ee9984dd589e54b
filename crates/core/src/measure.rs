//! Named measurements of a model, such as error rates, with their display format.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One measurement of a model, such as an error rate.
///
/// ```
/// use plimsoll_core::Measure;
/// let cer = Measure::share("cer", "character error rate", 0.0512);
/// assert_eq!(cer.to_string(), "cer 5.12 %");
/// assert_eq!(cer.formatted_value(), "5.12 %");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Short name for tables and records, such as `cer`.
    pub name: Cow<'static, str>,
    /// Description for readers who do not know the name.
    pub label: Cow<'static, str>,
    /// Measured value.
    pub value: f64,
    /// Display format of the value.
    pub unit: MeasureUnit,
}

/// Display format of a [`Measure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    /// Percentage with two decimals: 1.0 prints as `100.00 %`.
    Share,
    /// Plain number with four decimals.
    Number,
}

impl Measure {
    /// Fraction, printed as a percentage.
    pub fn share(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Share }
    }

    /// Plain number, such as a loss.
    pub fn number(name: &'static str, label: &'static str, value: f64) -> Self {
        Self { name: name.into(), label: label.into(), value, unit: MeasureUnit::Number }
    }

    /// The value in its display format, without the name.
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
