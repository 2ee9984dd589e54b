//! Makes the built-in synthetic corpus, which a run uses if the configuration names no manifest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_config::{DataConfig, RunConfig};
use plimsoll_core::{Seconds, counted};
use plimsoll_corpus::{CorpusOptions, CorpusReport, Engine, ListedUtterance, list_corpus, make_corpus};
use plimsoll_data::{Format, Manifest, Utterance};

use crate::error::{Failure, FailureExt};
use crate::reporter::{Level, Reporter};
use crate::texts::{read_manifest, text_normalizer};

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

/// Returns the options of the built-in corpus that `config` describes.
fn options(config: &DataConfig) -> CorpusOptions {
    let &DataConfig { corpus_utterances, corpus_speakers, corpus_seed, corpus_words, corpus_studio, .. } = config;
    CorpusOptions {
        out: folder(config),
        utterances: corpus_utterances as usize,
        speakers: corpus_speakers as usize,
        seed: corpus_seed,
        words: corpus_words.map(|words| words as usize),
        studio: corpus_studio,
        engine: Engine::Formant,
    }
}

/// Makes the built-in corpus that `config` describes, unless it exists; returns the path of its manifest.
///
/// # Errors
/// If the options are impossible, or the corpus cannot be written.
pub fn make_built_in(config: &DataConfig, reporter: &dyn Reporter) -> Result<PathBuf, Failure> {
    let options = options(config);
    let manifest = options.out.join(MANIFEST);
    if !manifest.exists() {
        let text = format!("No data was given: making the built-in corpus in {}", options.out.display());
        reporter.line(Level::Info, &text);
        let report = make_with_progress(&options, reporter)?;
        reporter.line(Level::Info, &summary(&report, &options));
    }
    Ok(manifest)
}

/// Lists the utterances of the built-in corpus of `config`, and writes nothing: reads its manifest if it exists, else
/// computes texts and durations. The texts are normalized as for training.
///
/// # Errors
/// If the options are impossible, or the manifest or the file `data.tokenizer_file` cannot be read.
pub fn list_built_in(config: &RunConfig, reporter: &dyn Reporter) -> Result<Manifest, Failure> {
    let options = options(&config.data);
    let path = options.out.join(MANIFEST);
    if path.exists() {
        return read_manifest(&path, &config.data, reporter);
    }
    let progress = reporter.progress("listing utterances", Some(options.utterances as u64));
    let listed = list_corpus(&options, &|done, _| progress.set(done as u64)).invalid()?;
    let normalize = text_normalizer(&config.data)?;
    let utterance = |listed: ListedUtterance| Utterance {
        id: listed.id,
        audio: options.out.join(listed.audio_filepath),
        offset: Seconds(0.0),
        duration: Seconds(listed.duration),
        text: normalize(&listed.text),
        speaker: Some(listed.speaker),
        language: None,
    };
    let utterances = listed.into_iter().map(utterance).collect();
    Ok(Manifest {
        path,
        format: Format::Manifest,
        utterances,
        issues: Vec::new(),
        more_issues: 0,
        resampled: BTreeMap::new(),
    })
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
    format!("{utterances} in {voices}, {}, in {out}", total.of_speech())
}
