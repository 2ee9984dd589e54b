//! One value that was read, or the reason why it was not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Value that was read from a device or the system, or the reason why it is missing.
///
/// ```
/// use plimsoll_monitor::sample::{Missing, Origin, Reading};
///
/// let power = Reading::new(231.5, Origin::Nvml);
/// let clock: Reading<f64> = Reading::missing(Missing::NotSupported, Origin::Nvml);
/// assert_eq!((power.value(), clock.value()), (Some(&231.5), None));
/// assert_eq!(serde_json::to_string(&clock)?, r#"{"missing":"not_supported","origin":"nvml"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct Reading<T> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<Missing>,
    /// Where the value comes from.
    pub origin: Origin,
    /// Age of the value in seconds when the sample was taken; 0 if it was read for the sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub age_seconds: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(age: &f64) -> bool {
    *age == 0.0
}

impl<T> Reading<T> {
    /// Creates a reading of `value`.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value: Some(value), missing: None, origin, age_seconds: 0.0 }
    }

    /// Creates a reading that has no value.
    pub fn missing(why: Missing, origin: Origin) -> Self {
        Self { value: None, missing: Some(why), origin, age_seconds: 0.0 }
    }

    /// Creates a reading from a result.
    pub fn from_result(result: Result<T, Missing>, origin: Origin) -> Self {
        match result {
            Ok(value) => Self::new(value, origin),
            Err(why) => Self::missing(why, origin),
        }
    }

    /// Returns the value; `None` if it is missing.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the reason why the value is missing; `None` if there is a value.
    pub fn why_missing(&self) -> Option<Missing> {
        match (&self.value, self.missing) {
            (Some(_), _) => None,
            (None, why) => Some(why.unwrap_or(Missing::NotRead)),
        }
    }
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::missing(Missing::NotRead, Origin::None)
    }
}

/// Reason why a value is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Missing {
    /// Nothing tried to read the value.
    NotRead,
    /// The device or its driver does not have the value.
    NotSupported,
    /// This process may not read the value.
    NoPermission,
    /// The device no longer answers.
    Lost,
    /// The value is a rate, and there is no earlier reading yet.
    NeedsTwoReadings,
    /// The value cannot be read in a container or for a part of a GPU.
    NotVisible,
    /// The read failed.
    #[serde(other)]
    Failed,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotRead => "not read",
            Self::NotSupported => "not supported",
            Self::NoPermission => "no permission",
            Self::Lost => "the device is lost",
            Self::NeedsTwoReadings => "needs a second reading",
            Self::NotVisible => "not visible from here",
            Self::Failed => "the read failed",
        })
    }
}

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// No source.
    None,
    /// NVIDIA's management library.
    Nvml,
    /// Counters of NVIDIA's management library that are averages over a period (GPM).
    Gpm,
    /// The operating system.
    System,
    /// The control group of the process.
    ControlGroup,
    /// The GPU backend of the training process.
    Backend,
    /// A value that was computed from others, and is an estimate.
    Estimate,
    /// A recording or a test.
    #[serde(other)]
    Replay,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "no source",
            Self::Nvml => "NVML",
            Self::Gpm => "NVML, GPM counters",
            Self::System => "the operating system",
            Self::ControlGroup => "the control group",
            Self::Backend => "the GPU backend",
            Self::Estimate => "an estimate",
            Self::Replay => "a recording",
        })
    }
}
