//! Tests of the import: every layout as published, damaged, and filled with garbage.

mod arrow;
mod channels;
mod containers;
mod damaged;
mod detection;
mod good;
mod hostile;
mod index;
mod lhotse;
mod mistakes;
mod mutated;
mod parquet;
mod pieces;
mod places;
mod unpacking;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;

/// Names and contents of the files of a corpus. Files with the ending `.gz` are compressed.
type Files<'a> = &'a [(&'a str, &'a [u8])];

fn write(files: Files<'_>) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, content) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, if name.ends_with(".gz") { compressed(content) } else { content.to_vec() }).unwrap();
    }
    folder
}

fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Imports `files` and returns the result as text, without the temporary folder in paths.
fn seen(files: Files<'_>, options: &ImportOptions) -> String {
    let folder = write(files);
    seen_at(folder.path(), folder.path(), options)
}

fn seen_at(path: &Path, root: &Path, options: &ImportOptions) -> String {
    let mut seen = String::new();
    match import(path, options) {
        Ok(listing) => {
            writeln!(seen, "{}", listing.format).unwrap();
            listing.entries.iter().for_each(|entry| writeln!(seen, "{}", line(entry)).unwrap());
            listing.issues.iter().for_each(|issue| writeln!(seen, "! {issue}").unwrap());
        }
        Err(error) => writeln!(seen, "{}", plimsoll_core::error_chain(&error)).unwrap(),
    }
    let root = root.display().to_string();
    seen.replace(&format!("{root}/"), "").replace(&root, "CORPUS")
}

fn line(entry: &Entry) -> String {
    let Entry { id, audio, offset, duration, text, speaker, language, location, .. } = entry;
    let end = duration.map_or("end".to_owned(), |duration| (*offset + duration).to_string());
    let who = [speaker, language].map(|name| name.as_deref().unwrap_or("-")).join(" ");
    format!("{id}: {} {offset}..{end} [{who}] {text} ({location})", audio.display())
}

fn as_format(format: Format) -> ImportOptions {
    ImportOptions { format: Some(format), ..ImportOptions::default() }
}
