//! `plimsoll corpus make`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_core::counted;
use plimsoll_corpus::{CorpusError, CorpusOptions, Engine, write_word_times};
use plimsoll_recipes::{Failure, FailureExt, corpus};

use crate::backend_flag::BackendFlag;
use crate::number::{number_above_0, number_in};
use crate::output::ForceFlag;
use crate::terminal::Terminal;

/// Number of voices without --speakers.
const SPEAKERS: usize = 40;
/// Largest number of utterances: a month of speech, and about 100 GB.
const UTTERANCES_MAX: usize = 1_000_000;

/// Commands of `corpus`.
#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Write synthetic speech as WAV files with `metadata.csv` and `manifest.jsonl` into a folder
    Make(CorpusArgs),
}

/// Arguments of `corpus make`.
#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Whether files in the output folder may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// Number of utterances.
    #[arg(long, default_value = "1600", value_parser = |text: &str| number_in(text, 1..=UTTERANCES_MAX))]
    pub(crate) utterances: NonZeroUsize,
    /// Number of voices. Default: 40, or one for each utterance if there are fewer.
    #[arg(long, value_parser = number_above_0)]
    pub(crate) speakers: Option<NonZeroUsize>,
    /// Seed of voices, sentences, rooms and noise. The list of words does not depend on it.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Use only the first N words of the list; in English the first ten are the digits. Default: all words.
    #[arg(long, value_name = "N", value_parser = number_above_0)]
    pub(crate) words: Option<NonZeroUsize>,
    /// Leave out room echo and noise, as in studio recordings for synthesis.
    #[arg(long)]
    pub(crate) studio: bool,
    /// Also write `words.ctm`, with the start and length of each word. Only `formant` knows them.
    #[arg(long)]
    pub(crate) times: bool,
    /// Speech engine: `formant` (built in) or `espeak-ng` (must be installed).
    #[arg(long, value_parser = ["formant", "espeak-ng"], default_value = "formant")]
    pub(crate) engine: String,
    /// Voice of espeak-ng, such as `kok` or `hi`. `formant` ignores it.
    #[arg(long, default_value = "en-us", value_name = "VOICE")]
    pub(crate) language: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Accepted everywhere.
    #[command(flatten)]
    pub(crate) _backend: BackendFlag,
}

/// Makes a corpus and prints its size.
pub(crate) fn make(args: &CorpusArgs) -> Result<ExitCode, Failure> {
    let engine = match args.engine.as_str() {
        "espeak-ng" => Engine::EspeakNg { language: args.language.clone() },
        _ => Engine::Formant,
    };
    let utterances = args.utterances.get();
    let speakers = args.speakers.map_or(SPEAKERS.min(utterances), NonZeroUsize::get);
    if speakers > utterances {
        let message = format!("{} cannot have {speakers} voices", counted(utterances, "utterance"));
        return Err(Failure::invalid(message, "give at least one utterance for each of --speakers"));
    }
    let options = CorpusOptions {
        out: args.out.clone(),
        utterances,
        speakers,
        seed: args.seed,
        words: args.words.map(NonZeroUsize::get),
        studio: args.studio,
        engine,
    };
    if args.times && options.engine != Engine::Formant {
        return Err(Failure::invalid(CorpusError::NoTimes.to_string(), "leave out --times, or use --engine formant"));
    }
    if !args.overwrite.force && std::fs::read_dir(&args.out).is_ok_and(|mut files| files.next().is_some()) {
        let message = format!("{} is not empty", args.out.display());
        return Err(Failure::invalid(message, "choose another --out, or overwrite what is there with --force"));
    }
    let report = corpus::make_with_progress(&options, &Terminal)?;
    if args.times {
        write_word_times(&options).failed()?;
    }
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("a report is plain data"));
    } else {
        println!("{}", corpus::summary(&report, &options));
    }
    Ok(ExitCode::SUCCESS)
}
