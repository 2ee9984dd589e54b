//! Writes a data folder of Kaldi: archives of WAV, and the tables that name what is in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use rayon::prelude::*;

use super::Writer;
use super::record::{Record, key};
use crate::import::OWN_ID_TABLE;
use crate::utterances::Utterances;

/// Returns the order of the names of `utterances`, which Kaldi's tools rely on: by their bytes.
pub(super) fn order(utterances: &Utterances) -> Vec<usize> {
    let name = |&index: &usize| key(index, utterances.id(index));
    let mut order: Vec<usize> = (0..utterances.len()).collect();
    if !order.is_sorted_by_key(name) {
        order.par_sort_by_cached_key(name);
    }
    order
}

/// Writer of a data folder.
///
/// Paths in `wav.scp` have no folder, so that the folder can be moved: Kaldi's tools are run from there, and other
/// programs of this project find the archives beside the table.
pub(super) struct KaldiWriter {
    folder: PathBuf,
    limit: u64,
    archive: Option<BufWriter<File>>,
    /// Bytes of the open archive.
    size: u64,
    archives: Vec<PathBuf>,
    tables: BTreeMap<&'static str, BufWriter<File>>,
    /// Names of the utterances of each speaker.
    of_speaker: BTreeMap<String, Vec<String>>,
    /// Bytes of all files.
    total: u64,
}

impl KaldiWriter {
    pub(super) fn new(folder: &Path, limit: Bytes) -> Self {
        Self {
            folder: folder.into(),
            limit: limit.0,
            archive: None,
            size: 0,
            archives: Vec::new(),
            tables: BTreeMap::new(),
            of_speaker: BTreeMap::new(),
            total: 0,
        }
    }

    /// Adds a row to the table `name`.
    fn row(&mut self, name: &'static str, key: &str, value: &str) -> io::Result<()> {
        if !self.tables.contains_key(name) {
            self.tables.insert(name, BufWriter::new(File::create(self.folder.join(name))?));
        }
        let table = self.tables.get_mut(name).ok_or_else(|| io::Error::other("no table is open"))?;
        // A row is a line, and its values are divided by blanks.
        let words: Vec<&str> = value.split_whitespace().collect();
        let row = format!("{key} {}\n", words.join(" "));
        self.total += row.len() as u64;
        table.write_all(row.as_bytes())
    }

    fn close_archive(&mut self) -> io::Result<()> {
        self.total += std::mem::take(&mut self.size);
        self.archive.take().map_or(Ok(()), finished)
    }
}

/// Writes what is left of a file, and waits until the disk has it.
fn finished(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

impl Writer for KaldiWriter {
    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.archive.is_none() || self.size >= self.limit {
            self.close_archive()?;
            let path = self.folder.join(format!("data.{:06}.ark", self.archives.len()));
            self.archive = Some(BufWriter::new(File::create(&path)?));
            self.archives.push(path);
        }
        let (utterance, key) = (record.utterance, &*record.key);
        let archive = self.archive.as_mut().ok_or_else(|| io::Error::other("no archive is open"))?;
        write!(archive, "{key} ")?;
        archive.write_all(&record.audio)?;
        let position = self.size + key.len() as u64 + 1;
        self.size = position + record.audio.len() as u64;
        self.row("wav.scp", key, &format!("data.{:06}.ark:{position}", self.archives.len() - 1))?;
        self.row("text", key, &utterance.text)?;
        self.row("utt2dur", key, &record.duration.0.to_string())?;
        // Kaldi wants a speaker for each utterance; one that has none is its own. A name is one word.
        let speaker = utterance.speaker.as_deref().map(one_word).unwrap_or_else(|| key.into());
        self.row("utt2spk", key, &speaker)?;
        self.of_speaker.entry(speaker).or_default().push(key.into());
        if let Some(language) = &utterance.language {
            self.row("utt2lang", key, &one_word(language))?;
        }
        if key != utterance.id {
            self.row(OWN_ID_TABLE, key, &utterance.id)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<(Vec<PathBuf>, u64)> {
        self.close_archive()?;
        for (speaker, names) in std::mem::take(&mut self.of_speaker) {
            self.row("spk2utt", &speaker, &names.join(" "))?;
        }
        std::mem::take(&mut self.tables).into_values().try_for_each(finished)?;
        Ok((self.archives, self.total))
    }
}

/// Returns `name` with underscores in place of blanks.
fn one_word(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_")
}
