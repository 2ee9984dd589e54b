//! Reads Parquet files with the bytes of audio, as `datasets` of Hugging Face writes them, and other files with columns. The
//! audio stays in its file.
//!
//! A damaged row group costs the rows of the group from the damage on; the other groups are read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::{SampleId, Seconds};
use rayon::prelude::*;
use serde_json::Value as Json;

use super::builder::{Draft, ListingBuilder, shortened};
use super::error::ImportError;
use super::format::Format;
use super::listing::OWN_ID;
use super::shards::{PARQUET, shards, with_loss};
use crate::columns::{ColumnFile, Damage, Leaf, Value, Values};
use crate::issue::{Issue, IssueKind, SourceLocation};
use crate::parquet::ParquetFile;
use plimsoll_audio::{AudioPart, AudioSource};

/// Names of the column with audio, if the file does not say which it is; the first that exists counts.
const AUDIO: [&str; 7] = ["audio", "speech", "sound", "wav", "flac", "mp3", "ogg"];
/// Names of the column with the text; the first that exists counts.
const TEXT: [&str; 6] = ["text", "sentence", "transcription", "transcript", "normalized_text", "raw_text"];
/// Names of the column with the speaker; the first that exists counts.
const SPEAKER: [&str; 4] = ["speaker", "speaker_id", "spk", "client_id"];
/// Names of the column with the language; the first that exists counts.
const LANGUAGE: [&str; 3] = ["language", "lang", "locale"];
/// Name of the column with the duration in seconds.
const DURATION: [&str; 1] = ["duration"];
/// Names of columns with ids besides our own. In some corpora they repeat.
const IDS: [&str; 5] = ["id", "utt_id", "utterance", "segment_id", "uid"];

/// Adds the utterances of Parquet files to `builder`. `path` is a file, a folder, or a pattern such as
/// `data/train-*.parquet`.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let files = shards(path, PARQUET);
    if files.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::Parquet });
    }
    let open = |path: &Path| Ok(ParquetFile::open(path)?.map(|file| Box::new(file) as Box<dyn ColumnFile>));
    read_files(builder, files, &open);
    Ok(())
}

/// Opens a file with columns, which may be damaged.
pub(super) type Open<'a> = &'a (dyn Fn(&Path) -> io::Result<Result<Box<dyn ColumnFile>, Damage>> + Sync);

/// Adds the utterances of files with columns to `builder`.
pub(super) fn read_files(builder: &mut ListingBuilder<'_>, files: Vec<PathBuf>, open: Open<'_>) {
    let shards: Vec<Shard> = files.into_par_iter().map(|path| Shard::open(path, open)).collect();
    let naming = Naming::find(&shards);
    let rows = |shard: &Shard| {
        let (file, _) = shard.file.as_ref().ok().filter(|(file, _)| file.damage().is_none())?;
        Some(file.groups().iter().sum::<u64>() as usize)
    };
    let whole: Vec<usize> = shards.iter().filter_map(rows).collect();
    let root = builder.root.clone();
    // Some files at a time: the rows of all of them would need more memory than their utterances.
    for some in shards.chunks(2 * rayon::current_num_threads()) {
        let read: Vec<Rows> = some.par_iter().map(|shard| shard.rows(&naming, &root)).collect();
        for (shard, rows) in some.iter().zip(read) {
            let found = rows.drafts.len();
            for (row, draft) in rows.drafts {
                builder.add(SourceLocation { file: shard.path.clone(), line: Some(row) }, draft);
            }
            for kind in rows.issues {
                builder.add_file_issue(&shard.path, None, with_loss(kind, (&shard.path, found), &whole));
            }
        }
    }
}

/// One file of a corpus.
struct Shard {
    path: PathBuf,
    file: Result<(Box<dyn ColumnFile>, Columns), IssueKind>,
}

/// Columns that are read.
#[derive(Debug)]
struct Columns {
    audio: Leaf,
    /// Name of the file that the audio was made from.
    name: Option<Leaf>,
    text: Leaf,
    speaker: Option<Leaf>,
    language: Option<Leaf>,
    duration: Option<Leaf>,
    own_id: Option<Leaf>,
    id: Option<Leaf>,
    labels: Labels,
}

/// Rows of a file, and issues of the whole file.
#[derive(Default)]
struct Rows {
    drafts: Vec<(usize, Result<Draft, Issue>)>,
    issues: Vec<IssueKind>,
}

