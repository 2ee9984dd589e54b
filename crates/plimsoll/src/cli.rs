//! The command line: which commands there are. Each command owns its arguments.

mod fitting_help;
mod hints;
#[cfg(test)]
mod pages;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use plimsoll_core::CountingAllocator;
use plimsoll_recipes::Failure;

use crate::advise::{self, AdviseArgs};
use crate::align::{self, AlignArgs};
use crate::config::ConfigCommand;
use crate::corpus::{self, CorpusCommand};
use crate::data::DataCommand;
use crate::doctor::{self, DoctorArgs};
use crate::environment;
use crate::eval::{self, EvalArgs};
use crate::export::{self, ExportArgs};
use crate::gpu_info::{self, GpuInfoArgs};
use crate::lm::LmCommand;
use crate::memtest::{self, MemtestArgs};
use crate::model::{self, ModelCommand};
use crate::monitor::{self, MonitorArgs};
use crate::optimize::{self, OptimizeArgs};
use crate::profile::{self, ProfileArgs};
use crate::prove::{self, ProveArgs};
use crate::report::{self, ReportArgs};
use crate::runs::RunsCommand;
use crate::say::{self, SayArgs};
use crate::scale::{self, ScaleArgs};
use crate::stress::{self, StressArgs};
use crate::train::{self, TrainArgs};
use crate::transcribe::{self, TranscribeArgs};

pub(crate) use hints::with_hint;

/// Train and use speech recognizers and synthesizers on one machine
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log to standard error: `-v` info, `-vv` debug, `-vvv` trace. Default: errors only. `memtest -v` also prints the peak
    /// memory by owner and phase. The variable PLIMSOLL_LOG sets a filter instead, such as `plimsoll_data=debug`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Returns the command line, with help that lists what each command uses.
pub(crate) fn command() -> clap::Command {
    fitting_help::with_fitting_help(Cli::command())
}

/// Parses the arguments of the program, with its name before them.
///
/// # Errors
/// If they are wrong, or ask for help.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let asks_all = |arg: &OsString| arg == fitting_help::HELP_ALL;
    let (mut command, args) = match args.iter().any(asks_all) {
        true => {
            let help = |arg: &OsString| if asks_all(arg) { "--help".into() } else { arg.clone() };
            (Cli::command(), args.iter().map(help).collect())
        }
        false => (command(), args.to_vec()),
    };
    let mut matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

const EXIT_CODES: &str = "Exit codes: 0 success; 1 failure while running (doctor, stress, prove: a warning; 2: a failed check); 2 wrong usage, configuration or input, \
also if only a part of the input could not be used: a named file, or more of a corpus than data.unusable_share; \
3 does not fit into memory (memtest, optimize); 129, 130 or 143 stopped by SIGHUP, SIGINT or SIGTERM (train writes a checkpoint \
first, unless a second signal comes); 141 the output was no longer read.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model, or continue a run with --resume
    Train(Box<TrainArgs>),
    /// Turn recordings into text with a trained recognizer
    Transcribe(TranscribeArgs),
    /// Find when each word of a known text is said in a recording
    Align(AlignArgs),
    /// Train and measure language models for the search of a recognizer
    #[command(subcommand)]
    Lm(Box<LmCommand>),
    /// Turn text into speech with a trained synthesizer
    Say(SayArgs),
    /// Measure the error of a trained model on held-out or given utterances
    Eval(EvalArgs),
    /// Write a trained model into a folder that can be used without its run
    Export(ExportArgs),
    /// List, show and compare runs
    #[command(subcommand)]
    Runs(Box<RunsCommand>),
    /// Write one HTML file about runs: score, overfitting, errors, curves, time, memory
    Report(Box<ReportArgs>),
    /// Watch GPUs, host and a run, in the terminal, as a web page or for Prometheus
    Monitor(Box<MonitorArgs>),
    /// Measure where time and memory of a run go: by owner, by layer, by operation
    Profile(Box<ProfileArgs>),
    /// Name what slows a run and the exact change that helps, and prove it with --verify
    Advise(Box<AdviseArgs>),
    /// Train at the limit of the plan for a time, and judge speed, memory and errors
    Stress(Box<StressArgs>),
    /// Run a configuration in every way that matters here, and write what it showed
    Prove(Box<ProveArgs>),
    /// Predict what more machines would bring to a run: time, efficiency, price
    Scale(Box<ScaleArgs>),
    /// Check driver, devices, memory, disks and settings before a run
    Doctor(Box<DoctorArgs>),
    /// Show the size of a model, part by part, before it is trained
    #[command(subcommand)]
    Model(Box<ModelCommand>),
    /// Check whether a run fits the memory of a GPU, local or named
    Memtest(Box<MemtestArgs>),
    /// Change a configuration so that its run fits into the memory of a GPU
    Optimize(Box<OptimizeArgs>),
    /// List the local GPUs, their free memory, and the processes that use it
    GpuInfo(Box<GpuInfoArgs>),
    /// Check, count and import a corpus of recordings and texts
    #[command(subcommand)]
    Data(Box<DataCommand>),
    /// Make a corpus of synthetic speech with its texts, without a download
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Print, check and locate the configuration
    #[command(subcommand)]
    Config(Box<ConfigCommand>),
}

