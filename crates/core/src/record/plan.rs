//! The head of a run's `plan.toml`: what readers of runs take from it.

use serde::{Deserialize, Serialize};

/// The head of a run's `plan.toml`. The program writes its whole plan below it.
///
/// Every field is optional on reading, as an older program may have written less.
///
/// ```
/// use plimsoll_core::PlanHeader;
///
/// let header: PlanHeader = toml::from_str("seed = 7\ndevice = \"CUDA device 0\"\nof_the_future = true\n")?;
/// assert_eq!((header.seed, header.schema_version), (Some(7), 0));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanHeader {
    /// Version of the schema, [`SCHEMA_VERSION`](crate::SCHEMA_VERSION) on writing; 0 in files that do not say.
    pub schema_version: u32,
    /// Name of the run, if the user chose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Commit that the program was built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Task of the run, such as `asr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Seed of all randomness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Name of the device that trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Number of parameters of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Steps until the end, if known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Seconds of audio in a feature frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_seconds: Option<f64>,
}
