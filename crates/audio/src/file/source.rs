//! Sources of audio: a whole file, or a part of a container such as a tar shard, a Parquet file or a Kaldi archive.
//!
//! A part is written into a path, as Kaldi does it: `wav.ark:1234`, or `shard.tar:1536+64044` with its length. In a
//! compressed page, `a.parquet:4096+81920.snappy.131072:300+64044`, the page comes first. So every list and every function
//! that takes the path of an audio file also takes a part of a container.
//!
//! One channel of a file is written in the same way: `call.wav:ch1` is the second, and `shard.tar:1536+64044:ch0` the first.

use std::borrow::Cow;
use std::fs::{self, File, Metadata};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_core::{open_regular_file, regular_file_metadata};

use super::page::{PackedPage, PageSlice, number};

/// Bytes of one audio file: a whole file, or a part of a container file.
///
/// ```
/// use plimsoll_audio::{AudioPart, AudioSource};
///
/// let source = AudioSource::from_path("shards/000.tar:1536+64044");
/// assert_eq!(source.file, std::path::Path::new("shards/000.tar"));
/// assert_eq!(source.part, Some(AudioPart::Bytes { offset: 1536, length: Some(64044) }));
/// assert_eq!(source.to_path(), std::path::Path::new("shards/000.tar:1536+64044"));
/// assert_eq!(AudioSource::from_path("a.wav").part, None);
/// assert_eq!(AudioSource::from_path("call.wav:ch1").channel, Some(1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AudioSource {
    /// Audio file, or container of many audio files.
    pub file: PathBuf,
    /// Part of the container; `None` for a whole file.
    pub part: Option<AudioPart>,
    /// Channel that is read, counted from 0; `None` for all of them as one.
    pub channel: Option<u16>,
}

