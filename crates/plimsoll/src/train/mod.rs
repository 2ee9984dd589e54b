//! `plimsoll train`: trains a model, or resumes a run.

mod report;
mod ui;
mod view;
mod vocoder;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use plimsoll_config::{ConfigArgs, Loaded};
use plimsoll_core::{CountingAllocator, error_chain};
use plimsoll_recipes::processes::Processes;
use plimsoll_recipes::reporter::{Level, Reporter};
use plimsoll_recipes::target::targets;
use plimsoll_recipes::training::{
    DataChanged, NoDisplay, PlannedRun, Resume, TrainingOutcome, config_path, named_run, preview,
};
use plimsoll_recipes::{Failure, FailureExt, load, load_run};

use crate::environment;
use crate::print::go_on_without_output;
use crate::signals::Signals;
use crate::terminal::{ExitCodeExt, ProcessReporter, Terminal};
use ui::{Ui, display};

/// Arguments of `train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Continue the run in this folder (`runs/NAME`, or its NAME) from its newest undamaged checkpoint, with the configuration of the run.
    /// Flags can change it, such as a larger `--epochs`.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "name"])]
    pub(crate) resume: Option<PathBuf>,
    /// Go on with `--resume` although the data or its order changed since the checkpoint. `restart-epoch` keeps the weights and
    /// begins the current epoch again, over the new data. Default: changed data is refused.
    #[arg(long, value_name = "HOW", requires = "resume", hide_possible_values = true)]
    pub(crate) data_changed: Option<DataChangedChoice>,
    /// Print the plan and stop before training. Nothing is written, not even the built-in corpus.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: plan for this GPU, by name or memory size as for memtest, or for cpu. Default: the device of this
    /// machine.
    #[arg(long, value_name = "NAME|SIZE", requires = "dry_run")]
    pub(crate) gpu: Option<String>,
    /// How to show the run while it trains.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) ui: Ui,
}

impl TrainArgs {
    /// Returns how the run in the folder `resumed` goes on.
    fn resume<'f>(&self, resumed: Option<&'f Path>) -> Option<Resume<'f>> {
        let data_changed = match self.data_changed {
            Some(DataChangedChoice::RestartEpoch) => DataChanged::RestartEpoch,
            None => DataChanged::Refuse,
        };
        resumed.map(|folder| Resume { folder, data_changed })
    }
}

/// Ways to go on with changed data.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DataChangedChoice {
    /// Keep the weights, and begin the current epoch again.
    RestartEpoch,
}

/// Trains a model, or prints the plan of its training. Where MPI started several processes, each trains its part.
pub(crate) fn train(mut args: TrainArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    // The result of training is its folder, not what it prints.
    go_on_without_output();
    let processes = Processes::join()?;
    let resumed = args.resume.as_deref().map(named_run);
    let mut read = || {
        let Some(path) = &resumed else {
            return load_run(&args.config, environment(), &ProcessReporter(processes.rank()));
        };
        if let Some(from) = &args.config.from {
            let message =
                format!("--resume goes on with the weights of {}, and --from {from} names others", path.display());
            return Err(Failure::invalid(message, "leave one of them out: --from begins a new run"));
        }
        args.config.config = Some(config_path(path)?);
        // All that follows from the corpus, or from the model that the run began with, is written there.
        Ok(load(&args.config, environment())?)
    };
    let read = read().and_then(|loaded| vocoder::check(&loaded.config, &processes).map(|()| loaded));
    let loaded = processes.together(read);
    if !processes.is_first() {
        return Ok(follow(&args, loaded, resumed.as_deref(), &processes, memory));
    }
    let led = loaded.and_then(|loaded| {
        let code = lead(&args, loaded, resumed.as_deref(), &processes, memory)?;
        // A process that ended now would not answer the others.
        processes.wait_for_all()?;
        Ok(code)
    });
    // Before this process takes leave: the others end after that, and `mpirun` ends all as soon as one has failed.
    Ok(led.unwrap_or_else(|failure| failure.print()))
}

