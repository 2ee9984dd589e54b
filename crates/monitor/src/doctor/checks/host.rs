//! Checks of memory, processors and limits of the host.

use plimsoll_core::Bytes;

use super::findings::Findings;
use crate::doctor::check::Outcome;
use crate::doctor::facts::MachineFacts;

/// Share of the usable memory that should be available.
const AVAILABLE_SHARE: f64 = 0.1;
/// Least available memory: a training process of a small model holds about 1 GiB.
const AVAILABLE_WARN: Bytes = Bytes::gib(1);
/// Available memory below which no training process starts.
const AVAILABLE_FAIL: Bytes = Bytes::mib(256);
/// Share of the installed memory that may be in swap.
const SWAPPED_SHARE: f64 = 0.1;
/// Processors that one GPU needs so that decoding and feature extraction keep up with it.
const CPUS_PER_GPU: usize = 4;
/// Processors that training on the CPU should have at least.
const CPUS_MIN: usize = 2;
/// Limits of open files: shells give 1024, and a training process needs some hundreds for shards and sockets.
const OPEN_FILES_WARN: u64 = 1024;
const OPEN_FILES_FAIL: u64 = 128;

/// Checks the memory that this process can still allocate.
pub(super) fn memory(facts: &MachineFacts) -> Outcome {
    let host = &facts.machine.host;
    let (usable, available) = (host.usable(), host.available);
    let mut findings = Findings::default();
    findings.detail("installed", host.memory.0);
    findings.detail("limit", host.memory_limit.map(|limit| limit.0));
    findings.detail("available", available.0);
    findings.detail("swap_used", facts.swap.used.0);
    let text = format!("{available} of {usable} available");
    let limit = host.memory_limit.map_or(String::new(), |limit| format!(", limited to {limit} by the control group"));
    let fix = "end other processes, or raise the memory limit of the job or container";
    if available < AVAILABLE_FAIL {
        findings.fail(format!("{text}{limit}"), fix);
    } else if available < AVAILABLE_WARN || (available.0 as f64) < AVAILABLE_SHARE * usable.0 as f64 {
        findings.warn(format!("{text}{limit}"), fix);
    }
    if facts.swap.used.0 as f64 > SWAPPED_SHARE * host.memory.0 as f64 {
        let text = format!("{} of memory is in swap, which is slow to come back", facts.swap.used);
        findings.warn(text, "end processes that hold much memory");
    }
    findings.or(Outcome::pass(format!("{text}{limit}")))
}

/// Checks the processors that this process may use, and the variables that set the number of threads.
pub(super) fn cpus(facts: &MachineFacts) -> Outcome {
    let (allowed, installed) = (facts.machine.host.logical_cpus, facts.cpus.installed);
    let affinity = facts.cpus.affinity.unwrap_or(installed);
    let mut findings = Findings::default();
    findings.detail("installed", installed);
    findings.detail("affinity", facts.cpus.affinity);
    findings.detail("usable", allowed);
    let cause = match (allowed < affinity, affinity < installed) {
        (true, _) => ", limited by a quota",
        (false, true) => ", limited by the affinity of the process",
        (false, false) => "",
    };
    let text = format!("{allowed} of {installed} CPUs usable{cause}");
    let needed = (CPUS_PER_GPU * facts.n_visible()).max(CPUS_MIN);
    if allowed < needed && allowed < installed {
        findings
            .warn(format!("{text}; {needed} are needed"), "ask the scheduler or the container engine for more CPUs");
    }
    for name in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"] {
        if let Some(value) = facts.variable(name) {
            judge_threads(&mut findings, name, value, allowed);
        }
    }
    findings.or(Outcome::pass(text))
}

/// Judges a variable that sets the number of threads. 0 stands for the number of processors.
fn judge_threads(findings: &mut Findings, name: &'static str, value: &str, allowed: usize) {
    findings.detail(name, value);
    // OpenMP allows one number per level of nesting.
    let first = value.split(',').next().unwrap_or(value).trim();
    let fix = format!("remove {name}, or set it to {allowed}");
    match first.parse::<usize>() {
        Err(_) => findings.warn(format!("{name} is `{value}`, which is not a number of threads"), fix),
        Ok(count) if count > allowed => {
            findings.warn(format!("{name} is {count}, and {allowed} CPUs are usable"), fix);
        }
        // Programs that launch one process per GPU set OMP_NUM_THREADS to 1 on purpose.
        Ok(count) if name == "RAYON_NUM_THREADS" && count != 0 && 2 * count < allowed => {
            findings.warn(format!("{name} is {count}, which leaves {} CPUs unused", allowed - count), fix);
        }
        Ok(_) => {}
    }
}

/// Checks the limit of open files.
pub(super) fn open_files(facts: &MachineFacts) -> Outcome {
    let Some(limit) = facts.open_files else {
        return Outcome::skip("the system does not report the limit");
    };
    let mut findings = Findings::default();
    findings.detail("soft", limit.soft);
    findings.detail("hard", limit.hard);
    let Some(soft) = limit.soft else {
        return findings.or(Outcome::pass("no limit"));
    };
    let fix = match limit.hard {
        Some(hard) if hard <= soft => "ask the administrator for a higher limit".to_owned(),
        Some(hard) => format!("run `ulimit -n {}` before the program", hard.min(65_536)),
        None => "run `ulimit -n 65536` before the program".to_owned(),
    };
    let text = format!("this process can open {soft} files");
    match soft {
        0..OPEN_FILES_FAIL => findings.fail(text.clone(), fix),
        OPEN_FILES_FAIL..OPEN_FILES_WARN => findings.warn(text.clone(), fix),
        _ => {}
    }
    findings.or(Outcome::pass(text))
}
