//! LJSpeech: `metadata.csv` of `id|text|normalised`, without header or quoting, and the audio in `wavs/`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::trouble::{ImportError, Trouble};
use super::walk::{children, folder_of, id_of, is_audio, preference};

/// Reads `metadata.csv`, or a folder with it.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let file = if path.is_dir() { path.join("metadata.csv") } else { path.into() };
    if !file.is_file() {
        return Err(ImportError::NotThis { path: path.into(), format: Format::LjSpeech });
    }
    let wavs = Wavs::list(gathering.audio_folder_called("wavs", folder_of(&file)));
    gathering.list(&file, |gathering, place, line| gathering.take(place, utterance(line, &wavs)))
}

fn utterance(line: &str, wavs: &Wavs) -> Result<Draft, Refused> {
    let columns: Vec<&str> = line.split('|').collect();
    let (written, raw, normalised) = match *columns {
        [id, text] => (id.trim(), text, ""),
        [id, text, normalised] => (id.trim(), text, normalised),
        _ => {
            let expected = "`id|text` or `id|text|normalised`".into();
            return Err(Trouble::Columns { expected, found: columns.len() }.into());
        }
    };
    let text = if normalised.trim().is_empty() { raw } else { normalised };
    // Some write `wavs/a.wav` for `a`.
    let written = written.strip_prefix("wavs/").unwrap_or(written);
    let id = id_of(Path::new(written), Path::new(""));
    Ok(Draft { id, audio: wavs.file(written), text: text.into(), ..Draft::default() })
}

/// The audio folder, looked through once, so that no line asks the disk.
struct Wavs {
    folder: PathBuf,
    /// The files without their endings, which a copy of the corpus may have changed.
    by_stem: HashMap<String, PathBuf>,
}

impl Wavs {
    fn list(folder: PathBuf) -> Self {
        let mut by_stem: HashMap<String, PathBuf> = HashMap::new();
        // A folder that is not there is no trouble of the list's.
        for file in children(&folder).unwrap_or_default().into_iter().filter(|file| is_audio(file)) {
            let stem = id_of(&file, &folder);
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
        let known = self.by_stem.get(written).cloned();
        known.unwrap_or_else(|| self.folder.join(format!("{written}.wav")))
    }
}
