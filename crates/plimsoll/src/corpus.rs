//! `plimsoll corpus make`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_corpus::{CorpusOptions, Engine};
use plimsoll_recipes::{Failure, corpus};

use crate::terminal::Terminal;

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

/// Makes the corpus that `args` ask for and prints what was made.
pub(crate) fn make(args: &CorpusArgs) -> Result<ExitCode, Failure> {
    let engine = match args.engine.as_str() {
        "espeak-ng" => Engine::EspeakNg { language: args.language.clone() },
        _ => Engine::Formant,
    };
    let options = CorpusOptions {
        out: args.out.clone(),
        utterances: args.utterances,
        speakers: args.speakers,
        seed: args.seed,
        words: args.words.map(std::num::NonZeroUsize::get),
        studio: args.studio,
        engine,
    };
    let report = corpus::make_with_progress(&options, &Terminal)?;
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("a report is plain data"));
    } else {
        println!("{}", corpus::summary(&report, &options));
    }
    Ok(ExitCode::SUCCESS)
}
