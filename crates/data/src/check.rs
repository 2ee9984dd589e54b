//! Looking at what a corpus promises: whether its audio is there, is as long as is said, and can be learned from.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::Seconds;
use rayon::prelude::*;

use crate::import::{Entry, Listing, Place, Problem};
use crate::select::{Limits, Reason, refuse};
use crate::utterance::Utterance;
use plimsoll_audio::{AudioError, AudioInfo, SLACK, Stretch, audio_info, read_audio_stretch};
use plimsoll_text::Tokenizer;

/// How closely audio is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// Files must be there; one is opened only where the list does not say how long an utterance is.
    Exists,
    /// Headers are read.
    #[default]
    Header,
    /// Every sample is decoded.
    Sound,
}

/// What a corpus is checked for.
#[derive(Clone, Copy, Default)]
pub struct CheckOptions<'a> {
    /// How closely audio is looked at.
    pub look: Look,
    /// Letters that texts may have, if that is known yet.
    pub tokenizer: Option<&'a Tokenizer>,
    /// What an utterance must be to be used.
    pub limits: Limits<'a>,
}

/// What is wrong with an utterance.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is listed in a way that makes no sense.
    Listed(Problem),
    /// Its audio is missing or cannot be read; several utterances may lie in one file.
    Audio(Arc<AudioError>),
    /// It is said to last longer than its file does.
    Duration {
        /// How long it is said to be.
        listed: Seconds,
        /// How long its file goes on from where it begins.
        found: Seconds,
    },
    /// It would begin after the end of its file.
    AfterTheEnd {
        /// Where it begins.
        offset: Seconds,
        /// How long the file lasts.
        length: Seconds,
    },
    /// All of its samples are next to nothing.
    Silent,
    /// Its text has letters that the vocabulary has not.
    Letters(String),
    /// It is sound, and cannot be used all the same.
    Unusable(Reason),
}

impl Fault {
    /// What is wrong without its facts, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Listed(problem) => problem.trouble.kind(),
            Self::Audio(error) => match **error {
                AudioError::NotFound(_) => "missing file",
                _ => "unreadable audio",
            },
            Self::Duration { .. } => "wrong duration",
            Self::AfterTheEnd { .. } => "outside of its file",
            Self::Silent => "silence",
            Self::Letters(_) => "letters outside the vocabulary",
            Self::Unusable(reason) => reason.kind(),
        }
    }
}

/// An utterance that cannot be used, and why.
#[derive(Clone, Debug)]
pub struct Flaw {
    /// Where it is listed.
    pub place: Place,
    /// Its name, where it has one.
    pub id: Option<String>,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, id, fault } = self;
        if let Fault::Listed(problem) = fault {
            return write!(f, "{problem}");
        }
        write!(f, "{place}: `{}`: ", id.as_deref().unwrap_or_default())?;
        match fault {
            Fault::Listed(_) => Ok(()),
            Fault::Audio(error) => f.write_str(&plimsoll_core::error_chain(&**error)),
            Fault::Duration { listed, found } => {
                write!(f, "it is said to last {listed}, and its audio goes on for {found}")
            }
            Fault::AfterTheEnd { offset, length } => {
                write!(f, "it begins at {offset}, and its audio lasts {length}")
            }
            Fault::Silent => f.write_str("nothing is to be heard in it"),
            Fault::Letters(told) => f.write_str(told),
            Fault::Unusable(reason) => write!(f, "{reason}"),
        }
    }
}

/// A corpus, looked at: every utterance is usable or flawed.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// What can be used, in the order of the corpus.
    pub utterances: Vec<Utterance>,
    /// What cannot.
    pub flaws: Vec<Flaw>,
    /// Problems beyond those that an import keeps.
    pub more: usize,
    /// Files that were opened, by kind, rate and channels: `FLAC, 16000 Hz, 1 channel`.
    pub sounds: BTreeMap<String, usize>,
}

impl Checked {
    /// How many flaws there are of each kind.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for flaw in &self.flaws {
            *counts.entry(flaw.fault.kind()).or_default() += 1;
        }
        counts
    }

    /// How many utterances were listed.
    pub fn listed(&self) -> usize {
        self.utterances.len() + self.flaws.len() + self.more
    }

    /// How many of them are flawed in themselves, and not just beyond the limits or the vocabulary of a run.
    pub fn broken(&self) -> usize {
        let is_beyond = |flaw: &&Flaw| matches!(flaw.fault, Fault::Letters(_) | Fault::Unusable(_));
        self.flaws.len() + self.more - self.flaws.iter().filter(is_beyond).count()
    }
}

