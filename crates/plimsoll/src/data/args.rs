//! Arguments of the commands of `plimsoll data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use plimsoll_config::{ConfigArgs, DataConfig};
use plimsoll_core::Bytes;
use plimsoll_data::{CheckDepth, Format, ImportOptions};
use plimsoll_recipes::Failure;
use plimsoll_recipes::filling::Part;
use plimsoll_recipes::texts::unpack_folder;

use crate::number::finite_number;
use crate::output::ForceFlag;
use crate::run_flag::run_folder;

/// Commands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read a corpus in any known layout, check it, and write its usable utterances as one list
    Import(ImportArgs),
    /// Report which utterances of a corpus a run can use, and why it cannot use the others
    Check(CheckArgs),
    /// Print the lengths of utterances and texts, speaking rates, voices, languages and characters
    Stats(StatsArgs),
    /// Measure how fast batches load without training, and which part takes the time
    Bench(BenchArgs),
    /// Show and check the features that are cached on disk, or delete them
    Cache(CacheArgs),
    /// Write a corpus into shards, of WebDataset, Lhotse Shar or Parquet, which are read without unpacking
    Pack(PackArgs),
    /// Make the index of a long list, from which runs start without reading the list
    Index(IndexArgs),
    /// Cut a long recording with its known text into utterances to train on, and leave out what it does not say
    Segment(SegmentArgs),
}

/// Arguments that select a corpus and complete its metadata.
#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// Folder or list of the corpus. Default: `data.manifest` of the configuration.
    #[arg(value_name = "PATH")]
    pub(super) path: Option<PathBuf>,
    /// Layout of the corpus: manifest (JSON lines or an array, also NeMo's), ljspeech, librispeech, libritts, common-voice, kaldi, lhotse,
    /// huggingface, webdataset, parquet, arrow, or folder (audio files with a text file beside each). Default: detected.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Folder that relative audio paths start from. Default: the folder of the list.
    #[arg(long, value_name = "DIR")]
    audio_root: Option<PathBuf>,
    /// Speaker of utterances for which the corpus names none.
    #[arg(long, value_name = "NAME")]
    speaker: Option<String>,
    /// Language of utterances for which the corpus names none.
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
}

impl CorpusArgs {
    /// Returns the options with which the corpus is imported, with the folders of `data`. Fails if the format is unknown.
    pub(super) fn import_options(&self, data: &DataConfig) -> Result<ImportOptions, Failure> {
        let format = self.format.as_deref().map(|word| {
            Format::from_name(word).ok_or_else(|| {
                let words = Format::ALL.map(Format::name).join(", ");
                Failure::invalid(format!("there is no format `{word}`"), format!("use one of {words}"))
            })
        });
        Ok(ImportOptions {
            format: format.transpose()?,
            audio_root: self.audio_root.clone().or_else(|| data.audio_root.clone()),
            speaker: self.speaker.clone(),
            language: self.language.clone(),
            unpack: unpack_folder(data),
            ..ImportOptions::default()
        })
    }
}

