//! What the commands of `plimsoll data` take.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use plimsoll_data::{CheckDepth, Format, ImportOptions};

use plimsoll_recipes::Failure;
use plimsoll_recipes::config::ConfigArgs;

/// The commands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Reads a corpus in whatever layout it has, checks it, and writes one list of what can be used.
    Import(ImportArgs),
    /// Says what of a corpus a run could use, and what not and why.
    Check(CheckArgs),
    /// Says how long utterances and texts are, who speaks, and in which letters.
    Stats(StatsArgs),
    /// Loads batches as a run would, and says how fast that is and what takes the time.
    Bench(BenchArgs),
    /// Says what is kept in a folder of features, and looks whether it is whole.
    Cache(CacheArgs),
}

/// Which corpus.
#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// The folder or the list of a corpus; that of the configuration where not given.
    #[arg(value_name = "PATH")]
    pub(super) path: Option<PathBuf>,
    /// How it is laid out: manifest (JSON lines, NeMo's too), ljspeech, librispeech, libritts, common-voice, kaldi, lhotse,
    /// huggingface, or folder (audio with texts beside it); found out where not given.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Where relative paths to audio start, instead of the list's folder.
    #[arg(long, value_name = "DIR")]
    audio_root: Option<PathBuf>,
    /// Who speaks, where the corpus does not say.
    #[arg(long, value_name = "NAME")]
    speaker: Option<String>,
    /// Which language is spoken, where the corpus does not say.
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
}

impl CorpusArgs {
    pub(super) fn import_options(&self) -> Result<ImportOptions, Failure> {
        let format = self.format.as_deref().map(|word| {
            Format::from_name(word).ok_or_else(|| {
                let words = Format::ALL.map(Format::name).join(", ");
                Failure::invalid(format!("there is no format `{word}`"), format!("use one of {words}"))
            })
        });
        Ok(ImportOptions {
            format: format.transpose()?,
            audio_root: self.audio_root.clone(),
            speaker: self.speaker.clone(),
            language: self.language.clone(),
        })
    }
}

/// Which corpus is looked at, how closely, and how that is told.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Which corpus.
    #[command(flatten)]
    pub(super) corpus: CorpusArgs,
    /// Decodes every sample instead of trusting the headers of files.
    #[arg(long)]
    decode: bool,
    /// Lists everything that cannot be used, and not just the first of each kind.
    #[arg(long)]
    pub(super) all: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl LookArgs {
    pub(super) fn look(&self) -> CheckDepth {
        if self.decode { CheckDepth::Decode } else { CheckDepth::Header }
    }
}

/// What `data import` takes.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Which corpus, and how it is looked at.
    #[command(flatten)]
    pub(super) looking: LookArgs,
    /// The list to write, JSON lines; audio below its folder is named from there.
    #[arg(long, value_name = "FILE.jsonl", default_value = "manifest.jsonl")]
    pub(super) out: PathBuf,
    /// Writes over a list that is there.
    #[arg(long)]
    pub(super) force: bool,
    /// The configuration, for the lengths in frames.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// What `data check` takes.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Which corpus, and how it is looked at.
    #[command(flatten)]
    pub(super) looking: LookArgs,
    /// Looks for letters that are not in this vocabulary: the model.json of a model, or a tokenizer.json.
    #[arg(long, value_name = "FILE.json")]
    pub(super) vocabulary: Option<PathBuf>,
    /// Draws what was found, with both lengths, into this HTML page.
    #[arg(long, value_name = "FILE.html")]
    pub(super) page: Option<PathBuf>,
    /// The configuration, whose limits count.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// What `data stats` takes.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Which corpus.
    #[command(flatten)]
    pub(super) corpus: CorpusArgs,
    /// Draws both lengths into this HTML page.
    #[arg(long, value_name = "FILE.html")]
    pub(super) page: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration, which may name the corpus.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// What `data bench` takes.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration, which names the corpus; the built-in one where it names none.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// What `data cache` takes.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// The folder; that of the configuration where not given.
    #[arg(value_name = "DIR")]
    pub(super) folder: Option<PathBuf>,
    /// Deletes what is in it, except what a run is writing.
    #[arg(long)]
    pub(super) clear: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration, which may name the folder.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}
