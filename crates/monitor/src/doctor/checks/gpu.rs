//! Checks of GPU memory, power limits and clocks.

use plimsoll_core::Bytes;
use serde_json::json;

use super::findings::{Findings, NO_GPU};
use crate::doctor::check::Outcome;
use crate::doctor::facts::{GpuPower, MachineFacts};
use crate::{GpuMemory, GpuReport};

/// Free share below which a GPU counts as shared. An idle driver and a desktop hold less than a tenth.
const FREE_WARN: f64 = 0.9;
/// Free share below which training does not fit.
const FREE_FAIL: f64 = 0.1;
/// Share of the default below which a limit counts as lowered; drivers round to whole watts and clock steps.
const LIMIT_SHARE: f64 = 0.98;
/// Number of processes that are named.
const NAMED_MAX: usize = 3;
/// Part of the driver's answer for a GPU that shares the memory of the machine.
const SHARES_MEMORY: &str = "shares the machine's memory";

/// Checks the free memory of the GPUs that CUDA offers, and names the processes that hold the rest.
pub(super) fn memory(facts: &MachineFacts) -> Outcome {
    let visible = |report: &&GpuReport| report.cuda_index.is_some() || has_visible_instance(report);
    let reports: Vec<&GpuReport> = facts.machine.gpus.iter().filter(visible).collect();
    if reports.is_empty() {
        let has_gpu = facts.machine.no_gpu.is_none();
        return Outcome::skip(if has_gpu { "CUDA offers no GPU to this process" } else { NO_GPU });
    }
    let mut findings = Findings::default();
    let mut details = Vec::new();
    let mut free = Vec::new();
    for report in reports {
        for memory in memories(report) {
            match memory {
                Ok(memory) => {
                    details.push(json!({ "gpu": report.gpu.index, "free": memory.free.0, "total": memory.total.0 }));
                    free.push(format!("{} of {}", memory.free, memory.total));
                    judge_memory(&mut findings, report, memory);
                }
                Err(error) if error.reason.contains(SHARES_MEMORY) => free.push("the memory of the host".into()),
                Err(error) => findings.warn(error.to_string(), "restart the machine if the GPU does not recover"),
            }
        }
    }
    findings.detail("gpus", details);
    findings.or(Outcome::pass(format!("{} free", free.join(", "))))
}

fn has_visible_instance(report: &GpuReport) -> bool {
    report.instances.iter().any(|instance| instance.cuda_index.is_some())
}

/// Returns the memory of the GPU, or of its visible MIG instances.
fn memories(report: &GpuReport) -> Vec<&Result<GpuMemory, plimsoll_core::ProbeError>> {
    if !has_visible_instance(report) {
        return vec![&report.memory];
    }
    report.instances.iter().filter(|instance| instance.cuda_index.is_some()).map(|instance| &instance.memory).collect()
}

fn judge_memory(findings: &mut Findings, report: &GpuReport, memory: &GpuMemory) {
    let share = memory.free.0 as f64 / memory.total.0.max(1) as f64;
    let holders = holders(report);
    let text = format!("GPU {}: {} of {} free; {holders}", report.gpu.index, memory.free, memory.total);
    let fix = "end the other processes, or choose another GPU with CUDA_VISIBLE_DEVICES";
    if share < FREE_FAIL {
        findings.fail(text, fix);
    } else if share < FREE_WARN {
        findings.warn(text, fix);
    }
}

/// Names the processes that hold memory of the GPU, the largest first.
fn holders(report: &GpuReport) -> String {
    let processes = report.processes.as_deref().unwrap_or_default();
    let name = |command: &String| program(command);
    let named = processes.iter().take(NAMED_MAX).map(|process| {
        let who = process.command.as_ref().map_or_else(|_| format!("process {}", process.pid), name);
        let held = process.memory.map_or_else(|_| "an unknown amount".into(), |bytes| bytes.to_string());
        format!("{who} holds {held}")
    });
    let mut parts: Vec<String> = named.collect();
    if processes.len() > NAMED_MAX {
        parts.push(format!("{} more processes", processes.len() - NAMED_MAX));
    }
    if let Some(rest) = report.unaccounted.filter(|rest| rest.bytes > Bytes(0)) {
        parts.push(format!("{} belongs to processes that are not listed", rest.bytes));
    }
    if parts.is_empty() { "no process is listed".into() } else { parts.join(", ") }
}

/// Returns the name of the program in a command line. The arguments are left out: they may hold secrets.
fn program(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or(command);
    first.rsplit(['/', '\\']).next().unwrap_or(first).to_owned()
}

/// Checks that no one has lowered the power limit or the clock of a GPU.
pub(super) fn clocks(facts: &MachineFacts) -> Outcome {
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let mut findings = Findings::default();
    let mut known = Vec::new();
    for power in &facts.power {
        judge_power(&mut findings, power);
        known.extend(power.limit.map(|limit| format!("{} W", limit / 1000)));
    }
    let good = match known.is_empty() {
        true => Outcome::skip("the driver reports no power limits"),
        false => Outcome::pass(format!("power limits are at their defaults: {}", known.join(", "))),
    };
    findings.or(good)
}

fn judge_power(findings: &mut Findings, power: &GpuPower) {
    let index = power.index;
    if let Some((limit, default)) = lowered(power.limit, power.default_limit) {
        let (watts, default) = (limit / 1000, default / 1000);
        let fix = format!("`nvidia-smi -i {index} -pl {default}` sets the default again (as administrator)");
        findings.warn(format!("GPU {index}: the power limit is {watts} W, and {default} W by default"), fix);
    }
    if let Some((clock, default)) = lowered(power.clock, power.default_clock) {
        let fix = format!("`nvidia-smi -i {index} -rac` sets the default again (as administrator)");
        findings.warn(format!("GPU {index}: applications run at {clock} MHz, and at {default} MHz by default"), fix);
    }
}

/// Returns value and default if the value is clearly below the default.
fn lowered(value: Option<u32>, default: Option<u32>) -> Option<(u32, u32)> {
    let pair = value.zip(default)?;
    (f64::from(pair.0) < LIMIT_SHARE * f64::from(pair.1)).then_some(pair)
}
