//! Reads WebDataset: tar shards whose members with equal names, up to the first dot, make a sample.
//!
//! A sample has audio and its text in `.txt`, `.lab`, `.json` or `.cls`. Audio stays in its shard: an utterance is a
//! range of bytes. A damaged shard is one issue, and what lies before the damage is used.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::lines::MAX_LINE_BYTES;
use super::listing::OWN_ID;
use super::shards::{TAR, has_extension, shards, with_loss, without_extension};
use super::tar_members::TarMembers;
use super::unpack::{Content, Unpacker};
use super::walk::{Walk, ending, is_audio, preference};
use crate::issue::{Issue, IssueKind, SourceLocation};
use plimsoll_audio::AudioSource;

/// Keys that can hold the text; the first that exists counts.
const TEXT: [&str; 6] = ["text", "sentence", "transcription", "transcript", "normalized_text", "raw_text"];
/// Keys that can hold the speaker; the first that exists counts.
const SPEAKER: [&str; 4] = ["speaker", "speaker_id", "spk", "client_id"];
/// Keys that can hold the language; the first that exists counts.
const LANGUAGE: [&str; 3] = ["language", "lang", "locale"];

/// Extensions of texts; where a sample has several, the first that exists counts.
const TEXTS: [&str; 4] = ["txt", "lab", "json", "cls"];

/// Adds the utterances of tar shards to `builder`. `path` is a shard, a folder of shards, or a pattern such as
/// `train-{000..012}.tar`.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let shards = shards(path, TAR);
    if shards.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::WebDataset });
    }
    let unpacker = Unpacker::new(builder.options().unpack.as_ref(), &shards)?;
    let read_shard = |file: PathBuf| Ok::<_, ImportError>(Shard::read(unpacker.content(&file)?, file));
    let mut shards = shards.into_iter();
    let mut read: Vec<Shard> = shards.next().map(read_shard).transpose()?.into_iter().collect();
    if read.iter().any(Shard::is_other_archive) {
        return Err(ImportError::NotReadable {
            path: path.into(),
            found: "has no sample of WebDataset: audio and its text under one name".into(),
            advice: "unpack it into a folder, whose layout is then detected".into(),
        });
    }
    let rest: Result<Vec<Shard>, ImportError> = shards.collect::<Vec<_>>().into_par_iter().map(read_shard).collect();
    read.extend(rest?);
    let are_keys_shared = has_shared_keys(&read);
    let whole: Vec<usize> =
        read.iter().filter(|shard| shard.damage.is_none()).map(|shard| shard.drafts.len()).collect();
    for other in other_compression(path) {
        let problem = "its compression is not read; write it as `.tar` or `.tar.gz`";
        let issue = with_loss(IssueKind::Unreadable(problem.into()), (&other, 0), &whole);
        builder.add_issue(SourceLocation { file: other.clone(), line: None }, None, issue);
    }
    let root = builder.root.clone();
    for Shard { file, content, drafts, damage } in read {
        let location = SourceLocation { file: file.clone(), line: None };
        let own = without_extension(file.strip_prefix(&root).unwrap_or(&file));
        let found = drafts.len();
        for draft in drafts {
            let renamed = draft.map(|draft| match are_keys_shared {
                true => Draft { id: format!("{}/{}", own.display(), draft.id), ..draft },
                false => draft,
            });
            builder.add(location.clone(), renamed);
        }
        if let Some(damage) = damage {
            builder.add_issue(location, None, with_loss(damage, (&content, found), &whole));
        }
    }
    Ok(())
}

/// Lists the shards below a folder whose compression is not read.
fn other_compression(path: &Path) -> Vec<PathBuf> {
    let is_other = |file: &PathBuf| has_extension(file, &["tar.xz", "tar.zst", "tar.bz2", "tar.lz4", "txz", "tbz2"]);
    let files = if path.is_dir() { Some(Walk::new(path)) } else { None };
    files.into_iter().flatten().filter_map(Result::ok).filter(is_other).collect()
}

/// Whether shards have keys in common. Some programs count samples anew in every shard.
fn has_shared_keys(shards: &[Shard]) -> bool {
    let mut owners: HashMap<&str, usize> = HashMap::new();
    let keys = shards.iter().enumerate().flat_map(|(n, shard)| shard.drafts.iter().flatten().map(move |d| (n, d)));
    let mut keys = keys.map(|(n, draft)| *owners.entry(&draft.id).or_insert(n) != n);
    keys.any(|is_shared| is_shared)
}

/// Content of one shard.
struct Shard {
    file: PathBuf,
    /// The tar file that is read: the shard itself, or what it was unpacked into.
    content: PathBuf,
    drafts: Vec<Result<Draft, Issue>>,
    /// Issue of the whole shard, which ended the reading.
    damage: Option<IssueKind>,
}

impl Shard {
    fn read(content: Content, file: PathBuf) -> Self {
        let mut shard = Self { file, content: content.path, drafts: Vec::new(), damage: None };
        let problem =
            "its compression is damaged, so its sound may be wrong; compare it with its source, or fetch it again";
        let damage = content.is_damaged.then(|| IssueKind::Unreadable(problem.into()));
        shard.damage = shard.read_samples().err().or(damage);
        shard
    }

    /// Whether the shard is an archive of another layout: it has files, and not one sample with audio and a text.
    fn is_other_archive(&self) -> bool {
        let has_text = |draft: &Draft| !draft.text.trim().is_empty();
        let is_whole = self.damage.is_none() && (self.content != self.file || !self.drafts.is_empty());
        is_whole && !self.drafts.iter().flatten().any(has_text)
    }