/// What is said on the way: files or utterances looked at, and how many there are.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Looks at everything that `listing` promises.
///
/// Files are opened in parallel, each once, however many utterances lie in it.
pub fn check(listing: Listing, options: &CheckOptions<'_>, progress: Progress<'_>) -> Checked {
    let mut checked = Checked { more: listing.more_problems, ..Checked::default() };
    let flawed =
        |problem: Problem| Flaw { place: problem.place.clone(), id: problem.id.clone(), fault: Fault::Listed(problem) };
    checked.flaws.extend(listing.problems.into_iter().map(flawed));
    let files = Files::open(&listing.entries, options.look, progress);
    checked.sounds = files.sounds();
    let mut found = Vec::with_capacity(listing.entries.len());
    for entry in listing.entries {
        match files.measure(&entry) {
            Ok(duration) => found.push((entry.place.clone(), utterance(entry, duration))),
            Err(fault) => checked.flaws.push(Flaw { place: entry.place, id: Some(entry.id), fault }),
        }
    }
    let heard = match options.look {
        Look::Sound => listen(&found, progress),
        Look::Exists | Look::Header => found.iter().map(|_| None).collect(),
    };
    for ((place, utterance), heard) in found.into_iter().zip(heard) {
        match heard.or_else(|| read(&utterance, options)) {
            None => checked.utterances.push(utterance),
            Some(fault) => checked.flaws.push(Flaw { place, id: Some(utterance.id), fault }),
        }
    }
    checked
}

fn utterance(entry: Entry, duration: Seconds) -> Utterance {
    let Entry { id, audio, offset, text, speaker, language, .. } = entry;
    Utterance { id, audio, offset, duration, text, speaker, language }
}

/// What is wrong with what is said.
fn read(utterance: &Utterance, options: &CheckOptions<'_>) -> Option<Fault> {
    let letters = options.tokenizer.and_then(|tokenizer| tokenizer.encode(&utterance.text).err());
    letters
        .map(|error| Fault::Letters(error.to_string()))
        .or_else(|| refuse(utterance, &options.limits).map(Fault::Unusable))
}

/// The loudest sample of silence, 80 dB below full scale.
const SILENCE: f32 = 1e-4;

/// What is wrong with the sound of each.
fn listen(found: &[(Place, Utterance)], progress: Progress<'_>) -> Vec<Option<Fault>> {
    let done = AtomicUsize::new(0);
    let one = |(_, utterance): &(Place, Utterance)| {
        let stretch = Stretch { offset: utterance.offset, duration: Some(utterance.duration) };
        // Any rate will do; at that of telephones the least is computed.
        let fault = match read_audio_stretch(&utterance.audio, stretch, 8_000) {
            Err(error) => Some(Fault::Audio(Arc::new(error))),
            Ok(audio) if audio.samples.iter().all(|sample| sample.abs() < SILENCE) => Some(Fault::Silent),
            Ok(_) => None,
        };
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, found.len());
        fault
    };
    found.par_iter().map(one).collect()
}

/// What is known of each audio file.
struct Files(HashMap<PathBuf, Result<Option<AudioInfo>, Arc<AudioError>>>);

impl Files {
    fn open(entries: &[Entry], look: Look, progress: Progress<'_>) -> Self {
        let mut needed: HashMap<&Path, bool> = HashMap::new();
        for entry in entries {
            *needed.entry(&entry.audio).or_default() |= look > Look::Exists || entry.duration.is_none();
        }
        let (count, done) = (needed.len(), AtomicUsize::new(0));
        let one = |(path, is_opened): (&Path, bool)| {
            let info = if is_opened { audio_info(path).map(Some) } else { exists(path).map(|()| None) };
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
            (path.to_path_buf(), info.map_err(Arc::new))
        };
        Self(needed.into_par_iter().map(one).collect())
    }

    /// How long an utterance is.
    fn measure(&self, entry: &Entry) -> Result<Seconds, Fault> {
        let info = self.0[&entry.audio].clone().map_err(Fault::Audio)?;
        let Some(info) = info else { return Ok(entry.duration.unwrap_or_default()) };
        let (length, offset) = (info.duration, entry.offset);
        let inside = offset < length;
        if !inside {
            return Err(Fault::AfterTheEnd { offset, length });
        }
        let found = length - offset;
        match entry.duration {
            Some(listed) if listed > found + SLACK => Err(Fault::Duration { listed, found }),
            Some(listed) if listed <= found => Ok(listed),
            _ => Ok(found),
        }
    }

