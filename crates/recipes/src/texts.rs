//! Prepares texts as a configuration asks: their case, their numbers, their tokens.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use plimsoll_config::choices::{NumbersChoice, TextChoice, TokenizerChoice};
use plimsoll_config::{DataConfig, RunConfig, nearest_word};
use plimsoll_core::{Bytes, error_chain};
use plimsoll_data::unpack::UnpackFolder;
use plimsoll_data::utterances::Utterances;
use plimsoll_data::{ImportError, ImportOptions, ImportWatch, Manifest, ManifestError};
use plimsoll_monitor::doctor::user_cache;
use plimsoll_mpi::Launch;
use plimsoll_text::{Case, Normalizer, Numbers, Phonemizer, Tokenizer, normalize, without_punctuation};
use rayon::prelude::*;

use crate::beginning::base_tokenizer;
use crate::error::{Failure, FailureExt};
use crate::families::{CorpusLanguages, family};
use crate::reporter::{Level, Reporter, long_work};

/// Reads the corpus at `path`, and normalizes its texts with [`text_normalizer`].
///
/// # Errors
/// If the manifest or the file `data.tokenizer_file` cannot be read.
pub fn read_manifest(path: &Path, data: &DataConfig, reporter: &dyn Reporter) -> Result<Manifest, Failure> {
    read(path, data, None, reporter)
}

/// Does the same as [`read_manifest`] for a run. A long list gets an index beside it, which the next start takes.
///
/// # Errors
/// As for [`read_manifest`].
pub(crate) fn read_manifest_of_run(
    path: &Path,
    data: &DataConfig,
    reporter: &dyn Reporter,
) -> Result<Manifest, Failure> {
    /// Size of a list that takes seconds to read: about a million utterances.
    const LONG_BYTES: u64 = 256 << 20;
    // Of several processes the first makes it.
    let rank = Launch::detect().ok().flatten().map_or(0, |launch| launch.rank);
    read(path, data, (rank == 0).then_some(LONG_BYTES), reporter)
}

fn read(path: &Path, data: &DataConfig, index_from: Option<u64>, reporter: &dyn Reporter) -> Result<Manifest, Failure> {
    let watch = ImportWatch::default();
    let options = ImportOptions {
        audio_root: data.audio_root.clone(),
        unpack: unpack_folder(data),
        index_from,
        watch: watch.clone(),
        ..ImportOptions::default()
    };
    let listed = with_bar(path, &watch, reporter, || Manifest::read_with(path, &options));
    let mut manifest = listed.map_err(unreadable)?;
    if let Some(index) = watch.take_index() {
        let (file, size) = (index.file.display(), Bytes(index.bytes));
        reporter.line(Level::Note, &format!("made {file} ({size}): the next start reads it in place of the list"));
    }
    let normalize = text_normalizer(data)?;
    let _work = long_work(reporter, "reading the texts", manifest.utterances.len());
    manifest.utterances = manifest.utterances.map_texts(normalize);
    Ok(manifest)
}

/// Reads the list at `path` by `read`, and shows how far it is if that takes long.
fn with_bar<R: Send>(path: &Path, watch: &ImportWatch, reporter: &dyn Reporter, read: impl FnOnce() -> R + Send) -> R {
    /// Time between two looks, and looks before the bar is shown.
    const LOOK: Duration = Duration::from_millis(100);
    const QUICK: u32 = 10;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let show = || {
            let (mut reading, mut looking) = (None, None);
            for look in 0.. {
                std::thread::park_timeout(LOOK);
                if is_done.load(Ordering::Acquire) {
                    return;
                }
                if look < QUICK {
                    continue;
                }
                if watch.sought() > 0 {
                    reading = None;
                    let label = format!("looking for the audio of {}", path.display());
                    let bar = looking.get_or_insert_with(|| reporter.progress(&label, Some(watch.sought())));
                    bar.set(watch.found());
                } else if watch.size() > 0 {
                    let label = format!("reading {}, MiB", path.display());
                    let bar = reading.get_or_insert_with(|| reporter.progress(&label, Some(watch.size() >> 20)));
                    bar.set(watch.read() >> 20);
                }
            }
        };
        let shown = scope.spawn(show);
        // Also if `read` panics: the scope waits for its thread.
        let _end = EndOfBar(&is_done, shown.thread());
        read()
    })
}

