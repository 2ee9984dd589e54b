//! The result of `memtest` for one target, as a table and as JSON.

use std::fmt::Write;

use plimsoll_core::{Bytes, Choice, Precision, StateForm};
use plimsoll_memory::{Owner, Phase, Plan, PlanError, RunMemory};
use plimsoll_recipes::demand::TargetPlans;
use plimsoll_recipes::mapping::remat_word;
use plimsoll_recipes::memory_plan::Shares;
use serde_json::{Value, json};

/// Result for one target: whether a run fits, and the plans with which it fits.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Name of the GPU, or the memory size.
    pub(crate) name: String,
    /// Memory that the run may use.
    pub(crate) budget: Bytes,
    /// How the run shares that memory.
    pub(crate) shares: Shares,
    /// The plans of the configuration: as it is written, and at best.
    pub(crate) plans: TargetPlans,
    /// Memory over time at the length that needs most, if a run fits.
    pub(crate) memory: Option<RunMemory>,
}

impl Verdict {
    /// Returns whether a run fits: as it is written, or with other settings that give the same result.
    pub(crate) fn fits(&self) -> bool {
        self.plans.used().is_ok()
    }

    /// Returns the peak of the plan, or the least memory that a run needs if it does not fit; `None` if unknown.
    pub(crate) fn peak(&self) -> Option<Bytes> {
        match self.plans.used() {
            Ok(plan) => Some(self.shares.whole_run(plan.peak)),
            Err(PlanError::NothingFits { needed, .. } | PlanError::NoBudget { needed, .. }) => {
                Some(self.shares.whole_run(*needed))
            }
            Err(_) => None,
        }
    }

    /// Formats the verdict as text; `verbose` adds the peak by owner and phase.
    pub(crate) fn summary(&self, verbose: bool) -> String {
        let mut text = String::new();
        match self.plans.used() {
            Ok(plan) => {
                let peak = self.shares.whole_run(plan.peak);
                let spare = Bytes(self.budget.0 - peak.0);
                let _ = writeln!(text, "{}: fits, {peak} of {} at most, {spare} to spare", self.name, self.budget);
                text.push_str(&self.as_written());
                text.push_str(&table(plan));
                if self.shares.outside_model.0 > 0 {
                    let beside = self.shares.outside_model;
                    let _ = writeln!(
                        text,
                        "  {beside} of the process beside the model: lists, cached features, waiting batches"
                    );
                }
            }
            Err(error) => {
                let _ = writeln!(text, "{}: does not fit: {error}{}", self.name, self.shares.beside());
                let _ = match error.advice() {
                    Some(advice) => writeln!(text, "  the cheapest way that would fit: {advice}"),
                    None => writeln!(text, "  no change of settings would make it fit"),
                };
            }
        }
        if let (true, Some(memory)) = (verbose, &self.memory) {
            text.push_str(&breakdown(memory, self.slack()));
        }
        text
    }

    /// Describes how the configuration as written compares with the best plan, as lines; empty if they are equal.
    fn as_written(&self) -> String {
        match (&self.plans.as_written, &self.plans.at_best) {
            (Err(error), _) => format!(
                "  as written it does not fit: {error}\n  a run computes the same result in less memory, as below\n"
            ),
            (Ok(written), Ok(best)) if best.seconds() * WORTHWHILE < written.seconds() => {
                let percent = (1.0 - best.seconds() / written.seconds()) * 100.0;
                let settings = "training.remat, model.attention, training.micro_batch and training.optimizer_state";
                format!(
                    "  as written, below; with \"auto\" for {settings}\n  a step would take about {percent:.0} % less time\n"
                )
            }
            _ => String::new(),
        }
    }

    /// Computes the planned memory beyond the memory in use: pages of a GPU that are not full, and the margin for
    /// errors of the CPU's trace.
    fn slack(&self) -> Bytes {
        let in_use = self.memory.as_ref().map_or(Bytes(0), RunMemory::peak);
        let planned = self.plans.used().map_or(in_use, |plan| plan.peak);
        Bytes(planned.0.saturating_sub(in_use.0))
    }

    /// Formats the verdict as JSON. `fits`, `peak_bytes` and `plan` are those of the run; `as_written` and `at_best` are
    /// both plans.
    pub(crate) fn json(&self) -> Value {
        let used = self.plans.used();
        let (remedy, advice) = match used {
            Err(error @ PlanError::NothingFits { remedy, .. }) => (remedy.as_ref(), error.advice()),
            _ => (None, None),
        };
        json!({
            "name": self.name,
            "budget_bytes": self.budget.0,
            "peak_bytes": self.peak().map(|bytes| bytes.0),
            "beside_model_bytes": self.shares.outside_model.0,
            "fits": self.fits(),
            "plan": used.ok(),
            "reason": used.err().map(ToString::to_string),
            "change": remedy.and_then(|remedy| remedy.changes.first()),
            "remedy": remedy,
            "advice": advice,
            "as_written": outcome(&self.plans.as_written),
            "at_best": outcome(&self.plans.at_best),
            "owners": self.memory.as_ref().map(|memory| by_name(&memory.timeline.owners_at_peak())),
            "slack_bytes": self.slack().0,
            "phases": self.memory.as_ref().map(|memory| by_name(&memory.timeline.peaks_by_phase())),
        })
    }
}

/// Factor by which the best plan has to be faster than the plan as written to be worth a remark.
const WORTHWHILE: f64 = 1.02;

/// Formats the table of a plan: one line for each length, and what holds for the whole run.
fn table(plan: &Plan) -> String {
    let mut text = String::new();
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
            remat_word(bucket.choice.remat),
            chunk_text(bucket.choice).unwrap_or_else(|| "-".into()),
            bucket.peak.to_string(),
        );
    }
    let state = match plan.state.form {
        StateForm::Full => "on the device",
        StateForm::Eight => "in 8 bits",
        StateForm::Host => "in host memory",
    };
    let _ = writeln!(
        text,
        "  {} whatever the batch (weights, gradients, optimizer); the optimizer's state {state}; {}",
        plan.fixed,
        precision_name(plan.precision)
    );
    let _ = writeln!(text, "  validation: {} at once, {}", plan.validation_batch, plan.validation_peak);
    text
}

/// Formats a plan as JSON: whether it fits, its peak, its estimated seconds, or the reason why there is none.
fn outcome(plan: &Result<Plan, PlanError>) -> Value {
    match plan {
        Ok(plan) => json!({
            "fits": true, "peak_bytes": plan.peak.0, "seconds": plan.seconds(), "plan": plan
        }),
        Err(error) => json!({"fits": false, "reason": error.to_string(), "advice": error.advice()}),
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

/// Returns the name of a number format.
pub(crate) fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
    }
}

/// Formats the attention chunk of `choice`; `None` if all queries are computed at once.
fn chunk_text(choice: Choice) -> Option<String> {
    choice.attention_chunk.map(|chunk| chunk.to_string())
}

/// Formats the settings of a choice as text, such as `remat none, attention whole, bf16`.
pub(crate) fn choice_text(choice: Choice) -> String {
    let chunk = chunk_text(choice).map_or_else(|| "whole".into(), |chunk| format!("by {chunk}"));
    format!("remat {}, attention {chunk}, {}", remat_word(choice.remat), precision_name(choice.precision))
}