/// Part of a container that is one audio file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AudioPart {
    /// Consecutive bytes of the container: `FILE:OFFSET+LENGTH`, or `FILE:OFFSET` as in `wav.scp` of Kaldi.
    Bytes {
        /// Position of the first byte in the container.
        offset: u64,
        /// Number of bytes. Without it, a WAV file ends where its header says, and any other at the end of the
        /// container.
        length: Option<u64>,
    },
    /// Consecutive bytes of a compressed page of the container, as in Parquet.
    Page {
        /// Page in the container.
        page: PackedPage,
        /// Position of the first byte in the unpacked page.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

impl AudioSource {
    /// Reads the part and the channel from the name of a path. A file that exists under the whole name is that file, and not
    /// a part.
    pub fn from_path(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
        let (path, channel) = match split_channel(path) {
            Some((all, channel)) if !exists(path) => (Cow::Owned(all), Some(channel)),
            _ => (Cow::Borrowed(path), None),
        };
        match split(&path) {
            Some((file, part)) if !exists(&path) => Self { file, part: Some(part), channel },
            _ => Self { file: path.into(), part: None, channel },
        }
    }

    /// Returns the path of one channel of the audio at `path`, counted from 0.
    ///
    /// ```
    /// use plimsoll_audio::AudioSource;
    ///
    /// assert_eq!(AudioSource::path_of_channel("call.wav", 1), std::path::Path::new("call.wav:ch1"));
    /// ```
    pub fn path_of_channel(path: impl Into<PathBuf>, channel: u16) -> PathBuf {
        let path = path.into();
        if Self::named_channel(&path) == Some(channel) {
            return path;
        }
        let mut path = path.into_os_string();
        path.push(format!(":ch{channel}"));
        path.into()
    }

    /// Returns the channel that the name of a path gives, without a look at the disk.
    pub fn named_channel(path: &Path) -> Option<u16> {
        split_channel(path).map(|(_, channel)| channel)
    }

    /// Creates the source of a number of consecutive bytes of the container `file`.
    pub fn from_bytes_of(file: impl Into<PathBuf>, offset: u64, length: u64) -> Self {
        Self { file: file.into(), part: Some(AudioPart::Bytes { offset, length: Some(length) }), channel: None }
    }

    /// Writes the source as a path, which [`from_path`](Self::from_path) reads.
    pub fn to_path(&self) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        match self.part {
            None => {}
            Some(AudioPart::Bytes { offset, length: None }) => path.push(format!(":{offset}")),
            Some(AudioPart::Bytes { offset, length: Some(length) }) => path.push(format!(":{offset}+{length}")),
            Some(AudioPart::Page { page, offset, length }) => path.push(format!(":{page}:{offset}+{length}")),
        }
        match self.channel {
            Some(channel) => Self::path_of_channel(path, channel),
            None => path.into(),
        }
    }

    /// Reads the metadata of the file, without opening it.
    ///
    /// # Errors
    /// When the file does not exist or is no regular file, or when it ends before the part.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let metadata = regular_file_metadata(&self.file)?;
        match self.part {
            Some(AudioPart::Page { page, offset, length }) => page.check(metadata.len(), offset, length)?,
            _ => {
                self.range(metadata.len())?;
            }
        }
        Ok(metadata)
    }

    /// Opens the audio. What is read begins and ends with the part.
    ///
    /// # Errors
    /// When the file cannot be opened or is no regular file, or when it ends before the part.
    pub fn open(&self) -> io::Result<AudioReader> {
        let file = open_regular_file(&self.file)?;
        let metadata = file.metadata()?;
        let size = metadata.len();
        if let Some(AudioPart::Page { page, offset, length }) = self.part {
            page.check(size, offset, length)?;
            let bytes = page.slice(&self.file, &file, &metadata, offset..offset + length)?;
            return Ok(AudioReader { bytes: Bytes::Page(Cursor::new(bytes), metadata), length });
        }
        Ok(match self.range(size)? {
            None => AudioReader { bytes: Bytes::File(file), length: size },
            Some(Range { start, length, is_bounded }) => {
                let mut part = FilePart { file, start, length, position: 0 };
                part.seek(SeekFrom::Start(0))?;
                if !is_bounded {
                    part.length = part.riff_length()?.map_or(length, |riff| riff.min(length));
                }
                AudioReader { length: part.length, bytes: Bytes::Part(part) }
            }
        })
    }

    /// Returns the range of the part in a file of `size` bytes; `None` for the whole file.
    fn range(&self, size: u64) -> io::Result<Option<Range>> {
        let Some(AudioPart::Bytes { offset, length }) = self.part else { return Ok(None) };
        let is_inside = match length {
            Some(length) => offset.checked_add(length).is_some_and(|end| end <= size),
            None => offset < size,
        };
        if !is_inside {
            let end = length.map_or(offset, |length| offset.saturating_add(length));
            let problem = format!("it ends at byte {size}, and this audio lies up to byte {end}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        let (start, is_bounded) = (offset, length.is_some());
        Ok(Some(Range { start, length: length.unwrap_or(size - offset), is_bounded }))
    }
}

/// Bytes of a file from `start` on.
struct Range {
    start: u64,
    length: u64,
    /// Whether the path gives the length.
    is_bounded: bool,
}

/// Divides a path at the last colon of its name, where a channel stands behind it.
fn split_channel(path: &Path) -> Option<(PathBuf, u16)> {
    let (_, channel) = path.file_name()?.to_str()?.rsplit_once(":ch")?;
    let whole = path.to_str()?;
    let all = whole.strip_suffix(channel)?.strip_suffix(":ch")?;
    let has_name = !all.is_empty() && !all.ends_with('/');
    has_name.then_some((all.into(), u16::try_from(number(channel)?).ok()?))
}

/// Divides a path at the last colon of its name, where a part stands behind it.
fn split(path: &Path) -> Option<(PathBuf, AudioPart)> {
    let (name, part) = path.file_name()?.to_str()?.rsplit_once(':')?;
    let (offset, length) = match part.split_once('+') {
        None => (number(part)?, None),
        Some((offset, length)) => (number(offset)?, Some(number(length)?)),
    };
    let packed = length.and_then(|length| {
        let (file, page) = name.rsplit_once(':').filter(|(file, _)| !file.is_empty())?;
        Some((file, AudioPart::Page { page: PackedPage::parse(page)?, offset, length }))
    });
    let (name, part) = packed.unwrap_or((name, AudioPart::Bytes { offset, length }));
    (!name.is_empty()).then(|| (path.with_file_name(name), part))
}

/// Open audio: the bytes of one audio file, from its first to its last.
pub struct AudioReader {
    bytes: Bytes,
    length: u64,
}

enum Bytes {
    File(File),
    Part(FilePart),
    Page(Cursor<PageSlice>, Metadata),
}

impl AudioReader {
    /// Returns the number of bytes of the audio file.
    pub fn byte_len(&self) -> u64 {
        self.length
    }

    /// Returns a reader of the bytes `part` alone, from their first on.
    pub(super) fn narrowed(self, part: std::ops::Range<u64>) -> io::Result<Self> {
        let length = part.end - part.start;
        let bytes = match self.bytes {
            Bytes::File(file) => Bytes::Part(FilePart { file, start: part.start, length, position: 0 }),
            Bytes::Part(inside) => Bytes::Part(FilePart { start: inside.start + part.start, length, ..inside }),
            Bytes::Page(page, metadata) => Bytes::Page(Cursor::new(page.into_inner().narrowed(part)), metadata),
        };
        let mut reader = Self { bytes, length };
        reader.seek(SeekFrom::Start(0))?;
        Ok(reader)
    }

    /// Reads the metadata of the open file, or of the open container. Of a page, those from before it was read.
    ///
    /// # Errors
    /// When the operating system cannot read them.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.bytes {
            Bytes::File(file) => file.metadata(),
            Bytes::Part(part) => part.file.metadata(),
            Bytes::Page(_, metadata) => Ok(metadata.clone()),
        }
    }
}

