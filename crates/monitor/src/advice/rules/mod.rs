//! All rules, in the order in which they are listed.

mod environment;
mod failed;
mod interval;
mod loading;
mod memory;
mod optimizer;
mod padding;
mod queue;

use super::measured::Measured;
use super::outcome::Outcome;

/// Rule that reads the facts about a run.
pub(super) struct Rule {
    /// Stable name, also in JSON.
    pub(super) id: &'static str,
    /// What a finding of the rule says.
    pub(super) title: &'static str,
    pub(super) check: fn(&Measured<'_>) -> Outcome,
}

/// Rule about the end of the run. It judges runs of any length.
pub(super) const FAILED: Rule = Rule { id: "run-end", title: "The run failed", check: failed::failed };

/// Rules about the time of the steps.
pub(super) const RULES: &[Rule] = &[
    Rule { id: "loader-bound", title: "Training waits for its batches", check: loading::loader_bound },
    Rule { id: "decode-bound", title: "Reading and decoding audio limits the run", check: loading::decode_bound },
    Rule { id: "transfer-bound", title: "Copies to the device take time", check: queue::transfer_bound },
    Rule { id: "launch-bound", title: "The device waits for small pieces of work", check: queue::launch_bound },
    Rule { id: "sync-bound", title: "Steps wait for values of the device", check: queue::sync_bound },
    Rule { id: "checkpoint-stalls", title: "Checkpoints take time", check: interval::checkpoint_stalls },
    Rule { id: "validation-heavy", title: "Validation takes much of the time", check: interval::validation_heavy },
    Rule { id: "padding-waste", title: "The device computes padding", check: padding::padding_waste },
    Rule { id: "memory-unused", title: "Free memory could make steps faster", check: memory::memory_unused },
    Rule { id: "throttled", title: "The device runs below its clock", check: environment::throttled },
    Rule { id: "other-processes", title: "Other processes take time", check: environment::other_processes },
    Rule { id: "compiling", title: "New shapes keep compiling kernels", check: queue::compiling },
    Rule { id: "retries", title: "Steps run out of memory and are repeated", check: memory::retries },
    Rule { id: "optimizer-bound", title: "The optimizer takes much of the time", check: optimizer::optimizer_bound },
    Rule { id: "recording", title: "Recording and showing the run takes time", check: environment::recording },
    Rule { id: "unexplained", title: "A part of the time has no known owner", check: environment::unexplained },
];
