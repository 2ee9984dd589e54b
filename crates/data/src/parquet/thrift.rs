//! The compact protocol of Thrift, in which Parquet writes everything that is not a value.

/// Largest depth of structures in each other.
const MAX_DEPTH: usize = 24;

/// Type of a field that is a structure without end: the end of a structure.
const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Reader. Its functions return `None` where the bytes end or make no sense.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// Field of a structure, whose value is read next.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) id: i16,
    kind: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    /// Returns the number of bytes that are read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number.
    pub(super) fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a number that is not negative.
    pub(super) fn count(&mut self) -> Option<u64> {
        self.number()?.try_into().ok()
    }

    /// Reads a text or other bytes.
    pub(super) fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.binary()?).ok()
    }

    /// Calls `read` for each field of a structure. It reads the value, and returns `Some(true)`, or returns
    /// `Some(false)` for a field that is skipped.
    pub(super) fn structure(&mut self, mut read: impl FnMut(&mut Self, Field) -> Option<bool>) -> Option<()> {
        self.enter()?;
        let mut id = 0i16;
        loop {
            let byte = self.byte()?;
            let kind = byte & 0xf;
            if kind == STOP {
                self.depth -= 1;
                return Some(());
            }
            id = match byte >> 4 {
                0 => i16::try_from(self.number()?).ok()?,
                step => id.checked_add(step.into())?,
            };
            if !read(self, Field { id, kind })? {
                self.skip(kind)?;
            }
        }
    }

    /// Calls `read` for each item of a list of structures or texts.
    pub(super) fn list(&mut self, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.enter()?;
        let (count, _) = self.list_header()?;
        // Each item has a byte or more, so the loop ends with the bytes.
        for _ in 0..count {
            let before = self.at;
            read(self)?;
            (self.at > before).then_some(())?;
        }
        self.depth -= 1;
        Some(())
    }

    fn list_header(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        Some((count, byte & 0xf))
    }

    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            TRUE | FALSE => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => (0..8).try_for_each(|_| self.byte().map(drop)),
            BINARY => self.binary().map(drop),
            LIST | 10 => {
                self.enter()?;
                let (count, kind) = self.list_header()?;
                (0..count).try_for_each(|_| self.skip_item(kind))?;
                self.depth -= 1;
                Some(())
            }
            11 => {
                self.enter()?;
                let count = self.varint()?;
                if count > 0 {
                    let kinds = self.byte()?;
                    (0..count).try_for_each(|_| {
                        self.skip_item(kinds >> 4)?;
                        self.skip_item(kinds & 0xf)
                    })?;
                }
                self.depth -= 1;
                Some(())
            }
            STRUCT => self.structure(|_, _| Some(false)),
            _ => None,
        }
    }

    /// Skips an item of a list. There, a truth value has a byte of its own.
    fn skip_item(&mut self, kind: u8) -> Option<()> {
        if matches!(kind, TRUE | FALSE) { self.byte().map(drop) } else { self.skip(kind) }
    }
}

impl Field {
    /// Reads a truth value, which is a part of the field.
    pub(super) fn truth(self) -> Option<bool> {
        matches!(self.kind, TRUE | FALSE).then_some(self.kind == TRUE)
    }
}

/// Writer. Fields are written in the order of their ids.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    /// Last id of each open structure.
    last: Vec<i16>,
}

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn number(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    fn header(&mut self, id: i16, kind: u8) {
        let Some(last) = self.last.last_mut() else { unreachable!("a field lies in a structure") };
        let step = id - *last;
        debug_assert!((1..16).contains(&step), "fields are written in order");
        *last = id;
        self.bytes.push((step as u8) << 4 | kind);
    }

    pub(super) fn i32(&mut self, id: i16, value: i32) {
        self.header(id, I32);
        self.number(value.into());
    }

    pub(super) fn i64(&mut self, id: i16, value: i64) {
        self.header(id, I64);
        self.number(value);
    }

    pub(super) fn text(&mut self, id: i16, text: &str) {
        self.header(id, BINARY);
        self.item_text(text);
    }

    /// Writes a structure that is not a field: the whole, or an item of a list.
    pub(super) fn structure(&mut self, write: impl FnOnce(&mut Self)) {
        self.last.push(0);
        write(self);
        self.last.pop();
        self.bytes.push(STOP);
    }

    pub(super) fn field(&mut self, id: i16, write: impl FnOnce(&mut Self)) {
        self.header(id, STRUCT);
        self.structure(write);
    }

    fn list_header(&mut self, id: i16, count: usize, kind: u8) {
        self.header(id, LIST);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            self.varint(count as u64);
        }
    }

    pub(super) fn structures<T>(&mut self, id: i16, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.list_header(id, items.len(), STRUCT);
        items.iter().for_each(|item| self.structure(|writer| write(writer, item)));
    }

    pub(super) fn numbers(&mut self, id: i16, items: &[i32]) {
        self.list_header(id, items.len(), I32);
        items.iter().for_each(|&item| self.number(item.into()));
    }

    pub(super) fn texts(&mut self, id: i16, items: &[&str]) {
        self.list_header(id, items.len(), BINARY);
        items.iter().for_each(|item| self.item_text(item));
    }

    fn item_text(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}
