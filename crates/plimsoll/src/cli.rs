//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use plimsoll_core::CountingAllocator;
use plimsoll_train::Pick;

use crate::config::{ConfigArgs, ConfigCommand};
use crate::data::DataCommand;
use crate::failure::{Failure, ToldReport};
use crate::runs::RunsCommand;
use crate::search::SearchArgs;
use crate::{corpus, environment, eval, export, gpu_info, memtest, model, optimize, say, train, transcribe};

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
    /// WAV, FLAC, MP3 or Ogg files, or folders of them.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The run whose best checkpoint reads, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Prints one JSON object a line, `{"file": ..., "text": ..., "seconds": ...}` or `{"file": ..., "error": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the best text is looked for.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// What `say` takes.
#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// The text; `-` reads it from standard input.
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Says every line of this file into a WAV file of its own.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The run whose best checkpoint speaks, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// The WAV file to write; said.wav where it is not named.
    #[arg(long, value_name = "FILE.wav", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// The folder for the lines of --file, called by their numbers: 0001.wav and so on; said where it is not named.
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) out_dir: Option<PathBuf>,
    /// A recording of the voice to speak in; without one, a voice that the model learned from.
    #[arg(long, value_name = "FILE.wav")]
    pub(crate) speaker: Option<PathBuf>,
    /// The language of the text, for a model that was taught several.
    #[arg(long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// Decides what is random in speaking: the same text with the same seed sounds the same.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draws where the model looked in the text while it spoke, into this SVG file.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "file")]
    pub(crate) picture: Option<PathBuf>,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
}

/// What `eval` takes.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The run whose best checkpoint is judged, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// List of the utterances to read; without one, those that the run held out of its training.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// How many of the worst utterances are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) worst: usize,
    /// What the run learned, asr or tts; the run says so itself.
    #[arg(long, value_parser = ["asr", "tts"])]
    pub(crate) task: Option<String>,
    /// The run of a recogniser that reads what a synthesiser says.
    #[arg(long, value_name = "RUN")]
    pub(crate) judge: Option<PathBuf>,
    /// Keeps what a synthesiser says in this folder, a WAV file for each utterance.
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Only the first so many utterances.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<std::num::NonZeroUsize>,
    /// Writes a line for every utterance into this file, tab-separated under a header.
    #[arg(long, value_name = "FILE.tsv")]
    pub(crate) table: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the best text is looked for.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// What `export` takes.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The run whose model is written.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// The folder to write it into.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Which checkpoint: that of the best score, or the newest.
    #[arg(long, value_parser = ["best", "newest"], default_value = "best")]
    pub(crate) step: String,
    /// The mean of several checkpoints instead, which is often better than any of them: last:N or best:N. A run keeps as
    /// many as training.keep_checkpoints and training.keep_best say.
    #[arg(long, value_name = "WHICH:N", conflicts_with = "step")]
    pub(crate) average: Option<PickArg>,
    /// Writes into the folder even if something is in it; files of the same names are replaced.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Checkpoints to average, as they are written: `last:5`, `best:3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickArg(pub(crate) Pick);

impl std::str::FromStr for PickArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |count: &str| count.parse().ok().filter(|count| *count > 0);
        let pick = match text.split_once(':') {
            Some(("last", count)) => read(count).map(Pick::Last),
            Some(("best", count)) => read(count).map(Pick::Best),
            _ => None,
        };
        pick.map(Self).ok_or_else(|| "expected last:N or best:N, such as last:5".into())
    }
}

/// The commands of `model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Says how large the model of a configuration is, part by part, and what it makes of time.
    Info(InfoArgs),
}

/// What `model info` takes.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What `memtest` takes.
#[derive(Debug, Args)]
pub(crate) struct MemtestArgs {
    /// A card by name, such as `t4` or `rtx 3060`, or a size such as 8GiB, or cpu; may be repeated. Without one: the card
    /// that is here, or the CPU.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws memory over the step, by owner, into this HTML page.
    #[arg(long, value_name = "FILE.html", conflicts_with = "verify")]
    pub(crate) timeline: Option<PathBuf>,
    /// Writes the same for ui.perfetto.dev into this file.
    #[arg(long, value_name = "FILE.json", conflicts_with = "verify")]
    pub(crate) trace: Option<PathBuf>,
    /// Runs steps for real, each case in a process of its own, and compares what they need with what was predicted: a
    /// matrix of cases, or the one that --batch names. On the CPU, or on the card that --backend names: then each case
    /// runs twice, as a card tries kernels out when it first meets their sizes.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Utterances of a piece of the one case to verify, of the model that the configuration describes.
    #[arg(long, value_name = "B", requires = "verify")]
    pub(crate) batch: Option<u32>,
    /// Its frames; the longest where not given.
    #[arg(long, value_name = "T", requires = "batch")]
    pub(crate) frames: Option<u32>,
    /// Its tokens.
    #[arg(long, value_name = "U", requires = "batch")]
    pub(crate) tokens: Option<u32>,
    /// What it computes a second time.
    #[arg(long, value_parser = ["none", "half", "all"], requires = "batch")]
    pub(crate) remat: Option<String>,
    /// Plans for so many budgets instead, and runs each plan for real against its budget.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "verify")]
    pub(crate) budgets: u32,
    /// The case that this process is to run, as --verify tells it to the processes it starts.
    #[arg(long, hide = true, requires = "verify")]
    pub(crate) case: Option<String>,
    /// Cases of sizes drawn at random, beside those of the matrix.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "verify")]
    pub(crate) random: u32,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What `optimize` takes.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// The configuration to start from, a TOML file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: PathBuf,
    /// Where the changed one is written.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) output: PathBuf,
    /// A card by name or size, as for memtest; of several, it fits all. Without one: what is here.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
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
    /// Only the first so many words of the list, where not all are wanted; the first ten in English are the digits.
    #[arg(long, value_name = "N")]
    pub(crate) words: Option<std::num::NonZeroUsize>,
    /// Recorded without rooms and noise, as voices for synthesis are.
    #[arg(long)]
    pub(crate) studio: bool,
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
            Self::Corpus(CorpusCommand::Make(args)) => corpus::make_told(&args),
            Self::Config(command) => {
                command.run(environment(), &mut std::io::stdout().lock()).told()?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
