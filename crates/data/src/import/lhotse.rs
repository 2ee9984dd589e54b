//! Lhotse: cuts, or recordings and supervisions, as JSON lines, plain or compressed.
//!
//! Every supervision becomes an utterance of its own stretch, so a cut with several becomes several. Not read are
//! `MixedCut`, `PaddingCut` and `MultiCut`, recordings in memory, in tar files or on the network, one channel of
//! several, and recordings that Lhotse would change: each is a problem that says so.

mod recording;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused, clipped};
use super::json::Object;
use super::trouble::{ImportError, Trouble};
use super::walk::{children, folder_of, name};
use recording::Recording;

/// Supervisions are cut to their recordings up to rounding.
const ROUNDING: f64 = 1e-3;

/// The lists of a corpus.
pub(super) enum Lists {
    Cuts(Vec<PathBuf>),
    Pairs { recordings: Vec<PathBuf>, supervisions: Vec<PathBuf> },
}

/// Reads cuts, or the supervisions of recordings. A folder with both is read by its cuts, which hold everything.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    match lists(path) {
        Some(Lists::Cuts(files)) => read_cuts(gathering, &files),
        Some(Lists::Pairs { recordings, supervisions }) => read_pairs(gathering, &recordings, &supervisions),
        None => return Err(ImportError::NotThis { path: path.into(), format: Format::Lhotse }),
    }
    Ok(())
}

/// What `path` is or holds.
pub(super) fn lists(path: &Path) -> Option<Lists> {
    if path.is_dir() {
        return in_folder(path);
    }
    let file = name(path);
    let partner = |of: &str, other: &str| partner(path, &file.replace(of, other), other);
    if file.contains("supervisions") {
        let recordings = partner("supervisions", "recordings")?;
        return Some(Lists::Pairs { recordings, supervisions: vec![path.into()] });
    }
    if file.contains("recordings") {
        let supervisions = partner("recordings", "supervisions")?;
        return Some(Lists::Pairs { recordings: vec![path.into()], supervisions });
    }
    Some(Lists::Cuts(vec![path.into()]))
}

fn in_folder(folder: &Path) -> Option<Lists> {
    let cuts = called(folder, "cuts");
    if !cuts.is_empty() {
        return Some(Lists::Cuts(cuts));
    }
    let (recordings, supervisions) = (called(folder, "recordings"), called(folder, "supervisions"));
    let both = !recordings.is_empty() && !supervisions.is_empty();
    both.then_some(Lists::Pairs { recordings, supervisions })
}

/// The file of exactly that name beside `path`, else all that have the word in their names.
fn partner(path: &Path, file: &str, word: &str) -> Option<Vec<PathBuf>> {
    let exact = path.with_file_name(file);
    let found = if exact.is_file() { vec![exact] } else { called(folder_of(path), word) };
    (!found.is_empty()).then_some(found)
}

fn called(folder: &Path, word: &str) -> Vec<PathBuf> {
    let fits = |file: &PathBuf| {
        let name = name(file);
        name.contains(word) && (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
    };
    children(folder).unwrap_or_default().into_iter().filter(fits).collect()
}

fn read_cuts(gathering: &mut Gathering<'_>, files: &[PathBuf]) {
    for file in files {
        let folder = gathering.audio_folder(folder_of(file));
        gathering.side_list(file, |gathering, place, line| match cut(line, &folder) {
            Ok(drafts) => drafts.into_iter().for_each(|draft| gathering.take(place.clone(), draft)),
            Err(refused) => gathering.take(place, Err(refused)),
        });
    }
}

/// An utterance for every supervision of a cut.
fn cut(line: &str, folder: &Path) -> Result<Vec<Result<Draft, Refused>>, Refused> {
    let mut object = Object::read(line)?;
    let id = object.need(&["id"])?;
    let named = |trouble| Refused(Some(id.clone()), trouble);
    if let Some(other) = object.text(&["type"]).map_err(named)?.filter(|kind| kind != "MonoCut") {
        return Err(named(Trouble::Cut(clipped(&other))));
    }
    let none = || named(Trouble::NoAudio("it names no recording".into()));
    let recording = Recording::read(object.object("recording").ok_or_else(none)?).map_err(named)?;
    let audio = folder.join(recording.file(&object.counts("channel")).map_err(named)?);
    let start = object.number("start").map_err(named)?.unwrap_or(0.0);
    let length = object.seconds("duration").map_err(named)?;
    let supervisions = object.objects("supervisions");
    let several = supervisions.len() > 1;
    let utterance = |(n, supervision): (usize, Object)| {
        let own = supervision.text(&["id"]).map_err(named)?.unwrap_or_else(|| format!("{id}-{n}"));
        let id = if several { own } else { id.clone() };
        spoken(&supervision, id, audio.clone(), start, length)
    };
    if supervisions.is_empty() {
        return Err(named(Trouble::NoText));
    }
    Ok((1..).zip(supervisions).map(utterance).collect())
}

/// A supervision of something that begins at `start` of the audio.
fn spoken(
    supervision: &Object,
    id: String,
    audio: PathBuf,
    start: f64,
    length: Option<Seconds>,
) -> Result<Draft, Refused> {
    let named = |trouble| Refused(Some(id.clone()), trouble);
    let within = supervision.number("start").map_err(named)?.unwrap_or(0.0);
    let offset = start + within;
    let duration = supervision.seconds("duration").map_err(named)?;
    let draft = Draft {
        audio,
        offset: Seconds(if (-ROUNDING..0.0).contains(&offset) { 0.0 } else { offset }),
        duration: duration.or_else(|| Some(Seconds(length?.0 - within))),
        text: supervision.text(&["text"]).map_err(named)?.unwrap_or_default(),
        speaker: supervision.text(&["speaker"]).map_err(named)?,
        language: supervision.text(&["language"]).map_err(named)?,
        id: id.clone(),
    };
    Ok(draft)
}

fn read_pairs(gathering: &mut Gathering<'_>, recordings: &[PathBuf], supervisions: &[PathBuf]) {
    let mut known: HashMap<String, (PathBuf, Result<Recording, Trouble>)> = HashMap::new();
    for file in recordings {
        let folder = gathering.audio_folder(folder_of(file));
        gathering.side_list(file, |gathering, place, line| {
            let object = Object::read(line);
            let id = object.as_ref().map_err(Trouble::clone).and_then(|object| object.need(&["id"]));
            match (id, object) {
                (Ok(id), Ok(object)) => drop(known.insert(id, (folder.clone(), Recording::read(object)))),
                (Err(trouble), _) | (_, Err(trouble)) => gathering.refuse(place, None, trouble),
            }
        });
    }
    for file in supervisions {
        gathering.side_list(file, |gathering, place, line| gathering.take(place, supervision(line, &known)));
    }
}

fn supervision(line: &str, known: &HashMap<String, (PathBuf, Result<Recording, Trouble>)>) -> Result<Draft, Refused> {
    let object = Object::read(line)?;
    let id = object.need(&["id"])?;
    let named = |trouble| Refused(Some(id.clone()), trouble);
    let recording = object.need(&["recording_id"]).map_err(named)?;
    let unknown = || named(Trouble::NoAudio(format!("no list names its recording `{}`", clipped(&recording))));
    let (folder, recording) = known.get(&recording).ok_or_else(unknown)?;
    let recording = recording.as_ref().map_err(|trouble| named(trouble.clone()))?;
    let audio = folder.join(recording.file(&object.counts("channel")).map_err(named)?);
    spoken(&object, id.clone(), audio, 0.0, recording.duration)
}
