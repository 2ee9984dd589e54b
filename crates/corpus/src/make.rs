//! Makes a corpus: first the utterances, in parallel and independent of each other, then the manifest.

use crate::engine::{FormantEngine, SpeechEngine};
use crate::error::CorpusError;
use crate::espeak::EspeakEngine;
use crate::lexicon::sentence;
use crate::recording::{Recording, studio_delay, studio_recording};
use crate::synthesizer::SAMPLE_RATE;
use plimsoll_audio::wav_bytes;
use plimsoll_core::{Draft, Key, Samples, Seconds, replace_file};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of the corpus to make, and its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusOptions {
    /// Folder of the corpus; it is created if missing.
    pub out: PathBuf,
    /// Number of utterances in the corpus, at least one.
    pub utterances: usize,
    /// Number of speakers in the corpus, at least one. Utterance `i` is spoken by speaker `i % speakers`.
    pub speakers: usize,
    /// Seed that determines voices, sentences, rooms and noise.
    pub seed: u64,
    /// Number of words to use, from the start of the word list; `None` uses all words. The first ten English words are
    /// the digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<usize>,
    /// Whether the speech is read aloud and recorded without room and noise, like recordings for speech synthesis.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub studio: bool,
    /// Speech engine that speaks the corpus.
    pub engine: Engine,
}

/// Speech engine that speaks a corpus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Engine {
    /// Built-in formant synthesizer, which speaks English-like words and needs no external program.
    #[default]
    Formant,
    /// External program espeak-ng, in any of its languages for which this crate has a word list.
    EspeakNg {
        /// Language in the notation of espeak-ng: `kok`, `hi`, `en-us`.
        language: String,
    },
}

/// Size of a corpus that was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CorpusReport {
    /// Number of utterances that were written.
    pub utterances: usize,
    /// Number of speakers in the corpus.
    pub speakers: usize,
    /// Total duration of all utterances.
    pub total: Seconds,
}

/// Utterance of a corpus, as it is listed in the manifest with NeMo's field names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedUtterance {
    /// Id of the utterance.
    pub id: String,
    /// Path of the audio file in the folder of the corpus.
    pub audio_filepath: String,
    /// Duration in seconds.
    pub duration: f64,
    /// Spoken text.
    pub text: String,
    /// Name of the speaker.
    pub speaker: String,
}

