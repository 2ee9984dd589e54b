//! Makes the built-in synthetic corpus, which a run uses if the configuration names no manifest.

use std::path::PathBuf;

use plimsoll_core::counted;
use plimsoll_corpus::{CorpusOptions, CorpusReport, Engine, make_corpus};

use crate::config::DataConfig;
use crate::error::{Failure, FailureExt};
use crate::reporter::{Level, Reporter};

/// File name of the manifest in the folder of a corpus. It is written last, so a corpus that has it is complete.
const MANIFEST: &str = "manifest.jsonl";

/// Returns the folder of the built-in corpus that `config` describes, whether it exists or not.
///
/// The name holds all options, so that a corpus with other options is never mistaken for this corpus.
fn folder(config: &DataConfig) -> PathBuf {
    let DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    let words = corpus_words.map(|words| format!("-words{words}")).unwrap_or_default();
    let studio = if *corpus_studio { "-studio" } else { "" };
    config.corpus_dir.join(format!("formant-{corpus_utterances}x{corpus_speakers}{words}{studio}-seed{corpus_seed}"))
}

/// Returns whether the built-in corpus that `config` describes exists and is complete.
pub fn exists(config: &DataConfig) -> bool {
    folder(config).join(MANIFEST).exists()
}

/// Makes the built-in corpus that `config` describes, unless it exists; returns the path of its manifest.
///
/// # Errors
/// If the options are impossible, or the corpus cannot be written.
pub fn make_built_in(config: &DataConfig, reporter: &dyn Reporter) -> Result<PathBuf, Failure> {
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
        let report = make_with_progress(&options, reporter)?;
        reporter.line(Level::Info, &summary(&report, &options));
    }
    Ok(manifest)
}

/// Makes a corpus with `options`, and shows progress in utterances.
///
/// # Errors
/// If the options are impossible, or the corpus cannot be written.
pub fn make_with_progress(options: &CorpusOptions, reporter: &dyn Reporter) -> Result<CorpusReport, Failure> {
    let progress = reporter.progress("speaking utterances", Some(options.utterances as u64));
    make_corpus(options, &|done, _| progress.set(done as u64)).invalid()
}

/// Summarizes a corpus that was made in one line: utterances, voices, length and folder.
pub fn summary(report: &CorpusReport, options: &CorpusOptions) -> String {
    let &CorpusReport { utterances, speakers, total } = report;
    let out = options.out.display();
    let (utterances, voices) = (counted(utterances, "utterance"), counted(speakers, "voice"));
    format!("{utterances} in {voices}, {total} of speech, in {out}")
}
