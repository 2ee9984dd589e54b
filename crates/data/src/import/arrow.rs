//! Reads Arrow files with the bytes of audio, as `Dataset.save_to_disk` of Hugging Face writes them. The audio stays in its
//! file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::builder::ListingBuilder;
use super::error::ImportError;
use super::format::Format;
use super::parquet::read_files;
use super::shards::{ARROW, shards};
use super::walk::{folder_of, name};
use crate::arrow::ArrowFile;
use crate::columns::ColumnFile;

/// File of a saved data set that lists its Arrow files.
const STATE: &str = "state.json";
/// First letters of the names of results that `datasets` keeps beside a data set.
const CACHE: &str = "cache-";

/// Adds the utterances of Arrow files to `builder`. `path` is a file, a folder with any number of splits, or a pattern such as
/// `train/data-*.arrow`.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let files = files(path);
    if files.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::Arrow });
    }
    let open = |path: &Path| Ok(ArrowFile::open(path)?.map(|file| Box::new(file) as Box<dyn ColumnFile>));
    read_files(builder, files, &open);
    Ok(())
}

/// Returns the files of a data set. In a folder with a list of them, other files are results of its programs.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    let all = shards(path, ARROW);
    if !path.is_dir() {
        return all;
    }
    let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in all {
        folders.entry(folder_of(&file).into()).or_default().push(file);
    }
    let of_folder = |(folder, found): (PathBuf, Vec<PathBuf>)| {
        listed(&folder).unwrap_or_else(|| found.into_iter().filter(|file| !name(file).starts_with(CACHE)).collect())
    };
    folders.into_iter().flat_map(of_folder).collect()
}

/// Returns the files that the list in a folder names; `None` without a list.
fn listed(folder: &Path) -> Option<Vec<PathBuf>> {
    let state: Json = serde_json::from_str(&std::fs::read_to_string(folder.join(STATE)).ok()?).ok()?;
    let names = state["_data_files"].as_array()?.iter().filter_map(|file| file["filename"].as_str());
    // The files lie in the folder itself.
    let names = names.filter_map(|name| Path::new(name).file_name());
    Some(names.map(|name| folder.join(name)).collect::<Vec<_>>()).filter(|files| !files.is_empty())
}
