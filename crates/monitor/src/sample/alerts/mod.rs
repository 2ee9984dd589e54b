//! Alerts: conditions of GPUs and host that a person should know of. Each is raised once and cleared once.

mod gate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll_core::Bytes;
use serde::{Deserialize, Serialize};

use self::gate::{Gate, Level};
use super::reading::Missing;
use super::{GpuSample, HostSample, Sample, SampledProcess, ThrottleReason};

/// Limits of the alerts. An alert is raised when its condition has held for some time, and cleared when the value has
/// been better by `margin` for `clear_seconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertLimits {
    /// Utilization below which a GPU is idle, from 0 to 1.
    pub idle_below: f64,
    /// Time that a GPU must be idle, in seconds.
    pub idle_seconds: f64,
    /// Time that a GPU must be throttled, in seconds.
    pub throttle_seconds: f64,
    /// Whether the power limit counts as throttling. At full load most GPUs reach it.
    pub throttle_by_power: bool,
    /// Used memory of a GPU that was planned at most; `None` for no alert.
    pub memory_line: Option<Bytes>,
    /// Memory that another process must hold to be worth an alert. An unknown amount always is.
    pub other_process_memory: Bytes,
    /// Used part of the host's memory that is nearly full, from 0 to 1.
    pub host_memory_share: f64,
    /// Time that the host's memory must be nearly full, in seconds.
    pub host_memory_seconds: f64,
    /// How much better a value must be before its alert is cleared: a part of the whole, from 0 to 1.
    pub margin: f64,
    /// Time that a value must be better before its alert is cleared, in seconds.
    pub clear_seconds: f64,
}

impl Default for AlertLimits {
    fn default() -> Self {
        Self {
            idle_below: 0.05,
            idle_seconds: 60.0,
            throttle_seconds: 10.0,
            throttle_by_power: false,
            memory_line: None,
            other_process_memory: Bytes::mib(64),
            host_memory_share: 0.95,
            host_memory_seconds: 5.0,
            margin: 0.05,
            clear_seconds: 30.0,
        }
    }
}

/// Kind of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AlertKind {
    /// A GPU does not work.
    IdleGpu,
    /// A GPU runs below its highest clock because of heat or power.
    Throttled,
    /// A GPU holds more memory than planned.
    MemoryOverPlan,
    /// Another process holds memory of a GPU.
    OtherProcess,
    /// A GPU no longer answers.
    LostGpu,
    /// The memory of the host is nearly full.
    HostMemory,
}

/// Alert that was raised or cleared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Time of the sample in seconds since 1970.
    pub time: f64,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Whether the alert is raised; otherwise it is cleared.
    pub raised: bool,
    /// Index of the GPU in the order of NVML; `None` for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Number of the other process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Sentence for people.
    pub text: String,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Watches samples, and returns alerts as they are raised and cleared. A missing value neither raises nor clears.
///
/// ```
/// use plimsoll_monitor::sample::{AlertLimits, Alerts, GpuSample, Origin, Reading, Sample};
///
/// let mut alerts = Alerts::new(AlertLimits { idle_seconds: 20.0, ..AlertLimits::default() }).for_all_gpus();
/// let mut raised = Vec::new();
/// for second in 0..60 {
///     let gpu = GpuSample { utilization: Reading::new(0.0, Origin::Nvml), ..GpuSample::default() };
///     raised.extend(alerts.observe(&Sample { time: f64::from(second), gpus: vec![gpu], ..Sample::default() }));
/// }
/// assert_eq!(raised.len(), 1);
/// assert_eq!(raised[0].text, "GPU 0 is idle: 0.0 % for 20 s");
/// ```
#[derive(Clone, Debug)]
pub struct Alerts {
    limits: AlertLimits,
    all_gpus: bool,
    gates: BTreeMap<Subject, (Gate, Option<Alert>)>,
}

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: AlertKind,
    gpu: Option<u32>,
    pid: Option<u32>,
}