/// Makes a corpus. After every utterance calls `progress` with the finished and the total number of utterances, from
/// any thread.
///
/// Equal options give equal bytes on any number of threads. The manifest is written last and atomically, and an older
/// manifest is removed first, so a folder without a manifest is an interrupted corpus. If a corpus cannot be made, the folders
/// that were made for it are removed.
///
/// # Errors
/// When the options ask for zero utterances or speakers, a file cannot be written, or espeak-ng is missing, fails or
/// does not support the language.
pub fn make_corpus(
    options: &CorpusOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<CorpusReport, CorpusError> {
    let engine = new_engine(options)?;
    let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let made: Vec<&Path> = options.out.ancestors().skip(1).take_while(is_new).collect();
    let report = write_corpus(options, engine.as_ref(), progress);
    if report.is_err() {
        // Only empty folders are removed.
        made.into_iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
    report
}

/// Writes a corpus. What is new is removed if it does not become complete.
fn write_corpus(
    options: &CorpusOptions,
    engine: &dyn SpeechEngine,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<CorpusReport, CorpusError> {
    let (wavs, table) = (options.out.join("wavs"), options.out.join("metadata.csv"));
    let manifest = options.out.join("manifest.jsonl");
    let new: Vec<Draft> =
        [&table, &wavs, &options.out].into_iter().filter(|path| !path.exists()).map(Draft::of).collect();
    fs::create_dir_all(&wavs).map_err(write_error(&wavs))?;
    remove_old(&manifest)?;
    let done = AtomicUsize::new(0);
    let write = |index| {
        let line = utterance(options, engine, index)?;
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, options.utterances);
        Ok(line)
    };
    let lines: Vec<ListedUtterance> =
        (0..options.utterances).into_par_iter().map(write).collect::<Result<_, CorpusError>>()?;
    let replace = |path: &Path, text: String| {
        replace_file(path, |file| file.write_all(text.as_bytes())).map_err(write_error(path))
    };
    replace(&table, metadata(&lines))?;
    replace(&manifest, manifest_text(&lines))?;
    new.into_iter().for_each(Draft::keep);
    Ok(CorpusReport {
        utterances: lines.len(),
        speakers: options.speakers.min(lines.len()),
        total: lines.iter().map(|line| Seconds(line.duration)).sum(),
    })
}

fn new_engine(options: &CorpusOptions) -> Result<Box<dyn SpeechEngine>, CorpusError> {
    if options.utterances == 0 {
        return Err(CorpusError::NoUtterances);
    }
    if options.speakers == 0 {
        return Err(CorpusError::NoSpeakers);
    }
    Ok(match &options.engine {
        Engine::Formant => Box::new(FormantEngine { seed: options.seed, is_reading: options.studio }),
        Engine::EspeakNg { language } => Box::new(EspeakEngine::new(language, options.seed)?),
    })
}

/// Lists the utterances that [`make_corpus`] makes with the same options, and writes nothing.
///
/// The durations are exact. The built-in engine computes them without sound, unless `options.studio` is set: silence at
/// both ends of a studio recording is cut off by its loudness, so the speech is made in memory.
///
/// # Errors
/// When the options ask for zero utterances or speakers, or espeak-ng is missing, fails or does not support the
/// language.
pub fn list_corpus(
    options: &CorpusOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<ListedUtterance>, CorpusError> {
    let engine = new_engine(options)?;
    let done = AtomicUsize::new(0);
    let list = |index| {
        let sentence = Sentence::new(options, engine.as_ref(), index);
        let samples = match options.studio {
            true => sentence.record(options, engine.as_ref())?.len(),
            // A room and noise keep the length.
            false => engine.n_samples(&sentence.words, sentence.speaker, sentence.key.with("speech"))?,
        };
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, options.utterances);
        Ok(sentence.listed(engine.as_ref(), samples))
    };
    (0..options.utterances).into_par_iter().map(list).collect()
}

/// A word of an utterance, with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct SpokenWord {
    /// The word.
    pub text: &'static str,
    /// Start in the recording.
    pub start: Seconds,
    /// End in the recording.
    pub end: Seconds,
}

/// Computes when each word of the corpus of `options` is said: the ids of its utterances, as [`make_corpus`] writes them, with
/// their words. A room makes echoes longer than a word; they are not counted.
///
/// # Errors
/// When the options ask for zero utterances or speakers, or the engine does not know its times.
pub fn word_times(options: &CorpusOptions) -> Result<Vec<(String, Vec<SpokenWord>)>, CorpusError> {
    let engine = new_engine(options)?;
    let times = |index| {
        let sentence = Sentence::new(options, engine.as_ref(), index);
        Ok((sentence.id.clone(), sentence.times(options, engine.as_ref())?))
    };
    (0..options.utterances).into_par_iter().map(times).collect()
}

/// Writes the times of all words of the corpus of `options` into its folder, as `words.ctm`.
///
/// # Errors
/// As [`word_times`], or when the file cannot be written.
pub fn write_word_times(options: &CorpusOptions) -> Result<PathBuf, CorpusError> {
    let line = |id: &str, word: &SpokenWord| {
        format!("{id} 1 {:.3} {:.3} {}\n", word.start.0, word.end.0 - word.start.0, word.text)
    };
    let times = word_times(options)?;
    let lines: String = times.iter().flat_map(|(id, words)| words.iter().map(move |word| line(id, word))).collect();
    let path = options.out.join("words.ctm");
    replace_file(&path, |file| file.write_all(lines.as_bytes())).map_err(write_error(&path))?;
    Ok(path)
}

/// What is said in an utterance, and by which speaker.
struct Sentence {
    id: String,
    speaker: usize,
    /// Indices into the words of the engine.
    words: Vec<usize>,
    key: Key,
}

impl Sentence {
    /// Draws the sentence of utterance `index`.
    fn new(options: &CorpusOptions, engine: &dyn SpeechEngine, index: usize) -> Self {
        let key = Key::new(options.seed).with("utterance").at(index as u64);
        let speaker = index % options.speakers;
        let n_all = engine.words().len();
        let n_words = options.words.map_or(n_all, |most| most.clamp(1, n_all));
        Self { id: format!("s{speaker:03}-{index:05}"), speaker, words: sentence(n_words, key.with("sentence")), key }
    }

    /// Speaks and records the sentence.
    fn record(&self, options: &CorpusOptions, engine: &dyn SpeechEngine) -> Result<Vec<f32>, CorpusError> {
        let dry = engine.say(&self.words, self.speaker, self.key.with("speech"))?;
        let place = self.key.with("recording");
        Ok(if options.studio { studio_recording(&dry, place) } else { Recording::new(place).record(&dry) })
    }

    /// Computes when each word is said in what [`record`](Self::record) returns.
    fn times(&self, options: &CorpusOptions, engine: &dyn SpeechEngine) -> Result<Vec<SpokenWord>, CorpusError> {
        let key = self.key.with("speech");
        let places = engine.word_samples(&self.words, self.speaker, key)?;
        let delay = match options.studio {
            true => studio_delay(&engine.say(&self.words, self.speaker, key)?, self.key.with("recording")),
            // A room and noise keep the start.
            false => 0,
        };
        let known = engine.words();
        let at = |sample: usize| Samples(sample.saturating_add_signed(delay) as u64).at(SAMPLE_RATE);
        let word = |(&word, place): (&usize, Range<usize>)| SpokenWord {
            text: known[word],
            start: at(place.start),
            end: at(place.end),
        };
        Ok(self.words.iter().zip(places).map(word).collect())
    }

    /// Returns the line of the manifest for a recording of `n_samples` samples.
    fn listed(self, engine: &dyn SpeechEngine, n_samples: usize) -> ListedUtterance {
        let Self { id, speaker, words, .. } = self;
        let known = engine.words();
        ListedUtterance {
            audio_filepath: format!("wavs/{id}.wav"),
            id,
            duration: Samples(n_samples as u64).at(SAMPLE_RATE).0,
            text: words.iter().map(|&word| known[word]).collect::<Vec<_>>().join(" "),
            speaker: format!("s{speaker:03}"),
        }
    }
}

/// Speaks, records and writes utterance `index`.
fn utterance(options: &CorpusOptions, engine: &dyn SpeechEngine, index: usize) -> Result<ListedUtterance, CorpusError> {
    let sentence = Sentence::new(options, engine, index);
    let samples = sentence.record(options, engine)?;
    let listed = sentence.listed(engine, samples.len());
    let path = options.out.join(&listed.audio_filepath);
    // Not synced: the list, which makes the corpus complete, is.
    let write = || {
        let (draft, mut file) = Draft::file(&path)?;
        file.write_all(&wav_bytes(&samples, SAMPLE_RATE))?;
        draft.finish(&path)
    };
    write().map_err(write_error(&path))?;
    Ok(listed)
}

fn metadata(lines: &[ListedUtterance]) -> String {
    lines.iter().map(|line| format!("{id}|{text}|{text}\n", id = line.id, text = line.text)).collect()
}

fn manifest_text(lines: &[ListedUtterance]) -> String {
    let json = |line| serde_json::to_string(line).expect("strings and one number are always JSON");
    lines.iter().map(|line| json(line) + "\n").collect()
}

fn remove_old(path: &Path) -> Result<(), CorpusError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path)(error)),
        _ => Ok(()),
    }
}

fn write_error(path: &Path) -> impl Fn(io::Error) -> CorpusError {
    let path = path.to_path_buf();
    move |source| CorpusError::Write { path: path.clone(), source }
}
