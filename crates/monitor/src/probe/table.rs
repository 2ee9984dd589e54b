//! Report of a machine as a page for people.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::{Bytes, ProbeError};

use super::{GpuMemory, GpuReport, InstanceReport, Machine, NoGpu, ProcessReport, Unaccounted, Unavailable};

const BAR_CELLS: u64 = 48;
/// Maximum length of a printed command line. Command lines can be very long; their start is enough to tell them apart.
const COMMAND_CHARS_MAX: usize = 64;
/// Table cell of an unknown fact.
const UNKNOWN: &str = "?";

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_host(f)?;
        if let Some(version) = &self.driver {
            write!(f, "driver {version}")?;
            match self.cuda {
                Some(cuda) => writeln!(f, ", CUDA {cuda} at most")?,
                None => writeln!(f)?,
            }
        }
        if let Some(list) = &self.environment.visible_devices {
            writeln!(f, "CUDA_VISIBLE_DEVICES is `{}`", plain(list))?;
        }
        for report in &self.gpus {
            writeln!(f, "\n{report}")?;
        }
        for error in &self.lost {
            writeln!(f, "\n{error}")?;
        }
        self.write_notes(f)
    }
}

impl Machine {
    fn write_host(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        write!(f, "host: {} logical CPUs, {} of memory", host.logical_cpus, host.memory)?;
        if let Some(limit) = host.memory_limit {
            write!(f, ", limited to {limit}")?;
        }
        writeln!(f, ", {} available", host.available)
    }

    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.no_gpu {
            writeln!(f, "no GPU: {why}")?;
            if self.process_env.container && matches!(why, NoGpu::Library { .. }) {
                writeln!(f, "a container has access to the GPUs of the machine if it is started with `--gpus all`")?;
            }
        }
        if !self.visible.order_is_certain {
            let divided = self.gpus.iter().any(|report| report.gpu.mig && report.cuda_index.is_some());
            let advice = match divided {
                true => "name a MIG instance in CUDA_VISIBLE_DEVICES by its UUID",
                false => "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID",
            };
            writeln!(f, "\nCUDA may use another order: {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Display for GpuReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpu = &self.gpu;
        write!(f, "GPU {}: {}", gpu.index, gpu.name)?;
        if let Some(capability) = gpu.compute_capability {
            write!(f, ", capability {capability}")?;
        }
        if let Some(bandwidth) = gpu.bandwidth_per_sec {
            write!(f, ", {bandwidth} a second")?;
        }
        write!(f, "\n  {}, at {}", gpu.uuid, gpu.pci_bus_id)?;
        if let Some(index) = self.cuda_index {
            write!(f, ", CUDA device {index}")?;
        }
        write_memory(f, &self.memory)?;
        match (&self.memory, self.cuda_index) {
            _ if gpu.mig => f.write_str("\n  MIG is on: a process can use a single instance")?,
            (_, None) => f.write_str("\n  not available: CUDA_VISIBLE_DEVICES excludes it")?,
            (Ok(memory), Some(_)) => write!(f, "\n  available now: {}", memory.free)?,
            (Err(_), Some(_)) => {}
        }
        for instance in &self.instances {
            write!(f, "\n{instance}")?;
        }
        match &self.processes {
            Ok(processes) => write_processes(f, processes)?,
            Err(why) => write!(f, "\n  its processes are unknown: {why}")?,
        }
        self.unaccounted.map_or(Ok(()), |rest| write_rest(f, rest))
    }
}

impl fmt::Display for InstanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.uuid)?;
        if let Some(index) = self.cuda_index {
            write!(f, ", CUDA device {index}")?;
        }
        match &self.memory {
            Ok(memory) => write!(f, ": {} in all, {} free", memory.total, memory.free),
            Err(error) => write!(f, ": {}", error.reason),
        }
    }
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &Result<GpuMemory, ProbeError>) -> fmt::Result {
    match memory {
        Ok(memory) => {
            let GpuMemory { total, reserved, used, free } = memory;
            write!(f, "\n  [{}]", bar(memory))?;
            write!(f, "\n  {total} in all = {used} used (#) + {reserved} kept by the driver (=) + {free} free (.)")
        }
        Err(error) => write!(f, "\n  its memory is unknown: {}", error.reason),
    }
}

/// Draws the parts of a GPU's memory as a bar, in which every part above zero has at least one cell.
fn bar(memory: &GpuMemory) -> String {
    let cells = |part: Bytes| {
        let exact = u128::from(part.0) * u128::from(BAR_CELLS);
        exact.div_ceil(u128::from(memory.total.0.max(1))).min(BAR_CELLS.into()) as usize
    };
    let taken = "#".repeat(cells(memory.used)) + &"=".repeat(cells(memory.reserved));
    let taken = &taken[..taken.len().min(BAR_CELLS as usize)];
    format!("{taken:.<width$}", width = BAR_CELLS as usize)
}

fn write_processes(f: &mut fmt::Formatter<'_>, processes: &[ProcessReport]) -> fmt::Result {
    if processes.is_empty() {
        return f.write_str("\n  no visible process uses it");
    }
    let rows: Vec<[String; 5]> = processes.iter().map(row).collect();
    let titles = ["pid", "kind", "memory", "user", "command"].map(String::from);
    let widths: [usize; 4] = std::array::from_fn(|column| {
        std::iter::once(&titles).chain(&rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for [pid, kind, memory, user, command] in std::iter::once(&titles).chain(&rows) {
        let [w_pid, w_kind, w_memory, w_user] = widths;
        write!(f, "\n  {pid:>w_pid$}  {kind:<w_kind$}  {memory:>w_memory$}  {user:<w_user$}  {command}")?;
    }
    let owners = processes.iter().flat_map(|process| [process.user.as_ref().err(), process.command.as_ref().err()]);
    write_reasons(f, "user and command", owners.flatten())?;
    write_reasons(f, "memory", processes.iter().filter_map(|process| process.memory.as_ref().err()))
}

fn row(process: &ProcessReport) -> [String; 5] {
    let text = |fact: &Result<String, Unavailable>| fact.as_deref().map_or(UNKNOWN.into(), plain);
    [
        process.pid.to_string(),
        process.kind.to_string(),
        process.memory.map_or(UNKNOWN.into(), |bytes| bytes.to_string()),
        text(&process.user),
        text(&process.command),
    ]
}

/// Reduces `text` to one short line without control characters: a process chooses its command line, and a terminal must
/// not execute it.
fn plain(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMMAND_CHARS_MAX).collect();
    if text.chars().nth(COMMAND_CHARS_MAX).is_some() {
        line.pop();
        line.push('…');
    }
    line
}

fn write_reasons<'a>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    reasons: impl Iterator<Item = &'a Unavailable>,
) -> fmt::Result {
    for why in reasons.collect::<BTreeSet<_>>() {
        write!(f, "\n  {UNKNOWN} ({what}): {why}")?;
    }
    Ok(())
}

fn write_rest(f: &mut fmt::Formatter<'_>, rest: Unaccounted) -> fmt::Result {
    match rest {
        Unaccounted { bytes: Bytes(0), .. } => Ok(()),
        Unaccounted { bytes, exact: true } => write!(f, "\n  {bytes} more is not held by any process in this list"),
        Unaccounted { bytes, exact: false } => {
            write!(f, "\n  {bytes} is held by processes of unknown size or outside of this list")
        }
    }
}
