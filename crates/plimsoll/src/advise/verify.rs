//! Proof of a change: trials with and without it in turns.

use std::fmt;
use std::sync::atomic::AtomicBool;

use plimsoll_config::ConfigArgs;
use plimsoll_core::{CountingAllocator, Key, StepEvent};
use plimsoll_monitor::advice::{Change, Finding};
use plimsoll_recipes::Failure;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{Trial, TrialOptions, own_seconds, warm_steps};
use serde::Serialize;

use crate::trial::{TrialBar, load_trial};

/// Number of turns: each has a trial without and a trial with the change.
const TURNS: usize = 2;
/// Number of draws for the interval.
const DRAWS: u64 = 1000;
/// Share of the draws outside of the interval, at each end.
const TAIL: f64 = 0.05;

/// Result of the proof of one finding.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verified {
    /// Rule of the finding.
    pub(super) rule: &'static str,
    /// Changes that were tried, as `--set` takes them.
    pub(super) settings: Vec<String>,
    /// Share of the wall time that was promised to go away.
    pub(super) promised: Option<f64>,
    /// Share of the wall time that went away, for the same audio, without the time that other processes took.
    pub(super) brought: f64,
    /// Interval that holds the true share with 90 % probability, if the steps are like those that were measured.
    pub(super) interval: [f64; 2],
    /// Whether the change is kept: the whole interval is a gain.
    pub(super) is_kept: bool,
    /// Why the change was not tried; `None` if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_tried: Option<String>,
    /// Number of measured steps on each side.
    pub(super) steps: usize,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.not_tried {
            return write!(f, "  {}: not tried: {why}", self.settings.join(", "));
        }
        let percent = |share: f64| format!("{:+.1} %", -share * 100.0);
        let [low, high] = self.interval;
        write!(
            f,
            "  {}: {} of the time ({} to {})",
            self.settings.join(", "),
            percent(self.brought),
            percent(high),
            percent(low)
        )?;
        if let Some(promised) = self.promised {
            write!(f, ", promised {}", percent(promised))?;
        }
        f.write_str(match self.interval {
            _ if self.is_kept => ": kept",
            [_, high] if high <= 0.0 => ": no gain, not kept",
            _ => ": not proven, not kept; a larger N narrows the interval",
        })
    }
}

/// Proves changes by trials.
pub(super) struct Verifier<'a> {
    /// Configuration without any change.
    pub(super) flags: &'a ConfigArgs,
    /// Number of steps of each trial.
    pub(super) steps: u64,
    /// Number of steps in an epoch, if it is known.
    pub(super) epoch: Option<u64>,
    pub(super) memory: &'static CountingAllocator,
    pub(super) stop: &'a AtomicBool,
}

impl Verifier<'_> {
    /// Tries the changes of `findings` one after the other, each on top of those that were kept, and calls `on_result` with
    /// each result. Returns `None` if a trial was stopped.
    pub(super) fn verify(
        &self,
        findings: &[Finding],
        mut on_result: impl FnMut(&Verified),
    ) -> Result<Option<Vec<Verified>>, Failure> {
        let (mut kept, mut results) = (self.flags.clone(), Vec::new());
        for finding in findings.iter().filter(|finding| finding.change.is_some()) {
            let settings: Vec<String> = finding.changes().map(Change::setting).collect();
            if let Some(why) = self.why_not(finding) {
                let result = Verified::not_tried(finding, settings, why);
                on_result(&result);
                results.push(result);
                continue;
            }
            let mut changed = kept.clone();
            changed.set.extend(settings.iter().cloned());
            let Some([without, with]) = self.in_turns(&kept, &changed, finding)? else { return Ok(None) };
            let result = compare(finding, settings, &without, &with);
            if result.is_kept {
                kept = changed;
            }
            on_result(&result);
            results.push(result);
        }
        Ok(Some(results))
    }

    /// Returns why a trial cannot show what the changes of `finding` bring; `None` if it can.
    fn why_not(&self, finding: &Finding) -> Option<String> {
        let is_kept_in_memory = finding.changes().any(|change| change.key == "data.cache_memory");
        let is_short = self.epoch.is_none_or(|epoch| self.steps <= epoch);
        let why = match self.epoch {
            Some(epoch) => format!("it helps from the second epoch on, so `--verify {}` would show it", 2 * epoch),
            None => "it helps from the second epoch on".into(),
        };
        (is_kept_in_memory && is_short).then_some(why)
    }

    /// Measures the steps of `without` and `with` in turns.
    fn in_turns(
        &self,
        without: &ConfigArgs,
        with: &ConfigArgs,
        finding: &Finding,
    ) -> Result<Option<[Vec<StepEvent>; 2]>, Failure> {
        let mut steps = [Vec::new(), Vec::new()];
        if finding.changes().any(|change| change.key == "data.cache_dir") {
            // A cache helps from the second time on, so one trial fills it.
            if self.trial(with, "filling the cache")?.is_none() {
                return Ok(None);
            }
        }
        for _ in 0..TURNS {
            for (side, flags, word) in [(0, without, "without"), (1, with, "with")] {
                let label = format!("{} {word} the change", finding.rule);
                let Some(found) = self.trial(flags, &label)? else { return Ok(None) };
                steps[side].extend(found);
            }
        }
        Ok(Some(steps))
    }

    /// Trains for a trial, and returns its measured steps; `None` if it was stopped.
    fn trial(&self, flags: &ConfigArgs, label: &str) -> Result<Option<Vec<StepEvent>>, Failure> {
        let loaded = load_trial(flags)?;
        let options = TrialOptions { steps: Some(self.steps), ..TrialOptions::default() };
        let mut bar = TrialBar::new(label, Some(self.steps));
        let trial = Trial::run(loaded, options, (self.memory, &Silent), self.stop, &mut bar)?;
        Ok((!trial.was_stopped).then(|| warm_steps(trial.steps()).into_iter().cloned().collect()))
    }
}