impl Subject {
    fn gpu(kind: AlertKind, index: u32) -> Self {
        Self { kind, gpu: Some(index), pid: None }
    }
}

impl Alerts {
    /// Creates alerts for the host and for the GPUs that CUDA offers to this process.
    pub fn new(limits: AlertLimits) -> Self {
        Self { limits, all_gpus: false, gates: BTreeMap::new() }
    }

    /// Watches all GPUs, also those that CUDA does not offer to this process.
    #[must_use]
    pub fn for_all_gpus(mut self) -> Self {
        self.all_gpus = true;
        self
    }

    /// Returns the alerts that are raised at the moment.
    pub fn active(&self) -> impl Iterator<Item = &Alert> {
        self.gates.values().filter_map(|(_, alert)| alert.as_ref())
    }

    /// Takes the next sample, and returns the alerts that it raises and clears.
    pub fn observe(&mut self, sample: &Sample) -> Vec<Alert> {
        let mut changes = Vec::new();
        self.observe_host(sample, &mut changes);
        let all = self.all_gpus;
        for gpu in sample.gpus.iter().filter(|gpu| all || gpu.cuda_index.is_some()) {
            self.observe_gpu(sample.time, gpu, &mut changes);
            self.observe_processes(sample.time, gpu, &mut changes);
        }
        changes
    }

    fn observe_host(&mut self, sample: &Sample, changes: &mut Vec<Alert>) {
        let AlertLimits { host_memory_share: limit, margin, host_memory_seconds: seconds, .. } = self.limits;
        let used = used_share(&sample.host);
        let text = |raised| match (raised, used) {
            (true, Some(used)) => format!("the memory of the host is {:.0} % full", used * 100.0),
            _ => "the memory of the host is no longer nearly full".to_owned(),
        };
        let subject = Subject { kind: AlertKind::HostMemory, gpu: None, pid: None };
        let level = match used {
            Some(used) if used >= limit => Level::Over,
            Some(used) if used < limit - margin => Level::Under,
            Some(_) => Level::Between,
            None => Level::Unknown,
        };
        changes.extend(self.step(subject, sample.time, level, seconds, text));
    }

    fn observe_gpu(&mut self, time: f64, gpu: &GpuSample, changes: &mut Vec<Alert>) {
        changes.extend(self.observe_idleness(time, gpu));
        changes.extend(self.observe_throttling(time, gpu));
        changes.extend(self.observe_memory(time, gpu));
        let index = gpu.index;
        let level = match gpu.memory_total.why_missing() {
            Some(Missing::Lost) => Level::Over,
            None => Level::Under,
            Some(_) => Level::Unknown,
        };
        let text = |raised| match raised {
            true => format!("GPU {index} no longer answers"),
            false => format!("GPU {index} answers again"),
        };
        changes.extend(self.step(Subject::gpu(AlertKind::LostGpu, index), time, level, 0.0, text));
    }

    fn observe_idleness(&mut self, time: f64, gpu: &GpuSample) -> Option<Alert> {
        let AlertLimits { idle_below, idle_seconds, margin, .. } = self.limits;
        let (index, utilization) = (gpu.index, gpu.utilization.value().copied());
        let level = match utilization {
            Some(share) if share < idle_below => Level::Over,
            Some(share) if share >= idle_below + margin => Level::Under,
            Some(_) => Level::Between,
            None => Level::Unknown,
        };
        let text = |raised| match (raised, utilization) {
            (true, Some(share)) => format!("GPU {index} is idle: {:.1} % for {idle_seconds:.0} s", share * 100.0),
            _ => format!("GPU {index} works again"),
        };
        self.step(Subject::gpu(AlertKind::IdleGpu, index), time, level, idle_seconds, text)
    }

