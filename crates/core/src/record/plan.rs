//! Header of a run's `plan.toml`: the fields that readers of runs use.

use serde::{Deserialize, Serialize};

/// Header of a run's `plan.toml`. The program writes its whole plan below the header.
///
/// Every field is optional on reading, as an older program may have written fewer fields.
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
    /// Version of the schema: [`SCHEMA_VERSION`](crate::SCHEMA_VERSION) on writing, 0 in files without a version.
    pub schema_version: u32,
    /// Name of the run; `None` if the user chose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the program that wrote the plan; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Commit from which the program was built; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Task of the run, such as `asr`; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Seed of all randomness of the run; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Name of the device that trains the model; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Number of parameters of the model; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Number of steps of the run; `None` if not known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Seconds of audio per feature frame; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_seconds: Option<f64>,
}
