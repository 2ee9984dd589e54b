//! Lines about the machine: GPUs, host, processes; and the last events.

use plimsoll_core::Bytes;
use ratatui::text::Line;

use super::block::Block;
use super::steps::part_of;
use super::style::{Look, percent};
use crate::live::RunView;
use crate::sample::{GpuSample, Sample, ThrottleReason};

/// Returns the parts of the screen about the machine, in their order.
pub(super) fn blocks(run: &RunView, look: Look, width: usize) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    match run.last_sample() {
        None => {
            blocks.push(Block::from_lines(1, vec![look.named("GPU", format!("{} (no sample yet)", look.missing()))]));
        }
        Some(sample) => {
            blocks.push(Block::from_lines(1, gpus(sample, look, width)));
            blocks.push(Block::from_lines(1, host(sample, look, width)));
            blocks.push(Block::from_lines(0, processes(sample, look, width)));
        }
    }
    blocks.push(Block::from_lines(1, events(run, look, width)));
    blocks
}

fn gpus(sample: &Sample, look: Look, width: usize) -> Vec<Line<'static>> {
    if sample.gpus.is_empty() {
        let why = sample.no_gpu.as_deref().unwrap_or("no GPU was found");
        return look.wrapped("GPU", &format!("{} ({why})", look.missing()), width);
    }
    sample.gpus.iter().flat_map(|gpu| gpu_lines(gpu, look, width)).collect()
}

fn gpu_lines(gpu: &GpuSample, look: Look, width: usize) -> Vec<Line<'static>> {
    let uuid: String = gpu.uuid.trim_start_matches("GPU-").chars().take(8).collect();
    let cuda = gpu.cuda_index.map_or_else(|| "not in CUDA".into(), |index| format!("CUDA {index}"));
    let busy = [
        ("had a kernel", &gpu.utilization),
        ("SM active", &gpu.sm_active),
        ("tensor", &gpu.tensor_active),
        ("DRAM", &gpu.dram_active),
    ];
    let busy = busy.map(|(name, share)| format!("{name} {}", look.reading(share, percent)));
    let memory = look.reading(&gpu.memory_used, |used| part_of(used, gpu.memory_total.value()));
    let limited = |value: String, limit: Option<&f64>, unit: &str| match limit {
        Some(limit) => format!("{value} of {limit:.0} {unit}"),
        None => format!("{value} {unit}"),
    };
    let power = look.reading(&gpu.power, |watts| limited(format!("{watts:.0}"), gpu.power_limit.value(), "W"));
    let clock = look.reading(&gpu.sm_clock, |mhz| limited(format!("{mhz:.0}"), gpu.sm_clock_max.value(), "MHz"));
    let heat = look.reading(&gpu.temperature, |degrees| format!("{degrees:.0} °C"));
    let throttle = look.reading(&gpu.throttle, |reasons| throttled(reasons));
    let lines = [
        (format!("GPU {}", gpu.index), format!("{} ({cuda}, {uuid}), memory {memory}", gpu.name)),
        (String::new(), busy.join(", ")),
        (String::new(), format!("power {power}, {heat}, clock {clock}, throttled {throttle}")),
    ];
    lines.iter().flat_map(|(name, text)| look.wrapped(name, text, width)).collect()
}

fn throttled(reasons: &[ThrottleReason]) -> String {
    let name = |reason: &ThrottleReason| match reason {
        ThrottleReason::PowerLimit => "by the power limit",
        ThrottleReason::Heat => "by heat",
        ThrottleReason::Hardware => "by the hardware",
        ThrottleReason::PowerBrake => "by the power supply",
        ThrottleReason::Synchronized => "by a slower GPU of its group",
        _ => "for an unknown reason",
    };
    if reasons.is_empty() { "no".into() } else { reasons.iter().map(name).collect::<Vec<_>>().join(" and ") }
}

fn host(sample: &Sample, look: Look, width: usize) -> Vec<Line<'static>> {
    let host = &sample.host;
    let cpu = look.reading(&host.cpu, percent);
    let of = host.cpus.value().map_or_else(String::new, |cpus| format!(" of {cpus}"));
    let own = look.reading(&host.own_cpus, |cpus| format!("{cpus:.1}"));
    let other = look.reading(&host.other_cpus, |cpus| format!("{cpus:.1}"));
    let memory = match (host.memory_total.value(), host.memory_available.value()) {
        (Some(total), Some(available)) => part_of(&total.saturating_sub(*available), Some(total)),
        (_, None) => look.reading(&host.memory_available, Bytes::to_string),
        (None, _) => look.reading(&host.memory_total, Bytes::to_string),
    };
    look.wrapped("host", &format!("CPU {cpu}{of}, this run {own}, others {other}, memory {memory}"), width)
}

fn processes(sample: &Sample, look: Look, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for gpu in &sample.gpus {
        let Some(processes) = gpu.processes.value() else {
            let why = look.reading(&gpu.processes, |_| String::new());
            lines.extend(look.wrapped("process", &format!("GPU {}: {why}", gpu.index), width));
            continue;
        };
        for process in processes {
            let name = process.name.as_deref().unwrap_or("not visible from here");
            let own = if process.is_own { ", this run" } else { "" };
            let memory = look.reading(&process.memory, Bytes::to_string);
            let text = format!("GPU {}: {} ({name}{own}) holds {memory}", gpu.index, process.pid);
            lines.extend(look.wrapped("process", &text, width));
        }
    }
    lines
}

fn events(run: &RunView, look: Look, width: usize) -> Vec<Line<'static>> {
    let lines: Vec<Line<'static>> = run
        .events()
        .flat_map(|event| {
            let lines = look.wrapped("event", &event.to_string(), width).into_iter();
            lines.map(|mut line| {
                let style = look.level(event.level);
                line.spans.iter_mut().skip(1).for_each(|text| text.style = style);
                line
            })
        })
        .collect();
    if lines.is_empty() { vec![look.named("event", "none yet")] } else { lines }
}
