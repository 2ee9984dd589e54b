//! Finds the audio of the cuts of a Shar in the tar file beside their list.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::super::builder::ListingBuilder;
use super::super::tar_members::TarMembers;
use super::super::walk::{is_audio, name};
use crate::issue::IssueKind;
use plimsoll_audio::AudioSource;

/// Audio files in the tar file of a Shar, by the ids of their cuts. Empty for a list that is no part of a Shar.
pub(super) struct SharAudio {
    tar: PathBuf,
    /// Position and number of bytes of the audio of each cut.
    places: HashMap<String, (u64, u64)>,
}

impl SharAudio {
    /// Indexes the tar file of the list of cuts `list`, which lies in `folder`. A tar file that is damaged is an issue;
    /// what lies before the damage is found.
    pub(super) fn beside(builder: &mut ListingBuilder<'_>, folder: &Path, list: &Path) -> Self {
        let number = name(list).split('.').nth(1).unwrap_or_default().to_owned();
        let tar = folder.join(format!("recording.{number}.tar"));
        let mut places = HashMap::new();
        if is_numbered(list) && tar.exists() {
            let result = TarMembers::open(&tar).map_err(|error| IssueKind::Unreadable(error.to_string()));
            match result.and_then(|members| index(members, &mut places)) {
                Ok(()) => {}
                Err(kind) => builder.add_file_issue(&tar, None, kind),
            }
        }
        Self { tar, places }
    }

    /// Returns the audio of the cut `id`.
    pub(super) fn find(&self, id: &str) -> Result<PathBuf, IssueKind> {
        let missing = || {
            let problem = if self.tar.exists() { "does not hold it" } else { "does not exist" };
            IssueKind::NoAudio(format!("its shard {} {problem}", self.tar.display()))
        };
        let &(offset, size) = self.places.get(id).ok_or_else(missing)?;
        Ok(AudioSource::from_bytes_of(&self.tar, offset, size).to_path())
    }
}

fn index(members: TarMembers, places: &mut HashMap<String, (u64, u64)>) -> Result<(), IssueKind> {
    for member in members {
        let member = member?;
        let path = Path::new(&member.name);
        if is_audio(path) {
            // Lhotse takes the name without its last extension, so ids may have dots.
            let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            places.entry(id).or_insert((member.offset, member.size));
        }
    }
    Ok(())
}

/// Whether a list is called `cuts.NUMBER.jsonl`, perhaps compressed.
fn is_numbered(list: &Path) -> bool {
    let name = name(list);
    let number = name.strip_prefix("cuts.").and_then(|rest| rest.split_once('.'));
    number.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
