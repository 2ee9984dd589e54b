//! Writes Parquet as `datasets` of Hugging Face reads it: `data/train-00000-of-00002.parquet`, with a column `audio` of
//! bytes and names, and columns of text.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use serde_json::json;

use super::Writer;
use super::record::Record;
use crate::import::OWN_ID;
use crate::parquet::{CellKind, Cells, ColumnSpec, ParquetWriter};

const COLUMNS: &[ColumnSpec] = &[
    ColumnSpec { path: &[OWN_ID], kind: CellKind::Text },
    ColumnSpec { path: &["audio", "bytes"], kind: CellKind::Bytes },
    ColumnSpec { path: &["audio", "path"], kind: CellKind::Text },
    ColumnSpec { path: &["text"], kind: CellKind::Text },
    ColumnSpec { path: &["duration"], kind: CellKind::F64 },
    ColumnSpec { path: &["speaker"], kind: CellKind::Text },
    ColumnSpec { path: &["language"], kind: CellKind::Text },
];

/// Rows and bytes from which on a row group is full. `datasets` reads a whole row group for one of its rows.
const GROUP_ROWS: usize = 100;
const GROUP_BYTES: usize = 32 << 20;

/// Writer of Parquet files for `datasets`.
pub(super) struct ParquetShards {
    folder: PathBuf,
    limit: u64,
    open: Option<ParquetWriter>,
    /// Values of the open row group, by column.
    cells: Vec<Cells>,
    rows: usize,
    bytes: usize,
    shards: Vec<PathBuf>,
    /// Bytes of all shards that are finished.
    total: u64,
}

impl ParquetShards {
    pub(super) fn new(folder: &Path, limit: Bytes) -> Self {
        let (folder, limit) = (folder.join("data"), limit.0);
        let (open, cells, shards) = (None, empty_cells(), Vec::new());
        Self { folder, limit, open, cells, rows: 0, bytes: 0, shards, total: 0 }
    }

    fn flush(&mut self) -> io::Result<()> {
        let cells = std::mem::replace(&mut self.cells, empty_cells());
        if self.rows > 0 {
            let file = self.open.as_mut().ok_or_else(|| io::Error::other("no shard is open"))?;
            file.write_group(&cells)?;
        }
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(file) = self.open.take() {
            self.total += file.finish(&[("huggingface", features())])?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.open.as_ref().is_none_or(|file| file.size() + self.bytes as u64 >= self.limit)
    }

    fn next(&mut self) -> io::Result<()> {
        self.close()?;
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("{:05}.unfinished", self.shards.len()));
        self.open = Some(ParquetWriter::create(&path, COLUMNS)?);
        self.shards.push(path);
        Ok(())
    }
}

fn empty_cells() -> Vec<Cells> {
    COLUMNS.iter().map(|_| Cells::default()).collect()
}

/// Describes the columns as `datasets` does.
fn features() -> String {
    let text = json!({"dtype": "string", "_type": "Value"});
    let features = json!({
        OWN_ID: text,
        "audio": {"_type": "Audio"},
        "text": text,
        "duration": {"dtype": "float64", "_type": "Value"},
        "speaker": text,
        "language": text,
    });
    json!({"info": {"features": features}}).to_string()
}

impl Writer for ParquetShards {
    fn add(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.is_full() {
            self.next()?;
        }
        let utterance = record.utterance;
        let name = format!("{}.{}", record.key, record.extension);
        let texts = [
            (0, Some(utterance.id.as_bytes())),
            (1, Some(&*record.audio)),
            (2, Some(name.as_bytes())),
            (3, Some(utterance.text.as_bytes())),
            (5, utterance.speaker.as_deref().map(str::as_bytes)),
            (6, utterance.language.as_deref().map(str::as_bytes)),
        ];
        for (column, value) in texts {
            self.cells[column].push_bytes(value);
            self.bytes += value.map_or(0, <[u8]>::len);
        }
        self.cells[4].push_number(record.duration.0);
        self.rows += 1;
        if self.rows == GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<(Vec<PathBuf>, u64)> {
        self.close()?;
        let count = self.shards.len();
        let name = |(number, path): (usize, &PathBuf)| {
            let named = path.with_file_name(format!("train-{number:05}-of-{count:05}.parquet"));
            fs::rename(path, &named).map(|()| named)
        };
        let shards: io::Result<Vec<PathBuf>> = self.shards.iter().enumerate().map(name).collect();
        Ok((shards?, self.total))
    }
}
