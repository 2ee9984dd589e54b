//! Rules about time that no key of the configuration brings back: the machine, and time without an owner.

use plimsoll_core::TimeOwner;

use crate::advice::finding::{Severity, WARNING_SHARE};
use crate::advice::measured::{Measured, NOTED_SHARE, percent, took};
use crate::advice::outcome::{Outcome, Problem};

/// Share of the samples from which throttling is worth a finding if the record names no time for it.
const THROTTLED_SAMPLES_MIN: f64 = 0.1;

/// The device runs below its clock, by the record or by the samples.
pub(super) fn throttled(run: &Measured<'_>) -> Outcome {
    let (share, samples) = (run.share(TimeOwner::Throttled), run.facts.samples.as_ref());
    let sampled = samples.and_then(|samples| samples.throttled_share).filter(|share| share.is_finite());
    if share < NOTED_SHARE && sampled.is_none_or(|sampled| sampled < THROTTLED_SAMPLES_MIN) {
        return match (run.facts.on_gpu, sampled) {
            (Some(false), _) | (_, Some(_)) => Outcome::Healthy,
            _ => Outcome::abstained("no samples say whether a GPU ran below its clock"),
        };
    }
    let mut problem = Problem::new(share, took(TimeOwner::Throttled, share));
    if let (Some(samples), Some(sampled)) = (samples, sampled) {
        let reason = |(reason, share): (&crate::sample::ThrottleReason, &f64)| format!("{reason} {}", percent(*share));
        let reasons: Vec<String> = samples.throttle.iter().map(reason).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        problem = problem.because(format!("the clock was limited in {} of the samples{reasons}", percent(sampled)));
    }
    problem
        .hint("No key helps. Check cooling and power limit; `nvidia-smi -q -d PERFORMANCE` shows the reasons.")
        .found()
}

/// Other processes take processors or the GPU.
pub(super) fn other_processes(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::OtherProcess);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let mut problem = Problem::new(share, took(TimeOwner::OtherProcess, share));
    if let Some(samples) = &run.facts.samples {
        if let Some(cpus) = samples.other_cpus {
            problem = problem.because(format!("other processes used {cpus:.1} processors on average"));
        }
        if !samples.gpu_processes.is_empty() {
            problem = problem.because(format!("also on the GPU: {}", samples.gpu_processes.join(", ")));
        }
    }
    problem.hint("No key helps. Run alone, or expect this speed. Other findings of this run are less exact.").found()
}

/// The record and its views take time.
pub(super) fn recording(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Record);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let problem = Problem::new(share, took(TimeOwner::Record, share));
    problem.hint("No key helps. Put the folder of runs on a faster disk, and show the run less often.").found()
}

/// A part of the time has no known owner. It is never more than minor, because nothing can be done about it yet.
pub(super) fn unexplained(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Unknown);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let mut problem = Problem::new(share, format!("{} of the time has no known owner", percent(share)));
    problem.severity = Some(Severity::Minor);
    let hint = match share {
        _ if share >= WARNING_SHARE => "A profiler can show what takes it. The other findings miss this part.",
        _ => "The other findings miss this part.",
    };
    problem.hint(hint).found()
}
