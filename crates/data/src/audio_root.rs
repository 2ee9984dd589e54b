//! Finds the folder that the relative audio paths of a corpus start from.

use std::env;
use std::path::{Path, PathBuf};

use crate::issue::{Issue, IssueKind};
use plimsoll_audio::AudioSource;

/// Number of missing files that must all exist below a folder.
const FILES: usize = 3;

/// Finds a folder in which the missing audio files among `issues` exist. `root` is the folder that their relative paths
/// were taken to start from. `None` if no such folder is found, or if no file is missing.
///
/// Recipes of Kaldi, ESPnet and Lhotse run in a folder above the corpus and write paths relative to that folder. So the
/// folders around the corpus and around the working folder are searched.
pub fn suggest_audio_root(root: &Path, issues: &[Issue]) -> Option<PathBuf> {
    let missing = issues.iter().filter_map(|issue| match &issue.kind {
        IssueKind::MissingAudio(path) => path.strip_prefix(root).ok(),
        _ => None,
    });
    let missing: Vec<PathBuf> = missing.take(FILES).map(|path| AudioSource::from_path(path).file).collect();
    if missing.is_empty() {
        return None;
    }
    let working = env::current_dir().ok();
    let around = [root.canonicalize().ok(), working.clone()];
    let mut folders = around.iter().flatten().flat_map(|folder| folder.ancestors());
    let found = folders.find(|folder| missing.iter().all(|file| folder.join(file).is_file()))?;
    Some(if Some(found) == working.as_deref() { PathBuf::from(".") } else { found.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use crate::import::ImportOptions;
    use crate::manifest::{Manifest, ManifestError};
    use crate::testing::write_wav;

    #[test]
    fn folder_that_the_paths_start_from_is_suggested_and_works() {
        let recipe = TempDir::new().unwrap();
        let recipe = recipe.path().canonicalize().unwrap();
        let data = recipe.join("data/train");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(recipe.join("downloads/wav")).unwrap();
        let lines = |line: &dyn Fn(usize) -> String| (0..4).map(line).collect::<String>();
        (0..4).for_each(|n| write_wav(&recipe.join(format!("downloads/wav/{n}.wav")), &[0.1; 8_000], 8_000));
        fs::write(data.join("wav.scp"), lines(&|n| format!("u{n} downloads/wav/{n}.wav\n"))).unwrap();
        fs::write(data.join("text"), lines(&|n| format!("u{n} some words\n"))).unwrap();
        let Err(ManifestError::NothingUsable { audio_root: Some(found), .. }) = Manifest::read(&data) else { panic!() };
        assert_eq!(found, recipe);
        let options = ImportOptions { audio_root: Some(found), ..ImportOptions::default() };
        assert_eq!(Manifest::read_with(&data, &options).unwrap().utterances.len(), 4);
        // A wrong folder is answered with the right one, too.
        let options = ImportOptions { audio_root: Some(recipe.join("downloads")), ..ImportOptions::default() };
        let Err(ManifestError::NothingUsable { audio_root, .. }) = Manifest::read_with(&data, &options) else {
            panic!()
        };
        assert_eq!(audio_root, Some(recipe.clone()));
        fs::remove_dir_all(recipe.join("downloads")).unwrap();
        let Err(ManifestError::NothingUsable { audio_root, .. }) = Manifest::read(&data) else { panic!() };
        assert_eq!(audio_root, None);
    }
}