impl Shard {
    fn open(path: PathBuf, open: Open<'_>) -> Self {
        let file = match open(&path) {
            Err(error) => Err(IssueKind::Unreadable(error.to_string())),
            Ok(Err(damage)) => Err(damaged(damage)),
            Ok(Ok(file)) => Columns::find(&*file, &path).map(|columns| (file, columns)),
        };
        Self { path, file }
    }

    fn rows(&self, naming: &Naming, root: &Path) -> Rows {
        let (file, columns) = match &self.file {
            Ok(open) => open,
            Err(kind) => return Rows { issues: vec![kind.clone()], ..Rows::default() },
        };
        let within = self.path.strip_prefix(root).unwrap_or(&self.path).with_extension("");
        let (mut rows, mut first) = (Rows::default(), 1);
        for (group, count) in file.groups().into_iter().enumerate() {
            let mut reader = GroupReader::new(&**file, columns, group, naming);
            for row in (first..).take(count as usize) {
                match reader.next_row(&self.path) {
                    Ok(draft) => {
                        let named = |draft: Draft| Draft { id: naming.id(&draft.id, row, &within), ..draft };
                        let issue = |kind| Issue::for_utterance(naming.id("", row, &within), kind);
                        rows.drafts.push((row, draft.map(named).map_err(issue)));
                    }
                    Err(damage) => {
                        let (Damage { at, problem }, last) = (damage, first + count as usize - 1);
                        rows.issues.push(IssueKind::DamagedRows { at, first: row, last, problem });
                        break;
                    }
                }
            }
            first += count as usize;
        }
        rows.issues.extend(file.damage().cloned().map(damaged));
        rows
    }
}

fn damaged(damage: Damage) -> IssueKind {
    IssueKind::DamagedShard { at: damage.at, lost: 0, problem: damage.problem }
}

impl Columns {
    /// Finds the columns of the file at `path`.
    fn find(file: &dyn ColumnFile, path: &Path) -> Result<Self, IssueKind> {
        let leaves = file.leaves();
        let column = |path: &[&str]| leaves.iter().find(|leaf| leaf.path == path && !leaf.is_list).cloned();
        let named = |names: &[&str]| names.iter().find_map(|name| column(&[name]));
        let listed = audio_features(file.fact("huggingface").unwrap_or_default());
        let names = || listed.iter().map(String::as_str).chain(AUDIO);
        let audio = names().find_map(|name| Some((name, column(&[name, "bytes"]).or_else(|| column(&[name]))?)));
        let (name, audio) = audio.ok_or_else(|| {
            let wanted = "the bytes of audio files are";
            unread(leaves, names(), wanted).unwrap_or(IssueKind::MissingColumn(AUDIO[0]))
        })?;
        let no_text = || unread(leaves, TEXT.into_iter(), "one text is").unwrap_or(IssueKind::MissingColumn(TEXT[0]));
        Ok(Self {
            name: column(&[name, "path"]),
            audio,
            text: named(&TEXT).ok_or_else(no_text)?,
            speaker: named(&SPEAKER),
            language: named(&LANGUAGE),
            duration: named(&DURATION),
            own_id: named(&[OWN_ID]),
            id: named(&IDS),
            labels: Labels::of(file.fact("huggingface").unwrap_or_default(), path),
        })
    }

    /// Returns the columns that may name utterances, the preferred ones first.
    fn ids(&self) -> [Option<&Leaf>; 3] {
        [self.own_id.as_ref(), self.id.as_ref(), self.name.as_ref()]
    }
}

/// Says what is in the first of the columns `names` that is there, but cannot be read; `None` if none is there.
fn unread<'a>(leaves: &[Leaf], mut names: impl Iterator<Item = &'a str>, wanted: &'static str) -> Option<IssueKind> {
    let (name, leaf) = names.find_map(|name| Some((name, leaves.iter().find(|leaf| leaf.path[0] == name)?)))?;
    let own = leaves.iter().filter(|leaf| leaf.path[0] == name);
    let fields: Vec<&str> = own.filter_map(|leaf| leaf.path.last()).map(String::as_str).collect();
    let found = match leaf.path.len() {
        _ if leaf.is_list => "lists".to_owned(),
        1 => "another type".into(),
        _ => format!("only `{}`", shortened(&fields.join("`, `"))),
    };
    Some(IssueKind::WrongColumn { column: name.into(), found: format!("{found}, and {wanted} needed") })
}