    fn observe_throttling(&mut self, time: f64, gpu: &GpuSample) -> Option<Alert> {
        let AlertLimits { throttle_seconds, throttle_by_power, .. } = self.limits;
        let index = gpu.index;
        let counts = |reason: &&ThrottleReason| throttle_by_power || **reason != ThrottleReason::PowerLimit;
        let reasons = gpu.throttle.value().map(|reasons| reasons.iter().filter(counts).collect::<Vec<_>>());
        let level = match &reasons {
            Some(reasons) if reasons.is_empty() => Level::Under,
            Some(_) => Level::Over,
            None => Level::Unknown,
        };
        let text = |raised| match raised {
            true => {
                let names: Vec<_> = reasons.iter().flatten().map(ToString::to_string).collect();
                format!("GPU {index} is throttled: {}", names.join(", "))
            }
            false => format!("GPU {index} is no longer throttled"),
        };
        self.step(Subject::gpu(AlertKind::Throttled, index), time, level, throttle_seconds, text)
    }

    fn observe_memory(&mut self, time: f64, gpu: &GpuSample) -> Option<Alert> {
        let (line, index) = (self.limits.memory_line?, gpu.index);
        let used = gpu.memory_used.value().copied();
        let end = line.0 as f64 * (1.0 - self.limits.margin);
        let level = match used {
            Some(used) if used > line => Level::Over,
            Some(used) if (used.0 as f64) < end => Level::Under,
            Some(_) => Level::Between,
            None => Level::Unknown,
        };
        let text = |raised| match (raised, used) {
            (true, Some(used)) => format!("GPU {index} holds {used}, and {line} were planned"),
            _ => format!("GPU {index} holds no more memory than planned"),
        };
        self.step(Subject::gpu(AlertKind::MemoryOverPlan, index), time, level, 0.0, text)
    }

    fn observe_processes(&mut self, time: f64, gpu: &GpuSample, changes: &mut Vec<Alert>) {
        let Some(processes) = gpu.processes.value() else { return };
        let (index, limit) = (gpu.index, self.limits.other_process_memory);
        let others: BTreeMap<u32, &SampledProcess> =
            processes.iter().filter(|process| process.is_other).map(|process| (process.pid, process)).collect();
        let subject = |pid| Subject { kind: AlertKind::OtherProcess, gpu: Some(index), pid: Some(pid) };
        let mut pids: BTreeSet<u32> = others.keys().copied().collect();
        pids.extend(self.gates.range(subject(0)..=subject(u32::MAX)).filter_map(|(subject, _)| subject.pid));
        for pid in pids {
            let process = others.get(&pid);
            let level = match process.map(|process| process.memory.value()) {
                Some(Some(memory)) if *memory < limit => Level::Between,
                Some(_) => Level::Over,
                None => Level::Under,
            };
            let text = |raised| match (raised, process) {
                (true, Some(process)) => {
                    let name = process.name.as_deref().unwrap_or("another process");
                    let memory = process.memory.value().map_or("memory".into(), Bytes::to_string);
                    format!("{name} ({pid}) holds {memory} of GPU {index}")
                }
                _ => format!("process {pid} has left GPU {index}"),
            };
            changes.extend(self.step(subject(pid), time, level, 0.0, text));
            // A process that has left needs no gate until it comes again.
            if process.is_none() && self.gates.get(&subject(pid)).is_some_and(|(gate, _)| !gate.is_on) {
                self.gates.remove(&subject(pid));
            }
        }
    }

    fn step(
        &mut self,
        subject: Subject,
        time: f64,
        level: Level,
        raise_seconds: f64,
        text: impl FnOnce(bool) -> String,
    ) -> Option<Alert> {
        let (gate, active) = self.gates.entry(subject).or_default();
        let raised = gate.step(level, time, raise_seconds, self.limits.clear_seconds)?;
        let Subject { kind, gpu, pid } = subject;
        let alert = Alert { time, kind, raised, gpu, pid, text: text(raised) };
        *active = raised.then(|| alert.clone());
        Some(alert)
    }
}

fn used_share(host: &HostSample) -> Option<f64> {
    let (total, available) = (host.memory_total.value()?.0, host.memory_available.value()?.0);
    (total > 0).then(|| 1.0 - available.min(total) as f64 / total as f64)
}