/// Ends the thread of a bar when it is dropped.
struct EndOfBar<'a>(&'a AtomicBool, &'a Thread);

impl Drop for EndOfBar<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

/// Returns the folder for compressed shards; `None` if the system names no folder for caches.
pub fn unpack_folder(data: &DataConfig) -> Option<UnpackFolder> {
    let of_user = || Some(user_cache(&|name| std::env::var_os(name))?.join("plimsoll/unpacked"));
    let path = data.unpack_dir.clone().filter(|path| !path.as_os_str().is_empty()).or_else(of_user)?;
    Some(UnpackFolder { path, limit: data.unpack_size })
}

/// Returns the failure for a corpus that cannot be read, with the folder of its audio if that is known.
fn unreadable(error: ManifestError) -> Failure {
    match &error {
        ManifestError::NothingUsable { audio_root: Some(folder), .. } => {
            let help = format!("its audio files are found from {0}: --set data.audio_root={0}", folder.display());
            Failure::invalid(error_chain(&error), help)
        }
        ManifestError::Import(error @ ImportError::NotUnpacked { .. }) => not_unpacked(error),
        ManifestError::Import(ImportError::NotFound(path)) => Failure::invalid(error_chain(&error), place_of(path)),
        _ => Err::<(), _>(error).invalid().expect_err("it is an error"),
    }
}

/// Returns the failure for a shard that cannot be unpacked.
pub fn not_unpacked(error: &ImportError) -> Failure {
    let help =
        "name another folder with `--set data.unpack_dir=DIR`, or a higher limit with `--set data.unpack_size=SIZE`";
    Failure::caused_by(error, help)
}

