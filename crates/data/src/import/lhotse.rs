//! Reads Lhotse lists: cuts, or recordings and supervisions, as plain or compressed JSON lines.
//!
//! Every supervision becomes an utterance, so a cut with several supervisions becomes several utterances. Some inputs
//! cannot be read and become issues: `MixedCut`, `PaddingCut` and `MultiCut`; recordings in memory, in tar files or on
//! the network; one channel of several; recordings with transforms other than resampling.

mod recording;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::builder::{Draft, ListingBuilder, shortened};
use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::walk::{children, folder_of, name};
use crate::issue::{Issue, IssueKind};
use recording::Recording;

/// Largest distance below zero, in seconds, of a start that counts as zero: such starts are rounding errors of Lhotse.
const ROUNDING: f64 = 1e-3;

/// Files of a Lhotse corpus that list its utterances: cuts, or recordings with supervisions.
pub(super) enum Lists {
    Cuts(Vec<PathBuf>),
    Pairs { recordings: Vec<PathBuf>, supervisions: Vec<PathBuf> },
}

/// Adds the utterances of Lhotse cuts, or of recordings with their supervisions, to `builder`. In a folder with both,
/// only the cuts are read, because they contain all facts of the recordings and the supervisions.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    match lists(path) {
        Some(Lists::Cuts(files)) => read_cuts(builder, &files),
        Some(Lists::Pairs { recordings, supervisions }) => read_pairs(builder, &recordings, &supervisions),
        None => return Err(ImportError::WrongFormat { path: path.into(), format: Format::Lhotse }),
    }
    Ok(())
}

/// Finds the lists in the folder `path`. If `path` is a list of recordings, also finds the matching lists of
/// supervisions, and the reverse; any other file counts as a list of cuts. `None` if a needed list is missing.
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
    let cuts = lists_named(folder, "cuts");
    if !cuts.is_empty() {
        return Some(Lists::Cuts(cuts));
    }
    let (recordings, supervisions) = (lists_named(folder, "recordings"), lists_named(folder, "supervisions"));
    let both = !recordings.is_empty() && !supervisions.is_empty();
    both.then_some(Lists::Pairs { recordings, supervisions })
}

/// Finds the file called `file` beside `path`; without it, all lists in the folder of `path` whose names contain
/// `word`. `None` if there is neither.
fn partner(path: &Path, file: &str, word: &str) -> Option<Vec<PathBuf>> {
    let exact = path.with_file_name(file);
    let found = if exact.is_file() { vec![exact] } else { lists_named(folder_of(path), word) };
    (!found.is_empty()).then_some(found)
}

fn lists_named(folder: &Path, word: &str) -> Vec<PathBuf> {
    let fits = |file: &PathBuf| {
        let name = name(file);
        name.contains(word) && (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
    };
    children(folder).unwrap_or_default().into_iter().filter(fits).collect()
}

fn read_cuts(builder: &mut ListingBuilder<'_>, files: &[PathBuf]) {
    for file in files {
        let folder = builder.audio_folder(folder_of(file));
        builder.read_optional_list(file, |builder, location, line| match cut(line, &folder) {
            Ok(drafts) => drafts.into_iter().for_each(|draft| builder.add(location.clone(), draft)),
            Err(issue) => builder.add(location, Err(issue)),
        });
    }
}

/// Reads a line with a cut: one utterance, or one issue, for each supervision. The error is an issue of the whole cut.
fn cut(line: &str, folder: &Path) -> Result<Vec<Result<Draft, Issue>>, Issue> {
    let mut object = Object::read(line)?;
    let id = object.required_text(&["id"])?;
    let with_id = |kind| Issue::for_utterance(&id, kind);
    if let Some(other) = object.text(&["type"]).map_err(with_id)?.filter(|kind| kind != "MonoCut") {
        return Err(with_id(IssueKind::NotMonoCut(shortened(&other))));
    }
    let none = || with_id(IssueKind::NoAudio("it names no recording".into()));
    let recording = Recording::read(object.object("recording").ok_or_else(none)?).map_err(with_id)?;
    let audio = folder.join(recording.file(&object.counts("channel")).map_err(with_id)?);
    let start = object.number("start").map_err(with_id)?.unwrap_or(0.0);
    let length = object.seconds("duration").map_err(with_id)?;
    let supervisions = object.objects("supervisions");
    let several = supervisions.len() > 1;
    let utterance = |(n, supervision): (usize, Object)| {
        let own = supervision.text(&["id"]).map_err(with_id)?.unwrap_or_else(|| format!("{id}-{n}"));
        let id = if several { own } else { id.clone() };
        supervised(&supervision, id, audio.clone(), start, length)
    };
    if supervisions.is_empty() {
        return Err(with_id(IssueKind::NoText));
    }
    Ok((1..).zip(supervisions).map(utterance).collect())
}

/// Reads the utterance of a supervision. Its cut starts `start` seconds into the audio and lasts `length`, if known.
fn supervised(
    supervision: &Object,
    id: String,
    audio: PathBuf,
    start: f64,
    length: Option<Seconds>,
) -> Result<Draft, Issue> {
    let with_id = |kind| Issue::for_utterance(&id, kind);
    let within = supervision.number("start").map_err(with_id)?.unwrap_or(0.0);
    let offset = start + within;
    let duration = supervision.seconds("duration").map_err(with_id)?;
    let draft = Draft {
        audio,
        offset: Seconds(if (-ROUNDING..0.0).contains(&offset) { 0.0 } else { offset }),
        duration: duration.or_else(|| Some(Seconds(length?.0 - within))),
        text: supervision.text(&["text"]).map_err(with_id)?.unwrap_or_default(),
        speaker: supervision.text(&["speaker"]).map_err(with_id)?,
        language: supervision.text(&["language"]).map_err(with_id)?,
        id: id.clone(),
    };
    Ok(draft)
}

fn read_pairs(builder: &mut ListingBuilder<'_>, recordings: &[PathBuf], supervisions: &[PathBuf]) {
    let mut known: HashMap<String, (PathBuf, Result<Recording, IssueKind>)> = HashMap::new();
    for file in recordings {
        let folder = builder.audio_folder(folder_of(file));
        builder.read_optional_list(file, |builder, location, line| {
            let object = Object::read(line);
            let id = object.as_ref().map_err(IssueKind::clone).and_then(|object| object.required_text(&["id"]));
            match (id, object) {
                (Ok(id), Ok(object)) => drop(known.insert(id, (folder.clone(), Recording::read(object)))),
                (Err(kind), _) | (_, Err(kind)) => builder.add_issue(location, None, kind),
            }
        });
    }
    for file in supervisions {
        builder.read_optional_list(file, |builder, location, line| builder.add(location, supervision(line, &known)));
    }
}

fn supervision(line: &str, known: &HashMap<String, (PathBuf, Result<Recording, IssueKind>)>) -> Result<Draft, Issue> {
    let object = Object::read(line)?;
    let id = object.required_text(&["id"])?;
    let with_id = |kind| Issue::for_utterance(&id, kind);
    let recording = object.required_text(&["recording_id"]).map_err(with_id)?;
    let unknown = || with_id(IssueKind::NoAudio(format!("no list names its recording `{}`", shortened(&recording))));
    let (folder, recording) = known.get(&recording).ok_or_else(unknown)?;
    let recording = recording.as_ref().map_err(|kind| with_id(kind.clone()))?;
    let audio = folder.join(recording.file(&object.counts("channel")).map_err(with_id)?);
    supervised(&object, id.clone(), audio, 0.0, recording.duration)
}
