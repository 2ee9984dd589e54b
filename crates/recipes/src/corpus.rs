//! The synthetic corpus that a run makes for itself where no data are given.

use std::path::PathBuf;

use plimsoll_corpus::{CorpusOptions, CorpusReport, Engine, make_corpus};

use crate::config::DataConfig;
use crate::error::{Failure, FailureExt};
use crate::reporter::{Level, Reporter};

/// The list of utterances in a corpus's folder; it is written last.
const MANIFEST: &str = "manifest.jsonl";

/// The folder of the built-in corpus that `config` describes, whether it exists or not.
///
/// Each description has a folder of its own, so that another number of voices is never mistaken for this one.
fn folder(config: &DataConfig) -> PathBuf {
    let DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    let words = corpus_words.map(|words| format!("-words{words}")).unwrap_or_default();
    let studio = if *corpus_studio { "-studio" } else { "" };
    config.corpus_dir.join(format!("formant-{corpus_utterances}x{corpus_speakers}{words}{studio}-seed{corpus_seed}"))
}

/// Whether the built-in corpus that `config` describes exists.
pub fn is_made(config: &DataConfig) -> bool {
    folder(config).join(MANIFEST).exists()
}

/// The manifest of the built-in corpus that `config` describes, made first where it is missing.
///
/// # Errors
/// Where the corpus cannot be written.
pub fn built_in(config: &DataConfig, reporter: &dyn Reporter) -> Result<PathBuf, Failure> {
    let &DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    let out = folder(config);
    let manifest = out.join(MANIFEST);
    if !manifest.exists() {
        let text = format!("No data was given: making the built-in corpus in {}", out.display());
        reporter.line(Level::Info, &text);
        let options = CorpusOptions {
            out: out.clone(),
            utterances: corpus_utterances as usize,
            speakers: corpus_speakers as usize,
            seed: corpus_seed,
            words: corpus_words.map(|words| words as usize),
            studio: corpus_studio,
            engine: Engine::Formant,
        };
        let report = make_reported(&options, reporter)?;
        reporter.line(Level::Info, &summary(&report, &options));
    }
    Ok(manifest)
}

/// Makes the corpus of `options`, and reports how far it is.
///
/// # Errors
/// Where the options are impossible, or the corpus cannot be written.
pub fn make_reported(options: &CorpusOptions, reporter: &dyn Reporter) -> Result<CorpusReport, Failure> {
    let progress = reporter.progress("speaking utterances", Some(options.utterances as u64));
    make_corpus(options, &|done, _| progress.set(done as u64)).invalid()
}

/// What was made, in a line.
pub fn summary(report: &CorpusReport, options: &CorpusOptions) -> String {
    let &CorpusReport { utterances, speakers, total } = report;
    let out = options.out.display();
    format!("{utterances} utterances in {speakers} voices, {total} of speech, in {out}")
}
