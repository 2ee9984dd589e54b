//! `runs`: what runs there are, how one went, and what differs between some.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use plimsoll_monitor::{RunCard, compared, listed, read_runs, shown};
use serde_json::json;

use plimsoll_recipes::{Failure, FailureExt};

/// A run that wrote nothing for so long is not taken to be running: validations of a large model take minutes.
const SILENCE: Duration = Duration::from_secs(600);

/// The commands of `runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists the runs, oldest first, with what came of them.
    List(ListArgs),
    /// Says how a run went: its plan, its losses, its validations, its memory.
    Show(ShowArgs),
    /// Puts runs side by side: what of their configurations differs, their scores, their losses at equal steps.
    Compare(CompareArgs),
}

/// What `runs list` takes.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The folder of the runs.
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// Prints one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// What `runs show` takes.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run: its folder, or its name in `runs`.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `runs compare` takes.
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
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let quiet_since = SystemTime::now() - SILENCE;
        match self {
            Self::List(args) => list(&args, quiet_since),
            Self::Show(args) => {
                let card = card(&args.run, quiet_since)?;
                match args.json {
                    true => println!("{}", json!(card)),
                    false => print!("{}", shown(&card)),
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Compare(args) => {
                let cards: Vec<RunCard> =
                    args.runs.iter().map(|run| card(run, quiet_since)).collect::<Result<_, _>>()?;
                match args.json {
                    true => println!("{}", json!({"comparison": compared(&cards), "runs": cards})),
                    false => print!("{}", compared(&cards)),
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
    let cards = read_runs(&args.folder, quiet_since).failed()?;
    match args.json {
        true => cards.iter().for_each(|card| println!("{}", json!(card))),
        false if cards.is_empty() => println!("no runs in {}", args.folder.display()),
        false => print!("{}", listed(&cards)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The run at `path`, or of that name in the folder where runs are by default.
fn card(path: &Path, quiet_since: SystemTime) -> Result<RunCard, Failure> {
    let named = Path::new("runs").join(path);
    let found = [path, &named].into_iter().find_map(|path| RunCard::read(path, quiet_since));
    found.ok_or_else(|| {
        let message = format!("there is no run in {}, and none of that name in runs", path.display());
        Failure::invalid(message, "`plimsoll runs list` says which there are")
    })
}