/// Returns what is there where `path` is not: the nearest name in its folder, or the first folder that does not exist.
fn place_of(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = "`--data PATH` names the place of a corpus";
    let Ok(entries) = std::fs::read_dir(folder) else {
        let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
        let missing = path.ancestors().skip(1).take_while(is_missing).last().unwrap_or(folder);
        return format!("there is no folder {}; {place}", missing.display());
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    match nearest_word(&wanted, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {}?", folder.join(near).display()),
        None => format!("check the path; {place}"),
    }
}

/// Returns a function that normalizes a text for models of `data`: numbers as words and no punctuation if
/// asked for, then spaces and case.
///
/// # Errors
/// If the file `data.tokenizer_file` cannot be read.
pub fn text_normalizer(data: &DataConfig) -> Result<impl Fn(&str) -> String, Failure> {
    // For phonemes, `US` and `us` are different words.
    let is_lowered = data.lowercase && data.text == TextChoice::Characters;
    let case = if is_lowered { Case::Lower } else { Case::Keep };
    let (numbers, normalizer, keeps_punctuation) = (numbers(data)?, normalizer(data)?, data.punctuation);
    Ok(move |text: &str| {
        let text = normalizer.apply(text);
        // Numbers come first: a point or a comma may be part of one.
        let text = numbers.apply(&text);
        normalize(&if keeps_punctuation { text } else { without_punctuation(&text).into() }, case)
    })
}

/// Returns the treatment of numbers in texts for models of `data`: unchanged, or replaced by English words. The setting
/// of the tokenizer file holds, unless the configuration asks for English words.
fn numbers(data: &DataConfig) -> Result<Numbers, Failure> {
    match (data.numbers, &data.tokenizer_file) {
        (NumbersChoice::English, _) => Ok(Numbers::English),
        (NumbersChoice::AsWritten, Some(file)) => Ok(Tokenizer::from_file(file).invalid()?.numbers()),
        (NumbersChoice::AsWritten, None) => Ok(Numbers::AsWritten),
    }
}

/// Returns the steps that normalize texts for models of `data`. Those of the tokenizer file hold, unless the configuration
/// names some.
fn normalizer(data: &DataConfig) -> Result<Normalizer, Failure> {
    match (data.normalize.is_empty(), &data.tokenizer_file) {
        (true, Some(file)) => Ok(Tokenizer::from_file(file).invalid()?.normalizer().clone()),
        _ => normalizer_of(&data.normalize.join(",")),
    }
}

/// Makes the normalizer with these steps, separated by commas, or with all steps that know a language.
///
/// # Errors
/// If there is no such step, or a normalized text would change when it is normalized again.
pub fn normalizer_of(steps: &str) -> Result<Normalizer, Failure> {
    let normalizer: Normalizer = steps.parse().invalid()?;
    let has = |name: &str| normalizer.steps().iter().any(|step| step.name() == name);
    match has("letters") && !has("lowercase") {
        true => Err(Failure::invalid(
            "the step `letters` needs `lowercase`: what it spelled out would be spelled out again",
            "add `lowercase` to the steps",
        )),
        false => Ok(normalizer),
    }
}

/// Reads or trains the tokenizer of `config`. The texts of `training` give its characters, or the pieces of words that
/// BPE learns.
///
/// A synthesizer whose utterances have more than one language gets a token for each language.
///
/// # Errors
/// If the file `data.tokenizer_file` cannot be read, or `data.bpe_size` is too small for the texts.
pub fn tokenizer(config: &RunConfig, training: &Utterances, reporter: &dyn Reporter) -> Result<Tokenizer, Failure> {
    let data = &config.data;
    let named: BTreeSet<&str> = training.iter().filter_map(|utterance| utterance.language).collect();
    let has_unnamed = training.iter().any(|utterance| utterance.language.is_none());
    let languages = CorpusLanguages { named, has_unnamed };
    let phonemizer = phonemizer(data, &languages)?;
    let texts: Vec<String> = match &phonemizer {
        Some(phonemizer) => {
            let texts: Vec<&str> = training.texts().collect();
            let progress = reporter.progress("making phonemes of the texts", Some(texts.len() as u64));
            let done = AtomicU64::new(0);
            let made = texts.into_par_iter().map(|text| {
                progress.set(done.fetch_add(1, Ordering::Relaxed) + 1);
                phonemizer.apply(text)
            });
            made.collect::<Result<_, _>>().failed()?
        }
        None => training.texts().map(str::to_owned).collect(),
    };
    let known = base_tokenizer(config)?;
    let tokenizer = match (&data.tokenizer_file, data.tokenizer, &known) {
        (Some(path), ..) => Tokenizer::from_file(path).invalid()?,
        (None, TokenizerChoice::Bpe, _) => Tokenizer::bpe(&texts, data.bpe_size as usize).invalid()?,
        (None, TokenizerChoice::Characters, Some(known)) => {
            // The texts are as the model reads them.
            let known = known.clone().with_numbers(Numbers::AsWritten).with_normalizer(Normalizer::default());
            known.with_phonemes(None).with_characters_of(&texts)
        }
        (None, TokenizerChoice::Characters, None) => Tokenizer::characters(&texts),
    };
    if let Some(known) = known.filter(|known| family(config).keeps_tokens() && tokenizer.names() != known.names()) {
        let key = if data.tokenizer_file.is_some() { "data.tokenizer_file" } else { "data.tokenizer" };
        return Err(Failure::invalid(
            format!("`{key}` gives other tokens than the {} that the model was trained with", known.size()),
            format!("leave out `{key}`: the tokens of the model are used"),
        ));
    }
    let tokenizer = family(config).with_languages(tokenizer, &languages, config)?;
    let phonemizer = phonemizer.or_else(|| tokenizer.phonemes().cloned());
    let tokenizer = tokenizer.with_numbers(numbers(data)?).with_normalizer(normalizer(data)?);
    Ok(tokenizer.with_phonemes(phonemizer))
}

/// Returns what makes phonemes of the texts of a corpus; `None` if its characters are read.
///
/// # Errors
/// If no voice is named, or phonemes cannot be made here.
fn phonemizer(data: &DataConfig, languages: &CorpusLanguages<'_>) -> Result<Option<Phonemizer>, Failure> {
    if data.text == TextChoice::Characters {
        return Ok(None);
    }
    let named: Vec<&str> = languages.named.iter().copied().collect();
    let voice = match (data.language.as_deref(), named.as_slice()) {
        (Some(voice), _) | (None, &[voice]) => voice,
        (None, []) => {
            return Err(Failure::invalid(
                "the texts are to become phonemes, and the corpus names no language",
                "`--set data.language=VOICE` names a voice of espeak-ng, such as `en-us` or `de`",
            ));
        }
        (None, several) => {
            return Err(Failure::invalid(
                format!("the texts are to become phonemes of one language, and the corpus has {}", several.join(", ")),
                "`--set data.text=characters` reads what is written; `--set data.language=VOICE` reads all texts in one voice",
            ));
        }
    };
    let phonemizer = Phonemizer::new(voice);
    match phonemizer.check() {
        Ok(()) => Ok(Some(phonemizer)),
        Err(error) => Err(Failure::invalid(
            error_chain(&error),
            "`--set data.text=characters` reads what is written; `--set data.language=VOICE` names another voice",
        )),
    }
}

/// Checks that the texts of a model can be read here: one that was trained on phonemes needs the program that makes them.
///
/// # Errors
/// If the program is missing, or lacks the voice.
pub fn check_phonemes(tokenizer: &Tokenizer) -> Result<(), Failure> {
    tokenizer.check_phonemes().map_err(|error| Failure::invalid(error_chain(&error), PHONEMES_HELP))
}

/// What to do where the phonemes of a trained model cannot be made.
pub const PHONEMES_HELP: &str =
    "the model was trained on the phonemes of espeak-ng: install it, for example with `apt-get install espeak-ng`";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reporter::Silent;

    #[test]
    fn punctuation_is_removed_where_the_configuration_asks_for_it() {
        let read = |data: &DataConfig| text_normalizer(data).unwrap()("... dlya ...");
        assert_eq!(read(&DataConfig::default()), "... dlya ...");
        assert_eq!(read(&DataConfig { punctuation: false, ..DataConfig::default() }), "dlya");
    }

    #[test]
    fn normalizer_takes_its_numbers_from_the_tokenizer_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.json");
        let tokenizer = Tokenizer::characters(["thirty"]).with_numbers(Numbers::English);
        std::fs::write(&file, serde_json::to_string(&tokenizer).unwrap()).unwrap();
        let read = |data: &DataConfig| text_normalizer(data).unwrap()("30  Days");
        let (file, numbers) = (Some(file), NumbersChoice::English);
        assert_eq!(read(&DataConfig::default()), "30 Days");
        assert_eq!(read(&DataConfig { tokenizer_file: file, ..DataConfig::default() }), "thirty Days");
        assert_eq!(read(&DataConfig { numbers, lowercase: true, ..DataConfig::default() }), "thirty days");
    }

    #[test]
    fn named_steps_normalize_and_belong_to_the_tokenizer() {
        let data = DataConfig { normalize: vec!["en".into()], ..DataConfig::default() };
        let text = text_normalizer(&data).unwrap()("Dr. Lee paid $3.50");
        assert_eq!(text, "doctor lee paid three dollars and fifty cents");
        let config = RunConfig { data, ..RunConfig::default() };
        let tokenizer = tokenizer(&config, &Utterances::default(), &Silent).unwrap();
        assert_eq!(tokenizer.normalized("Dr. Lee paid $3.50"), text);
        let saved = serde_json::to_string(&tokenizer).unwrap();
        assert_eq!(serde_json::from_str::<Tokenizer>(&saved).unwrap(), tokenizer);
        for wrong in ["number:en", "letters:en", "dates:xx"] {
            assert!(normalizer_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn phonemes_need_one_language() {
        let corpus = |languages: &[Option<&str>]| -> Utterances {
            let utterance = |language: &Option<&str>| plimsoll_data::Utterance {
                text: "one".into(),
                language: language.map(str::to_owned),
                ..plimsoll_data::Utterance::default()
            };
            languages.iter().map(utterance).collect()
        };
        let data = DataConfig { text: TextChoice::Phonemes, ..DataConfig::default() };
        let config = RunConfig { data, task: plimsoll_config::choices::Task::Tts, ..RunConfig::default() };
        let message =
            |languages: &[Option<&str>]| tokenizer(&config, &corpus(languages), &Silent).unwrap_err().to_string();
        assert_eq!(message(&[None]), "the texts are to become phonemes, and the corpus names no language");
        let several = message(&[Some("de"), Some("en"), Some("de")]);
        assert_eq!(several, "the texts are to become phonemes of one language, and the corpus has de, en");
        assert!(message(&[Some("no voice")]).contains("`no voice`"));
    }
}
