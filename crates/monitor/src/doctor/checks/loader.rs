//! Check of the speed of loading against the need of training.

use plimsoll_core::units::AudioSpeed;

use super::findings::Findings;
use crate::doctor::check::{Check, CheckContext, Outcome};

/// Speed of loading that is enough, as a factor on the need: batches differ in length.
const SPARE: f64 = 1.25;

/// Speed of loading, and what training needs of it. A program measures both: the machine does not know its data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoaderFacts {
    /// Seconds of audio that the loader gives in a second, alone and with all of its threads.
    pub given: f64,
    /// Seconds of audio that training takes in a second if it never waits: the audio of a step divided by its duration.
    pub needed: f64,
}

impl LoaderFacts {
    /// Judges the speed of loading.
    ///
    /// ```
    /// use plimsoll_monitor::doctor::{CheckStatus, LoaderFacts};
    ///
    /// let slow = LoaderFacts { given: 150.0, needed: 200.0 }.judge();
    /// assert_eq!(slow.status, CheckStatus::Warn);
    /// assert!(slow.finding.contains("waits about 25 % of its time"));
    /// ```
    pub fn judge(&self) -> Outcome {
        let Self { given, needed } = *self;
        let is_measured = |speed: f64| speed.is_finite() && speed > 0.0;
        if !is_measured(given) || !is_measured(needed) {
            return Outcome::skip("the speed of loading or of training was not measured");
        }
        let ratio = given / needed;
        let text = format!("the loader gives {}, and training needs {}", AudioSpeed(given), AudioSpeed(needed));
        let fix = "raise `data.num_workers`, keep features with `data.cache_dir`, or use a faster disk; `plimsoll data \
                   bench` shows what takes the time";
        let mut findings = Findings::default();
        findings.detail("given_audio_seconds_per_second", given);
        findings.detail("needed_audio_seconds_per_second", needed);
        if ratio < 1.0 {
            let share = (1.0 - ratio) * 100.0;
            findings.warn(format!("{text}: training waits about {share:.0} % of its time"), fix);
        } else if ratio < SPARE {
            findings.warn(format!("{text}: long batches make it wait"), fix);
        }
        findings.or(Outcome::pass(format!("{text}: {} times as much", three_digits(ratio))))
    }
}

impl Check {
    /// Creates the check `loader`. `measure` gives the two speeds, or the reason why they cannot be measured; it has the
    /// time limit of the check.
    pub fn loader(measure: impl FnOnce(&CheckContext) -> Result<LoaderFacts, String> + Send + 'static) -> Self {
        Self::new("loader", "speed of loading", |context| match measure(context) {
            Ok(facts) => facts.judge(),
            Err(reason) => Outcome::skip(reason),
        })
    }
}

/// Formats a speed with about three digits.
fn three_digits(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
