//! `plimsoll runs`: lists, shows and compares runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use plimsoll_config::ConfigArgs;
use plimsoll_monitor::{Comparison, RunReport, read_runs, run_table};
use plimsoll_recipes::load;
use serde_json::json;

use plimsoll_config::invocation::command;
use plimsoll_recipes::{Failure, FailureExt};

use crate::environment;

/// Commands of `runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs with their state and scores, oldest first
    List(ListArgs),
    /// Show one run: plan, losses, validations, memory
    Show(ShowArgs),
    /// Compare runs: differences of their configurations, scores, losses at equal steps
    Compare(CompareArgs),
}

/// Arguments of `runs list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Folder that holds the runs. Default: `runs_dir` of the configuration.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print one JSON object per run and line instead of a table.
    #[arg(long)]
    json: bool,
    /// The configuration; its `runs_dir` is the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Arguments of `runs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Folder of the run, or its name in `runs_dir`.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The configuration; its `runs_dir` is the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Arguments of `runs compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Folders of the runs, or their names in `runs_dir`; at least two.
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    runs: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The configuration; its `runs_dir` is the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

impl RunsCommand {
    /// Runs the subcommand of `runs`.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let quiet_since = RunReport::quiet_since();
        match self {
            Self::List(args) => list(&args, quiet_since),
            Self::Show(args) => {
                let report = report(&args.run, &runs_dir(&args.config)?, quiet_since)?;
                match args.json {
                    true => println!("{}", json!(report)),
                    false => print!("{report}"),
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Compare(args) => {
                let runs = runs_dir(&args.config)?;
                let reports: Vec<RunReport> =
                    args.runs.iter().map(|run| report(run, &runs, quiet_since)).collect::<Result<_, _>>()?;
                let comparison = Comparison::new(&reports);
                match args.json {
                    true => println!("{}", json!({"comparison": comparison, "runs": reports})),
                    false => print!("{comparison}"),
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Prints the runs of a folder. An incomplete run without a record since `quiet_since` counts as ended.
fn list(args: &ListArgs, quiet_since: SystemTime) -> Result<ExitCode, Failure> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => runs_dir(&args.config)?,
    };
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Err(Failure::invalid(
            message,
            format!("`{}` takes the folder that holds the runs", command("runs list DIR")),
        ));
    }
    let reports = read_runs(&folder, quiet_since).failed()?;
    match args.json {
        true => reports.iter().for_each(|report| println!("{}", json!(report))),
        false if reports.is_empty() => println!("no runs in {}", folder.display()),
        false => print!("{}", run_table(&reports)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder in which the configuration puts runs.
fn runs_dir(args: &ConfigArgs) -> Result<PathBuf, Failure> {
    Ok(load(args, environment())?.config.runs_dir)
}

/// Reads the report on the run in the folder `path`, or on the run with that name in `runs`.
fn report(path: &Path, runs: &Path, quiet_since: SystemTime) -> Result<RunReport, Failure> {
    let report = [path, &runs.join(path)].into_iter().find_map(|path| RunReport::read(path, quiet_since));
    report.ok_or_else(|| Failure::no_run(path, runs))
}
