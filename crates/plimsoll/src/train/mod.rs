//! `plimsoll train`: trains a model, or resumes a run.

mod report;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_core::CountingAllocator;
use plimsoll_recipes::config::{ConfigArgs, load};
use plimsoll_recipes::training::{PlannedRun, RunFolder, TrainingOutcome, config_path, named_run};
use plimsoll_recipes::{Failure, FailureExt};

use crate::environment;
use crate::print::go_on_without_output;
use crate::signals::Signals;
use crate::terminal::Terminal;
use view::View;

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
    /// Print the plan and stop before training; no run folder is made.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Trains a model, or prints the plan of its training.
pub(crate) fn train(mut args: TrainArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let resumed = args.resume.as_deref().map(named_run);
    if let Some(path) = &resumed {
        args.config.config = Some(config_path(path)?);
    }
    // The result of training is its folder, not what it prints.
    go_on_without_output();
    let loaded = load(&args.config, environment())?;
    // Before the plan, which takes a while. A plan alone needs no folder.
    let folder = match &resumed {
        Some(path) if !args.dry_run => Some(RunFolder::open(path)?),
        Some(_) => None,
        None => RunFolder::check_name(&loaded.config).map(|()| None)?,
    };
    if let Some(folder) = &folder {
        folder.check_config(&loaded.config)?;
    }
    let planned = PlannedRun::new(loaded, memory, &Terminal)?;
    eprint!("{}", planned.plan);
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::listen().failed()?;
    let run = match folder {
        Some(folder) => planned.resume(folder),
        None => planned.start()?,
    };
    let mut view = View::new(&run.plan);
    match run.train(&signals.stop, &mut view)? {
        TrainingOutcome::Stopped { step } => {
            eprintln!("Stopped after step {step}. To continue: {}", run.folder.resume_command());
            Ok(ExitCode::from(signals.exit_code()))
        }
        TrainingOutcome::Complete { summary, next } => {
            print!("{}{next}", report::last_lines(&summary, &run.folder));
            Ok(ExitCode::SUCCESS)
        }
    }
}
