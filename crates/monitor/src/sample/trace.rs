//! The samples of a run over time: curves, summary and throttling, in an amount of memory that a long run does not exceed.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_core::Bytes;

use super::numbers::{NumberReading, NumberUnit};
use super::reading::Missing;
use super::recording::SampleReader;
use super::series::{PARTS_MAX, Series};
use super::statistics::Collector;
use super::summary::{MonitorSummary, NumberSummary, SummaryCollector};
use super::throttling::Throttling;
use super::{GpuSample, HostSample, Sample, SampledProcess};
use crate::RecordError;

/// Longest time between two samples of one part of a run. After a longer one the run was resumed.
const PAUSE_MAX: f64 = 60.0;
/// Time that stands for a pause of the run.
const PAUSE_SHOWN: f64 = 1.0;
/// Duration of a part of the series at first.
const PART_SECONDS: f64 = 0.25;

/// The samples of a run over time.
///
/// Its time begins with the first sample, and stands still while the run does not train.
#[derive(Debug)]
pub(crate) struct SampleTrace {
    /// Number of samples.
    pub(crate) samples: u64,
    /// Seconds from the first to the last sample, without pauses of the run.
    pub(crate) seconds: f64,
    /// Number of lines that are no samples.
    pub(crate) damaged: u64,
    /// Whether the end of the recording cannot be read.
    pub(crate) ends_early: bool,
    /// Numbers of the host.
    pub(crate) host: Numbers,
    /// GPUs of the run; all GPUs if CUDA offered none.
    pub(crate) gpus: Vec<GpuTrace>,
    /// Numbers of host and GPUs, without those that are computed from others.
    summary: MonitorSummary,
    /// Reason why there were no GPUs at the end.
    pub(crate) no_gpu: Option<String>,
    /// Duration of a part of the series.
    part_seconds: f64,
}

/// Samples of one GPU over time.
#[derive(Debug, Default)]
pub(crate) struct GpuTrace {
    pub(crate) index: u32,
    pub(crate) name: String,
    is_used: bool,
    pub(crate) numbers: Numbers,
    pub(crate) throttling: Throttling,
}

/// Numbers over time, by name.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    series: BTreeMap<&'static str, Series>,
    /// Numbers that are computed from others.
    computed: BTreeMap<&'static str, (Collector, Option<Missing>)>,
}

#[derive(Default)]
struct Builder {
    samples: u64,
    seconds: f64,
    part_seconds: f64,
    last: Option<f64>,
    host: Numbers,
    gpus: Vec<GpuTrace>,
    summary: SummaryCollector,
    no_gpu: Option<String>,
}

impl SampleTrace {
    /// Reads the recording at `path`. Lines that are no samples are counted and left out.
    ///
    /// # Errors
    /// [`RecordError`] if the file cannot be read or is no recording.
    pub(crate) fn read(path: &Path) -> Result<Self, RecordError> {
        let (mut damaged, mut ends_early) = (0, false);
        let mut builder = Builder { part_seconds: PART_SECONDS, ..Builder::default() };
        for sample in SampleReader::open(path)? {
            match sample {
                Ok(sample) => builder.add(sample),
                Err(RecordError::Io { .. }) => ends_early = true,
                Err(_) => damaged += 1,
            }
        }
        Ok(Self { damaged, ends_early, ..builder.finish() })
    }

    /// Returns the curves of a number: see [`Series::curves`].
    pub(crate) fn curves(&self, series: &Series, columns: usize) -> Vec<Vec<(f64, f64)>> {
        series.curves(self.part_seconds, columns)
    }

    /// Returns the means of a number: see [`Series::means`].
    pub(crate) fn means(&self, series: &Series, columns: usize) -> Vec<Vec<(f64, f64)>> {
        series.means(self.part_seconds, columns)
    }

    /// Returns the summary of the host's numbers.
    pub(crate) fn host_summary(&self) -> Vec<NumberSummary> {
        self.summary.host.iter().cloned().chain(self.host.computed_summary()).collect()
    }

    /// Returns the summary of the numbers of `gpu`.
    pub(crate) fn gpu_summary(&self, gpu: &GpuTrace) -> Vec<NumberSummary> {
        let known = self.summary.gpus.iter().find(|known| known.index == gpu.index);
        known
            .into_iter()
            .flat_map(|known| known.numbers.iter().cloned())
            .chain(gpu.numbers.computed_summary())
            .collect()
    }
}

