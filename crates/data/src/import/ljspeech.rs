//! Reads LJSpeech: `metadata.csv` of `id|text|normalized`, without header or quoting, and the audio in `wavs/`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::walk::{children, composed, folder_of, id_of, is_audio, preference};
use crate::issue::{Issue, IssueKind};

/// Adds the utterances of an LJSpeech corpus to `builder`. `path` is the `metadata.csv`, or the folder around it.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let file = if path.is_dir() { path.join("metadata.csv") } else { path.into() };
    if !file.is_file() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::LjSpeech });
    }
    let wavs = Wavs::list(builder.named_audio_folder("wavs", folder_of(&file)));
    builder.read_list(&file, |builder, location, line| builder.add(location, utterance(line, &wavs)))
}

fn utterance(line: &str, wavs: &Wavs) -> Result<Draft, Issue> {
    let columns: Vec<&str> = line.split('|').collect();
    if columns.len() == 1
        && let Some(found) = other_delimiter(line)
    {
        return Err(IssueKind::WrongDelimiter { found, expected: "`|`" }.into());
    }
    let (written, raw, normalized) = match *columns {
        [id, text] => (id.trim(), text, ""),
        [id, text, normalized] => (id.trim(), text, normalized),
        _ => {
            let expected = "`id|text` or `id|text|normalized`".into();
            return Err(IssueKind::WrongColumnCount { expected, found: columns.len() }.into());
        }
    };
    let text = if normalized.trim().is_empty() { raw } else { normalized };
    // Some corpora write `wavs/a.wav` instead of `a`.
    let written = written.strip_prefix("wavs/").unwrap_or(written);
    let id = id_of(Path::new(written), Path::new(""));
    Ok(Draft { id, audio: wavs.file(written), text: text.into(), ..Draft::default() })
}

/// Names what separates the columns of a line without `|`: tabs or semicolons that divide it into two or three. A comma may
/// belong to the text.
fn other_delimiter(line: &str) -> Option<&'static str> {
    let is_divided = |(character, _): &(char, &str)| (1..=2).contains(&line.matches(*character).count());
    [('\t', "tabs"), (';', "semicolons")].into_iter().find(is_divided).map(|(_, name)| name)
}

/// Contents of the audio folder, listed once, so that no line costs a disk access.
struct Wavs {
    folder: PathBuf,
    /// Audio files by their composed names without extension: copies of the corpus may be in another audio format.
    by_stem: HashMap<PathBuf, PathBuf>,
}

impl Wavs {
    fn list(folder: PathBuf) -> Self {
        let mut by_stem: HashMap<PathBuf, PathBuf> = HashMap::new();
        // A missing folder is found by the check of each audio file.
        for file in children(&folder).unwrap_or_default().into_iter().filter(|file| is_audio(file)) {
            let stem = composed(Path::new(&id_of(&file, &folder)));
            let better = by_stem.get(&stem).is_none_or(|known| preference(&file) < preference(known));
            if better {
                by_stem.insert(stem, file);
            }
        }
        Self { folder, by_stem }
    }

    fn file(&self, written: &str) -> PathBuf {
        if is_audio(Path::new(written)) {
            return self.folder.join(written);
        }
        let known = self.by_stem.get(&composed(Path::new(written))).cloned();
        known.unwrap_or_else(|| self.folder.join(format!("{written}.wav")))
    }
}
