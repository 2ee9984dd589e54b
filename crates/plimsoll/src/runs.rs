//! `plimsoll runs`: lists, shows and compares runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use plimsoll_monitor::{Comparison, RunReport, read_runs, run_table};
use serde_json::json;

use plimsoll_recipes::{Failure, FailureExt};

use crate::backend_flag::BackendFlag;

/// Time without a record after which a run counts as ended. Validations of a large model take minutes.
const SILENCE: Duration = Duration::from_secs(600);

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
    /// Folder that holds the runs.
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// Print one JSON object per run and line instead of a table.
    #[arg(long)]
    json: bool,
    /// Accepted everywhere.
    #[command(flatten)]
    _backend: BackendFlag,
}

/// Arguments of `runs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Folder of the run, or its name in `runs`.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Accepted everywhere.
    #[command(flatten)]
    _backend: BackendFlag,
}

/// Arguments of `runs compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Folders of the runs, or their names in `runs`; at least two.
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    runs: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Accepted everywhere.
    #[command(flatten)]
    _backend: BackendFlag,
}

impl RunsCommand {
    /// Runs the subcommand of `runs`.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let quiet_since = SystemTime::now() - SILENCE;
        match self {
            Self::List(args) => list(&args, quiet_since),
            Self::Show(args) => {
                let report = report(&args.run, quiet_since)?;
                match args.json {
                    true => println!("{}", json!(report)),
                    false => print!("{report}"),
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Compare(args) => {
                let reports: Vec<RunReport> =
                    args.runs.iter().map(|run| report(run, quiet_since)).collect::<Result<_, _>>()?;
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
    if !args.folder.is_dir() {
        let message = format!("there is no folder {}", args.folder.display());
        return Err(Failure::invalid(message, "`plimsoll runs list DIR` takes the folder that holds the runs"));
    }
    let reports = read_runs(&args.folder, quiet_since).failed()?;
    match args.json {
        true => reports.iter().for_each(|report| println!("{}", json!(report))),
        false if reports.is_empty() => println!("no runs in {}", args.folder.display()),
        false => print!("{}", run_table(&reports)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the report on the run in the folder `path`, or on the run with that name in `runs`. An incomplete run without
/// a record since `quiet_since` counts as ended.
fn report(path: &Path, quiet_since: SystemTime) -> Result<RunReport, Failure> {
    let by_name = Path::new("runs").join(path);
    let report = [path, &by_name].into_iter().find_map(|path| RunReport::read(path, quiet_since));
    report.ok_or_else(|| {
        let message = format!("there is no run in {}, and none of that name in runs", path.display());
        Failure::invalid(message, "`plimsoll runs list` lists the runs")
    })
}
