//! Rules about work at intervals: checkpoints and validation.

use plimsoll_core::TimeOwner;

use crate::advice::measured::{Measured, percent, took};
use crate::advice::outcome::{Outcome, Problem};

/// Part of the computed gain that is promised. The cost of one checkpoint or validation is known from the run itself.
const DISCOUNT: f64 = 0.85;
/// Share of checkpoints that a finding aims at.
const CHECKPOINT_AIM: f64 = 0.01;
/// Share from which checkpoints are a finding.
const CHECKPOINT_NOTED: f64 = 0.03;
/// Share of validation that a finding aims at.
const VALIDATION_AIM: f64 = 0.05;
/// Share from which validation is a finding. It is above the aim, so that the new interval differs clearly.
const VALIDATION_NOTED: f64 = 0.08;
/// Interval of checkpoints if the configuration does not set it.
const CHECKPOINT_DEFAULT: u64 = 200;

/// Checkpoints take more than their usual share.
pub(super) fn checkpoint_stalls(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Checkpoint);
    if share < CHECKPOINT_NOTED {
        return Outcome::Healthy;
    }
    let interval = run.value("training.checkpoint_interval").unwrap_or(CHECKPOINT_DEFAULT).max(1);
    let (to, left) = longer(interval, share, CHECKPOINT_AIM, run.facts.total_steps);
    let problem = Problem::new(share, took(TimeOwner::Checkpoint, share));
    if left >= share {
        return problem.hint("A faster disk helps. The interval is as long as the run already.").found();
    }
    problem
        .because(format!("with an interval of {to} steps it is about {}", percent(left)))
        .change(run.change("training.checkpoint_interval", to), Some(saved(share, left) * DISCOUNT))
        .hint(format!("A crash then loses up to {to} steps. A faster disk helps too."))
        .found()
}

/// Validation takes more than its usual share.
pub(super) fn validation_heavy(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Validation);
    if share < VALIDATION_NOTED {
        return Outcome::Healthy;
    }
    let problem = Problem::new(share, took(TimeOwner::Validation, share));
    if let Some(reason) = counts_validations(run) {
        let hint = "Validate on fewer utterances, or choose a longer `training.validation_interval`.";
        return problem.because(reason).hint(hint).found();
    }
    let in_epoch = run.plan().and_then(|plan| plan.batches_in_epoch);
    // 0 validates at the end of each epoch.
    let interval = run.value("training.validation_interval").filter(|interval| *interval > 0).or(in_epoch);
    let Some(interval) = interval.filter(|interval: &u64| *interval > 0) else {
        return Outcome::abstained("the number of batches in an epoch is not known, and validation follows the epochs");
    };
    let (to, left) = longer(interval, share, VALIDATION_AIM, run.facts.total_steps);
    let problem = problem.because(format!("with an interval of {to} steps it is about {}", percent(left)));
    if left >= share {
        return problem.hint("Validate on fewer utterances: `data.validation_share`.").found();
    }
    problem.change(run.change("training.validation_interval", to), Some(saved(share, left) * DISCOUNT)).found()
}

/// Returns why a longer interval would change the training; `None` if it would not.
fn counts_validations(run: &Measured<'_>) -> Option<&'static str> {
    let is_plateau = run.fixed("training.schedule") == Some("plateau");
    let stops_early = run.fixed("training.early_stopping").is_some();
    match (is_plateau, stops_early) {
        (true, _) => Some("the learning rate follows the validations, so their interval is part of the training"),
        (_, true) => Some("early stopping counts validations, so their interval is part of the training"),
        _ => None,
    }
}

/// Computes the interval at which `share` falls to `aim`, rounded up to two digits and at most the length of the run.
/// Returns it with the share at this interval.
fn longer(interval: u64, share: f64, aim: f64, total: Option<u64>) -> (u64, f64) {
    // Cost of one time, in steps.
    let share = share.min(0.999);
    let cost = interval as f64 * share / (1.0 - share);
    let exact = cost * (1.0 - aim) / aim;
    let digits = 10_f64.powf(exact.max(1.0).log10().floor() - 1.0).max(1.0);
    // Rounding errors of the division must not add a digit.
    let rounded = ((exact / digits - 1e-6).ceil() * digits).min(1e12) as u64;
    let to = rounded.min(total.unwrap_or(u64::MAX)).max(interval);
    (to, cost / (cost + to as f64))
}

/// Computes the share of the time that goes away if an owner with `share` gets `left` of the rest.
fn saved(share: f64, left: f64) -> f64 {
    1.0 - (1.0 - share) / (1.0 - left)
}
