//! Values of a column, one by one, with one page in memory.

use plimsoll_audio::AudioPart;

use super::file::ParquetFile;
use super::levels::Hybrid;
use super::page::{Content, Page, PageHeader, PageKind};
use super::schema::{Chunk, Form, Kind};
use crate::columns::{Damage, Leaf, Value};

/// Part of the bytes that a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Value,
    Place,
}

/// Iterator over the values of a column in a row group; `None` for null. It ends behind an error.
#[derive(Debug)]
pub(super) struct Column<'a> {
    file: &'a ParquetFile,
    leaf: &'a Leaf,
    form: Form,
    chunk: Chunk,
    wanted: Wanted,
    /// Position of the next page.
    at: u64,
    /// Rows of the row group, and those that are not returned.
    rows: u64,
    left: u64,
    dictionary: Option<(Content, Vec<(u64, u64)>)>,
    data: Option<Data>,
}

/// Page of data that is read value by value.
#[derive(Debug)]
struct Data {
    content: Content,
    levels: Option<Hybrid>,
    /// Values that are not read, nulls included.
    left: u64,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// Position of the next value in the page.
    Plain(u64),
    /// Indices of values in the dictionary.
    Indices(Hybrid),
}

/// Encodings of values.
const PLAIN: i64 = 0;
const DICTIONARY: [i64; 2] = [2, 8];

impl<'a> Column<'a> {
    /// Returns the values of a column in a row group, row by row.
    pub(super) fn values(file: &'a ParquetFile, group: usize, leaf: &'a Leaf) -> Self {
        Self::new(file, group, leaf, Wanted::Value)
    }

    /// Returns the places of the bytes of a column, row by row.
    pub(super) fn places(file: &'a ParquetFile, group: usize, leaf: &'a Leaf) -> Self {
        Self::new(file, group, leaf, Wanted::Place)
    }

    fn new(file: &'a ParquetFile, group: usize, leaf: &'a Leaf, wanted: Wanted) -> Self {
        let (chunk, rows) = file.chunk(group, leaf);
        let form = file.form(leaf);
        Self { file, leaf, form, chunk, wanted, at: chunk.start, rows, left: rows, dictionary: None, data: None }
    }

    fn damage(&self, problem: &str) -> Damage {
        Damage::new(self.at, format!("column `{}`: {problem}", self.leaf.path.join(".")))
    }

    fn value(&mut self) -> Result<Option<Value>, Damage> {
        if self.chunk.is_elsewhere || self.leaf.is_list || self.chunk.values != self.rows {
            let problem = if self.leaf.is_list {
                "a row has several values"
            } else {
                "it has another number of values than rows"
            };
            return Err(self.damage(if self.chunk.is_elsewhere { "its values are in another file" } else { problem }));
        }
        let mut data = match self.data.take() {
            Some(data) if data.left > 0 => data,
            _ => self.next_data()?,
        };
        data.left -= 1;
        let level = match &mut data.levels {
            Some(levels) => levels.next().ok_or_else(|| self.damage("levels end too early"))?,
            None => 0,
        };
        let is_there = level >= u32::from(self.form.defined);
        let value = if is_there { Some(self.defined_value(&mut data)?) } else { None };
        self.data = Some(data);
        Ok(value)
    }

    fn defined_value(&mut self, data: &mut Data) -> Result<Value, Damage> {
        match &mut data.values {
            Values::Plain(at) => {
                let (start, length) = item(self.file, &mut data.content, self.form.kind, *at)?;
                *at = start + length;
                self.read(Some(&mut data.content), (start, length))
            }
            Values::Indices(indices) => {
                let index = indices.next().ok_or_else(|| self.damage("places in the dictionary end too early"))?;
                let (_, items) = self.dictionary.as_ref().ok_or_else(|| self.damage("its dictionary is missing"))?;
                let item = items.get(index as usize).copied();
                self.read(None, item.ok_or_else(|| self.damage("a value is not in the dictionary"))?)
            }
        }
    }

