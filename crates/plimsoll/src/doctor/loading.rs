//! Check of the speed of loading: a short training of the configuration, and loading alone.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_config::Loaded;
use plimsoll_core::{CountingAllocator, StepEvent, TimeOwner, error_chain};
use plimsoll_monitor::doctor::{Check, CheckContext, LoaderFacts};
use plimsoll_recipes::Failure;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{NoDisplay, PlannedRun, Trial, TrialOptions, wall_seconds, warm_steps};

/// Time limit of the check. A GPU compiles its kernels in it, and a large corpus is listed.
const LIMIT: Duration = Duration::from_secs(120);
/// Steps of training, and their time at most.
const STEPS: u64 = 12;
const TRAINING: Duration = Duration::from_secs(15);
/// Batches that are loaded without training, and their time at most.
const BATCHES: u64 = 40;
const LOADING: Duration = Duration::from_secs(5);

/// Makes the check of loading against training, for the corpus and the model of `loaded`.
pub(super) fn check(loaded: Loaded, memory: &'static CountingAllocator) -> Check {
    let measure = move |context: &CheckContext| {
        measure(loaded, memory, context).map_err(|failure| format!("it was not measured: {}", error_chain(&failure)))
    };
    Check::loader(measure).with_limit(LIMIT)
}

fn measure(loaded: Loaded, memory: &'static CountingAllocator, context: &CheckContext) -> Result<LoaderFacts, Failure> {
    let options = TrialOptions { steps: Some(STEPS), time: Some(TRAINING), ..TrialOptions::default() };
    let trial = Trial::run(loaded.clone(), options, (memory, &Silent), &AtomicBool::new(false), &mut NoDisplay)?;
    let features = &trial.plan.features;
    let hop_seconds = features.hop_length as f64 / f64::from(features.sample_rate);
    let needed = needed(&warm_steps(trial.steps()), hop_seconds);
    drop(trial);
    let time = LOADING.min(context.remaining() / 2);
    let given = PlannedRun::new(loaded, memory, &Silent)?.loading_speed(BATCHES, time)?.audio_seconds_per_second;
    Ok(LoaderFacts { given, needed })
}

/// Returns the seconds of audio that training takes in a second if it never waits for data; zero if nothing was measured.
fn needed(steps: &[&StepEvent], hop_seconds: f64) -> f64 {
    let frames: u64 = steps.iter().map(|step| step.frames).sum();
    let without_data = |step: &StepEvent| match step.times.is_empty() {
        true => step.step_seconds,
        false => wall_seconds(step) - step.times.get(TimeOwner::Data),
    };
    let seconds: f64 = steps.iter().map(|step| without_data(step)).sum();
    if seconds > 0.0 { frames as f64 * hop_seconds / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::TimeShares;

    use super::*;

    #[test]
    fn the_need_is_that_of_training_which_never_waits() {
        let step = |data: f64, compute: f64| {
            let mut times = TimeShares::default();
            times.add(TimeOwner::Data, data);
            times.add(TimeOwner::Compute, compute);
            StepEvent { frames: 1000, times, step_seconds: compute, wait_seconds: data, ..StepEvent::default() }
        };
        let steps = [step(9.0, 0.5), step(0.0, 1.5)];
        assert_eq!(needed(&steps.iter().collect::<Vec<_>>(), 0.01), 10.0);
        let untimed = StepEvent { times: TimeShares::default(), ..step(3.0, 2.0) };
        assert_eq!(needed(&[&untimed], 0.01), 5.0);
        assert_eq!(needed(&[], 0.01), 0.0);
    }
}
