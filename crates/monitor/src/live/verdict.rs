//! One sentence about the time of the last steps.

use plimsoll_core::TimeOwner;
use serde::Serialize;

use super::window::StepWindow;

/// Number of steps below which there is no verdict. The first steps compile kernels and fill caches.
const STEPS_MIN: u64 = 5;
/// Share from which a second owner is worth mentioning.
const SECOND_SHARE_MIN: f64 = 0.1;

/// Owner of most of the time of the last steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Owner with most time; `None` without enough data.
    pub owner: Option<TimeOwner>,
    /// Share of the owner, from 0 to 1; `None` without enough data.
    pub share: Option<f64>,
    /// Number of steps that were looked at.
    pub steps: u64,
    /// The sentence for people.
    pub text: String,
}

impl Verdict {
    pub(super) fn new(window: &StepWindow) -> Self {
        let StepWindow { steps, measured, times, .. } = window;
        let ranked = times.ranked();
        let first = ranked.first().filter(|_| *measured >= STEPS_MIN);
        let Some(&(owner, _)) = first else {
            let why = match (steps, measured) {
                (0, _) => "no step yet".into(),
                (steps, 0) => format!("no measured times in the last {}", plimsoll_core::counted(steps, "step")),
                (_, measured) => format!("{measured} of {STEPS_MIN} measured steps"),
            };
            return Self { owner: None, share: None, steps: *steps, text: format!("not enough data: {why}") };
        };
        let share = times.share(owner);
        let mut text = format!("{owner}: {:.0} % of the time of the last {steps} steps", share * 100.0);
        if let Some(&(second, _)) = ranked.get(1).filter(|(owner, _)| times.share(*owner) >= SECOND_SHARE_MIN) {
            text += &format!(", then {second}: {:.0} %", times.share(second) * 100.0);
        }
        Self { owner: Some(owner), share: Some(share), steps: *steps, text }
    }
}
