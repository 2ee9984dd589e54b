//! Writes tar files one after another, each up to a size.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use tar::{Builder, Header};

/// Size of a tar header, and the unit of all sizes.
const BLOCK: u64 = 512;

/// Writer of tar files called `PREFIX.000000.tar`, `PREFIX.000001.tar` and so on.
pub(super) struct TarShards {
    folder: PathBuf,
    prefix: &'static str,
    limit: u64,
    open: Option<Builder<BufWriter<File>>>,
    /// Bytes of the open shard.
    size: u64,
    shards: Vec<PathBuf>,
    /// Bytes of all shards.
    total: u64,
}

impl TarShards {
    pub(super) fn new(folder: &Path, prefix: &'static str, limit: Bytes) -> Self {
        Self { folder: folder.into(), prefix, limit: limit.0, open: None, size: 0, shards: Vec::new(), total: 0 }
    }

    /// Returns whether the next member opens a new shard. Members of one utterance stay together, so this is asked before
    /// the first of them.
    pub(super) fn is_full(&self) -> bool {
        self.open.is_none() || self.size >= self.limit
    }

    /// Opens the next shard, and returns its number.
    pub(super) fn next(&mut self) -> io::Result<usize> {
        self.close()?;
        let number = self.shards.len();
        let path = self.folder.join(format!("{}.{number:06}.tar", self.prefix));
        self.open = Some(Builder::new(BufWriter::new(File::create(&path)?)));
        self.shards.push(path);
        Ok(number)
    }

    /// Adds a member to the open shard.
    pub(super) fn append(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        let shard = self.open.as_mut().ok_or_else(|| io::Error::other("no shard is open"))?;
        shard.append_data(&mut header, name, content)?;
        self.size += BLOCK + (content.len() as u64).div_ceil(BLOCK) * BLOCK;
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(shard) = self.open.take() else { return Ok(()) };
        let file = shard.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.total += file.metadata()?.len();
        self.size = 0;
        file.sync_all()
    }

    /// Ends the last shard, and returns all shards and the size of them.
    pub(super) fn finish(mut self) -> io::Result<(Vec<PathBuf>, u64)> {
        self.close()?;
        Ok((self.shards, self.total))
    }
}
