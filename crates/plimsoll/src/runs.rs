//! `runs`: lists runs, shows how one went, and compares several.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use plimsoll_monitor::{Comparison, RunReport, read_runs, run_table};
use serde_json::json;

use plimsoll_recipes::{Failure, FailureExt};

/// A run without a record for this long does not count as running. Validations of a large model take minutes.
const SILENCE: Duration = Duration::from_secs(600);

/// The commands of `runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists the runs, oldest first, with their state and scores.
    List(ListArgs),
    /// Shows how a run went: plan, losses, validations, memory.
    Show(ShowArgs),
    /// Compares runs: differences of their configurations, scores, losses at equal steps.
    Compare(CompareArgs),
}

/// Arguments of `runs list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Folder of the runs.
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// Prints one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Arguments of `runs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run: its folder, or its name in `runs`.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `runs compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The runs: their folders, or their names in `runs`.
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    runs: Vec<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

impl RunsCommand {
    /// Runs the command.
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

/// The run at `path`, or of that name in the default folder of runs.
fn report(path: &Path, quiet_since: SystemTime) -> Result<RunReport, Failure> {
    let named = Path::new("runs").join(path);
    let found = [path, &named].into_iter().find_map(|path| RunReport::read(path, quiet_since));
    found.ok_or_else(|| {
        let message = format!("there is no run in {}, and none of that name in runs", path.display());
        Failure::invalid(message, "`plimsoll runs list` says which there are")
    })
}