impl Numbers {
    /// Returns a number over time; `None` if there is none of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Series> {
        self.series.get(name)
    }

    fn add(&mut self, index: usize, readings: Vec<NumberReading>) {
        for NumberReading { name, value, .. } in readings {
            self.series.entry(name).or_default().add(index, value);
        }
    }

    fn add_computed(&mut self, index: usize, seconds: f64, name: &'static str, value: Result<f64, Missing>) {
        self.series.entry(name).or_default().add(index, value);
        let (values, missing) = self.computed.entry(name).or_default();
        match value {
            Ok(value) => values.add(value, seconds),
            Err(why) => *missing = Some(why),
        }
    }

    fn each(&mut self, change: fn(&mut Series)) {
        self.series.values_mut().for_each(change);
    }

    fn computed_summary(&self) -> impl Iterator<Item = NumberSummary> {
        self.computed.iter().map(|(name, (values, missing))| NumberSummary {
            name: (*name).into(),
            unit: NumberUnit::Bytes,
            values: values.statistics(),
            missing: *missing,
        })
    }
}

impl Builder {
    fn add(&mut self, mut sample: Sample) {
        let step = self.last.map(|last| sample.time - last);
        self.last = Some(sample.time);
        let passed = step.filter(|step| (0.0..=PAUSE_MAX).contains(step));
        let passed = match (step, passed) {
            (None, _) => 0.0,
            (Some(_), Some(passed)) => passed,
            (Some(_), None) => {
                self.each_series(Series::interrupt);
                PAUSE_SHOWN
            }
        };
        self.seconds += passed;
        self.samples += 1;
        while self.seconds >= self.part_seconds * PARTS_MAX as f64 {
            self.part_seconds *= 2.0;
            self.each_series(Series::halve);
        }
        let index = (self.seconds / self.part_seconds) as usize;
        // The time of the run, in which pauses do not count.
        sample.time = self.seconds;
        self.summary.add(&sample);
        self.add_host(index, passed, &sample.host);
        for gpu in &sample.gpus {
            self.add_gpu(index, passed, gpu);
        }
        self.no_gpu = sample.no_gpu;
    }

    fn add_host(&mut self, index: usize, passed: f64, host: &HostSample) {
        self.host.add(index, host.numbers());
        let used = host.memory_total.value().zip(host.memory_available.value());
        let used = used.map(|(total, available)| total.saturating_sub(*available).0 as f64);
        let why = host.memory_total.why_missing().or(host.memory_available.why_missing());
        self.host.add_computed(index, passed, "memory_used", used.ok_or(why.unwrap_or(Missing::Failed)));
    }

    fn add_gpu(&mut self, index: usize, passed: f64, sample: &GpuSample) {
        let place = self.gpus.iter().position(|known| known.index == sample.index).unwrap_or_else(|| {
            self.gpus.push(GpuTrace { index: sample.index, ..GpuTrace::default() });
            self.gpus.len() - 1
        });
        let gpu = &mut self.gpus[place];
        gpu.is_used |= sample.cuda_index.is_some();
        if !sample.name.is_empty() {
            gpu.name.clone_from(&sample.name);
        }
        gpu.numbers.add(index, sample.numbers());
        for (name, is_counted) in [
            ("memory_own", (|process| process.is_own) as fn(&SampledProcess) -> bool),
            ("memory_others", |process| process.is_other),
        ] {
            gpu.numbers.add_computed(index, passed, name, memory_of(sample, is_counted));
        }
        gpu.throttling.add(self.seconds - passed, self.seconds, &sample.throttle);
    }

    fn each_series(&mut self, change: fn(&mut Series)) {
        self.host.each(change);
        self.gpus.iter_mut().for_each(|gpu| gpu.numbers.each(change));
    }

    fn finish(mut self) -> SampleTrace {
        if self.gpus.iter().any(|gpu| gpu.is_used) {
            self.gpus.retain(|gpu| gpu.is_used);
        }
        SampleTrace {
            samples: self.samples,
            seconds: self.seconds,
            damaged: 0,
            ends_early: false,
            host: self.host,
            gpus: self.gpus,
            summary: self.summary.summary(),
            no_gpu: self.no_gpu,
            part_seconds: self.part_seconds,
        }
    }
}

/// Adds the memory of the processes that count. It is missing if the driver lists no processes, if it is not certain whose
/// process one is, or if the memory of one that counts is missing.
fn memory_of(gpu: &GpuSample, counts: fn(&SampledProcess) -> bool) -> Result<f64, Missing> {
    let processes = gpu.processes.value().ok_or_else(|| gpu.processes.why_missing().unwrap_or(Missing::NotRead))?;
    if processes.iter().any(|process| !process.is_own && !process.is_other) {
        return Err(Missing::NotVisible);
    }
    let memory = |process: &SampledProcess| match process.memory.value() {
        Some(Bytes(bytes)) => Ok(*bytes as f64),
        None => Err(process.memory.why_missing().unwrap_or(Missing::NotRead)),
    };
    processes.iter().filter(|process| counts(process)).map(memory).sum()
}
