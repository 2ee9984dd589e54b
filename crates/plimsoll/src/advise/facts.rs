//! Facts about a run or about a trial, for the rules.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_config::{ConfigArgs, RunConfig};
use plimsoll_core::{Bytes, CountingAllocator};
use plimsoll_monitor::advice::{Alternative, Change, HostFacts, LoadingFacts, RunFacts, SampleFacts};
use plimsoll_monitor::sample::{MachineSource, Monitor, Sample, SampleReader, Sampler};
use plimsoll_monitor::{Host, RunSamples};
use plimsoll_recipes::data::prepare;
use plimsoll_recipes::loading::LoadingCosts;
use plimsoll_recipes::plan::RunPlan;
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{Trial, TrialOptions, preview};
use plimsoll_recipes::{Failure, FailureExt};

use crate::terminal::{Terminal, spinner};
use crate::trial::{TrialBar, TrialConfigArgs, load_trial};

/// Number of steps of a trial: the rules leave out the first ones and need twenty more.
const STEPS: u64 = 40;
/// Time for which the parts of loading are measured.
const LOADING_TIME: Duration = Duration::from_secs(2);
/// Time between two samples of the machine.
const SAMPLES: Duration = Duration::from_millis(500);
/// Keys that a person may have set and that can be `auto`: the planner then chooses.
const CAN_BE_AUTO: [&str; 3] = ["training.micro_batch", "training.remat", "training.optimizer_state"];

/// Gathers the facts of the run or the configuration that `args` name; `None` if a trial was stopped.
pub(super) fn gather(
    args: &TrialConfigArgs,
    memory: &'static CountingAllocator,
    stop: &AtomicBool,
) -> Result<Option<RunFacts>, Failure> {
    let flags = args.flags()?;
    let loaded = load_trial(&flags)?;
    let (mut facts, plan) = match args.folder()? {
        Some(folder) => {
            let plan = preview(&loaded, None, None, &Processes::alone(), memory, &Silent);
            let mut facts = RunFacts::read(&folder).invalid()?;
            // Only a run on a GPU has samples.
            if let Ok(samples) = SampleReader::open(&folder.join(RunSamples::FILE)) {
                let samples: Vec<Sample> = samples.filter_map(Result::ok).collect();
                facts.samples = Some(SampleFacts::from_samples(&samples));
            }
            (facts, plan.ok())
        }
        None => {
            let steps = args.steps()?.unwrap_or(STEPS);
            let options = TrialOptions { steps: Some(steps), ..TrialOptions::default() };
            let samples = Arc::new(Mutex::new(Vec::<Sample>::new()));
            let kept = samples.clone();
            let keep = move |sample: &Sample| lock(&kept).push(sample.clone());
            let monitor = Monitor::start_with(SAMPLES, || Sampler::new(MachineSource::open()), keep);
            let mut bar = TrialBar::new("measuring steps", Some(steps));
            let trial = Trial::run(loaded.clone(), options, (memory, &Terminal), stop, &mut bar)?;
            monitor.stop();
            if trial.was_stopped {
                return Ok(None);
            }
            let mut facts = RunFacts::read(trial.folder()).failed()?;
            facts.total_steps = trial.total_steps;
            facts.name = "trial".into();
            facts.samples = Some(SampleFacts::from_samples(&*lock(&samples)));
            (facts, Some(trial.plan))
        }
    };
    let working = spinner("measuring loading");
    facts.host = HostFacts::from(&Host::read());
    facts.loading = loading(loaded.config.clone()).ok();
    working.set_message("planning alternatives");
    if let Some(plan) = plan {
        facts.alternatives = alternatives(&facts, &plan, &flags, memory);
    }
    working.finish_and_clear();
    Ok(Some(facts))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures loading without caches.
fn loading(mut config: RunConfig) -> Result<LoadingFacts, Failure> {
    (config.data.cache_dir, config.data.cache_memory) = (None, Bytes(0));
    let costs = LoadingCosts::measure(&prepare(&config, &Silent)?.training, LOADING_TIME)?;
    let all = costs.seconds().max(f64::MIN_POSITIVE);
    Ok(LoadingFacts {
        audio_seconds_per_second: 1.0 / all,
        decoding: costs.decoding / all,
        resampling: costs.resampling / all,
        features: costs.features / all,
    })
}

/// Predicts what other values of some keys would bring, by the planner and the batches of the first epoch.
fn alternatives(
    facts: &RunFacts,
    now: &RunPlan,
    flags: &ConfigArgs,
    memory: &'static CountingAllocator,
) -> Vec<Alternative> {
    let seconds = |plan: &RunPlan| Some(plan.memory.as_ref()?.plan.seconds());
    let is_set = |key: &&str| facts.config.get(*key).is_some_and(|value| value != "auto");
    let of_memory = CAN_BE_AUTO.into_iter().filter(is_set).map(|key| (key.to_string(), "auto".to_string()));
    let all = of_memory.chain(padding_values(&now.config));
    let alternative = |(key, to): (String, String)| {
        let change = Change { from: facts.config.get(&key).cloned(), key, to };
        let mut flags = flags.clone();
        flags.set.push(change.setting());
        let loaded = load_trial(&flags).ok()?;
        let plan = preview(&loaded, None, None, &Processes::alone(), memory, &Silent).ok()?;
        if change.key.starts_with("data.") {
            // The planner computes the longest batches, and padding is saved in all of them.
            return Some(Alternative { change, padding: Some(plan.data.padding), seconds_ratio: None });
        }
        let ratio = seconds(now).zip(seconds(&plan)).map(|(now, then)| then / now.max(f64::MIN_POSITIVE));
        Some(Alternative { change, padding: None, seconds_ratio: ratio })
    };
    all.filter_map(alternative).collect()
}

/// Lists values of keys that could lessen the padding.
fn padding_values(config: &RunConfig) -> Vec<(String, String)> {
    let data = &config.data;
    let mut values = Vec::new();
    if data.frame_grid > 16 {
        values.push(("data.frame_grid".into(), "16".into()));
    }
    if let Some(window) = data.shuffle_window {
        let larger = [window.saturating_mul(2), window.saturating_mul(8), 150];
        let larger = larger.into_iter().filter(|value| *value > window && *value <= 1000);
        values.extend(larger.map(|value| ("data.shuffle_window".into(), value.to_string())));
    }
    if let Some(shapes) = data.shapes {
        // From 72 on, more shapes save little padding.
        let more = [shapes.saturating_mul(2), shapes.saturating_mul(8), 72];
        let more = more.into_iter().filter(|value| *value == 2 * shapes || *value > shapes && *value <= 72);
        values.extend(more.map(|value| ("data.shapes".into(), value.to_string())));
    }
    values
}
