//! Reads Lhotse lists: cuts, or recordings and supervisions, as plain or compressed JSON lines.
//!
//! Every supervision becomes an utterance, so a cut with several supervisions becomes several utterances. In a cut that joins
//! cuts or adds silence (`MixedCut`), every supervision lies in one of its tracks, and is an utterance of that recording.
//! Some inputs cannot be read and become issues: tracks that sound at the same time; silence alone (`PaddingCut`);
//! recordings in memory or on the network; some channels of a file, but not one; recordings with transforms other than resampling;
//! supervisions that are only partly inside their cut.
//!
//! Shar is a list of cuts, `cuts.000000.jsonl.gz`, with the audio of its cuts in `recording.000000.tar` beside it.

mod recording;
mod shar;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;
use xxhash_rust::xxh3::xxh3_128;

use super::builder::{Draft, ListingBuilder, shortened};
use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::listing::OWN_ID;
use super::walk::{children, folder_of, name, without_copies};
use crate::issue::{Issue, IssueKind, SourceLocation};
use recording::{RecordedAudio, Recording};
use shar::SharAudio;

/// Largest distance below zero, in seconds, of a start that counts as zero: such starts are rounding errors of Lhotse.
const ROUNDING: f64 = 1e-3;

/// Largest distance in seconds by which a supervision may leave its cut. Lhotse's own check of cuts for speech
/// recognition (`validate_for_asr`) allows as much.
const CUT_TOLERANCE: f64 = 2e-3;

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
        None => return Err(incomplete(path)),
    }
    Ok(())
}

/// Returns the error for a path without the lists that are needed.
fn incomplete(path: &Path) -> ImportError {
    let file = name(path);
    for (found, missing) in [("supervisions", "recordings"), ("recordings", "supervisions")] {
        if !path.is_dir() && file.contains(found) {
            return ImportError::NotReadable {
                path: path.into(),
                found: format!("lists {found}, and no list of {missing} lies beside it"),
                advice: format!("put `{}` beside it", file.replace(found, missing)),
            };
        }
    }
    ImportError::WrongFormat { path: path.into(), format: Format::Lhotse }
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
    without_copies(children(folder).unwrap_or_default().into_iter().filter(fits).collect())
}

fn read_cuts(builder: &mut ListingBuilder<'_>, files: &[PathBuf]) {
    let mut spoken = SpokenParts::default();
    for (file_idx, file) in files.iter().enumerate() {
        let folder = builder.audio_folder(folder_of(file));
        let shar = SharAudio::beside(builder, &folder, file);
        builder.read_optional_json_list(file, |builder, location, line| match cut(line, &folder, &shar) {
            Ok(drafts) => {
                for draft in drafts {
                    let draft = draft.and_then(|draft| spoken.add(draft, files, (file_idx, location.line)));
                    builder.add(location.clone(), draft);
                }
            }
            Err(issue) => builder.add(location, Err(issue)),
        });
    }
}

/// Reads a line with a cut: one utterance, or one issue, for each supervision. The error is an issue of the whole cut.
fn cut(line: &str, folder: &Path, shar: &SharAudio) -> Result<Vec<Result<Draft, Issue>>, Issue> {
    let object = Object::read(line)?;
    let id = object.required_text(&["id"])?;
    let with_id = |kind| Issue::for_utterance(&id, kind);
    match object.text(&["type"]).map_err(with_id)?.as_deref() {
        // Several channels of a recording are read as one.
        None | Some("MonoCut" | "MultiCut") => {}
        Some("MixedCut") => return mixed_cut(object, &id, folder, shar),
        Some(other) => return Err(with_id(IssueKind::NotMonoCut(shortened(other)))),
    }
    plain_cut(object, &id, folder, shar)
}

