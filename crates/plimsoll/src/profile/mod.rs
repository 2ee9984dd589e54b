//! `plimsoll profile`: where the time and the memory of a run go.

mod measured;
mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use plimsoll_config::Loaded;
use plimsoll_core::CountingAllocator;
use plimsoll_monitor::step_trace;
use plimsoll_recipes::training::{PlannedRun, StepPrediction, Trial, TrialOptions};
use plimsoll_recipes::{Failure, FailureExt};
use serde_json::json;

use crate::output::{ForceFlag, OutputFile};
use crate::signals::Signals;
use crate::terminal::{Terminal, spinner};
use crate::trial::{TrialBar, TrialConfigArgs};
use measured::Trials;
pub(crate) use measured::{KernelProfile, Profile};

/// Number of steps that are measured unless `--steps` says otherwise.
const STEPS: u64 = 30;
/// Fewest steps that are measured.
const STEPS_MIN: u64 = 3;
/// Time for which loading without training is measured at most.
const LOADING_TIME: Duration = Duration::from_secs(5);
/// Fewest steps in which the layers are measured.
const LAYER_STEPS_MIN: u64 = 4;

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Write the steps for ui.perfetto.dev or chrome://tracing to this file.
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// The flag `--force`.
    #[command(flatten)]
    force: ForceFlag,
    /// The configuration. Its `--steps` is the number of steps to measure; default: 30.
    #[command(flatten)]
    trial: TrialConfigArgs,
}

/// Trains some steps, measures them, and prints the result. Nothing of the trial is kept.
pub(crate) fn profile(args: &ProfileArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let trace =
        args.trace.as_deref().map(|path| OutputFile::new(path, "--trace", args.force, &["json"])).transpose()?;
    let loaded = args.trial.load()?;
    let signals = Signals::listen().failed()?;
    signals.end_if_busy().failed()?;
    let steps = args.trial.steps()?.unwrap_or(STEPS).max(STEPS_MIN);
    let options = TrialOptions { steps: Some(steps), ..TrialOptions::default() };
    let mut bar = TrialBar::new("measuring steps", Some(steps));
    let plain = Trial::run(loaded.clone(), options, (memory, &Terminal), &signals.stop, &mut bar)?;
    if plain.was_stopped {
        return Ok(ExitCode::from(signals.exit_code()));
    }
    // The same steps again, as a clock between layers makes steps longer.
    let layer_steps = (steps / 2).max(LAYER_STEPS_MIN);
    let options = TrialOptions { steps: Some(layer_steps), has_layers: true, ..TrialOptions::default() };
    let mut bar = TrialBar::new("measuring layers", Some(layer_steps));
    let quiet = plimsoll_recipes::reporter::Silent;
    let layered = Trial::run(loaded.clone(), options, (memory, &quiet), &signals.stop, &mut bar)?;
    if layered.was_stopped {
        return Ok(ExitCode::from(signals.exit_code()));
    }
    let timed = if plain.plan.training.async_errors {
        Some(time_kernels(&loaded, layer_steps, memory, &signals)?)
    } else {
        None
    };
    if timed.as_ref().is_some_and(|timed| timed.was_stopped) {
        return Ok(ExitCode::from(signals.exit_code()));
    }
    let working = spinner("measuring loading");
    let alone = PlannedRun::new(loaded, memory, &quiet)?.loading_speed(steps, LOADING_TIME)?;
    working.set_message("computing the cost of operations");
    let prediction = StepPrediction::of(&plain.plan)?;
    working.finish_and_clear();
    let trials = Trials { plain: &plain, layered: &layered, timed: timed.as_ref() };
    let profile = Profile::new(&trials, alone, prediction.as_ref());
    if let Some(file) = &trace {
        file.write(step_trace("plimsoll profile", &plain.records))?;
    }
    // Their folders are deleted before anything is printed: a closed output ends the program.
    drop((plain, layered, timed));
    match args.json {
        true => println!("{:#}", json!(profile)),
        false => print!("{}", page::page(&profile)),
    }
    if let Some(file) = trace.filter(|_| !args.json) {
        eprintln!("ui.perfetto.dev opens {}", file.path().display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains some steps again on a GPU, with a clock for each kernel.
fn time_kernels(
    loaded: &Loaded,
    steps: u64,
    memory: &'static CountingAllocator,
    signals: &Signals,
) -> Result<Trial, Failure> {
    let options = TrialOptions { steps: Some(steps), has_kernels: true, ..TrialOptions::default() };
    let mut bar = TrialBar::new("measuring kernels", Some(steps));
    let quiet = plimsoll_recipes::reporter::Silent;
    Trial::run(loaded.clone(), options, (memory, &quiet), &signals.stop, &mut bar)
}
