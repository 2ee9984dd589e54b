//! `plimsoll corpus make`, and the corpus that a run without data makes for itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_corpus::{CorpusOptions, CorpusReport, Engine, make_corpus};

use crate::cli::CorpusArgs;
use crate::config::DataConfig;
use crate::failure::{Failure, Told};

/// The list of utterances in a corpus's folder; it is written last.
const MANIFEST: &str = "manifest.jsonl";

/// Makes the corpus that `args` ask for and says what was made.
pub(crate) fn make_told(args: &CorpusArgs) -> Result<ExitCode, Failure> {
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
    let report = make_shown(&options)?;
    if args.json {
        println!("{}", serde_json::to_string(&report).expect("a report is plain data"));
    } else {
        println!("{}", told(&report, &options.out));
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder of the built-in corpus that `config` describes, made or not.
///
/// Each description has a folder of its own, so that another number of voices is never mistaken for this one.
fn folder(config: &DataConfig) -> PathBuf {
    let DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    let words = corpus_words.map(|words| format!("-words{words}")).unwrap_or_default();
    let studio = if *corpus_studio { "-studio" } else { "" };
    config.corpus_dir.join(format!("formant-{corpus_utterances}x{corpus_speakers}{words}{studio}-seed{corpus_seed}"))
}

/// Whether the built-in corpus that `config` describes has been made.
pub(crate) fn is_made(config: &DataConfig) -> bool {
    folder(config).join(MANIFEST).exists()
}

/// The manifest of the built-in corpus that `config` describes, made first where it is missing.
pub(crate) fn built_in(config: &DataConfig) -> Result<PathBuf, Failure> {
    let &DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    let out = folder(config);
    let manifest = out.join(MANIFEST);
    if !manifest.exists() {
        eprintln!("No data was given: making the built-in corpus in {}", out.display());
        let options = CorpusOptions {
            out: out.clone(),
            utterances: corpus_utterances as usize,
            speakers: corpus_speakers as usize,
            seed: corpus_seed,
            words: corpus_words.map(|words| words as usize),
            studio: corpus_studio,
            engine: Engine::Formant,
        };
        let report = make_shown(&options)?;
        eprintln!("{}", told(&report, &out));
    }
    Ok(manifest)
}

fn make_shown(options: &CorpusOptions) -> Result<CorpusReport, Failure> {
    let style = ProgressStyle::with_template("speaking {bar:40} {pos}/{len} utterances, {eta} left");
    let bar = ProgressBar::new(options.utterances as u64).with_style(style.expect("the template is valid"));
    let report = make_corpus(options, &|done, _| bar.set_position(done as u64)).wrong();
    bar.finish_and_clear();
    report
}

fn told(report: &CorpusReport, out: &Path) -> String {
    let &CorpusReport { utterances, speakers, total } = report;
    format!("{utterances} utterances in {speakers} voices, {total} of speech, in {}", out.display())
}
