//! Pages: parts of a column with a header, compressed or not.

use plimsoll_audio::PackedPage;

use super::file::ParquetFile;
use super::schema::Codec;
use super::thrift::Reader;
use crate::columns::Damage;

/// Header of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageHeader {
    pub(super) kind: PageKind,
    unpacked: u64,
    packed: u64,
    pub(super) values: u64,
    pub(super) encoding: i64,
    /// Bytes of levels before the values of a page of version 2. They are never compressed.
    levels: u64,
    repetition: u64,
    is_packed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PageKind {
    #[default]
    Other,
    Dictionary,
    Data,
    /// Data whose levels stand before the compressed bytes.
    DataV2,
}

/// Most bytes of a header. Some programs write whole values into it, as the smallest and the largest of a page.
const MAX_HEADER: u64 = 16 << 20;

impl PageHeader {
    /// Reads the header at `at`, and returns the position behind it.
    pub(super) fn read(file: &ParquetFile, at: u64, end: u64) -> Result<(Self, u64), Damage> {
        let mut size = 1 << 10;
        loop {
            let size_here = end.saturating_sub(at).min(size);
            let bytes = file.bytes(at, size_here)?;
            let mut reader = Reader::new(&bytes);
            if let Some(header) = Self::parse(&mut reader) {
                return Ok((header, at + reader.position() as u64));
            }
            if size_here < size || size >= MAX_HEADER {
                return Err(Damage::new(at, "no header of a page"));
            }
            size *= 16;
        }
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let mut header = Self { is_packed: true, ..Self::default() };
        reader.structure(|reader, field| {
            match field.id {
                1 => {
                    header.kind = match reader.number()? {
                        0 => PageKind::Data,
                        2 => PageKind::Dictionary,
                        3 => PageKind::DataV2,
                        _ => PageKind::Other,
                    }
                }
                2 => header.unpacked = reader.count()?,
                3 => header.packed = reader.count()?,
                // Of a page of data, of a dictionary, and of data of version 2.
                5 | 7 => reader.structure(|reader, field| {
                    match field.id {
                        1 => header.values = reader.count()?,
                        2 => header.encoding = reader.number()?,
                        _ => return Some(false),
                    }
                    Some(true)
                })?,
                8 => header.read_second_version(reader)?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(header)
    }

    fn read_second_version(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.structure(|reader, field| {
            match field.id {
                1 => self.values = reader.count()?,
                4 => self.encoding = reader.number()?,
                5 => self.levels = reader.count()?,
                6 => self.repetition = reader.count()?,
                7 => self.is_packed = field.truth()?,
                _ => return Some(false),
            }
            Some(true)
        })
    }

    /// Returns the number of bytes behind the header.
    pub(super) fn length(&self) -> u64 {
        self.packed
    }
}

/// Bytes of a page behind its header, and how its values are named in the file.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) header: PageHeader,
    /// Levels of a page of version 2.
    pub(super) levels: Option<Vec<u8>>,
    pub(super) content: Content,
}

/// Values of a page.
#[derive(Debug)]
pub(super) enum Content {
    /// Bytes of the file, which are read where they are needed.
    File { start: u64, length: u64, window: Vec<u8>, window_start: u64 },
    /// Unpacked bytes.
    Packed { page: PackedPage, bytes: Vec<u8> },
}

/// Bytes that are read of a file at once: a value of a text with its neighbors, or the length of audio.
const WINDOW: u64 = 4 << 10;

impl Page {
    /// Reads the page behind a header. Without compression, its values stay where they are.
    pub(super) fn read(file: &ParquetFile, header: PageHeader, start: u64, codec: Codec) -> Result<Self, Damage> {
        let damage = |problem: &str| Damage::new(start, problem);
        let levels = match header.kind {
            PageKind::DataV2 => header.levels.checked_add(header.repetition).ok_or_else(|| damage("no page"))?,
            _ => 0,
        };
        let length = header.packed.checked_sub(levels).ok_or_else(|| damage("levels are longer than their page"))?;
        let unpacked =
            header.unpacked.checked_sub(levels).ok_or_else(|| damage("levels are longer than their page"))?;
        let read = (header.kind == PageKind::DataV2).then(|| file.bytes(start + header.repetition, header.levels));
        let (levels, start) = (read.transpose()?, start + levels);
        let content = match codec {
            Codec::Packed(compression) if header.is_packed && length > 0 => {
                let page = PackedPage { offset: start, length, compression, unpacked };
                Content::Packed { bytes: file.unpack(&page)?, page }
            }
            Codec::Unknown(name) if header.is_packed && length > 0 => {
                return Err(damage(&format!("it is compressed by {name}, which is not read")));
            }
            _ => Content::File { start, length, window: Vec::new(), window_start: 0 },
        };
        Ok(Self { header, levels, content })
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            Self::Packed { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Returns the position in the file that is nearest to byte `at`.
    pub(super) fn place(&self, at: u64) -> u64 {
        match self {
            Self::File { start, .. } => start + at,
            Self::Packed { page, .. } => page.offset,
        }
    }

    /// Returns `count` bytes from `at` on.
    pub(super) fn get(&mut self, file: &ParquetFile, at: u64, count: u64) -> Result<&[u8], Damage> {
        let end = at.checked_add(count).filter(|&end| end <= self.len());
        let Some(end) = end else { return Err(Damage::new(self.place(0), "a page ends inside a value")) };
        match self {
            Self::File { start, length, window, window_start } => {
                let has = at >= *window_start && end <= *window_start + window.len() as u64;
                if !has {
                    *window = file.bytes(*start + at, count.max(WINDOW.min(*length - at)))?;
                    *window_start = at;
                }
                Ok(&window[(at - *window_start) as usize..(end - *window_start) as usize])
            }
            Self::Packed { bytes, .. } => Ok(&bytes[at as usize..end as usize]),
        }
    }
}
