//! The steps that the rules judge, and their sums.

use std::collections::BTreeSet;
use std::str::FromStr;

use plimsoll_core::{EndKind, Event, StepEvent, TimeOwner, TimeShares};

use super::change::Change;
use super::facts::{Alternative, PlanFacts, RunFacts};

/// Number of steps after each start that are left out. They compile kernels, fill caches and wait for the first batches,
/// which happens once and not in every step.
pub(super) const START_STEPS: usize = 10;
/// Number of steps below which every rule abstains: fewer say little about the steps to come.
pub(super) const STEPS_MIN: usize = 20;
/// Share of the wall time below which a rule finds nothing.
pub(super) const NOTED_SHARE: f64 = 0.05;
/// Pairs of keys of which a configuration may set only one.
const EXCLUSIVE: &[(&str, &str)] = &[
    ("training.micro_batch", "training.gradient_accumulation_steps"),
    ("training.max_memory", "training.max_memory_fraction"),
];
/// Upper bound of the seconds of a step. A larger number comes from a damaged record.
const SECONDS_MAX: f64 = 1e9;

/// The facts about a run, with the steps that the rules judge.
pub(super) struct Measured<'a> {
    pub(super) facts: &'a RunFacts,
    /// Steps with measured times, without those after a start.
    pub(super) steps: Vec<&'a StepEvent>,
    /// Times of these steps.
    pub(super) times: TimeShares,
}

impl<'a> Measured<'a> {
    pub(super) fn new(facts: &'a RunFacts) -> Self {
        let steps = considered(facts);
        let mut times = TimeShares::default();
        steps.iter().for_each(|step| times.add_all(&step.times));
        Self { facts, steps, times }
    }

    pub(super) fn share(&self, owner: TimeOwner) -> f64 {
        self.times.share(owner).clamp(0.0, 1.0)
    }

    /// Returns the share of the time in which the device computes, or gets work to compute.
    pub(super) fn busy_share(&self) -> f64 {
        (self.share(TimeOwner::Compute) + self.share(TimeOwner::Submit)).min(1.0)
    }

    pub(super) fn plan(&self) -> Option<&'a PlanFacts> {
        self.facts.plan.as_ref()
    }

    /// Returns the value of `key`; `None` if it is not set or set to `auto`.
    pub(super) fn fixed(&self, key: &str) -> Option<&'a str> {
        self.facts.config.get(key).map(String::as_str).filter(|value| *value != "auto")
    }

    /// Returns the number, amount or truth value of `key`; `None` if it is not set, set to `auto`, or of another kind.
    pub(super) fn value<T: FromStr>(&self, key: &str) -> Option<T> {
        self.fixed(key)?.parse().ok()
    }

    /// Creates the change of `key` to `to`. Returns `None` if that is the present value, if the configuration sets a key
    /// that excludes `key`, or if the configuration is not known.
    pub(super) fn change(&self, key: &str, to: impl ToString) -> Option<Change> {
        let (from, to) = (self.facts.config.get(key).cloned(), to.to_string());
        let is_same = from.as_ref().map_or(to == "auto", |from| *from == to);
        let excludes = |a: &str, b: &str| key == a && self.fixed(b).is_some();
        let is_excluded = EXCLUSIVE.iter().any(|&(a, b)| excludes(a, b) || excludes(b, a));
        (!is_same && !is_excluded && !self.facts.config.is_empty()).then(|| Change { key: key.into(), from, to })
    }

    /// Returns step, kind and words of the end of the run; `None` if the record holds no end, or if the run continued
    /// after it.
    pub(super) fn last_end(&self) -> Option<(u64, EndKind, &'a str)> {
        let Some(Event::Ended { step, end, reason, .. }) = self.facts.events.last() else { return None };
        let is_last = self.facts.steps.last().is_none_or(|last| last.step == *step);
        is_last.then_some((*step, *end, reason.as_str()))
    }

    /// Returns whether the run ended by an error.
    pub(super) fn has_failed(&self) -> bool {
        self.last_end().is_some_and(|(_, end, _)| end == EndKind::Failed)
    }

    /// Returns whether the run read its values back to find the first that is not finite.
    pub(super) fn has_debug(&self) -> bool {
        self.value("training.debug") == Some(true)
    }

    /// Returns whether the planned peak is less than `share` of the memory that the run may use; `None` if not known.
    pub(super) fn uses_less_than(&self, share: f64) -> Option<bool> {
        let plan = self.plan()?;
        let (peak, budget) = (plan.peak?.0 as f64, plan.budget?.0 as f64);
        (budget > 0.0).then_some(peak < share * budget)
    }

    /// Returns the best alternative for one of `keys`, with the share of the device's work that it saves according to
    /// `saved`.
    pub(super) fn best_alternative(
        &self,
        keys: &[&str],
        saved: impl Fn(&Alternative) -> Option<f64>,
    ) -> Option<(Change, f64)> {
        let offered = self.facts.alternatives.iter().filter(|other| keys.contains(&other.change.key.as_str()));
        let known = offered.filter_map(|other| {
            let saved = saved(other).filter(|saved| saved.is_finite() && *saved > 0.0)?;
            Some((self.change(&other.change.key, &other.change.to)?, saved.min(1.0)))
        });
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the seconds of audio that the run would train on in a second if it never waited for data.
    pub(super) fn audio_speed_without_waiting(&self) -> Option<f64> {
        let seconds = self.times.total() - self.times.get(TimeOwner::Data);
        let frames: f64 = self.steps.iter().map(|step| step.frames as f64).sum();
        let speed = frames * self.facts.hop_seconds? / seconds;
        (speed.is_finite() && speed > 0.0).then_some(speed)
    }

    /// Returns the mean of `value` over the steps; NaN counts as zero.
    pub(super) fn mean(&self, value: impl Fn(&StepEvent) -> f64) -> f64 {
        let sum: f64 = self.steps.iter().map(|step| value(step)).filter(|value| value.is_finite()).sum();
        sum / self.steps.len().max(1) as f64
    }
}

/// Returns the steps with plausible times, except the first ones after each start.
fn considered(facts: &RunFacts) -> Vec<&StepEvent> {
    let ended = |event: &Event| match event {
        Event::Ended { step, .. } => Some(*step),
        _ => None,
    };
    let ends: BTreeSet<u64> = facts.events.iter().filter_map(ended).collect();
    let (mut since_start, mut last) = (0, None);
    let mut steps = Vec::new();
    for step in &facts.steps {
        // A run that is resumed repeats steps, or continues after an end.
        let is_start = last.is_some_and(|last| step.step <= last || ends.contains(&last));
        since_start = if is_start { 0 } else { since_start };
        if since_start >= START_STEPS && is_plausible(&step.times) {
            steps.push(step);
        }
        (since_start, last) = (since_start + 1, Some(step.step));
    }
    steps
}

fn is_plausible(times: &TimeShares) -> bool {
    let are_plausible = times.iter().all(|(_, seconds)| (0.0..SECONDS_MAX).contains(&seconds));
    are_plausible && times.total() > 0.0
}

/// Formats a share for people.
pub(super) fn percent(share: f64) -> String {
    if share < 0.0995 { format!("{:.1} %", share * 100.0) } else { format!("{:.0} %", share * 100.0) }
}

/// Formats the share of an owner as a sentence.
pub(super) fn took(owner: TimeOwner, share: f64) -> String {
    format!("{owner} took {} of the time", percent(share))
}