impl Verified {
    fn not_tried(finding: &Finding, settings: Vec<String>, why: String) -> Self {
        Self {
            rule: finding.rule,
            settings,
            promised: finding.gain.map(|gain| gain.share),
            brought: 0.0,
            interval: [0.0; 2],
            is_kept: false,
            not_tried: Some(why),
            steps: 0,
        }
    }
}

/// Compares the time for the same audio.
fn compare(finding: &Finding, settings: Vec<String>, without: &[StepEvent], with: &[StepEvent]) -> Verified {
    let brought = saved(without.iter(), with.iter());
    let interval = interval(without, with);
    Verified {
        rule: finding.rule,
        settings,
        promised: finding.gain.map(|gain| gain.share),
        brought,
        interval,
        is_kept: interval[0] > 0.0,
        not_tried: None,
        steps: without.len().min(with.len()),
    }
}

/// Computes the share of the time for a frame that goes away from `without` to `with`.
fn saved<'a>(without: impl Iterator<Item = &'a StepEvent>, with: impl Iterator<Item = &'a StepEvent>) -> f64 {
    1.0 - seconds_per_frame(with) / seconds_per_frame(without).max(f64::MIN_POSITIVE)
}

fn seconds_per_frame<'a>(steps: impl Iterator<Item = &'a StepEvent>) -> f64 {
    let add =
        |(seconds, frames): (f64, f64), step: &StepEvent| (seconds + own_seconds(step), frames + step.frames as f64);
    let (seconds, frames) = steps.fold((0.0, 0.0), add);
    seconds / frames.max(1.0)
}

/// Computes the interval of the share by drawing steps again and again. The draws are the same in each run.
fn interval(without: &[StepEvent], with: &[StepEvent]) -> [f64; 2] {
    let mut shares: Vec<f64> = (0..DRAWS)
        .map(|draw| {
            let key = Key::new(draw).with("interval");
            saved(drawn(without, key.with("without")), drawn(with, key.with("with")))
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    let at = |share: f64| shares[((shares.len() - 1) as f64 * share).round() as usize];
    [at(TAIL), at(1.0 - TAIL)]
}

/// Draws as many of `steps` as there are, each time from all.
fn drawn(steps: &[StepEvent], key: Key) -> impl Iterator<Item = &StepEvent> {
    let place = move |index: usize| (key.at(index as u64).unit() * steps.len() as f64) as usize;
    (0..steps.len()).map(move |index| &steps[place(index).min(steps.len() - 1)])
}

#[cfg(test)]
mod tests {
    use plimsoll_core::TimeOwner;

    use super::*;

    fn steps(seconds: impl Fn(u64) -> f64) -> Vec<StepEvent> {
        let step = |index: u64| {
            let mut step = StepEvent { step: index, frames: 100, ..StepEvent::default() };
            step.times.add(TimeOwner::Compute, seconds(index));
            // Other processes do not count, however much they take.
            step.times.add(TimeOwner::OtherProcess, (index % 3) as f64);
            step
        };
        (0..80).map(step).collect()
    }

    #[test]
    fn a_clear_gain_is_in_its_interval_and_noise_is_none() {
        let noise = |key: &'static str| move |index: u64| Key::new(5).with(key).at(index).unit() * 0.2;
        let (a, b) = (noise("a"), noise("b"));
        let slow = steps(|index| 1.0 + a(index));
        let fast = steps(|index| 0.7 + b(index));
        let [low, high] = interval(&slow, &fast);
        assert!(low > 0.2 && high < 0.35 && low < high, "{low} {high}");
        let same = steps(|index| 1.0 + b(index));
        let [low, high] = interval(&slow, &same);
        assert!(low < 0.0 && high > 0.0, "{low} {high}");
        let [low, high] = interval(&fast, &slow);
        assert!(high < 0.0, "{low} {high}");
    }
}