    /// Reads a value, of the dictionary unless `content` has it.
    fn read(&mut self, content: Option<&mut Content>, (start, length): (u64, u64)) -> Result<Value, Damage> {
        let missing = self.damage("its dictionary is missing");
        let content = content.or_else(|| self.dictionary.as_mut().map(|(content, _)| content)).ok_or(missing)?;
        if self.wanted == Wanted::Place {
            return Ok(Value::Place(match content {
                Content::File { start: page, .. } => AudioPart::Bytes { offset: *page + start, length: Some(length) },
                Content::Packed { page, .. } => AudioPart::Page { page: *page, offset: start, length },
            }));
        }
        self.file.charge(content.place(start), length)?;
        let bytes = content.get(self.file, start, length)?;
        let eight = || <[u8; 8]>::try_from(bytes).unwrap_or_default();
        let four = || <[u8; 4]>::try_from(bytes).unwrap_or_default();
        Ok(match self.form.kind {
            Kind::I32 => Value::Whole(i32::from_le_bytes(four()).into()),
            Kind::I64 => Value::Whole(i64::from_le_bytes(eight())),
            Kind::F32 => Value::Real(f32::from_le_bytes(four()).into()),
            Kind::F64 => Value::Real(f64::from_le_bytes(eight())),
            Kind::Bytes | Kind::Other => Value::Bytes(bytes.to_vec()),
        })
    }

    /// Reads pages up to the next page of data with values.
    fn next_data(&mut self) -> Result<Data, Damage> {
        let end = self.chunk.start + self.chunk.length;
        loop {
            if self.at >= end {
                return Err(self.damage("there are too few values"));
            }
            let (header, start) = PageHeader::read(self.file, self.at, end)?;
            let next = start.checked_add(header.length()).filter(|&next| next <= end);
            let next = next.ok_or_else(|| self.damage("a page is longer than its column"))?;
            if matches!(header.kind, PageKind::Other) || header.values == 0 {
                self.at = next;
                continue;
            }
            let page = Page::read(self.file, header, start, self.chunk.codec)?;
            if header.kind == PageKind::Dictionary {
                self.read_dictionary(page)?;
                self.at = next;
                continue;
            }
            let data = self.data_of(page)?;
            self.at = next;
            return Ok(data);
        }
    }

    fn read_dictionary(&mut self, page: Page) -> Result<(), Damage> {
        let Page { header, mut content, .. } = page;
        if header.encoding != PLAIN && !DICTIONARY.contains(&header.encoding) {
            return Err(self.damage(&format!("the dictionary has encoding {}, which is not read", header.encoding)));
        }
        let (mut items, mut at) = (Vec::new(), 0);
        for _ in 0..header.values {
            let (start, length) = item(self.file, &mut content, self.form.kind, at)?;
            items.push((start, length));
            at = start + length;
        }
        self.dictionary = Some((content, items));
        Ok(())
    }

    fn data_of(&self, page: Page) -> Result<Data, Damage> {
        let Page { header, levels, mut content } = page;
        let mut at = 0;
        let levels = match (levels, self.form.defined) {
            (_, 0) => None,
            (Some(levels), _) => Some(levels),
            (None, _) => {
                let length = u64::from(u32_at(self.file, &mut content, 0)?);
                at = 4 + length;
                Some(content.get(self.file, 4, length)?.to_vec())
            }
        };
        let levels = levels.map(|levels| Hybrid::new(levels, 8 - self.form.defined.leading_zeros()));
        let values = match header.encoding {
            PLAIN => Values::Plain(at),
            encoding if DICTIONARY.contains(&encoding) => {
                let length = content.len().saturating_sub(at);
                // A page of nulls alone may have no bytes here.
                let bytes = content.get(self.file, at, length)?;
                let (width, bytes) = bytes.split_first().map_or((0, &[][..]), |(&width, bytes)| (width, bytes));
                Values::Indices(Hybrid::new(bytes.to_vec(), width.into()))
            }
            encoding => return Err(self.damage(&format!("encoding {encoding} is not read"))),
        };
        Ok(Data { content, levels, left: header.values, values })
    }
}

/// Returns the place of the value that is written at `at`.
fn item(file: &ParquetFile, content: &mut Content, kind: Kind, at: u64) -> Result<(u64, u64), Damage> {
    let (start, length) = match kind {
        Kind::I32 | Kind::F32 => (at, 4),
        Kind::I64 | Kind::F64 => (at, 8),
        Kind::Bytes => (at + 4, u64::from(u32_at(file, content, at)?)),
        Kind::Other => return Err(Damage::new(content.place(0), "its type is not read")),
    };
    match start.checked_add(length).is_some_and(|end| end <= content.len()) {
        true => Ok((start, length)),
        false => Err(Damage::new(content.place(at), "a page ends inside a value")),
    }
}

fn u32_at(file: &ParquetFile, content: &mut Content, at: u64) -> Result<u32, Damage> {
    let bytes = content.get(file, at, 4)?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

impl Iterator for Column<'_> {
    type Item = Result<Option<Value>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left.checked_sub(1)?;
        let value = self.value();
        self.left = if value.is_ok() { self.left - 1 } else { 0 };
        Some(value)
    }
}