/// Arguments of the commands that check a corpus and report on it.
#[derive(Debug, Args)]
pub(crate) struct CorpusCheckArgs {
    /// The corpus.
    #[command(flatten)]
    pub(super) corpus: CorpusArgs,
    /// Decode all audio instead of reading only file headers. Slower; finds damaged and silent files.
    #[arg(long)]
    decode: bool,
    /// List every unusable utterance. Default: the first three of each kind.
    #[arg(long)]
    pub(super) all: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

impl CorpusCheckArgs {
    /// Returns how much of each audio file the check reads: its header, or with `--decode` all audio.
    pub(super) fn depth(&self) -> CheckDepth {
        if self.decode { CheckDepth::Decode } else { CheckDepth::Header }
    }
}

/// Arguments of `data import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The corpus and how to check it.
    #[command(flatten)]
    pub(super) check: CorpusCheckArgs,
    /// Output list, JSON lines. Audio below its folder gets relative paths.
    #[arg(long, value_name = "FILE.jsonl", default_value = "manifest.jsonl")]
    pub(super) out: PathBuf,
    /// Whether the output list may be overwritten.
    #[command(flatten)]
    pub(super) overwrite: ForceFlag,
    /// The configuration; its features decide the lengths in frames.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The corpus and how to check it.
    #[command(flatten)]
    pub(super) check: CorpusCheckArgs,
    /// Report utterances with characters outside of this vocabulary: the model.json of a model, or a tokenizer.json.
    #[arg(long, value_name = "FILE.json")]
    pub(super) vocabulary: Option<PathBuf>,
    /// Write the findings and the distributions of lengths as an HTML page to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(super) page: Option<PathBuf>,
    /// Whether the page may be overwritten.
    #[command(flatten)]
    pub(super) overwrite: ForceFlag,
    /// The configuration; its limits of length decide what is usable.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The corpus.
    #[command(flatten)]
    pub(super) corpus: CorpusArgs,
    /// Write the distributions of lengths as an HTML page to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(super) page: Option<PathBuf>,
    /// Whether the page may be overwritten.
    #[command(flatten)]
    pub(super) overwrite: ForceFlag,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration; it can name the corpus.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration; it names the corpus. Default: the built-in corpus.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Folder of the cache. Default: `data.cache_dir` of the configuration.
    #[arg(value_name = "DIR")]
    pub(super) folder: Option<PathBuf>,
    /// Delete the cached features, except files that a run is writing.
    #[arg(long, conflicts_with = "fill")]
    pub(super) clear: bool,
    /// Compute the features of the corpus of the configuration, and keep those that the cache does not have, so that a run
    /// need not compute them. Several processes of MPI share the work.
    #[arg(long)]
    pub(super) fill: bool,
    /// With --fill, do one part of the work only, such as the third of sixteen: for the job arrays of a cluster, whose jobs
    /// write into the same folder.
    #[arg(long, value_name = "K/N", requires = "fill")]
    pub(super) part: Option<Part>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration; it can name the folder.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data pack`.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The corpus.
    #[command(flatten)]
    pub(super) corpus: CorpusArgs,
    /// Folder for the shards; it must not exist.
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    /// Format of the shards: webdataset, shar, parquet or kaldi.
    #[arg(long, value_name = "FORMAT", default_value = "webdataset")]
    pub(super) to: String,
    /// Size of a shard, such as 512MiB, at least 64KiB; the last can be smaller.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = shard_size)]
    pub(super) shard_size: Bytes,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration; it can name the corpus.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data index`.
#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    /// List of JSON lines as `data import` writes it, or its folder. Default: `data.manifest` of the configuration.
    #[arg(value_name = "LIST")]
    pub(super) list: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// The configuration; it can name the list.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// Arguments of `data segment`.
#[derive(Debug, Args)]
pub(crate) struct SegmentArgs {
    /// The recording, of any length.
    #[arg(value_name = "AUDIO")]
    pub(super) audio: PathBuf,
    /// Text file with what is said in it, one utterance a line.
    #[arg(value_name = "TEXT")]
    pub(super) text: PathBuf,
    /// Run of a recognizer (its folder, or its name in `runs`), or folder of an exported one.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(super) run: PathBuf,
    /// Folder for the clips and the manifest; it must not exist, or be empty.
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    /// Least score of an utterance: the mean log-probability of its text in its worst second. Nearer to 0 keeps fewer and
    /// surer utterances.
    #[arg(long, value_name = "SCORE", default_value_t = -1.5, value_parser = finite_number, allow_negative_numbers = true)]
    pub(super) min_score: f64,
    /// Format of the clips.
    #[arg(long, value_name = "FORMAT", default_value = "flac", value_parser = ["flac", "wav"])]
    pub(super) to: String,
    /// Name of the speaker.
    #[arg(long, value_name = "NAME")]
    pub(super) speaker: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(super) backend: String,
}

/// Parses the size of a shard. With a smaller one, each utterance would have a file of its own.
fn shard_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    match size >= Bytes(64 << 10) {
        true => Ok(size),
        false => Err("expected a size of at least 64KiB".into()),
    }
}
