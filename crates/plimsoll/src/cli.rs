//! The command line: which commands there are. Each command owns its arguments.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_core::CountingAllocator;
use plimsoll_recipes::Failure;

use crate::config::ConfigCommand;
use crate::corpus::{self, CorpusCommand};
use crate::data::DataCommand;
use crate::eval::{self, EvalArgs};
use crate::export::{self, ExportArgs};
use crate::memtest::{self, MemtestArgs};
use crate::model::{self, ModelCommand};
use crate::optimize::{self, OptimizeArgs};
use crate::runs::RunsCommand;
use crate::say::{self, SayArgs};
use crate::train::{self, TrainArgs};
use crate::transcribe::{self, TranscribeArgs};
use crate::{environment, gpu_info};

/// Trains speech models on the machine a person has, every step a transaction and every run resumable.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Says more on standard error; repeat for still more. PLIMSOLL_LOG takes a filter such as `plimsoll_data=debug`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed while running; 2 wrong usage, configuration or input; \
3 does not fit (memtest, optimize); 130 or 143 stopped by a signal, with a checkpoint to resume from.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains a model, by default a small recogniser on the built-in corpus.
    Train(Box<TrainArgs>),
    /// Reads recordings with a trained recogniser.
    Transcribe(TranscribeArgs),
    /// Says texts with a trained synthesiser.
    Say(SayArgs),
    /// Says how well a trained recogniser reads a corpus whose texts are known, or a synthesiser says them.
    Eval(EvalArgs),
    /// Writes a trained model into a folder that needs nothing else of its run.
    Export(ExportArgs),
    /// Lists runs, shows how one went, and compares some.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Tells of a model before it is trained.
    #[command(subcommand)]
    Model(Box<ModelCommand>),
    /// Says whether a run fits a card, which need not be here, and how it would be computed there.
    Memtest(Box<MemtestArgs>),
    /// Writes a configuration of the same run that fits a card, and says what it changed and why.
    Optimize(OptimizeArgs),
    /// Says which cards are here, who holds their memory, and what we may use.
    GpuInfo {
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Looks at a corpus in any layout, and makes one list of it that a run can read.
    #[command(subcommand)]
    Data(Box<DataCommand>),
    /// Makes speech with its texts, without a download.
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Prints, checks and locates the configuration.
    #[command(subcommand)]
    Config(Box<ConfigCommand>),
}

impl Command {
    pub(crate) fn run(self, meter: &'static CountingAllocator, wordy: bool) -> Result<ExitCode, Failure> {
        match self {
            Self::Train(args) => train::train(*args, meter),
            Self::Transcribe(args) => transcribe::transcribe(&args),
            Self::Say(args) => say::say(&args),
            Self::Eval(args) => eval::eval(&args),
            Self::Export(args) => export::export(&args),
            Self::Model(command) => {
                let ModelCommand::Info(args) = *command;
                model::info(&args)
            }
            Self::Optimize(args) => optimize::optimize(&args),
            Self::GpuInfo { json } => gpu_info::gpu_info(json),
            Self::Memtest(args) => memtest::memtest(&args, wordy, meter),
            Self::Data(command) => command.run(),
            Self::Runs(command) => command.run(),
            Self::Corpus(CorpusCommand::Make(args)) => corpus::make(&args),
            Self::Config(command) => {
                command.run(environment(), &mut std::io::stdout().lock())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