/// Names of classes by their numbers, for the columns that have them: `datasets` writes the numbers alone.
#[derive(Debug, Default)]
struct Labels(HashMap<String, Vec<String>>);

impl Labels {
    /// Reads the names from the facts of a file, or from the `dataset_info.json` of its folder or the folder around it.
    fn of(fact: &str, path: &Path) -> Self {
        let own = Self::from_features(&json(fact)["info"]["features"]);
        if !own.0.is_empty() {
            return own;
        }
        let folders = path.ancestors().skip(1).take(2);
        let beside = folders.filter_map(|folder| std::fs::read_to_string(folder.join("dataset_info.json")).ok());
        beside
            .map(|text| Self::from_features(&json(&text)["features"]))
            .find(|labels| !labels.0.is_empty())
            .unwrap_or_default()
    }

    fn from_features(features: &Json) -> Self {
        let classes =
            features.as_object().into_iter().flatten().filter(|(_, feature)| feature["_type"] == "ClassLabel");
        let names = |feature: &Json| {
            let names = feature["names"].as_array().into_iter().flatten();
            names.map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
        };
        Self(classes.map(|(column, feature)| (column.clone(), names(feature))).collect())
    }

    /// Replaces the number of a class in a column by its name.
    fn named(&self, column: Option<&Leaf>, value: Option<Value>) -> Option<Value> {
        let names = column.and_then(|leaf| self.0.get(leaf.path.first()?));
        let number = match value {
            Some(Value::Whole(number)) => number,
            // Programs turn whole numbers beside nulls into others.
            Some(Value::Real(number)) if number.fract() == 0.0 => number as i64,
            _ => return value,
        };
        let Some(names) = names else { return value };
        // A number without a name, such as -1, says that the class is not known.
        let name = usize::try_from(number).ok().and_then(|number| names.get(number));
        name.filter(|name| !name.is_empty()).map(|name| Value::Bytes(name.clone().into_bytes()))
    }
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_default()
}

/// Returns the names of the columns that `datasets` decodes as audio.
fn audio_features(fact: &str) -> Vec<String> {
    let fact = json(fact);
    let features = fact["info"]["features"].as_object();
    let audio = features.into_iter().flatten().filter(|(_, feature)| feature["_type"] == "Audio");
    audio.map(|(name, _)| name.clone()).collect()
}

/// Which column names the utterances. Columns called `id` or `path` repeat in some corpora, and are then of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Naming {
    /// Index in [`Columns::ids`]; `None` for the numbers of rows.
    column: Option<usize>,
    /// Whether names begin with the name of their file, because files have names in common.
    is_within: bool,
}

impl Naming {
    fn find(shards: &[Shard]) -> Self {
        let open: Vec<_> = shards.iter().filter_map(|shard| shard.file.as_ref().ok()).collect();
        for column in 0..3 {
            let hashes: Option<Vec<_>> =
                open.par_iter().map(|(file, columns)| unique(&**file, columns.ids()[column]?, column == 0)).collect();
            let Some(hashes) = hashes.filter(|hashes| !hashes.is_empty()) else { continue };
            let mut all: Vec<u64> = hashes.into_iter().flatten().collect();
            all.par_sort_unstable();
            let is_shared = all.windows(2).any(|pair| pair[0] == pair[1]);
            // Ids of our own are never changed.
            return Self { column: Some(column), is_within: is_shared && column > 0 };
        }
        Self { column: None, is_within: true }
    }

    /// Returns the id of an utterance; `written` is what its column says.
    fn id(self, written: &str, row: usize, file: &Path) -> String {
        match (written, self.is_within) {
            ("", _) => format!("{}/{row}", file.display()),
            (id, true) => format!("{}/{id}", file.display()),
            (id, false) => id.into(),
        }
    }
}

/// Returns hashes of the values of a column; `None` if one is missing, or repeats and `may_repeat` is false.
fn unique(file: &dyn ColumnFile, leaf: &Leaf, may_repeat: bool) -> Option<Vec<u64>> {
    let (mut hashes, mut known) = (Vec::new(), HashSet::new());
    for group in 0..file.groups().len() {
        // Damage is reported when the rows are read.
        for value in file.values(group, leaf).map_while(Result::ok) {
            let name = value.and_then(text).filter(|name| !name.trim().is_empty())?;
            let hash = SampleId::from_name(&name).0;
            if !may_repeat && !known.insert(hash) {
                return None;
            }
            hashes.push(hash);
        }
    }
    Some(hashes)
}

