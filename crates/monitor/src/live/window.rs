//! Sums over the last steps of a run.

use std::collections::VecDeque;

use plimsoll_core::{StepEvent, TimeOwner, TimeShares};
use serde::Serialize;

/// Number of steps in the window: enough for a stable share, and few enough to show a change within a minute or so.
const STEPS: usize = 50;

/// Times and amounts of a number of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepWindow {
    /// Number of steps.
    pub steps: u64,
    /// Number of these steps whose times by owner were measured.
    pub measured: u64,
    /// Times by owner. The time of a step without measured times is that of its batch and, for the rest, unknown.
    pub times: TimeShares,
    /// Feature frames of the steps.
    pub frames: u64,
}

impl StepWindow {
    /// Sums up one step.
    pub(super) fn for_step(step: &StepEvent) -> Self {
        let mut times = step.times;
        let measured = u64::from(!times.is_empty());
        if measured == 0 {
            times.add(TimeOwner::Data, finite(step.wait_seconds));
            times.add(TimeOwner::Unknown, finite(step.step_seconds));
        }
        Self { steps: 1, measured, times, frames: step.frames }
    }

    /// Adds another sum.
    pub(super) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.measured += other.measured;
        self.times.add_all(&other.times);
        self.frames = self.frames.saturating_add(other.frames);
    }

    /// Returns the wall time of a step in seconds, on average; `None` without a measured time.
    pub fn seconds_per_step(&self) -> Option<f64> {
        let total = self.times.total();
        (self.steps > 0 && total > 0.0).then(|| total / self.steps as f64)
    }

    /// Returns the seconds of audio per second of wall time; `None` if time or frames are not known.
    pub fn audio_seconds_per_second(&self, hop_seconds: Option<f64>) -> Option<f64> {
        let total = self.times.total();
        (total > 0.0 && self.frames > 0).then_some(self.frames as f64 * hop_seconds? / total)
    }
}

fn finite(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

/// The last steps of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LastSteps(VecDeque<StepWindow>);

impl LastSteps {
    pub(super) fn push(&mut self, step: StepWindow) {
        if self.0.len() == STEPS {
            self.0.pop_front();
        }
        self.0.push_back(step);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn sum(&self) -> StepWindow {
        let mut sum = StepWindow::default();
        self.0.iter().for_each(|step| sum.add(step));
        sum
    }
}