    fn sounds(&self) -> BTreeMap<String, usize> {
        let mut sounds = BTreeMap::new();
        for info in self.0.values().filter_map(|info| info.as_ref().ok().copied().flatten()) {
            let channels = if info.channels == 1 { "1 channel".into() } else { format!("{} channels", info.channels) };
            *sounds.entry(format!("{}, {} Hz, {channels}", info.kind.name(), info.rate)).or_default() += 1;
        }
        sounds
    }
}

fn exists(path: &Path) -> Result<(), AudioError> {
    if path.is_file() { Ok(()) } else { Err(AudioError::NotFound(path.into())) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::import::{ImportOptions, import};
    use crate::testing::{tone, write_wav};

    /// A corpus with one of each fault, and one good utterance.
    fn corpus() -> TempDir {
        let folder = TempDir::new().unwrap();
        write_wav(&folder.path().join("a.wav"), &tone(300.0, 1.0, 8_000), 8_000);
        write_wav(&folder.path().join("still.wav"), &[0.0; 8_000], 8_000);
        fs::write(folder.path().join("text.wav"), "not a sound").unwrap();
        let line = |id: &str, audio: &str, text: &str, rest: &str| {
            format!("{{\"id\": \"{id}\", \"audio_filepath\": \"{audio}\", \"text\": \"{text}\"{rest}}}\n")
        };
        let lines = [
            line("good", "a.wav", "one", ""),
            line("gone", "b.wav", "one", ""),
            line("text", "text.wav", "one", ""),
            line("long", "a.wav", "one", ", \"duration\": 2.0"),
            line("rounded", "a.wav", "one", ", \"duration\": 1.01"),
            line("after", "a.wav", "one", ", \"offset\": 1.5"),
            line("still", "still.wav", "one", ""),
            line("strange", "a.wav", "öne", ""),
            line("fast", "a.wav", "one none one none", ""),
            "not JSON\n".into(),
        ];
        fs::write(folder.path().join("manifest.jsonl"), lines.concat()).unwrap();
        folder
    }

    fn seen(look: Look) -> String {
        let folder = corpus();
        let tokenizer = Tokenizer::characters(["one none"]);
        let ten_a_second = |duration: Seconds| (duration.0 * 10.0) as u64;
        let limits = Limits { output_frames: Some(&ten_a_second), ..Limits::default() };
        let options = CheckOptions { look, tokenizer: Some(&tokenizer), limits };
        let checked = check(import(folder.path(), &ImportOptions::default()).unwrap(), &options, &|_, _| {});
        assert_eq!(checked.listed(), 10);
        assert_eq!(checked.counts().values().sum::<usize>(), checked.flaws.len());
        // `strange` and `fast` would do for another run.
        assert_eq!(checked.broken(), checked.flaws.len() - 2);
        let usable = checked.utterances.iter().map(|u| format!("{} {}", u.id, u.duration));
        let flaws = checked.flaws.iter().map(|flaw| format!("! {}: {flaw}", flaw.fault.kind()));
        let sounds = checked.sounds.iter().map(|(sound, count)| format!("{count} {sound}"));
        let seen: Vec<String> = usable.chain(flaws).chain(sounds).collect();
        seen.join("\n").replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn each_fault_is_found_and_told() {
        insta::assert_snapshot!(seen(Look::Sound), @r#"
    good 1s
    rounded 1s
    ! not JSON: manifest.jsonl:10: a JSON object was expected: expected ident at column 2
    ! missing file: manifest.jsonl:2: `gone`: audio file b.wav does not exist
    ! unreadable audio: manifest.jsonl:3: `text`: text.wav is neither WAV, FLAC, MP3 nor Ogg
    ! wrong duration: manifest.jsonl:4: `long`: it is said to last 2s, and its audio goes on for 1s
    ! outside of its file: manifest.jsonl:6: `after`: it begins at 1.5s, and its audio lasts 1s
    ! silence: manifest.jsonl:7: `still`: nothing is to be heard in it
    ! letters outside the vocabulary: manifest.jsonl:8: `strange`: the letter `ö` (U+00F6) in "öne" is not in the vocabulary
    ! too little audio for the text: manifest.jsonl:9: `fast`: too little audio for the text: 17 frames needed, 10 there
    2 WAV, 8000 Hz, 1 channel
    "#);
    }

    #[test]
    fn a_glance_trusts_the_list() {
        let seen = seen(Look::Exists);
        assert!(seen.contains("still 1s\n") && seen.contains("missing file") && !seen.contains("silence"), "{seen}");
    }
}
