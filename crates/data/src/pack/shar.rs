//! Writes Shar of Lhotse: tar files with the audio and the recording of each cut, and a compressed list of cuts.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_core::Bytes;
use serde_json::{Value, json};

use super::Writer;
use super::record::Record;
use super::shard::TarShards;
use crate::import::OWN_ID;

/// Writer of a Shar.
pub(super) struct SharWriter {
    folder: PathBuf,
    audio: TarShards,
    cuts: Option<GzEncoder<BufWriter<File>>>,
    /// Bytes of the finished lists of cuts.
    total: u64,
}

impl SharWriter {
    pub(super) fn new(folder: &Path, limit: Bytes) -> Self {
        Self { folder: folder.into(), audio: TarShards::new(folder, "recording", limit), cuts: None, total: 0 }
    }

    fn close_cuts(&mut self) -> io::Result<()> {
        let Some(cuts) = self.cuts.take() else { return Ok(()) };
        let file = cuts.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.total += file.metadata()?.len();
        file.sync_all()
    }
}

impl Writer for SharWriter {
    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.audio.is_full() {
            let number = self.audio.next()?;
            self.close_cuts()?;
            let list = File::create(self.folder.join(format!("cuts.{number:06}.jsonl.gz")))?;
            self.cuts = Some(GzEncoder::new(BufWriter::new(list), Compression::default()));
        }
        let recording = recording(record);
        self.audio.append(&format!("{}.{}", record.key, record.extension), &record.audio)?;
        self.audio.append(&format!("{}.json", record.key), recording.to_string().as_bytes())?;
        let cuts = self.cuts.as_mut().ok_or_else(|| io::Error::other("no list of cuts is open"))?;
        writeln!(cuts, "{}", cut(record, recording))
    }

    fn finish(mut self: Box<Self>) -> io::Result<(Vec<PathBuf>, u64)> {
        self.close_cuts()?;
        let (shards, bytes) = self.audio.finish()?;
        Ok((shards, bytes + self.total))
    }
}

fn recording(record: &Record<'_>) -> Value {
    json!({
        "id": record.key,
        "sources": [{"type": "shar", "channels": [0], "source": ""}],
        "sampling_rate": record.rate,
        "num_samples": (record.duration.0 * f64::from(record.rate)).round() as u64,
        "duration": record.duration.0,
        "channel_ids": [0],
    })
}

fn cut(record: &Record<'_>, recording: Value) -> Value {
    let (utterance, seconds) = (record.utterance, record.duration.0);
    let mut supervision = json!({
        "id": utterance.id,
        "recording_id": record.key,
        "start": 0.0,
        "duration": seconds,
        "channel": 0,
        "text": utterance.text,
    });
    let names = [("speaker", &utterance.speaker), ("language", &utterance.language)];
    for (key, name) in names.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?))) {
        supervision[key] = json!(name);
    }
    json!({
        "id": record.key,
        "start": 0.0,
        "duration": seconds,
        "channel": 0,
        "supervisions": [supervision],
        "recording": recording,
        "custom": {OWN_ID: utterance.id},
        "type": "MonoCut",
    })
}
