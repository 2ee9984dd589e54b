//! Rules about device memory: unused memory, and steps that run out of it.

use plimsoll_core::{Bytes, Event, TimeOwner, counted};

use crate::advice::change::Change;
use crate::advice::facts::{Alternative, PlanFacts};
use crate::advice::measured::{Measured, took};
use crate::advice::outcome::{Outcome, Problem};

/// Keys whose other values use more memory and compute the same.
const KEYS: &[&str] = &[
    "training.micro_batch",
    "training.remat",
    "training.remat_budget",
    "training.max_memory",
    "training.max_memory_fraction",
    "model.attention",
];
/// Share of the memory below which a plan leaves memory unused.
const UNUSED_BELOW: f64 = 0.6;
/// Part of a predicted gain that is promised. The planner compares plans well, and predicts times less well.
const DISCOUNT: f64 = 0.6;
/// Share of the computing that a step saves if no block is rematerialized any more. The forward pass is about a third of
/// forward and backward together, and it is computed twice for every rematerialized block.
const REMAT_SHARE: f64 = 0.25;
/// Smallest predicted saving that is worth a finding.
const SAVED_MIN: f64 = 0.03;
/// Share of the time from which repeated steps are a finding.
const RETRY_NOTED: f64 = 0.02;
/// Part of the time of retries that is promised: a lower limit computes in smaller parts.
const RETRY_DISCOUNT: f64 = 0.5;
/// Factor on the memory limit of a run that runs out of memory.
const LOWER_LIMIT: f64 = 0.9;

/// The plan leaves memory unused, and pays for it with time.
pub(super) fn memory_unused(run: &Measured<'_>) -> Outcome {
    let (Some(plan), Some(is_unused)) = (run.plan(), run.uses_less_than(UNUSED_BELOW)) else {
        return Outcome::abstained("the memory plan is not known");
    };
    let recomputes = plan.buckets.iter().any(|bucket| bucket.remat != "none");
    let is_split = plan.buckets.iter().any(|bucket| bucket.accumulation > 1);
    if !is_unused || !(recomputes || is_split) {
        return Outcome::Healthy;
    }
    let saved = |other: &Alternative| other.seconds_ratio.map(|ratio| 1.0 - ratio).filter(|saved| *saved >= SAVED_MIN);
    let may_change = |key: &str| key != "training.micro_batch" || run.fixed("model.conv_norm") != Some("batch");
    let keys: Vec<&str> = KEYS.iter().copied().filter(|key| may_change(key)).collect();
    let (change, saved) = match run.best_alternative(&keys, saved) {
        Some((change, saved)) => (change, Some(saved)),
        None => match written(run, plan, recomputes, is_split && may_change("training.micro_batch")) {
            Some(known) => known,
            // The planner chose this plan, and knows no faster one.
            None => return Outcome::Healthy,
        },
    };
    let saved = saved.map(|saved| saved * run.busy_share());
    let mut problem = Problem::new(saved.unwrap_or(0.0), memory_text(plan));
    if recomputes {
        problem = problem.because("blocks are rematerialized, which costs time to save memory");
    }
    if is_split {
        let mean = run.mean(|step| step.micro_batches as f64);
        problem = problem.because(format!("a step is computed in {mean:.1} micro-batches on average"));
    }
    problem.change(Some(change), saved.map(|saved| saved * DISCOUNT)).found()
}

/// Returns the key that is set by hand and costs time, with the saved share of the computing if that is known.
fn written(run: &Measured<'_>, plan: &PlanFacts, recomputes: bool, is_split: bool) -> Option<(Change, Option<f64>)> {
    let remat = run.fixed("training.remat").filter(|remat| *remat != "none" && recomputes);
    if remat.is_some() {
        let is_all = plan.buckets.iter().all(|bucket| bucket.remat == "all");
        return Some((run.change("training.remat", "auto")?, is_all.then_some(REMAT_SHARE)));
    }
    run.fixed("training.micro_batch").filter(|_| is_split)?;
    Some((run.change("training.micro_batch", "auto")?, None))
}

fn memory_text(plan: &PlanFacts) -> String {
    let (peak, budget) = (plan.peak.unwrap_or_default(), plan.budget.unwrap_or_default());
    format!("the plan uses {peak} of {budget}")
}

/// Steps run out of memory.
pub(super) fn retries(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Retry);
    if share < RETRY_NOTED {
        return Outcome::Healthy;
    }
    let failures = run.facts.events.iter().filter(|event| matches!(event, Event::OutOfMemory { .. })).count();
    let problem = Problem::new(share, took(TimeOwner::Retry, share))
        .because(format!("memory ran out {}", counted(failures, "time")));
    let is_free = run.fixed("model.conv_norm") != Some("batch");
    let change = match run.fixed("training.micro_batch").filter(|_| is_free) {
        Some(_) => run.change("training.micro_batch", "auto"),
        None => lower_limit(run),
    };
    let hint = match change {
        Some(_) => "Other processes on the device need memory too: stop them, or leave room for them.",
        None => "Set `training.max_memory` below the memory that is free, or stop other processes on the device.",
    };
    problem.change(change, Some(share * RETRY_DISCOUNT)).hint(hint).found()
}

/// Lowers the limit of the memory: the one that is set, or that of the plan.
fn lower_limit(run: &Measured<'_>) -> Option<Change> {
    let key = "training.max_memory_fraction";
    if let Some(fraction) = run.value::<f64>(key).filter(|part| (0.01..=1.0).contains(part)) {
        return run.change(key, format!("{:.3}", fraction * LOWER_LIMIT));
    }
    let limit = run.value::<Bytes>("training.max_memory").or_else(|| run.plan()?.budget)?;
    let mib = (limit.0 as f64 * LOWER_LIMIT / Bytes::mib(1).0 as f64).floor();
    if mib < 1.0 { None } else { run.change("training.max_memory", format!("{mib:.0}MiB")) }
}
