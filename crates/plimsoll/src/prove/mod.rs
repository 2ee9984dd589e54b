//! `plimsoll prove`: runs a configuration in every way that matters on this machine, and writes what it found.
//!
//! The commands run as processes of their own, so that a crash is a result.

mod ballast;
mod child;
mod page;
mod parts;
mod start;
mod weights;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use indicatif::ProgressBar;
use plimsoll_config::to_toml;
use plimsoll_core::{Bytes, counted};
use plimsoll_monitor::Machine;
use plimsoll_monitor::doctor::{CheckReport, DoctorReport, MachineSummary, Outcome};
use plimsoll_recipes::training::trial_folder;
use plimsoll_recipes::{Failure, FailureExt};
use serde_json::json;

use crate::output::{ForceFlag, HTML, OutputFile};
use crate::print::uses_color;
use crate::signals::Signals;
use crate::terminal::spinner;
use crate::trial::TrialConfigArgs;
use child::Commands;
use parts::{Part, Proof};

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Write the results to this file, for programs.
    #[arg(long, value_name = "FILE.json", default_value = "proof.json")]
    out: PathBuf,
    /// Write the results to this file, for people.
    #[arg(long, value_name = "FILE.html", default_value = "proof.html")]
    page: PathBuf,
    /// About how long all parts together take, in minutes.
    #[arg(long, value_name = "M", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    minutes: u64,
    /// Run only these parts: doctor, start, speed, values, training, repeat, resume, budgets, ballast or replicas.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = Part::parse)]
    only: Vec<Part>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Hold this many bytes of the GPU until standard input ends, for another process that tries to train beside it.
    #[arg(long, hide = true, value_name = "BYTES")]
    hold: Option<u64>,
    /// The flag `--force`.
    #[command(flatten)]
    force: ForceFlag,
    /// The configuration. Its `--steps` is the number of steps of each training, at least 10; default: by the time.
    #[command(flatten)]
    trial: TrialConfigArgs,
}

/// Runs all parts, prints a line for each, and writes both files. The exit code is 0 if all is well, 1 after a warning and
/// 2 after a failure.
pub(crate) fn prove(args: &ProveArgs) -> Result<ExitCode, Failure> {
    if let Some(bytes) = args.hold {
        ballast::hold(Bytes(bytes), &args.trial.load()?.config.device)?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = OutputFile::new(&args.out, "--out", args.force, &["json"])?;
    let page = OutputFile::new(&args.page, "--page", args.force, HTML)?;
    let loaded = args.trial.load()?;
    let signals = Signals::listen().failed()?;
    signals.end_if_busy().failed()?;
    let (device, runs) = (&loaded.config.device, &loaded.config.runs_dir);
    // Where the runs are, so that checkpoints are written to the same disk.
    let folder = trial_folder(runs)?;
    let config = folder.path().join("config.toml");
    std::fs::write(&config, to_toml(&loaded)).failed()?;
    let commands = Commands { config, folder: folder.path().to_path_buf(), stop: &signals.stop };
    let time = Duration::from_secs(args.minutes * 60);
    let mut proof = Proof::new(commands, time, device, args.trial.steps()?);
    let parts: Vec<Part> =
        Part::ALL.into_iter().filter(|part| args.only.is_empty() || args.only.contains(part)).collect();
    let mut checks = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let bar = spinner(&format!("part {} of {}: {}", number + 1, parts.len(), part.title()));
        let found = run(&mut proof, *part, &bar);
        bar.finish_and_clear();
        if signals.stop.load(std::sync::atomic::Ordering::Relaxed) {
            eprintln!("stopped after {}; nothing was written", counted(number, "part"));
            return Ok(ExitCode::from(signals.exit_code()));
        }
        checks.extend(found?);
    }
    // Deleted before anything is printed: a closed output ends the program.
    let kernels = proof.kernels();
    drop((proof, folder));
    let machine = MachineSummary::from(&Machine::probe());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let report = DoctorReport::new(now, Some(machine), checks);
    let json = json!(report);
    out.write(format!("{json:#}\n"))?;
    page.write(page::page(&report, kernels.as_ref(), &to_toml(&loaded)))?;
    match args.json {
        true => println!("{json:#}"),
        false => print!("{}", report.page(uses_color())),
    }
    eprintln!("wrote {} and {}", out.path().display(), page.path().display());
    Ok(ExitCode::from(report.exit_code()))
}

/// Runs one part. Each of its checks has the name of the part, with a number if there are several.
fn run(proof: &mut Proof<'_>, part: Part, bar: &ProgressBar) -> Result<Vec<CheckReport>, Failure> {
    let mut begun = Instant::now();
    let mut checks = Vec::new();
    let mut add = |title: String, outcome: Outcome| {
        let id = if part.has_several() { format!("{}-{}", part.id(), checks.len() + 1) } else { part.id().into() };
        bar.set_message(format!("{}: {title} done", part.title()));
        checks.push(CheckReport::new(&id, &title, outcome, begun.elapsed()));
        begun = Instant::now();
    };
    proof.run(part, &mut add)?;
    Ok(checks)
}
