//! Tables of FlatBuffers, in which Arrow describes its messages. Every position is checked; `None` for one that is not inside.

/// Table: fields by number, of which any may be missing.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    /// Position of the table.
    at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the outermost table of a buffer.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Self { bytes, at: 0 }.behind(0)
    }

    /// Returns the table that the number at a position leads to.
    fn behind(self, position: usize) -> Option<Self> {
        Some(Self { at: self.target(position)?, ..self })
    }

    fn number<const WIDTH: usize>(self, position: usize) -> Option<[u8; WIDTH]> {
        self.bytes.get(position..position.checked_add(WIDTH)?)?.try_into().ok()
    }

    /// Adds the number at a position to that position.
    fn target(self, position: usize) -> Option<usize> {
        position.checked_add(u32::from_le_bytes(self.number(position)?) as usize)
    }

    /// Returns the position of a field; `None` without it.
    fn position(self, field: usize) -> Option<usize> {
        let back = i32::from_le_bytes(self.number(self.at)?);
        let list = usize::try_from(i64::try_from(self.at).ok()? - i64::from(back)).ok()?;
        let size = usize::from(u16::from_le_bytes(self.number(list)?));
        let entry = 4 + 2 * field;
        if entry + 2 > size {
            return None;
        }
        let offset = u16::from_le_bytes(self.number(list.checked_add(entry)?)?);
        if offset == 0 { None } else { self.at.checked_add(offset.into()) }
    }

    /// Returns a number of one byte; 0 without the field.
    pub(super) fn u8(self, field: usize) -> u8 {
        self.position(field).and_then(|at| self.number::<1>(at)).map_or(0, |[byte]| byte)
    }

    /// Returns a number of two bytes; 0 without the field.
    pub(super) fn i16(self, field: usize) -> i16 {
        self.position(field).and_then(|at| self.number(at)).map_or(0, i16::from_le_bytes)
    }

    /// Returns a number of four bytes; 0 without the field.
    pub(super) fn i32(self, field: usize) -> i32 {
        self.position(field).and_then(|at| self.number(at)).map_or(0, i32::from_le_bytes)
    }

    /// Returns a number of eight bytes; 0 without the field.
    pub(super) fn i64(self, field: usize) -> i64 {
        self.position(field).and_then(|at| self.number(at)).map_or(0, i64::from_le_bytes)
    }

    /// Returns a table in a field.
    pub(super) fn table(self, field: usize) -> Option<Self> {
        self.behind(self.position(field)?)
    }

    /// Returns a text in a field.
    pub(super) fn text(self, field: usize) -> Option<&'a str> {
        let (start, count) = self.list(field)?;
        std::str::from_utf8(self.bytes.get(start..start.checked_add(count)?)?).ok()
    }

    /// Returns the position and the number of the items of a list.
    fn list(self, field: usize) -> Option<(usize, usize)> {
        let at = self.target(self.position(field)?)?;
        Some((at + 4, u32::from_le_bytes(self.number(at)?) as usize))
    }

    /// Returns the tables of a list; none without it. `None` if one is not inside.
    pub(super) fn tables(self, field: usize) -> Option<Vec<Self>> {
        let Some((start, count)) = self.list(field) else { return Some(Vec::new()) };
        // Each has four bytes here, so a wrong number ends before it needs memory.
        self.bytes.get(start..start.checked_add(count.checked_mul(4)?)?)?;
        (0..count).map(|n| self.behind(start + 4 * n)).collect()
    }

    /// Returns a list of pairs of numbers of eight bytes; none without it. `None` if one is not inside.
    pub(super) fn pairs(self, field: usize) -> Option<Vec<(i64, i64)>> {
        let Some((start, count)) = self.list(field) else { return Some(Vec::new()) };
        let bytes = self.bytes.get(start..start.checked_add(count.checked_mul(16)?)?)?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let (pairs, _) = numbers.as_chunks::<2>();
        Some(pairs.iter().map(|[a, b]| (i64::from_le_bytes(*a), i64::from_le_bytes(*b))).collect())
    }
}