/// Reads the cuts of a `MixedCut` that sound one after the other.
fn mixed_cut(
    mut object: Object,
    id: &str,
    folder: &Path,
    shar: &SharAudio,
) -> Result<Vec<Result<Draft, Issue>>, Issue> {
    let with_id = |kind| Issue::for_utterance(id, kind);
    if let Some(transform) = object.objects("transforms").into_iter().next() {
        let name = transform.text(&["name"]).ok().flatten().unwrap_or_default();
        return Err(with_id(IssueKind::ChangedRecording(shortened(&name))));
    }
    let mut tracks = Vec::new();
    for mut track in object.objects("tracks") {
        let offset = track.number("offset").map_err(with_id)?.unwrap_or(0.0);
        let Some(cut) = track.object("cut") else { continue };
        let kind = cut.text(&["type"]).map_err(with_id)?.or(track.text(&["type"]).map_err(with_id)?);
        match kind.as_deref() {
            // Silence changes no utterance.
            Some("PaddingCut") => {}
            None | Some("MonoCut" | "MultiCut") => tracks.push((offset, cut)),
            Some(other) => return Err(with_id(IssueKind::NotMonoCut(shortened(other)))),
        }
    }
    tracks.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for pair in tracks.windows(2) {
        let [(start, cut), (next, _)] = pair else { continue };
        let length = known_duration(cut).map_err(with_id)?;
        if length.is_none_or(|length| start + length.0 > next + CUT_TOLERANCE) {
            return Err(with_id(IssueKind::MixedRecordings(Seconds(*next))));
        }
    }
    if tracks.is_empty() {
        return Err(with_id(IssueKind::NoAudio("none of its tracks is a recording".into())));
    }
    let mut drafts = Vec::new();
    for (_, cut) in tracks {
        match plain_cut(cut, id, folder, shar) {
            Ok(some) => drafts.extend(some),
            // A part between texts.
            Err(Issue { kind: IssueKind::NoText, .. }) => {}
            Err(issue) => drafts.push(Err(issue)),
        }
    }
    match &mut *drafts {
        [] => Err(with_id(IssueKind::NoText)),
        [_] => Ok(drafts),
        several => {
            let numbered = several.iter_mut().zip(1..).filter_map(|(draft, n)| Some((draft.as_mut().ok()?, n)));
            numbered.filter(|(draft, _)| draft.id == id).for_each(|(draft, n)| draft.id = format!("{id}-{n}"));
            Ok(drafts)
        }
    }
}

/// Reads a cut of one recording.
fn plain_cut(
    mut object: Object,
    id: &str,
    folder: &Path,
    shar: &SharAudio,
) -> Result<Vec<Result<Draft, Issue>>, Issue> {
    let with_id = |kind| Issue::for_utterance(id, kind);
    let none = || with_id(IssueKind::NoAudio("it names no recording".into()));
    let recording = Recording::read(object.object("recording").ok_or_else(none)?).map_err(with_id)?;
    let audio = CutAudio::new(recording, object.counts("channel"), folder, || shar.find(id)).map_err(with_id)?;
    let start = object.number("start").map_err(with_id)?.unwrap_or(0.0);
    let length = known_duration(&object).map_err(with_id)?;
    let supervisions = object.objects("supervisions");
    let own = object.object("custom").and_then(|custom| custom.text(&[OWN_ID]).ok().flatten());
    let id = own.unwrap_or_else(|| id.to_owned());
    let several = supervisions.len() > 1;
    let utterance = |(n, supervision): (usize, Object)| {
        let own = supervision.text(&["id"]).map_err(with_id)?.unwrap_or_else(|| format!("{id}-{n}"));
        let id = if several { own } else { id.clone() };
        let audio = audio.of_text(&supervision).map_err(|kind| Issue::for_utterance(&id, kind))?;
        let times = times_in_cut(&supervision, length).map_err(|kind| Issue::for_utterance(&id, kind));
        let (from, duration) = times?;
        supervised(&supervision, id, &audio, start + from, duration)
    };
    if supervisions.is_empty() {
        return Err(with_id(IssueKind::NoText));
    }
    Ok((1..).zip(supervisions).map(utterance).collect())
}

/// Audio of a cut, of which a text may have one channel.
struct CutAudio {
    recording: Recording,
    channels: Vec<u64>,
    folder: PathBuf,
    /// Audio that a Shar holds.
    in_shar: Option<PathBuf>,
}

impl CutAudio {
    /// Finds the audio of the channels of a cut. Fails where no text of the cut has any.
    fn new(
        recording: Recording,
        channels: Vec<u64>,
        folder: &Path,
        in_shar: impl FnOnce() -> Result<PathBuf, IssueKind>,
    ) -> Result<Self, IssueKind> {
        let mut found = None;
        let audio = recording.audio(&channels, folder, || in_shar().inspect(|path| found = Some(path.clone())));
        match audio {
            // A text may have one of them.
            Ok(_) | Err(IssueKind::SomeOfSeveralChannels { .. }) => {}
            Err(kind) => return Err(kind),
        }
        Ok(Self { recording, channels, folder: folder.into(), in_shar: found })
    }

    /// Returns the audio of a text. Of a meeting with a channel for each speaker, the mixed sound has more than the text.
    fn of_text(&self, supervision: &Object) -> Result<RecordedAudio, IssueKind> {
        let own = supervision.counts("channel");
        let is_spoken = |channel: &u64| own.is_empty() || own.contains(channel);
        let spoken: Vec<u64> = self.channels.iter().copied().filter(is_spoken).collect();
        if spoken.is_empty() && !self.channels.is_empty() {
            return Err(IssueKind::TextOfOtherChannel);
        }
        let missing = || IssueKind::NoAudio("no shard holds it".into());
        self.recording.audio(&spoken, &self.folder, || self.in_shar.clone().ok_or_else(missing))
    }
}