    fn read_samples(&mut self) -> Result<(), IssueKind> {
        let unreadable = |error: std::io::Error| IssueKind::Unreadable(error.to_string());
        let mut members = TarMembers::open(&self.content).map_err(unreadable)?;
        let mut sample = Sample::default();
        while let Some(member) = members.next() {
            let member = match member {
                Ok(member) => member,
                Err(damage) => {
                    // The file may end inside this sample, so its text or its audio may be missing.
                    if sample.is_complete() {
                        self.add(sample);
                    }
                    return Err(damage);
                }
            };
            let Some((key, rest)) = key(&member.name) else { continue };
            if key != sample.key {
                self.add(std::mem::replace(&mut sample, Sample { key: key.into(), ..Sample::default() }));
            }
            let is_text = TEXTS.contains(&&*ending(Path::new(&member.name)));
            let content = match is_text && member.size <= MAX_LINE_BYTES as u64 {
                true => Some(members.content(&member, MAX_LINE_BYTES as u64).map_err(unreadable)?),
                false => None,
            };
            sample.fields.push(Field::new(rest, member.offset, member.size, content));
        }
        self.add(sample);
        Ok(())
    }

    fn add(&mut self, sample: Sample) {
        if !sample.fields.is_empty() {
            self.drafts.extend(sample.drafts(&self.content));
        }
    }
}

/// Divides the name of a member at the first dot behind the last slash; `None` for a hidden file or a name without a
/// dot, which WebDataset leaves out, too.
fn key(name: &str) -> Option<(&str, &str)> {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = start + name[start..].find('.')?;
    (dot > start).then(|| (&name[..dot], &name[dot + 1..]))
}

/// Members of a shard with one key.
#[derive(Default)]
struct Sample {
    key: String,
    fields: Vec<Field>,
}

/// Member of a sample.
struct Field {
    /// What stands between the key and the extension; mostly nothing.
    middle: String,
    /// File name whose extension gives the kind.
    name: PathBuf,
    offset: u64,
    size: u64,
    /// Content of a text that is not too long.
    content: Option<Vec<u8>>,
}

impl Field {
    fn new(rest: &str, offset: u64, size: u64, content: Option<Vec<u8>>) -> Self {
        let middle = rest.rsplit_once('.').map_or("", |(middle, _)| middle).to_owned();
        Self { middle, name: format!("x.{rest}").into(), offset, size, content }
    }
}

impl Sample {
    fn is_complete(&self) -> bool {
        let has_text = self.fields.iter().any(|field| field.content.is_some());
        has_text && self.fields.iter().any(|field| is_audio(&field.name))
    }

    /// Makes an utterance of every audio member. Of several with one name, the preferred format counts.
    fn drafts(&self, shard: &Path) -> Vec<Result<Draft, Issue>> {
        let mut audio: Vec<&Field> = self.fields.iter().filter(|field| is_audio(&field.name)).collect();
        audio.sort_by_key(|field| (&field.middle, preference(&field.name)));
        audio.dedup_by_key(|field| &field.middle);
        match *audio {
            [] => {
                let kind = IssueKind::NoAudio("no audio file of the same name is in its shard".into());
                vec![Err(Issue::for_utterance(&self.key, kind))]
            }
            [only] => vec![self.draft(self.key.clone(), only, |_| true, shard)],
            ref several => {
                let draft = |audio: &&Field| {
                    let id = format!("{}.{}", self.key, audio.middle);
                    self.draft(id, audio, |field| field.middle == audio.middle, shard)
                };
                several.iter().map(draft).collect()
            }
        }
    }

    fn draft(
        &self,
        key: String,
        audio: &Field,
        belongs: impl Fn(&Field) -> bool,
        shard: &Path,
    ) -> Result<Draft, Issue> {
        let with_id = |kind| Issue::for_utterance(&key, kind);
        let of_kind = |kind: &str| self.fields.iter().find(|field| belongs(field) && ending(&field.name) == kind);
        let [txt, lab, json, cls] = TEXTS.map(|kind| of_kind(kind).map(Field::text).transpose());
        let [txt, lab, json, cls] = [txt, lab, json, cls].map(|text| text.map_err(with_id));
        let object = json?.map(|json| Object::read(&json)).transpose().map_err(with_id)?.unwrap_or_default();
        let value = |keys: &[&'static str]| object.text(keys).map_err(with_id);
        let text = txt?.or(lab?).map_or_else(|| value(&TEXT), |text| Ok(Some(text)))?;
        Ok(Draft {
            audio: AudioSource::from_bytes_of(shard, audio.offset, audio.size).to_path(),
            duration: object.seconds("duration").map_err(with_id)?,
            text: text.map_or_else(|| cls, |text| Ok(Some(text)))?.unwrap_or_default(),
            speaker: value(&SPEAKER)?,
            language: value(&LANGUAGE)?,
            id: value(&[OWN_ID])?.unwrap_or_else(|| key.clone()),
            ..Draft::default()
        })
    }
}

impl Field {
    fn text(&self) -> Result<String, IssueKind> {
        let too_long = IssueKind::FieldTooLong { field: "text", max_bytes: MAX_LINE_BYTES };
        let text = String::from_utf8(self.content.clone().ok_or(too_long)?);
        text.map_err(|error| IssueKind::NotUtf8(error.utf8_error().valid_up_to() + 1))
    }
}