impl Read for AudioReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.bytes {
            Bytes::File(file) => file.read(buffer),
            Bytes::Part(part) => part.read(buffer),
            Bytes::Page(part, _) => part.read(buffer),
        }
    }
}

impl Seek for AudioReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.bytes {
            Bytes::File(file) => file.seek(to),
            Bytes::Part(part) => part.seek(to),
            Bytes::Page(part, _) => part.seek(to),
        }
    }
}

impl symphonia::core::io::MediaSource for AudioReader {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.length)
    }
}

/// Part of an open file, which reads like a file of its own.
struct FilePart {
    file: File,
    start: u64,
    length: u64,
    /// Position in the part.
    position: u64,
}

impl FilePart {
    /// Returns the length of a WAV file according to its header; `None` for another file, or for a header without a
    /// length.
    fn riff_length(&mut self) -> io::Result<Option<u64>> {
        let mut first = Vec::with_capacity(8);
        self.by_ref().take(8).read_to_end(&mut first)?;
        self.seek(SeekFrom::Start(0))?;
        let [b'R', b'I', b'F', b'F', size @ ..] = &*first else { return Ok(None) };
        let size = u32::from_le_bytes(size.try_into().unwrap_or([0; 4]));
        // Programs that write into a pipe put such sizes.
        let is_known = (8..0x7fff_0000).contains(&size);
        Ok(is_known.then(|| u64::from(size) + 8))
    }
}

impl Read for FilePart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.length.saturating_sub(self.position);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..wanted])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for FilePart {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let wanted = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        let wanted = wanted.and_then(|position| Some((position, self.start.checked_add(position)?)));
        let Some((position, absolute)) = wanted else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the audio"));
        };
        self.file.seek(SeekFrom::Start(absolute))?;
        self.position = position;
        Ok(position)
    }
}

#[cfg(test)]
mod tests;
