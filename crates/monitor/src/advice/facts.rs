//! Facts about a run that the rules read. A fact that is not known is `None`.

use std::collections::BTreeMap;

use plimsoll_core::{Bytes, Event, StepEvent};

use super::change::Change;
use super::sample_facts::SampleFacts;
use crate::Host;

/// Facts about a training run.
///
/// A rule that needs a fact that is not known abstains. [`RunFacts::read`] fills in what the folder of a run holds; the
/// program adds the host, the speed of loading, the alternatives and the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// Name of the run.
    pub name: String,
    /// All recorded steps, in the order of the record.
    pub steps: Vec<StepEvent>,
    /// The other events, in the order of the record.
    pub events: Vec<Event>,
    /// Configuration: each value under its full key, as written. A key that is not set is missing. An empty map means
    /// that the configuration is not known; no change is proposed then.
    pub config: BTreeMap<String, String>,
    /// Whether the run trains on a GPU.
    pub on_gpu: Option<bool>,
    /// Number of steps of the whole run.
    pub total_steps: Option<u64>,
    /// Seconds of audio per feature frame.
    pub hop_seconds: Option<f64>,
    /// Facts of the plan.
    pub plan: Option<PlanFacts>,
    /// Facts about the host.
    pub host: HostFacts,
    /// Measured speed of loading.
    pub loading: Option<LoadingFacts>,
    /// Predictions for other values of the configuration.
    pub alternatives: Vec<Alternative>,
    /// Summary of the samples of the run.
    pub samples: Option<SampleFacts>,
}

/// Facts of a run's `plan.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanFacts {
    /// Memory that the run may use.
    pub budget: Option<Bytes>,
    /// Planned peak memory.
    pub peak: Option<Bytes>,
    /// Number of batches in an epoch.
    pub batches_in_epoch: Option<u64>,
    /// Number of different padded shapes of the batches.
    pub padded_shapes: Option<u64>,
    /// Seconds of training audio.
    pub training_seconds: Option<f64>,
    /// Mel bands per frame.
    pub n_mels: Option<u64>,
    /// Form of the optimizer state: `full`, `eight` or `host`.
    pub optimizer_state: Option<String>,
    /// How batches of each length are computed.
    pub buckets: Vec<BucketFacts>,
}

/// How batches of one length are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketFacts {
    /// Number of utterances in a micro-batch.
    pub micro_batch: u64,
    /// Number of micro-batches in a step.
    pub accumulation: u64,
    /// Number of utterances in a step.
    pub utterances: u64,
    /// Number of frames of an utterance.
    pub frames: u64,
    /// Rematerialization: `none`, `half`, `all`, or another form with a number of blocks.
    pub remat: String,
}

/// Facts about the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Number of hardware threads that the run can use.
    pub processors: Option<usize>,
    /// Memory that the run can use in total.
    pub memory: Option<Bytes>,
    /// Memory that can be allocated beside the run.
    pub available: Option<Bytes>,
}

impl From<&Host> for HostFacts {
    fn from(host: &Host) -> Self {
        Self { processors: Some(host.logical_cpus), memory: Some(host.usable()), available: Some(host.available) }
    }
}

/// Measured speed of loading, and where its time goes. The three shares add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadingFacts {
    /// Seconds of audio that one thread loads in a second.
    pub audio_seconds_per_second: f64,
    /// Share of the time for reading and decoding, from 0 to 1.
    pub decoding: f64,
    /// Share of the time for resampling, from 0 to 1.
    pub resampling: f64,
    /// Share of the time for features, from 0 to 1.
    pub features: f64,
}

/// Prediction for another value of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Key and value. The rules take the present value from the configuration of the run.
    pub change: Change,
    /// Predicted share of the batches that is padding, from 0 to 1.
    pub padding: Option<f64>,
    /// Predicted time of a step, without waiting for data, as a ratio of the present time.
    pub seconds_ratio: Option<f64>,
}