impl Command {
    /// Returns whether the command handles signals by itself.
    pub(crate) fn handles_signals(&self) -> bool {
        match self {
            Self::Train(_)
            | Self::Profile(_)
            | Self::Advise(_)
            | Self::Stress(_)
            | Self::Prove(_)
            | Self::Monitor(_) => true,
            // What is final is printed before a stream ends.
            Self::Transcribe(args) => args.is_stream(),
            _ => false,
        }
    }

    /// Runs the command. `meter` counts the memory of this process; `verbose` adds details to the output of `memtest`.
    pub(crate) fn run(self, meter: &'static CountingAllocator, verbose: bool) -> Result<ExitCode, Failure> {
        match self {
            Self::Train(args) => train::train(*args, meter),
            Self::Transcribe(args) => transcribe::transcribe(&args),
            Self::Align(args) => align::align(&args),
            Self::Lm(command) => command.run(),
            Self::Say(args) => say::say(&args),
            Self::Eval(args) => eval::eval(&args),
            Self::Export(args) => export::export(&args),
            Self::Model(command) => {
                let ModelCommand::Info(args) = *command;
                model::info(&args)
            }
            Self::Optimize(args) => optimize::optimize(&args, meter),
            Self::GpuInfo(args) => gpu_info::gpu_info(&args),
            Self::Memtest(args) => memtest::memtest(&args, verbose, meter),
            Self::Data(command) => command.run(),
            Self::Runs(command) => command.run(),
            Self::Report(args) => report::report(&args),
            Self::Monitor(args) => monitor::monitor(&args),
            Self::Profile(args) => profile::profile(&args, meter),
            Self::Advise(args) => advise::advise(&args, meter),
            Self::Stress(args) => stress::stress(&args, meter),
            Self::Prove(args) => prove::prove(&args),
            Self::Scale(args) => scale::scale(&args),
            Self::Doctor(args) => doctor::doctor(&args, meter),
            Self::Corpus(CorpusCommand::Make(args)) => corpus::make(&args),
            Self::Config(command) => {
                print!("{}", command.run(environment())?);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns an argument with hyphens in the name of its flag: `--batch_size=2` becomes `--batch-size=2`, as other programs
/// write their flags with underscores. Any other argument stays as it is.
pub(crate) fn hyphenated(arg: OsString) -> OsString {
    let Some(name) = arg.to_str().and_then(|text| text.strip_prefix("--")) else { return arg };
    let (flag, value) = name.split_at(name.find('=').unwrap_or(name.len()));
    let is_flag = flag.starts_with(|c: char| c.is_ascii_lowercase())
        && flag.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_flag { format!("--{}{value}", flag.replace('_', "-")).into() } else { arg }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_may_have_underscores() {
        for (arg, expected) in [
            ("--batch_size", "--batch-size"),
            ("--batch_size=a_b", "--batch-size=a_b"),
            ("--d-model", "--d-model"),
            ("--", "--"),
            ("-v", "-v"),
            ("a_b", "a_b"),
            ("training.max_memory=8GiB", "training.max_memory=8GiB"),
        ] {
            assert_eq!(hyphenated(arg.into()), OsString::from(expected));
        }
    }
}
