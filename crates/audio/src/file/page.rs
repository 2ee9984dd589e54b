//! Compressed pages of a container. A page is unpacked as a whole, and the last pages stay in memory.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use flate2::bufread::MultiGzDecoder;

/// Largest ratio of unpacked to packed size. Audio hardly shrinks, texts shrink 3 to 30 times, and a decompression bomb a
/// thousand times.
const MAX_UNPACK_RATIO: u64 = 200;

/// Number of unpacked bytes up to which the ratio is not checked.
const UNCHECKED_BYTES: u64 = 4 << 20;

/// Largest total size of the pages that stay in memory. The page that was unpacked last always stays.
const MAX_KEPT_BYTES: usize = 256 << 20;

/// Largest number of pages that stay in memory. They are searched one by one.
const MAX_KEPT_PAGES: usize = 256;

/// How a page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PageCompression {
    /// Snappy, without a frame.
    Snappy,
    /// Gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl PageCompression {
    const ALL: [Self; 3] = [Self::Snappy, Self::Gzip, Self::Zstd];

    /// Returns the name of the compression in paths and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Compressed bytes of a container. In a path it is written as `4096+81920.snappy.131072`: 81920 bytes from byte 4096 on,
/// which become 131072 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedPage {
    /// Position of the first compressed byte.
    pub offset: u64,
    /// Number of compressed bytes.
    pub length: u64,
    /// How the bytes are compressed.
    pub compression: PageCompression,
    /// Number of bytes after unpacking.
    pub unpacked: u64,
}

impl fmt::Display for PackedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, length, compression, unpacked } = self;
        write!(f, "{offset}+{length}.{}.{unpacked}", compression.name())
    }
}

/// Parses a number that has only digits and no zeros in front, so that a path stays as it is.
pub(super) fn number(digits: &str) -> Option<u64> {
    let is_plain = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| is_plain)
}

impl PackedPage {
    /// Reads what `Display` writes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (range, rest) = text.split_once('.')?;
        let (name, unpacked) = rest.split_once('.')?;
        let (offset, length) = range.split_once('+')?;
        let compression = PageCompression::ALL.into_iter().find(|compression| compression.name() == name)?;
        Some(Self { offset: number(offset)?, length: number(length)?, compression, unpacked: number(unpacked)? })
    }

    /// Checks that the page lies in a file of `size` bytes, and a part in the page.
    pub(super) fn check(&self, size: u64, offset: u64, length: u64) -> io::Result<()> {
        let ends_within = |offset: u64, length: u64, size| offset.checked_add(length).is_some_and(|end| end <= size);
        if !ends_within(self.offset, self.length, size) {
            let end = self.offset.saturating_add(self.length);
            let problem = format!("it ends at byte {size}, and the page of this audio lies up to byte {end}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        if !ends_within(offset, length, self.unpacked) {
            let (unpacked, end) = (self.unpacked, offset.saturating_add(length));
            let problem = format!("its page has {unpacked} bytes, and this audio lies up to byte {end} of it");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        Ok(())
    }

    /// Reads the page from a file, and unpacks it.
    ///
    /// # Errors
    /// When the file cannot be read or ends before the page, or when the page is damaged.
    pub fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let damaged = |problem: &str| {
            let problem = format!("the page at byte {} cannot be unpacked: {problem}", self.offset);
            io::Error::new(io::ErrorKind::InvalidData, problem)
        };
        if self.unpacked > UNCHECKED_BYTES.max(self.length.saturating_mul(MAX_UNPACK_RATIO)) {
            return Err(damaged(&format!("it would have {} bytes", self.unpacked)));
        }
        let size = file.metadata()?.len();
        self.check(size, 0, 0)?;
        let mut packed = vec![0; self.length as usize];
        file.read_exact_at(&mut packed, self.offset)?;
        let bytes = self.compression.unpack(&packed, self.unpacked).map_err(|error| damaged(&error.to_string()))?;
        match bytes.len() as u64 == self.unpacked {
            true => Ok(bytes),
            false => Err(damaged(&format!("it has not {} bytes", self.unpacked))),
        }
    }

    /// Returns a part of the unpacked page. `metadata` are those of the open file.
    pub(super) fn slice(
        &self,
        path: &Path,
        file: &File,
        metadata: &Metadata,
        part: Range<u64>,
    ) -> io::Result<PageSlice> {
        let key = PageKey { path: path.into(), page: *self, size: metadata.len(), modified: metadata.modified().ok() };
        let pages = || PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pages().get(&key);
        let page = match known {
            Some(page) => page,
            None => {
                let page = Arc::new(self.read(file)?);
                pages().insert(key, page.clone());
                page
            }
        };
        Ok(PageSlice { page, part: part.start as usize..part.end as usize })
    }
}

impl PageCompression {
    /// Unpacks bytes. Of a page that is too long, at most one byte more than `size` is returned.
    fn unpack(self, packed: &[u8], size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Snappy => {
                // The decoder allocates what the page says.
                if snap::raw::decompress_len(packed)? as u64 != size {
                    return Ok(Vec::new());
                }
                bytes = snap::raw::Decoder::new().decompress_vec(packed)?;
            }
            Self::Gzip => drop(MultiGzDecoder::new(packed).take(size + 1).read_to_end(&mut bytes)?),
            Self::Zstd => drop(zstd::Decoder::with_buffer(packed)?.take(size + 1).read_to_end(&mut bytes)?),
        }
        // The page may stay in memory.
        bytes.shrink_to_fit();
        Ok(bytes)
    }
}

