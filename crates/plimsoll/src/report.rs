//! `plimsoll report`: one HTML file about one or several runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_config::ConfigArgs;
use plimsoll_monitor::{ReportPage, RunData};
use plimsoll_recipes::Failure;
use plimsoll_recipes::load;

use crate::environment;
use crate::output::{ForceFlag, HTML, OutputFile};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders of the runs, or their names in `runs_dir`. The others are compared with the first. A run that still trains
    /// can be reported, too.
    #[arg(value_name = "RUN", num_args = 1.., required = true)]
    runs: Vec<PathBuf>,
    /// File to write; `-` is standard output. Default: report.html in the folder of the first run, which is replaced.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The flag `--force`.
    #[command(flatten)]
    force: ForceFlag,
    /// The configuration; its `runs_dir` is the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Writes the report of the runs.
pub(crate) fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let runs_dir = load(&args.config, environment())?.config.runs_dir;
    let mut runs = Vec::new();
    for run in &args.runs {
        let found = [run.clone(), runs_dir.join(run)].into_iter().find_map(|folder| RunData::read(&folder));
        runs.push(found.ok_or_else(|| Failure::no_run(run, &runs_dir))?);
    }
    let (path, force) = match &args.out {
        Some(path) => (path.clone(), args.force),
        // A report has no content of its own, so its usual file may be replaced.
        None => (runs[0].report.folder.join("report.html"), ForceFlag { force: true }),
    };
    let file = OutputFile::new(&path, "--out", force, HTML)?;
    file.write(ReportPage::new(&runs).to_html())?;
    if path.as_os_str() != "-" {
        eprintln!("the report is in {}; open it in a browser", file.path().display());
    }
    Ok(ExitCode::SUCCESS)
}
