//! The result of `memtest` for one target, as a table and as JSON.

use std::fmt::Write;

use plimsoll_core::{Bytes, Choice, Precision, Remat};
use plimsoll_memory::{Owner, Phase, Plan, PlanError, RunMemory};
use serde_json::{Value, json};

/// Result for one target: whether a run fits, and the plan with which it fits.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Name of the GPU, or the memory size.
    pub(crate) name: String,
    /// Memory that the run may use.
    pub(crate) budget: Bytes,
    /// Plan of the run, or the reason why there is no plan.
    pub(crate) plan: Result<Plan, PlanError>,
    /// Memory over time at the length that needs most memory; `None` if there is no plan.
    pub(crate) life: Option<RunMemory>,
}

impl Verdict {
    /// Returns whether a plan fits the run into the memory of the GPU.
    pub(crate) fn fits(&self) -> bool {
        self.plan.is_ok()
    }

    /// Returns the peak of the plan, or the least memory that a run needs if it does not fit; `None` if unknown.
    pub(crate) fn peak(&self) -> Option<Bytes> {
        match &self.plan {
            Ok(plan) => Some(plan.peak),
            Err(PlanError::NothingFits { needed, .. } | PlanError::NoBudget { needed, .. }) => Some(*needed),
            Err(_) => None,
        }
    }

    /// Formats the verdict as text; `verbose` adds the peak by owner and phase.
    pub(crate) fn summary(&self, verbose: bool) -> String {
        let mut text = String::new();
        match &self.plan {
            Ok(plan) => {
                let spare = Bytes(self.budget.0 - plan.peak.0);
                let _ =
                    writeln!(text, "{}: fits, {} of {} at most, {spare} to spare", self.name, plan.peak, self.budget);
                let _ = writeln!(
                    text,
                    "  {:>7} {:>7} {:>6} {:>8} {:>7} {:>6} {:>6} {:>10}",
                    "frames", "tokens", "batch", "at once", "pieces", "remat", "chunk", "peak"
                );
                for bucket in &plan.buckets {
                    let _ = writeln!(
                        text,
                        "  {:>7} {:>7} {:>6} {:>8} {:>7} {:>6} {:>6} {:>10}",
                        bucket.bucket.frames.0,
                        bucket.bucket.tokens,
                        bucket.bucket.utterances,
                        bucket.micro_batch,
                        bucket.accumulation,
                        remat_name(bucket.choice.remat),
                        bucket.choice.attention_chunk.map_or_else(|| "-".into(), |chunk| chunk.to_string()),
                        bucket.peak.to_string(),
                    );
                }
                let _ = writeln!(
                    text,
                    "  {} whatever the batch (weights, gradients, optimizer); validates {} at once; {}",
                    plan.fixed,
                    plan.validation_batch,
                    precision_name(plan.precision)
                );
            }
            Err(error) => {
                let _ = writeln!(text, "{}: does not fit: {error}", self.name);
                if let PlanError::NothingFits { change, .. } = error {
                    match change {
                        Some(change) => {
                            let _ = writeln!(text, "  the cheapest change that would make it fit: {change}");
                        }
                        None => text.push_str("  no single change would make it fit\n"),
                    }
                }
            }
        }
        if let (true, Some(life)) = (verbose, &self.life) {
            text.push_str(&breakdown(life, self.slack()));
        }
        text
    }

    /// Computes the planned memory beyond the memory in use: pages of a GPU that are not full, and the margin for
    /// errors of the CPU's trace.
    fn slack(&self) -> Bytes {
        let in_use = self.life.as_ref().map_or(Bytes(0), RunMemory::peak);
        Bytes(self.peak().unwrap_or_default().0.saturating_sub(in_use.0))
    }

    /// Formats the verdict as JSON.
    pub(crate) fn json(&self) -> Value {
        let reason = self.plan.as_ref().err().map(ToString::to_string);
        let change = match &self.plan {
            Err(PlanError::NothingFits { change, .. }) => change.clone(),
            _ => None,
        };
        json!({
            "name": self.name,
            "budget_bytes": self.budget.0,
            "peak_bytes": self.peak().map(|bytes| bytes.0),
            "fits": self.fits(),
            "plan": self.plan.as_ref().ok(),
            "reason": reason,
            "change": change,
            "owners": self.life.as_ref().map(|life| by_name(&life.timeline.owners_at_peak())),
            "slack_bytes": self.slack().0,
            "phases": self.life.as_ref().map(|life| by_name(&life.timeline.peaks_by_phase())),
        })
    }
}

/// Makes a JSON object with a number of bytes for each name in `rows`.
fn by_name<T: serde::Serialize>(rows: &[(T, Bytes)]) -> Value {
    let row = |(key, bytes): &(T, Bytes)| Some((json!(key).as_str()?.to_string(), json!(bytes.0)));
    Value::Object(rows.iter().filter_map(row).collect())
}

/// Formats the peak by owner, and the peak of each phase.
fn breakdown(life: &RunMemory, slack: Bytes) -> String {
    let mut text = String::from("  at the peak of the worst length:\n");
    let whole = (life.peak().0 + slack.0).max(1) as f64;
    let owners = life.timeline.owners_at_peak().into_iter().map(|(owner, bytes)| (owner_name(owner), bytes));
    for (owner, bytes) in owners.chain([("slack".into(), slack)]) {
        let share = bytes.0 as f64 / whole * 100.0;
        let _ = writeln!(text, "    {owner:<12} {:>10} {share:>5.1} %", bytes.to_string());
    }
    text.push_str("  peak of each phase:\n");
    for (phase, bytes) in life.timeline.peaks_by_phase() {
        let _ = writeln!(text, "    {:<12} {:>10}", phase_name(phase), bytes.to_string());
    }
    text
}

fn owner_name(owner: Owner) -> String {
    json!(owner).as_str().unwrap_or_default().replace('_', " ")
}

fn phase_name(phase: Phase) -> String {
    json!(phase).as_str().unwrap_or_default().replace('_', " ")
}

/// Formats the choice of blocks that are computed a second time, as a word or a number.
pub(crate) fn remat_name(remat: Remat) -> String {
    match remat {
        Remat::None => "none".into(),
        Remat::Half => "half".into(),
        Remat::All => "all".into(),
        Remat::First(blocks) => format!("{blocks}"),
    }
}

/// Returns the name of a number format.
pub(crate) fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
    }
}

/// Formats the settings of a choice as text, such as `remat none, attention whole, bf16`.
pub(crate) fn choice_text(choice: Choice) -> String {
    let chunk = choice.attention_chunk.map_or_else(|| "whole".into(), |chunk| format!("by {chunk}"));
    format!("remat {}, attention {chunk}, {}", remat_name(choice.remat), precision_name(choice.precision))
}
