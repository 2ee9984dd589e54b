//! Sentences and tables about the samples of a run's machine.

use std::collections::BTreeMap;

use plimsoll_core::{Seconds, counted};

use super::html::percent;
use crate::sample::{GpuTrace, Missing, NumberSummary, Numbers, Stretch};

/// Numbers of a GPU in table and notes: name and words.
pub(super) const GPU_ROWS: [(&str, &str); 10] = [
    ("utilization", "a kernel ran"),
    ("sm_active", "SM active"),
    ("tensor_active", "tensor cores active"),
    ("dram_active", "DRAM active"),
    ("memory_used", "memory in use"),
    ("memory_own", "memory of the run's process"),
    ("memory_others", "memory of other processes"),
    ("power", "power"),
    ("temperature", "temperature"),
    ("sm_clock", "clock of the multiprocessors"),
];

/// Makes the tooltip of a throttled stretch.
pub(super) fn stretch(gpu: &GpuTrace, stretch: &Stretch) -> String {
    let reasons: Vec<String> = stretch.reasons.iter().map(ToString::to_string).collect();
    let (at, length) = (Seconds(stretch.from), Seconds(stretch.to - stretch.from));
    format!("GPU {} below its clock from {at} on, for {length}: {}", gpu.index, reasons.join(", "))
}

/// Says how long a GPU ran below its highest clock, and why.
pub(super) fn throttling(gpu: &GpuTrace) -> String {
    let (index, found) = (gpu.index, &gpu.throttling);
    let unknown = why_missing(&found.missing);
    if found.known_samples == 0 {
        return format!("Whether GPU {index} ran below its highest clock is not known: {unknown}.");
    }
    let rest = match found.missing.values().sum::<u64>() {
        0 => String::new(),
        count => format!(" In {} it is not known: {unknown}.", counted(count, "sample")),
    };
    if found.samples == 0 {
        return format!("GPU {index} never ran below its highest clock for a reason.{rest}");
    }
    let reasons = found.by_reason.iter().map(|(reason, seconds)| format!("{reason} {}", Seconds(*seconds)));
    format!(
        "GPU {index} ran below its highest clock for <b>{}</b> ({} of the known time): {}.{rest}",
        Seconds(found.seconds),
        percent(if found.known_seconds > 0.0 { found.seconds / found.known_seconds } else { 1.0 }),
        reasons.collect::<Vec<_>>().join(", "),
    )
}

/// Says which numbers are missing, and why; empty if none is.
pub(super) fn missing(numbers: &Numbers, rows: &[(&str, &str)]) -> String {
    let mut texts = Vec::new();
    for (name, words) in rows {
        let Some(series) = numbers.get(name) else { continue };
        let count: u64 = series.missing().values().sum();
        let why = why_missing(series.missing());
        match (series.is_empty(), count) {
            (_, 0) => {}
            (true, _) => texts.push(format!("{words}: no value ({why})")),
            (false, _) => {
                texts.push(format!("{words}: no value in {count} of {} samples ({why})", series.n_readings()));
            }
        }
    }
    if texts.is_empty() { String::new() } else { format!("Missing: {}.", texts.join("; ")) }
}

/// Numbers of the host in notes: name and words.
pub(super) const HOST_ROWS: [(&str, &str); 4] = [
    ("own_cpus", "processors of the run's process"),
    ("other_cpus", "processors of other processes"),
    ("own_memory", "memory of the run's process"),
    ("memory_used", "memory in use"),
];

/// Makes the rows of the table, with a column for each list of numbers.
pub(super) fn rows(columns: &[Vec<NumberSummary>]) -> Vec<Vec<String>> {
    let row = |(name, words): &(&str, &str)| {
        let cell = |numbers: &Vec<NumberSummary>| match numbers.iter().find(|number| number.name == *name) {
            Some(NumberSummary { values: Some(values), unit, .. }) => {
                let [mean, min, max] = [values.mean, values.min, values.max].map(|value| unit.format(value));
                format!("{mean} <small>{min} to {max}</small>")
            }
            Some(NumberSummary { missing: Some(why), .. }) => format!("<small>{why}</small>"),
            _ => "–".into(),
        };
        std::iter::once((*words).to_string()).chain(columns.iter().map(cell)).collect()
    };
    GPU_ROWS.iter().map(row).collect()
}

fn why_missing(missing: &BTreeMap<Missing, u64>) -> String {
    let mut all: Vec<(&Missing, &u64)> = missing.iter().collect();
    all.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> = all.into_iter().map(|(why, _)| why.to_string()).collect();
    if words.is_empty() { Missing::NotRead.to_string() } else { words.join(", ") }
}
