//! Summary of all samples of a run, for host and GPUs, with the cost of sampling.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::numbers::{NumberReading, NumberUnit};
use super::reading::{Missing, Origin, Reading};
use super::statistics::{Collector, Statistics};

/// Summary of the samples of a monitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorSummary {
    /// Number of samples.
    pub samples: u64,
    /// Time from the first to the last sample, in seconds.
    pub seconds: f64,
    /// Cost of sampling.
    pub cost: MonitorCost,
    /// Numbers of the host.
    pub host: Vec<NumberSummary>,
    /// Numbers of each GPU.
    pub gpus: Vec<GpuSummary>,
    /// Reason why there were no GPUs; `None` if there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<String>,
    /// Reason why sampling ended before it was stopped; `None` if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Time that sampling took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorCost {
    /// Processor time of the sampling thread, in seconds.
    pub cpu_seconds: Reading<f64>,
    /// Part of one processor that sampling used, from 0 to 1.
    pub cpu_share: Reading<f64>,
    /// Duration of all readings together, in seconds. Most of it is waiting for the driver.
    pub wall_seconds: f64,
    /// Duration of the longest reading, in seconds.
    pub longest_seconds: f64,
}

/// Summary of the samples of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSummary {
    /// Index in the order of NVML.
    pub index: u32,
    /// Permanent identifier: `GPU-` and a UUID.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Numbers of the GPU.
    pub numbers: Vec<NumberSummary>,
}

/// Values of one number over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberSummary {
    /// Name of the number, as in a sample.
    pub name: String,
    /// Unit of the number.
    pub unit: NumberUnit,
    /// Values; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Statistics>,
    /// Reason why the number was missing when it was last missing; `None` if it was never missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// Collects samples into a summary. Its memory does not grow with the number of samples.
#[derive(Debug, Default)]
pub(super) struct SummaryCollector {
    samples: u64,
    seconds: f64,
    last_time: Option<f64>,
    host: Vec<NumberCollector>,
    gpus: Vec<GpuCollector>,
    no_gpu: Option<String>,
}

#[derive(Debug, Default)]
struct GpuCollector {
    index: u32,
    uuid: String,
    name: String,
    numbers: Vec<NumberCollector>,
}

#[derive(Debug)]
struct NumberCollector {
    name: &'static str,
    unit: NumberUnit,
    values: Collector,
    missing: Option<Missing>,
}

impl SummaryCollector {
    pub(super) fn add(&mut self, sample: &Sample) {
        let seconds = self.last_time.map_or(0.0, |last| (sample.time - last).max(0.0));
        self.last_time = Some(sample.time);
        self.samples += 1;
        self.seconds += seconds;
        self.no_gpu.clone_from(&sample.no_gpu);
        collect(&mut self.host, sample.host.numbers(), seconds);
        for gpu in &sample.gpus {
            // A GPU that has not answered yet has no identifier.
            let is_same =
                |known: &GpuCollector| known.index == gpu.index && (known.uuid == gpu.uuid || known.uuid.is_empty());
            let place = self.gpus.iter().position(is_same).unwrap_or_else(|| {
                self.gpus.push(GpuCollector { index: gpu.index, ..GpuCollector::default() });
                self.gpus.len() - 1
            });
            let known = &mut self.gpus[place];
            known.uuid.clone_from(&gpu.uuid);
            known.name.clone_from(&gpu.name);
            collect(&mut known.numbers, gpu.numbers(), seconds);
        }
    }

    pub(super) fn summary(&self) -> MonitorSummary {
        let gpu = |gpu: &GpuCollector| GpuSummary {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            numbers: gpu.numbers.iter().map(NumberCollector::summary).collect(),
        };
        MonitorSummary {
            samples: self.samples,
            seconds: self.seconds,
            host: self.host.iter().map(NumberCollector::summary).collect(),
            gpus: self.gpus.iter().map(gpu).collect(),
            no_gpu: self.no_gpu.clone(),
            ..MonitorSummary::default()
        }
    }
}

fn collect(collectors: &mut Vec<NumberCollector>, numbers: Vec<NumberReading>, seconds: f64) {
    if collectors.is_empty() {
        let new = |&NumberReading { name, unit, .. }: &NumberReading| NumberCollector {
            name,
            unit,
            values: Collector::default(),
            missing: None,
        };
        *collectors = numbers.iter().map(new).collect();
    }
    for (collector, number) in collectors.iter_mut().zip(numbers) {
        match number.value {
            Ok(value) => collector.values.add(value, seconds),
            // The first reading of a rate is always missing.
            Err(Missing::NeedsTwoReadings) => {}
            Err(why) => collector.missing = Some(why),
        }
    }
}

impl NumberCollector {
    fn summary(&self) -> NumberSummary {
        let &Self { name, unit, ref values, missing } = self;
        NumberSummary { name: name.into(), unit, values: values.statistics(), missing }
    }
}

impl MonitorCost {
    /// Creates the cost of readings of `wall_seconds` that used `cpu_seconds` of a processor in `seconds`.
    pub(super) fn new(cpu_seconds: Option<f64>, wall_seconds: f64, longest_seconds: f64, seconds: f64) -> Self {
        let reading = |value: Option<f64>| Reading::from_result(value.ok_or(Missing::NotSupported), Origin::System);
        let cpu_share = cpu_seconds.filter(|_| seconds > 0.0).map(|cpu| cpu / seconds);
        Self { cpu_seconds: reading(cpu_seconds), cpu_share: reading(cpu_share), wall_seconds, longest_seconds }
    }
}

impl fmt::Display for MonitorSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} samples in {:.0} s", self.samples, self.seconds)?;
        if let Some(problem) = &self.problem {
            writeln!(f, "sampling ended early: {problem}")?;
        }
        write_table(f, "host", &self.host)?;
        for gpu in &self.gpus {
            let name = if gpu.name.is_empty() { "no answer" } else { &gpu.name };
            write_table(f, &format!("GPU {} ({name})", gpu.index), &gpu.numbers)?;
        }
        if let Some(why) = &self.no_gpu {
            writeln!(f, "\nno GPU: {why}")?;
        }
        let MonitorCost { cpu_seconds, cpu_share, wall_seconds, .. } = &self.cost;
        write!(f, "\nsampling took {wall_seconds:.2} s")?;
        match (cpu_seconds.value(), cpu_share.value()) {
            (Some(cpu), Some(share)) => {
                writeln!(f, ", {cpu:.2} s of them processor time ({:.2} % of one)", share * 100.0)
            }
            (Some(cpu), None) => writeln!(f, ", {cpu:.2} s of them processor time"),
            (None, _) => writeln!(f),
        }
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, title: &str, numbers: &[NumberSummary]) -> fmt::Result {
    writeln!(f, "\n{title:<34}{:>11}{:>12}{:>12}{:>12}", "lowest", "mean", "95 %", "highest")?;
    for number in numbers {
        let name = number.name.replace('_', " ");
        match (&number.values, number.missing) {
            (Some(values), _) => {
                let cells = [values.min, values.mean, values.p95, values.max].map(|value| number.unit.format(value));
                let [min, mean, p95, max] = cells;
                writeln!(f, "  {name:<30}{min:>13}{mean:>12}{p95:>12}{max:>12}")?;
            }
            (None, Some(why)) => writeln!(f, "  {name:<30}  {why}")?,
            (None, None) => {}
        }
    }
    Ok(())
}