/// Part of an unpacked page.
pub(super) struct PageSlice {
    page: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl PageSlice {
    /// Returns a part of this part.
    pub(super) fn narrowed(self, part: Range<u64>) -> Self {
        let start = self.part.start;
        Self { part: start + part.start as usize..start + part.end as usize, ..self }
    }
}

impl AsRef<[u8]> for PageSlice {
    fn as_ref(&self) -> &[u8] {
        &self.page[self.part.clone()]
    }
}

/// What an unpacked page is remembered by. Another size or time means that the file has changed.
#[derive(PartialEq)]
struct PageKey {
    path: PathBuf,
    page: PackedPage,
    size: u64,
    modified: Option<SystemTime>,
}

/// Unpacked pages that were read last, the newest at the end.
struct RecentPages {
    pages: VecDeque<(PageKey, Arc<Vec<u8>>)>,
    bytes: usize,
}

static PAGES: Mutex<RecentPages> = Mutex::new(RecentPages { pages: VecDeque::new(), bytes: 0 });

impl RecentPages {
    fn get(&mut self, key: &PageKey) -> Option<Arc<Vec<u8>>> {
        let place = self.pages.iter().rposition(|(known, _)| known.page == key.page && known == key)?;
        let found = self.pages.remove(place)?;
        let page = found.1.clone();
        self.pages.push_back(found);
        Some(page)
    }

    fn insert(&mut self, key: PageKey, page: Arc<Vec<u8>>) {
        // Another thread may have unpacked the same page.
        if self.get(&key).is_some() {
            return;
        }
        self.bytes += page.len();
        self.pages.push_back((key, page));
        while (self.bytes > MAX_KEPT_BYTES || self.pages.len() > MAX_KEPT_PAGES) && self.pages.len() > 1 {
            self.bytes -= self.pages.pop_front().map_or(0, |(_, page)| page.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::AudioSource;

    fn pack(compression: PageCompression, bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        match compression {
            PageCompression::Snappy => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            PageCompression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            PageCompression::Zstd => zstd::encode_all(bytes, 3).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn parts_of_pages_are_read_and_damage_is_an_error(
            content in prop::collection::vec(any::<u8>(), 1..400), at in any::<prop::sample::Index>(), bit in 0u8..8,
            kind in 0usize..3, offset in 0u64..50, wrong in any::<u64>(),
        ) {
            let compression = PageCompression::ALL[kind];
            let packed = pack(compression, &content);
            let folder = TempDir::new().unwrap();
            let file = folder.path().join("a.parquet");
            let mut bytes = vec![7; offset as usize];
            bytes.extend(&packed);
            fs::write(&file, &bytes).unwrap();
            let page = PackedPage { offset, length: packed.len() as u64, compression, unpacked: content.len() as u64 };
            let start = at.index(content.len());
            let part = crate::AudioPart::Page { page, offset: start as u64, length: (content.len() - start) as u64 };
            let source = AudioSource { file: file.clone(), part: Some(part), channel: None };
            prop_assert_eq!(&AudioSource::from_path(source.to_path()), &source);
            let mut read = Vec::new();
            source.open().unwrap().read_to_end(&mut read).unwrap();
            prop_assert_eq!(&read, &content[start..]);
            let other = PackedPage { unpacked: wrong, ..page }.read(&File::open(&file).unwrap());
            prop_assert!(other.is_err() || wrong == page.unpacked);
            let place = offset as usize + at.index(packed.len());
            bytes[place] ^= 1 << bit;
            fs::write(&file, &bytes).unwrap();
            // A damaged page may still be a page.
            let _ = page.read(&File::open(&file).unwrap());
            bytes.truncate(place);
            fs::write(&file, &bytes).unwrap();
            prop_assert!(source.open().is_err() && source.metadata().is_err());
        }
    }

    #[test]
    fn the_pages_in_memory_are_bounded() {
        let mut recent = RecentPages { pages: VecDeque::new(), bytes: 0 };
        let page = |offset| PackedPage { offset, length: 1, compression: PageCompression::Zstd, unpacked: 1 };
        let key = |offset| PageKey { path: "a".into(), page: page(offset), size: 9, modified: None };
        let content = Arc::new(vec![0; MAX_KEPT_BYTES / 3]);
        for offset in 0..9 {
            recent.insert(key(offset), content.clone());
            recent.insert(key(offset), content.clone());
            assert!(recent.bytes <= MAX_KEPT_BYTES && recent.get(&key(offset)).is_some());
        }
        assert_eq!((recent.pages.len(), recent.get(&key(0)).is_some()), (3, false));
        recent.insert(key(10), Arc::new(vec![0; 2 * MAX_KEPT_BYTES]));
        assert_eq!((recent.pages.len(), recent.bytes), (1, 2 * MAX_KEPT_BYTES));
        assert!(recent.get(&PageKey { size: 10, ..key(10) }).is_none());
        (100..1000).for_each(|offset| recent.insert(key(offset), Arc::new(vec![0; 10])));
        assert!(recent.pages.len() == MAX_KEPT_PAGES && recent.get(&key(999)).is_some());
    }
}
