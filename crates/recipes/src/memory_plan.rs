//! The memory that a run is expected to need, as its plan holds it.

use plimsoll_core::Bytes;
use plimsoll_memory::{BucketPlan, Plan};
use plimsoll_train::planned::{PlannedLimit, PlannedPeaks};
use serde::Serialize;

/// Planned memory of a run. Serialized under the field names that `plan.toml` has always had.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryPlan {
    /// Memory that the run may use; `None` if it is not limited.
    pub budget: Option<Bytes>,
    /// How the memory of the device is shared.
    #[serde(flatten)]
    pub shares: Shares,
    /// Plan of one replica: model, optimizer and steps.
    pub plan: Plan,
    /// How the peaks of the plan were measured; `None` if they are those of traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredStart>,
}

/// A plan whose peaks were measured on its GPU before the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredStart {
    /// Peak of the plan that was made from traces.
    pub traced: Bytes,
    /// Seconds that the measurement took; `None` if it was that of an earlier start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// How a run shares the memory of its device between its replicas and the rest of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Memory that the process needs beside model and steps (manifests, cached features, waiting batches), if the
    /// device is the CPU; else 0.
    #[serde(rename = "around")]
    pub outside_model: Bytes,
    /// Number of replicas that share the memory of the device: all replicas on the CPU, 1 on GPUs.
    #[serde(rename = "sharing")]
    pub replicas: u64,
}

impl Shares {
    /// The whole memory for one replica, as on a GPU.
    pub const ALONE: Self = Self { outside_model: Bytes(0), replicas: 1 };

    /// Computes the memory of a whole run from `peak`, the memory of model and steps of one replica.
    pub fn whole_run(self, peak: Bytes) -> Bytes {
        Bytes(peak.0 * self.replicas + self.outside_model.0)
    }

    /// Computes the memory for model and steps of one replica, of `whole`.
    pub(crate) fn of_replica(self, whole: Bytes) -> Bytes {
        Bytes(whole.0.saturating_sub(self.outside_model.0) / self.replicas.max(1))
    }

    /// Says how much of the memory is not that of the model, as words to add to a sentence; empty if that is nothing.
    pub fn beside(self) -> String {
        match self.outside_model.0 {
            0 => String::new(),
            _ => format!(" (the process takes {} beside it)", self.outside_model),
        }
    }
}

impl MemoryPlan {
    /// Computes the planned peak of memory: the peaks of all replicas that share the memory of the device, plus the memory of
    /// the process beside model and steps.
    pub fn peak(&self) -> Bytes {
        self.shares.whole_run(self.plan.peak)
    }

    /// Returns for each planned batch shape the number of utterances to compute at once on `lanes` lanes (threads)
    /// together, and the settings of the computation. A run's governor starts with these values.
    pub fn governor_plan(&self, lanes: usize) -> Vec<PlannedLimit> {
        let planned = |bucket: &BucketPlan| PlannedLimit {
            shape: bucket.bucket,
            limit: (bucket.micro_batch as usize * lanes.max(1)).min(bucket.bucket.utterances.max(1) as usize),
            choice: bucket.choice,
        };
        self.plan.buckets.iter().map(planned).collect()
    }

    /// Returns for each planned batch shape the memory that is expected at the peak of a step. `is_host`: whether the
    /// device is the CPU.
    ///
    /// On a GPU this is the peak of its pools in the whole run for every shape, because they never shrink.
    pub fn expected_peaks(&self, is_host: bool) -> PlannedPeaks {
        let in_pools = self.plan.in_pools(self.plan.peak);
        let peak = |bucket: &BucketPlan| if is_host { self.shares.whole_run(bucket.peak) } else { in_pools };
        PlannedPeaks::new(self.plan.buckets.iter().map(|bucket| (bucket.bucket, peak(bucket))).collect())
    }

    /// Describes the plan for people, for a run that computes `lanes` micro-batches at the same time.
    pub fn text(&self, lanes: usize) -> String {
        let fewest = self.plan.buckets.iter().min_by_key(|bucket| bucket.micro_batch);
        let count = fewest.map_or(1, |bucket| bucket.accumulation) as usize;
        // Micro-batches of the same time are one computation.
        let cut = match count > lanes.max(1) {
            true => format!(", the longest batches in {count} micro-batches"),
            false => String::new(),
        };
        let how = match self.measured {
            Some(MeasuredStart { seconds: Some(_), .. }) => ", measured",
            Some(MeasuredStart { seconds: None, .. }) => ", measured at an earlier start",
            None => "",
        };
        match self.budget {
            Some(budget) => format!("about {} of at most {budget}{cut}{how}", self.peak()),
            None => format!("about {}{cut}{how}", self.peak()),
        }
    }
}
