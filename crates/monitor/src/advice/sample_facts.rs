//! Facts from the samples of a run: throttling, utilization and other processes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{GpuSample, Sample, ThrottleReason};

/// Summary of the samples of a run, as far as the rules need it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleFacts {
    /// Number of samples.
    pub samples: u64,
    /// Mean share of the time in which a kernel ran, over the GPUs that CUDA offers; `None` if it was never read.
    pub utilization: Option<f64>,
    /// Share of the samples in which a GPU had each reason for a lower clock, from 0 to 1.
    pub throttle: BTreeMap<ThrottleReason, f64>,
    /// Share of the samples with any reason for a lower clock; `None` if it was never read.
    pub throttled_share: Option<f64>,
    /// Names of other processes that held memory of a GPU of the run.
    pub gpu_processes: Vec<String>,
    /// Mean number of processors that other processes used; `None` if it was never read.
    pub other_cpus: Option<f64>,
}

impl SampleFacts {
    /// Summarizes `samples`. Only GPUs that CUDA offers to this process count, if there are any.
    pub fn from_samples<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let mut facts = Self::default();
        let (mut utilization, mut other_cpus, mut throttled) = (Mean::default(), Mean::default(), Mean::default());
        let mut reasons: BTreeMap<ThrottleReason, u64> = BTreeMap::new();
        for sample in samples {
            facts.samples += 1;
            other_cpus.add(sample.host.other_cpus.value().copied());
            let gpus = used(&sample.gpus);
            gpus.iter().for_each(|gpu| utilization.add(gpu.utilization.value().copied()));
            let mut now: Vec<ThrottleReason> =
                gpus.iter().filter_map(|gpu| gpu.throttle.value()).flatten().copied().collect();
            if gpus.iter().any(|gpu| gpu.throttle.value().is_some()) {
                throttled.add(Some(f64::from(u8::from(!now.is_empty()))));
            }
            now.sort_unstable();
            now.dedup();
            now.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
            let others =
                gpus.iter().filter_map(|gpu| gpu.processes.value()).flatten().filter(|process| process.is_other);
            for process in others {
                let name = process.name.clone().unwrap_or_else(|| format!("process {}", process.pid));
                if !facts.gpu_processes.contains(&name) {
                    facts.gpu_processes.push(name);
                }
            }
        }
        let share = |(reason, count): (ThrottleReason, u64)| (reason, count as f64 / throttled.count.max(1.0));
        facts.throttle = reasons.into_iter().map(share).collect();
        Self {
            utilization: utilization.value(),
            throttled_share: throttled.value(),
            other_cpus: other_cpus.value(),
            ..facts
        }
    }
}

/// Returns the GPUs that CUDA offers; all GPUs if it offers none.
fn used(gpus: &[GpuSample]) -> Vec<&GpuSample> {
    let offered: Vec<_> = gpus.iter().filter(|gpu| gpu.cuda_index.is_some()).collect();
    if offered.is_empty() { gpus.iter().collect() } else { offered }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value;
            self.count += 1.0;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}
