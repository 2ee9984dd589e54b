//! Rule about padding.

use plimsoll_core::StepEvent;
use plimsoll_core::TimeOwner;

use crate::advice::facts::Alternative;
use crate::advice::measured::{Measured, NOTED_SHARE, percent};
use crate::advice::outcome::{Outcome, Problem};

/// Keys that change the padding, and not what the run learns from an utterance.
const KEYS: &[&str] = &["data.frame_grid", "data.shuffle_window", "data.shapes"];
/// Part of the computed gain that is promised: a part of a step does not depend on the number of frames.
const DISCOUNT: f64 = 0.6;

/// Padding that is a finding although no key lowers it: utterances of different lengths always need some.
const MUCH: f64 = 0.25;

/// The batches hold much padding.
pub(super) fn padding_waste(run: &Measured<'_>) -> Outcome {
    let padding = weighted_padding(run);
    let share = padding * run.busy_share();
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let problem = Problem::new(share, format!("{} of the frames were padding, weighted by time", percent(padding)))
        .because(format!("computing took {} of the time", percent(run.busy_share())));
    // With less padding, a step has fewer frames of padding for the same audio.
    let saved = |other: &Alternative| {
        let frames = (1.0 - padding) / (1.0 - other.padding.filter(|padding| (0.0..1.0).contains(padding))?);
        let time = other.seconds_ratio.filter(|ratio| ratio.is_finite());
        Some(1.0 - time.map_or(frames, |time| frames.max(time)))
    };
    let hint =
        "Utterances of similar lengths need less padding: `data.frame_grid`, `data.shuffle_window`, `data.shapes`.";
    match run.best_alternative(KEYS, saved) {
        Some((change, saved)) => {
            let ideal = saved * run.busy_share();
            problem
                .because(format!("`{}` saves about {} of the computing", change.setting(), percent(saved)))
                .change(Some(change), Some(ideal * DISCOUNT))
                .found()
        }
        None if padding < MUCH => Outcome::Healthy,
        None => problem.hint(hint).found(),
    }
}

/// Computes the mean padding of the steps, weighted by the time of computing.
fn weighted_padding(run: &Measured<'_>) -> f64 {
    let seconds = |step: &StepEvent| step.times.get(TimeOwner::Compute) + step.times.get(TimeOwner::Submit);
    let known = run.steps.iter().filter(|step| (0.0..=1.0).contains(&step.padding));
    let (padded, all) =
        known.fold((0.0, 0.0), |(padded, all), step| (padded + step.padding * seconds(step), all + seconds(step)));
    if all > 0.0 { padded / all } else { 0.0 }
}
