//! Samples of the machine of a run: recorded beside its events, and used to find the time that throttling takes.

use std::path::Path;
use std::time::Duration;

use plimsoll_core::{TimeOwner, TimeShares};

use crate::RecordError;
use crate::sample::{GpuSample, MachineSource, Monitor, Sample, SampleRecorder, Sampler};

/// Time between two samples. A GPU changes its clock within milliseconds, and stays throttled for seconds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Lost share of the clock below which a GPU counts as running at full speed: clocks come in steps.
const LEAST: f64 = 0.03;

/// Samples the machine of a run that trains on a GPU, on a thread of its own.
///
/// Each sample is written to a file, from which a view can be played back later. The latest one says how much of its clock
/// the GPU loses to limits of power and temperature.
#[derive(Debug)]
pub struct RunSamples {
    monitor: Monitor,
    cuda_index: Option<usize>,
}

impl RunSamples {
    /// Name of the recording in the folder of a run.
    pub const FILE: &'static str = "samples.jsonl.zst";

    /// Starts to sample this machine into the folder of a run that trains on the CUDA device `cuda_index`; `None` if it trains
    /// on another kind of GPU, whose clock is not known.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn start(folder: &Path, cuda_index: Option<usize>) -> Result<Self, RecordError> {
        let mut recorder = Some(SampleRecorder::append(&folder.join(Self::FILE))?);
        let record = move |sample: &Sample| {
            // After an error, such as a full disk, the run goes on without this file.
            if recorder.as_mut().is_some_and(|file| file.record(sample).is_err()) {
                recorder = None;
            }
        };
        Ok(Self { monitor: Monitor::start_with(INTERVAL, || Sampler::new(MachineSource::open()), record), cuda_index })
    }

    /// Moves the share of the computing that the GPU loses to a lower clock to [`TimeOwner::Throttled`].
    pub fn attribute(&self, times: &mut TimeShares) {
        let latest = self.monitor.latest();
        let Some(index) = self.cuda_index else { return };
        let gpu = latest.iter().flat_map(|sample| &sample.gpus).find(|gpu| gpu.cuda_index == Some(index));
        let lost = gpu.and_then(lost_clock).unwrap_or(0.0);
        times.shift(TimeOwner::Compute, TimeOwner::Throttled, times.get(TimeOwner::Compute) * lost);
    }
}

/// Returns the share of its highest clock that a GPU loses to limits, from 0 to 1. A lower clock without a reason, as of an
/// idle GPU, is no loss. `None` if a value is missing.
fn lost_clock(gpu: &GpuSample) -> Option<f64> {
    if gpu.throttle.value()?.is_empty() {
        return Some(0.0);
    }
    let lost = 1.0 - gpu.sm_clock.value()? / gpu.sm_clock_max.value().filter(|clock| **clock > 0.0)?;
    Some(if lost < LEAST { 0.0 } else { lost.min(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Origin, Reading, SampleReader, ThrottleReason};

    fn gpu(reasons: &[ThrottleReason], clock: f64) -> GpuSample {
        GpuSample {
            cuda_index: Some(0),
            throttle: Reading::new(reasons.to_vec(), Origin::Nvml),
            sm_clock: Reading::new(clock, Origin::Nvml),
            sm_clock_max: Reading::new(2000.0, Origin::Nvml),
            ..GpuSample::default()
        }
    }

    #[test]
    fn a_clock_is_lost_only_for_a_reason() {
        let hot = [ThrottleReason::Heat];
        for (gpu, expected) in [
            (gpu(&[], 210.0), Some(0.0)),
            (gpu(&hot, 2000.0), Some(0.0)),
            (gpu(&hot, 1990.0), Some(0.0)),
            (gpu(&hot, 1500.0), Some(0.25)),
            (GpuSample { sm_clock_max: Reading::default(), ..gpu(&hot, 1500.0) }, None),
            (GpuSample { throttle: Reading::default(), ..gpu(&hot, 1500.0) }, None),
        ] {
            assert_eq!(lost_clock(&gpu), expected, "{gpu:?}");
        }
    }

    #[test]
    fn a_machine_without_the_gpu_loses_nothing_and_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let samples = RunSamples::start(folder.path(), Some(7)).unwrap();
        while samples.monitor.latest().is_none() {
            std::thread::yield_now();
        }
        let mut times = TimeShares::default();
        times.add(TimeOwner::Compute, 1.0);
        samples.attribute(&mut times);
        assert_eq!((times.get(TimeOwner::Compute), times.get(TimeOwner::Throttled)), (1.0, 0.0));
        drop(samples);
        let read = SampleReader::open(&folder.path().join(RunSamples::FILE)).unwrap();
        assert!(read.filter_map(Result::ok).count() > 0);
    }
}