/// Returns the start of a supervision in its cut, and its duration. The supervision must lie inside the cut, whose
/// length is `length`: windows are cut without regard to the texts, and a part of the audio has not the whole text.
fn times_in_cut(supervision: &Object, length: Option<Seconds>) -> Result<(f64, Option<Seconds>), IssueKind> {
    let from = supervision.number("start")?.unwrap_or(0.0);
    let duration = known_duration(supervision)?;
    let Some(Seconds(length)) = length else { return Ok((from, duration)) };
    let to = duration.map_or(length, |duration| from + duration.0);
    if from < -CUT_TOLERANCE || to > length + CUT_TOLERANCE {
        return Err(IssueKind::TextBeyondCut { from, to, length });
    }
    match duration {
        Some(_) if from >= 0.0 && to <= length => Ok((from, duration)),
        _ => Ok((from.max(0.0), Some(Seconds(to.min(length) - from.max(0.0))))),
    }
}

/// Returns the duration of a cut or a supervision; `None` where it has no such key. Null says that it is not known.
fn known_duration(object: &Object) -> Result<Option<Seconds>, IssueKind> {
    match object.seconds("duration")? {
        None if object.has("duration") => Err(IssueKind::UnknownDuration),
        duration => Ok(duration),
    }
}

/// Reads the utterance of a supervision that starts at `offset` of the audio.
fn supervised(
    supervision: &Object,
    id: String,
    audio: &RecordedAudio,
    offset: f64,
    duration: Option<Seconds>,
) -> Result<Draft, Issue> {
    let with_id = |kind| Issue::for_utterance(&id, kind);
    let RecordedAudio { file, rate, resampled } = audio.clone();
    let draft = Draft {
        audio: file,
        rate,
        resampled,
        offset: Seconds(if (-ROUNDING..0.0).contains(&offset) { 0.0 } else { offset }),
        duration,
        text: supervision.text(&["text"]).map_err(with_id)?.unwrap_or_default(),
        speaker: supervision.text(&["speaker"]).map_err(with_id)?,
        language: supervision.text(&["language"]).map_err(with_id)?,
        id: id.clone(),
        ..Draft::default()
    };
    Ok(draft)
}

/// Parts of audio that have been read with their texts. Windows that overlap contain some supervisions twice, under two
/// ids.
#[derive(Default)]
struct SpokenParts(HashMap<u128, (usize, Option<usize>)>);

impl SpokenParts {
    /// Returns the draft, or an issue if an equal part of the same audio has been read. `place` is the index in `files`
    /// and the line.
    fn add(&mut self, draft: Draft, files: &[PathBuf], place: (usize, Option<usize>)) -> Result<Draft, Issue> {
        let milliseconds = |Seconds(time): Seconds| (time * 1e3).round();
        let (offset, duration) = (milliseconds(draft.offset), draft.duration.map(milliseconds));
        let part = format!("{}\0{offset}\0{duration:?}\0{}", draft.audio.display(), draft.text);
        match self.0.entry(xxh3_128(part.as_bytes())) {
            Entry::Vacant(vacant) => {
                vacant.insert(place);
                Ok(draft)
            }
            Entry::Occupied(first) => {
                let &(file_idx, line) = first.get();
                let location = SourceLocation { file: files[file_idx].clone(), line };
                Err(Issue::for_utterance(draft.id, IssueKind::RepeatsEarlier(location)))
            }
        }
    }
}

fn read_pairs(builder: &mut ListingBuilder<'_>, recordings: &[PathBuf], supervisions: &[PathBuf]) {
    let mut known: HashMap<String, (PathBuf, Result<Recording, IssueKind>)> = HashMap::new();
    for file in recordings {
        let folder = builder.audio_folder(folder_of(file));
        builder.read_optional_json_list(file, |builder, location, line| {
            let object = Object::read(line);
            let id = object.as_ref().map_err(IssueKind::clone).and_then(|object| object.required_text(&["id"]));
            match (id, object) {
                (Ok(id), Ok(object)) => drop(known.insert(id, (folder.clone(), Recording::read(object)))),
                (Err(kind), _) | (_, Err(kind)) => builder.add_issue(location, None, kind),
            }
        });
    }
    for file in supervisions {
        builder
            .read_optional_json_list(file, |builder, location, line| builder.add(location, supervision(line, &known)));
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
    let in_shar = || Err(IssueKind::AudioNotInFile("shar".into()));
    let audio = recording.audio(&object.counts("channel"), folder, in_shar).map_err(with_id)?;
    let start = object.number("start").map_err(with_id)?.unwrap_or(0.0);
    let to_the_end = || Some(Seconds(recording.duration?.0 - start));
    let duration = known_duration(&object).map_err(with_id)?.or_else(to_the_end);
    supervised(&object, id.clone(), &audio, start, duration)
}