/// Trains the part of a process that is not the first of its run. The first one reports what concerns all.
fn follow(
    args: &TrainArgs,
    loaded: Result<Loaded, Failure>,
    resumed: Option<&Path>,
    processes: &Processes,
    memory: &'static CountingAllocator,
) -> ExitCode {
    if args.dry_run {
        return ExitCode::SUCCESS;
    }
    let reporter = ProcessReporter(processes.rank());
    let planned = loaded.and_then(|loaded| {
        PlannedRun::in_processes(loaded, args.resume(resumed).as_ref(), processes, memory, &reporter)
    });
    let run = match planned.and_then(PlannedRun::start) {
        Ok(run) => run,
        Err(failure) => return failure.exit_code(),
    };
    let train = || {
        let signals = Signals::listen().failed()?;
        run.train(&signals.stop, &mut NoDisplay)?;
        processes.wait_for_all()
    };
    match train() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            reporter.line(Level::Warning, &error_chain(&failure));
            failure.exit_code()
        }
    }
}

/// Trains the first or the only process of a run, or prints the plan. The vocoder of a voice follows it.
fn lead(
    args: &TrainArgs,
    loaded: Loaded,
    resumed: Option<&Path>,
    processes: &Processes,
    memory: &'static CountingAllocator,
) -> Result<ExitCode, Failure> {
    let resume = args.resume(resumed);
    let named = |name| targets(std::slice::from_ref(name), &loaded.config.device);
    let target = args.gpu.as_ref().map(named).transpose()?.map(|mut targets| targets.remove(0));
    let vocoder = vocoder::plan(&loaded, resumed, target.clone(), processes, memory)?;
    if args.dry_run {
        eprint!("{}", preview(&loaded, resume.as_ref(), target, processes, memory, &Terminal)?);
        vocoder.iter().for_each(|plan| eprint!("\n{plan}"));
        return Ok(ExitCode::SUCCESS);
    }
    if !processes.is_alone() {
        eprintln!("processes: {}", processes.description());
    }
    let planned = PlannedRun::in_processes(loaded, resume.as_ref(), processes, memory, &Terminal)?;
    eprint!("{}", planned.plan);
    let mut signals = Signals::listen().failed()?;
    let mut run = planned.start()?;
    if processes.is_alone() {
        let resume = run.folder.resume_command();
        let message = move |step: Option<u64>| match step {
            Some(step) => format!("Stopped after step {step}. To continue: {resume}"),
            None => "Stopped before the first step".into(),
        };
        signals.end_if_stuck(run.unsaved.clone(), message).failed()?;
    }
    run.measure_memory(&signals.stop)?;
    let mut view = display(args.ui, &run.plan, run.folder.path(), &mut signals).failed()?;
    match run.train(&signals.stop, &mut *view)? {
        TrainingOutcome::Followed => return Ok(ExitCode::SUCCESS),
        TrainingOutcome::Stopped { step } => {
            eprintln!("Stopped after step {step}. To continue: {}", run.folder.resume_command());
            return Ok(ExitCode::from(signals.exit_code()));
        }
        TrainingOutcome::AlreadyComplete { step } => {
            let folder = run.folder.path().display();
            eprintln!(
                "{folder} is complete: it has all of its {step} steps, and its files stay as they are. To train it for \
                 longer, give more --steps or --epochs."
            );
        }
        TrainingOutcome::Complete { summary, next } => {
            let text = format!("{}{next}", report::last_lines(&summary, &run.folder));
            match args.ui {
                Ui::Json => {
                    println!("{}", report::last_event(&summary, &run.folder));
                    eprint!("{text}");
                }
                _ => print!("{text}"),
            }
        }
    }
    drop(view);
    let folder = run.folder.path().to_path_buf();
    if !vocoder::follows(&run.plan.config, &folder, processes) {
        return Ok(ExitCode::SUCCESS);
    }
    run.unsaved.end();
    let (config, seconds, resume) = (run.plan.config.clone(), run.trained_seconds(), run.folder.resume_command());
    drop(run);
    if signals.stop.load(Ordering::Relaxed) {
        eprintln!("Stopped after the voice. To go on with its vocoder: {resume}");
        return Ok(ExitCode::from(signals.exit_code()));
    }
    Err(vocoder::go_on(args, &config, &folder, seconds))
}
