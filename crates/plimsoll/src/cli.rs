//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use plimsoll_core::MemoryMeter;

use crate::config::{ConfigArgs, ConfigCommand};
use crate::failure::{Failure, ToldReport};
use crate::{corpus, environment, train, transcribe};

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
130 or 143 stopped by a signal, with a checkpoint to resume from.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains a model, by default a small recogniser on the built-in corpus.
    Train(Box<TrainArgs>),
    /// Reads recordings with a trained recogniser.
    Transcribe(TranscribeArgs),
    /// Makes speech with its texts, without a download.
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Prints, checks and locates the configuration.
    #[command(subcommand)]
    Config(Box<ConfigCommand>),
}

/// What `train` takes.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Goes on with the run in this folder (`runs/NAME`), from its newest whole checkpoint; its configuration is the
    /// file, and flags may change it, such as a larger `--epochs`.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "name"])]
    pub(crate) resume: Option<PathBuf>,
    /// Shows the plan and stops before the run folder is made.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What `transcribe` takes.
#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// WAV files, or folders of them.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The run whose best checkpoint reads.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Prints one JSON object a line, `{"file": ..., "text": ...}`, instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
}

/// The commands of `corpus`.
#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Writes WAV files, `metadata.csv` and `manifest.jsonl` into a folder.
    Make(CorpusArgs),
}

/// What `corpus make` takes.
#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// The folder to fill; an older corpus in it is replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How many utterances.
    #[arg(long, default_value_t = 1600)]
    pub(crate) utterances: usize,
    /// How many voices they are shared among.
    #[arg(long, default_value_t = 40)]
    pub(crate) speakers: usize,
    /// Decides voices, sentences, rooms and noise; the words stay the same.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// What speaks: our own formant synthesiser, or espeak-ng where it is installed.
    #[arg(long, value_parser = ["formant", "espeak-ng"], default_value = "formant")]
    pub(crate) engine: String,
    /// The language that espeak-ng speaks, such as `kok` or `hi`.
    #[arg(long, default_value = "en-us", value_name = "VOICE")]
    pub(crate) language: String,
    /// Prints the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command {
    pub(crate) fn run(self, meter: &'static dyn MemoryMeter) -> Result<ExitCode, Failure> {
        match self {
            Self::Train(args) => train::train(*args, meter),
            Self::Transcribe(args) => transcribe::transcribe(&args),
            Self::Corpus(CorpusCommand::Make(args)) => corpus::make_told(&args),
            Self::Config(command) => {
                command.run(environment(), &mut std::io::stdout().lock()).told()?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
