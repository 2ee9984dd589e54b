//! Making a corpus: every utterance on its own, in any order, and the manifest at the very end.

use super::CorpusError;
use super::espeak::EspeakTalker;
use super::lexicon::sentence;
use super::recording::{Recording, in_studio};
use super::synthesiser::SAMPLE_RATE;
use super::talker::{FormantTalker, Talker};
use plimsoll_audio::wav_bytes;
use plimsoll_core::{Key, Samples, Seconds};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What corpus to make, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusOptions {
    /// The folder to fill; it is made where it is missing.
    pub out: PathBuf,
    /// How many utterances.
    pub utterances: usize,
    /// How many speakers they are shared among, in turn: utterance `i` is said by speaker `i % speakers`.
    pub speakers: usize,
    /// Decides voices, sentences, rooms and noise.
    pub seed: u64,
    /// Only so many words, the first of their list; all of them where `None`. The first ten in English are the digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<usize>,
    /// Read aloud and recorded without a room and without noise, as voices for synthesis are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub studio: bool,
    /// What speaks.
    pub engine: Engine,
}

/// What speaks in a corpus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Engine {
    /// Our own formant synthesiser, which speaks English-like words and needs no program.
    #[default]
    Formant,
    /// The program espeak-ng, in any of its languages for which there is a word list.
    EspeakNg {
        /// As espeak-ng calls it: `kok`, `hi`, `en-us`.
        language: String,
    },
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CorpusReport {
    /// Utterances written.
    pub utterances: usize,
    /// Speakers heard in them.
    pub speakers: usize,
    /// Length of all utterances together.
    pub total: Seconds,
}

/// One line of the manifest, in NeMo's words.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    audio_filepath: String,
    duration: f64,
    text: String,
    speaker: String,
}

/// Makes a corpus, calling `progress` with the utterances done and asked for after every one, from any thread.
///
/// The same options give the same bytes, whatever the number of threads. The manifest comes last and at once, so a
/// folder without one is a corpus that was interrupted, also when an older corpus is made anew.
pub fn make(options: &CorpusOptions, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<CorpusReport, CorpusError> {
    let talker = talker(options)?;
    let wavs = options.out.join("wavs");
    fs::create_dir_all(&wavs).map_err(failed_at(&wavs))?;
    let manifest = options.out.join("manifest.jsonl");
    remove_old(&manifest)?;
    let done = AtomicUsize::new(0);
    let write = |index| {
        let line = utterance(options, talker.as_ref(), index)?;
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, options.utterances);
        Ok(line)
    };
    let lines: Vec<Line> = (0..options.utterances).into_par_iter().map(write).collect::<Result<_, CorpusError>>()?;
    write_file(&options.out.join("metadata.csv"), metadata(&lines).as_bytes())?;
    write_at_once(&manifest, manifest_text(&lines).as_bytes())?;
    Ok(CorpusReport {
        utterances: lines.len(),
        speakers: options.speakers.min(lines.len()),
        total: lines.iter().map(|line| Seconds(line.duration)).sum(),
    })
}

fn talker(options: &CorpusOptions) -> Result<Box<dyn Talker>, CorpusError> {
    if options.utterances == 0 {
        return Err(CorpusError::NoUtterances);
    }
    if options.speakers == 0 {
        return Err(CorpusError::NoSpeakers);
    }
    Ok(match &options.engine {
        Engine::Formant => Box::new(FormantTalker { seed: options.seed, reads: options.studio }),
        Engine::EspeakNg { language } => Box::new(EspeakTalker::new(language, options.seed)?),
    })
}

/// Says, records and writes utterance `index`.
fn utterance(options: &CorpusOptions, talker: &dyn Talker, index: usize) -> Result<Line, CorpusError> {
    let key = Key::new(options.seed).with("utterance").at(index as u64);
    let speaker = index % options.speakers;
    let words = talker.words();
    let n_words = options.words.map_or(words.len(), |most| most.clamp(1, words.len()));
    let sentence = sentence(n_words, key.with("sentence"));
    let dry = talker.say(&sentence, speaker, key.with("speech"))?;
    let place = key.with("recording");
    let samples = if options.studio { in_studio(&dry, place) } else { Recording::new(place).record(&dry) };
    let id = format!("s{speaker:03}-{index:05}");
    let audio_filepath = format!("wavs/{id}.wav");
    write_file(&options.out.join(&audio_filepath), &wav_bytes(&samples, SAMPLE_RATE))?;
    Ok(Line {
        id,
        audio_filepath,
        duration: Samples(samples.len() as u64).at(SAMPLE_RATE).0,
        text: sentence.iter().map(|&word| words[word]).collect::<Vec<_>>().join(" "),
        speaker: format!("s{speaker:03}"),
    })
}

fn metadata(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{id}|{text}|{text}\n", id = line.id, text = line.text)).collect()
}

fn manifest_text(lines: &[Line]) -> String {
    let json = |line| serde_json::to_string(line).expect("strings and one number are always JSON");
    lines.iter().map(|line| json(line) + "\n").collect()
}

fn remove_old(path: &Path) -> Result<(), CorpusError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed_at(path)(error)),
        _ => Ok(()),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
    fs::write(path, bytes).map_err(failed_at(path))
}

/// Writes a file that is there as a whole or not at all.
fn write_at_once(path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
    let draft = path.with_extension("jsonl.tmp");
    write_file(&draft, bytes)?;
    fs::rename(&draft, path).map_err(failed_at(path))
}

fn failed_at(path: &Path) -> impl Fn(io::Error) -> CorpusError {
    let path = path.to_path_buf();
    move |source| CorpusError::Write { path: path.clone(), source }
}