/// Returns a value as text; `None` if it is not UTF-8.
fn text(value: Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).ok(),
        Value::Whole(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Place(_) => None,
    }
}

/// Reader of the rows of a row group.
struct GroupReader<'a> {
    audio: Values<'a>,
    text: Values<'a>,
    id: Option<Values<'a>>,
    name: Option<Values<'a>>,
    speaker: Option<Values<'a>>,
    language: Option<Values<'a>>,
    duration: Option<Values<'a>>,
    columns: &'a Columns,
}

impl<'a> GroupReader<'a> {
    fn new(file: &'a dyn ColumnFile, columns: &'a Columns, group: usize, naming: &Naming) -> Self {
        let column = |leaf: Option<&'a Leaf>| leaf.map(|leaf| file.values(group, leaf));
        Self {
            audio: file.places(group, &columns.audio),
            text: file.values(group, &columns.text),
            id: naming.column.and_then(|id| column(columns.ids()[id])),
            name: column(columns.name.as_ref()),
            speaker: column(columns.speaker.as_ref()),
            language: column(columns.language.as_ref()),
            duration: column(columns.duration.as_ref()),
            columns,
        }
    }

    /// Reads the next row: an utterance with the id that is written, or what is wrong with it.
    fn next_row(&mut self, path: &Path) -> Result<Result<Draft, IssueKind>, Damage> {
        let audio = next(Some(&mut self.audio))?;
        let [text, id, name] = [Some(&mut self.text), self.id.as_mut(), self.name.as_mut()].map(next);
        let [speaker, language] = [self.speaker.as_mut(), self.language.as_mut()].map(next);
        let duration = next(self.duration.as_mut())?;
        let Columns { labels, text: text_column, .. } = self.columns;
        let text = text.map(|value| labels.named(Some(text_column), value));
        let speaker = speaker.map(|value| labels.named(self.columns.speaker.as_ref(), value));
        let language = language.map(|value| labels.named(self.columns.language.as_ref(), value));
        let (values, audio_name) = ([text?, id?, speaker?, language?].map(as_text), as_text(name?));
        let draft = || -> Result<Draft, IssueKind> {
            let [text, id, speaker, language] = values;
            Ok(Draft {
                audio: audio_path(path, audio, audio_name)?,
                duration: duration.map(seconds),
                text: text?.unwrap_or_default(),
                id: id?.unwrap_or_default(),
                speaker: speaker?,
                language: language?,
                ..Draft::default()
            })
        };
        Ok(draft())
    }
}

/// Returns the next value of a column; `None` for null, or without a column.
fn next(column: Option<&mut Values<'_>>) -> Result<Option<Value>, Damage> {
    column.and_then(Iterator::next).transpose().map(Option::flatten)
}

fn as_text(value: Option<Value>) -> Result<Option<String>, IssueKind> {
    match value {
        Some(Value::Bytes(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(IssueKind::NotUtf8(error.utf8_error().valid_up_to() + 1)),
        },
        other => Ok(other.and_then(text)),
    }
}

fn seconds(value: Value) -> Seconds {
    match value {
        Value::Whole(number) => Seconds(number as f64),
        Value::Real(number) => Seconds(number),
        Value::Bytes(_) | Value::Place(_) => Seconds(f64::NAN),
    }
}

/// Returns the path of the audio of a row.
fn audio_path(
    file: &Path,
    audio: Option<Value>,
    name: Result<Option<String>, IssueKind>,
) -> Result<PathBuf, IssueKind> {
    let part = match audio {
        Some(Value::Place(AudioPart::Bytes { length: Some(0), .. } | AudioPart::Page { length: 0, .. })) => {
            return Err(IssueKind::NoAudio("it has no bytes".into()));
        }
        Some(Value::Place(part)) => part,
        _ => {
            return Err(IssueKind::NoAudio(match name {
                // A data set that was not packed names the files of its machine.
                Ok(Some(name)) if Path::new(&name).is_absolute() => return Ok(name.into()),
                Ok(Some(name)) => format!("its row has no bytes, and names the file {}", shortened(&name)),
                _ => "its row has no bytes".into(),
            }));
        }
    };
    Ok(AudioSource { file: file.into(), part: Some(part), channel: None }.to_path())
}
