//! Reads manifests: JSON lines or a JSON array with the keys that `plimsoll-data` and NeMo write, and common other names
//! for the keys.

mod fields;
mod pieces;

use std::path::{Path, PathBuf};

use plimsoll_audio::AudioSource;
use plimsoll_core::Seconds;

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::walk::folder_of;
use crate::issue::{Issue, IssueKind, SourceLocation};
use pieces::Pieces;

/// File names of a manifest in a folder; the first that exists counts.
pub(super) const NAMES: [&str; 4] = ["manifest.jsonl", "manifest.json", "manifest.jsonl.gz", "manifest.json.gz"];

/// Names of the key for the audio file. Manifests are written with the first name.
pub(super) const AUDIO: [&str; 4] = ["audio_filepath", "audio_path", "audio", "wav"];

/// Names of the key for the text. Manifests are written with the first name.
const TEXT: [&str; 5] = ["text", "sentence", "transcript", "transcription", "normalized_text"];

/// Names of the key for the channel. Manifests are written with the first name.
const CHANNEL: [&str; 2] = ["channel", "channel_selector"];

/// Adds the utterances of a manifest to `builder`. `path` is the manifest, or the folder that contains it.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let file = in_folder(path).ok_or(ImportError::WrongFormat { path: path.into(), format: Format::Manifest })?;
    let folder = builder.audio_folder(folder_of(&file));
    let whole = folder.canonicalize().ok();
    let names = Names { folder: &folder, whole: whole.as_deref() };
    let unreadable = |source| ImportError::Unreadable { file: file.clone(), source };
    let without_duration = match Pieces::open(&file, &builder.options().watch).map_err(unreadable)? {
        Some(pieces) => read_pieces(builder, &file, pieces, &names),
        None => read_items(builder, &file, &names)?,
    };
    builder.add_without_duration(without_duration);
    Ok(())
}

/// Utterances that wait for the other lines of their list.
type Waiting = Vec<(SourceLocation, Draft)>;

/// Reads any JSON list, item by item.
fn read_items(builder: &mut ListingBuilder<'_>, file: &Path, names: &Names<'_>) -> Result<Waiting, ImportError> {
    let mut without_duration = Vec::new();
    builder.read_json_list(file, |builder, location, line| match utterance(line, names) {
        Ok(draft) if draft.has_null_duration => without_duration.push((location, draft)),
        draft => builder.add(location, draft),
    })?;
    Ok(without_duration)
}

/// Reads plain JSON lines on all threads. Pieces are added in order, so the listing is the same.
fn read_pieces(builder: &mut ListingBuilder<'_>, file: &Path, mut pieces: Pieces, names: &Names<'_>) -> Waiting {
    let (options, mut without_duration) = (builder.options(), Vec::new());
    let (mut raw, mut parsed) = (pieces.read(), Vec::new());
    builder.reserve(pieces.expected_lines());
    while !raw.is_empty() || !parsed.is_empty() {
        let ready = std::mem::take(&mut parsed);
        let add = || {
            for piece in ready {
                builder.add_piece(file, piece, |location, draft| match draft {
                    Ok(draft) if draft.has_null_duration => {
                        without_duration.push((location, draft));
                        None
                    }
                    draft => Some((location, draft)),
                });
            }
            pieces.read()
        };
        let (next, done) = rayon::join(add, || pieces::parse(&raw, names, options));
        (raw, parsed) = (next, done);
    }
    without_duration
}

/// Returns `path` itself where it is a file, else the manifest in the folder `path`; `None` without a manifest.
pub(super) fn in_folder(path: &Path) -> Option<PathBuf> {
    if !path.is_dir() {
        return Some(path.into());
    }
    NAMES.iter().map(|name| path.join(name)).find(|file| file.is_file())
}

/// Folder that relative audio paths start from, as given and as an absolute path.
struct Names<'a> {
    folder: &'a Path,
    whole: Option<&'a Path>,
}

impl Names<'_> {
    /// Returns the id of an utterance that has none in its list: its audio path and its offset. A path below the folder
    /// counts from there, so that the id stays when the folder moves.
    fn id(&self, written: String, offset: Seconds) -> String {
        let path = Path::new(&written);
        let below = [Some(self.folder), self.whole]
            .into_iter()
            .flatten()
            .filter(|folder| folder.is_absolute())
            .find_map(|folder| path.strip_prefix(folder).ok()?.to_str().map(String::from));
        let name = below.unwrap_or(written);
        match offset {
            Seconds(0.0) => name,
            Seconds(offset) => format!("{name}@{offset}"),
        }
    }
}

/// Returns the channel of a line; `None` for all channels. NeMo calls the key `channel_selector`. A text is the name of
/// something else, such as a program of television.
fn channel(object: &Object) -> Result<Option<u16>, IssueKind> {
    CHANNEL.iter().find_map(|key| object.channel(key).transpose()).transpose()
}

fn utterance(line: &str, names: &Names<'_>) -> Result<Draft, Issue> {
    let object = Object::read(line)?;
    let id = object.text(&["id"])?.filter(|id| !id.trim().is_empty());
    let with_id = |kind| Issue { id: id.clone(), ..Issue::from(kind) };
    let written = object.required_text(&AUDIO).map_err(with_id)?;
    if written.trim().is_empty() {
        return Err(with_id(IssueKind::NoAudio("its path is empty".into())));
    }
    let offset = object.seconds("offset").map_err(with_id)?.unwrap_or_default();
    let channel = channel(&object).map_err(with_id)?;
    let of_channel = |path: PathBuf| match channel {
        Some(channel) => AudioSource::path_of_channel(path, channel),
        None => path,
    };
    let written = of_channel(written.into()).to_string_lossy().into_owned();
    let draft = Draft {
        audio: names.folder.join(&written),
        offset,
        duration: object.seconds("duration").map_err(with_id)?,
        has_null_duration: object.has("duration") && object.seconds("duration").is_ok_and(|time| time.is_none()),
        text: object.required_text(&TEXT).map_err(with_id)?,
        speaker: object.text(&["speaker", "speaker_id"]).map_err(with_id)?,
        language: object.text(&["lang", "language", "locale"]).map_err(with_id)?,
        id: id.clone().unwrap_or_else(|| names.id(written, offset)),
        ..Draft::default()
    };
    Ok(draft)
}
