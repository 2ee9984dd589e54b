//! Writes WebDataset: each utterance is its audio and a JSON file with its text.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use serde_json::json;

use super::Writer;
use super::record::Record;
use super::shard::TarShards;
use crate::import::OWN_ID;

/// Writer of tar files for WebDataset.
pub(super) struct WebDatasetWriter(TarShards);

impl WebDatasetWriter {
    pub(super) fn new(folder: &Path, limit: Bytes) -> Self {
        Self(TarShards::new(folder, "data", limit))
    }
}

impl Writer for WebDatasetWriter {
    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        let (shards, utterance) = (&mut self.0, record.utterance);
        if shards.is_full() {
            shards.next()?;
        }
        let mut about = json!({
            OWN_ID: utterance.id,
            "text": utterance.text,
            "duration": utterance.duration.0,
        });
        let names = [("speaker", &utterance.speaker), ("language", &utterance.language)];
        for (key, name) in names.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?))) {
            about[key] = json!(name);
        }
        shards.append(&format!("{}.{}", record.key, record.extension), &record.audio)?;
        shards.append(&format!("{}.json", record.key), about.to_string().as_bytes())
    }

    fn finish(self: Box<Self>) -> io::Result<(Vec<PathBuf>, u64)> {
        self.0.finish()
    }
}
