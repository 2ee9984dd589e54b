//! Values of a column, one by one, with a window of each buffer in memory.

use plimsoll_audio::AudioPart;

use super::file::ArrowFile;
use super::schema::Form;
use crate::columns::{Damage, Leaf, Value};

/// Bytes that are read of a buffer at once.
const WINDOW: u64 = 1 << 16;

/// Iterator over the values of a column in a batch; `None` for null. It ends behind an error.
pub(super) struct ArrowColumn<'a> {
    leaf: &'a Leaf,
    form: Form,
    /// Whether the places of bytes are returned, and not the bytes.
    is_place: bool,
    row: u64,
    rows: u64,
    /// Bits that say which values are there: of the column, and of the structures around it.
    bits: Vec<Window<'a>>,
    /// Numbers, or the places of bytes.
    numbers: Window<'a>,
    bytes: Window<'a>,
}

impl<'a> ArrowColumn<'a> {
    /// Returns the values of a column in a batch, row by row.
    pub(super) fn new(file: &'a ArrowFile, group: usize, leaf: &'a Leaf, is_place: bool) -> Self {
        let (batch, place) = (file.batch_of(group), file.place(leaf));
        let window = |buffer: usize| {
            // A column has fewer buffers than one of another type.
            let (start, size) = batch.buffers.get(buffer).copied().unwrap_or_default();
            Window { file, start, size, at: 0, bytes: Vec::new() }
        };
        let bits = place.around.iter().copied().chain([place.first]).map(window);
        Self {
            leaf,
            form: place.form,
            is_place,
            row: 0,
            rows: batch.rows,
            // Without bits, all values are there.
            bits: bits.filter(|window| window.size > 0).collect(),
            numbers: window(place.first + 1),
            bytes: window(place.first + 2),
        }
    }

    fn value(&mut self, row: u64) -> Result<Option<Value>, Damage> {
        if self.leaf.is_list || self.form == Form::Other {
            let problem = if self.leaf.is_list { "a row has several values" } else { "its type is not read" };
            return Err(Damage::new(self.numbers.start, format!("column `{}`: {problem}", self.leaf.path.join("."))));
        }
        for bits in &mut self.bits {
            let byte = bits.get(row / 8, 1)?[0];
            if byte >> (row % 8) & 1 == 0 {
                return Ok(None);
            }
        }
        Ok(Some(match self.form {
            Form::Whole { bytes, is_signed } => {
                let width = u64::from(bytes);
                whole(self.numbers.get(row * width, width)?, is_signed)
            }
            Form::Real { bytes } => {
                let width = u64::from(bytes);
                real(self.numbers.get(row * width, width)?)
            }
            Form::Bytes { places } => self.bytes_at(row, places.into())?,
            Form::Other => Value::Bytes(Vec::new()),
        }))
    }

    fn bytes_at(&mut self, row: u64, width: u64) -> Result<Value, Damage> {
        let ends = self.numbers.get(row * width, 2 * width)?;
        let (from, to) = ends.split_at(width as usize);
        let [from, to] = [from, to].map(|end| end.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)));
        let length = to.checked_sub(from).filter(|_| to <= self.bytes.size);
        let length = length.ok_or_else(|| Damage::new(self.numbers.start, "a value lies outside of its column"))?;
        Ok(match self.is_place {
            true => Value::Place(AudioPart::Bytes { offset: self.bytes.start + from, length: Some(length) }),
            false => Value::Bytes(self.bytes.get(from, length)?.to_vec()),
        })
    }
}

fn whole(bytes: &[u8], is_signed: bool) -> Value {
    let number = bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let unused = 64 - 8 * bytes.len() as u32;
    match (is_signed, i64::try_from(number)) {
        (true, _) => Value::Whole((number << unused) as i64 >> unused),
        (false, Ok(number)) => Value::Whole(number),
        (false, Err(_)) => Value::Real(number as f64),
    }
}

fn real(bytes: &[u8]) -> Value {
    Value::Real(match bytes {
        [a, b] => half::f16::from_le_bytes([*a, *b]).into(),
        [a, b, c, d] => f32::from_le_bytes([*a, *b, *c, *d]).into(),
        all => all.try_into().map_or(f64::NAN, f64::from_le_bytes),
    })
}

impl Iterator for ArrowColumn<'_> {
    type Item = Result<Option<Value>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.row;
        if row >= self.rows {
            return None;
        }
        let value = self.value(row);
        self.row = if value.is_ok() { row + 1 } else { self.rows };
        Some(value)
    }
}

/// Buffer of a batch, of which some bytes are in memory.
struct Window<'a> {
    file: &'a ArrowFile,
    start: u64,
    size: u64,
    /// Position in the buffer of the bytes in memory.
    at: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns bytes of the buffer.
    fn get(&mut self, at: u64, length: u64) -> Result<&[u8], Damage> {
        if at.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(Damage::new(self.start, "it has fewer values than rows"));
        }
        if at < self.at || at + length > self.at + self.bytes.len() as u64 {
            let wanted = length.max(WINDOW).min(self.size - at);
            self.bytes = self.file.bytes(self.start + at, wanted)?;
            self.at = at;
        }
        let from = (at - self.at) as usize;
        Ok(&self.bytes[from..from + length as usize])
    }
}
