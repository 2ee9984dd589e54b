//! Sends a storm of accidents over a run of several processes.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use storm::Storm;

/// Trains a small recognizer by MPI twice, once in calm and once under accidents, and compares the two.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Processes, from 2 to 64.
    #[arg(long, default_value_t = 4, value_parser = |text: &str| number_in(text, 2..=64))]
    ranks: u64,
    /// Steps of the run, from 10 on.
    #[arg(long, default_value_t = 300, value_parser = |text: &str| number_in(text, 10..=100_000))]
    steps: u64,
    /// Seed of the accidents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No process hangs for longer than the others wait; each that does takes a minute.
    #[arg(long)]
    no_hang: bool,
    /// The program, built by `cargo build -p plimsoll --features mpi`. Default: beside this one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for corpus and runs, which must be new or empty. Default: a temporary one, which is left behind after a failure.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The launcher and its options. Default: `mpirun -n RANKS --oversubscribe --bind-to none`.
    #[arg(last = true)]
    launcher: Vec<String>,
}

fn main() -> ExitCode {
    match storm_over(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parses a number of a range.
fn number_in(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

fn storm_over(arguments: Arguments) -> Result<()> {
    let own = env::current_exe()?;
    let build = own.parent().context("a program lies in a folder")?;
    let program = arguments.program.unwrap_or_else(|| build.join("plimsoll"));
    ensure!(program.is_file(), "there is no {}: `cargo build -p plimsoll --features mpi` builds it", program.display());
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "-p", "bad-disk"]).args(build.ends_with("release").then_some("--release"));
    let built = cargo.status().context("cannot start cargo")?;
    let bad_disk = build.join("libbad_disk.so");
    ensure!(built.success() && bad_disk.is_file(), "{} was not built", bad_disk.display());
    let is_temporary = arguments.folder.is_none();
    let folder = arguments.folder.unwrap_or_else(|| env::temp_dir().join(format!("storm-{}", std::process::id())));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    ensure!(folder.read_dir()?.next().is_none(), "{} is not empty", folder.display());
    let launcher = match arguments.launcher.is_empty() {
        true => default_launcher(arguments.ranks),
        false => arguments.launcher,
    };
    let storm = Storm {
        program: program.canonicalize()?,
        bad_disk,
        folder: folder.canonicalize()?,
        launcher,
        ranks: arguments.ranks as usize,
        steps: arguments.steps,
        seed: arguments.seed,
        with_hang: !arguments.no_hang,
    };
    let began = Instant::now();
    let report = storm.run(&mut |what| println!("{:>6.1} s  {what}", began.elapsed().as_secs_f64()))?;
    println!("\nthe same batches and the same weights after {} steps on {} processes", storm.steps, storm.ranks);
    println!("{} starts, {} steps done again, accidents: {:?}", report.starts, report.repeated, report.accidents);
    println!("all processes ended at most {:.1} s after an accident", report.longest_end.as_secs_f64());
    ensure!(!report.accidents.is_empty(), "the run was over before anything happened: --steps asks for more");
    if is_temporary {
        fs::remove_dir_all(&storm.folder)?;
    }
    Ok(())
}

/// Returns the launcher of Open MPI for processes on this machine.
fn default_launcher(ranks: u64) -> Vec<String> {
    let count = ranks.to_string();
    ["mpirun", "-n", &count, "--oversubscribe", "--bind-to", "none"].map(String::from).to_vec()
}
