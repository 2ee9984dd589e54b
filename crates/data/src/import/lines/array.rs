//! Reads the items of a JSON list, one by one: each line is an item, or the file is an array of items.

use std::io::{self, BufRead};
use std::path::Path;

use super::{Line, Lines, MAX_LINE_BYTES};
use crate::issue::IssueKind;

/// Reader of the items of a JSON list. An item has the number of the line that it begins in.
///
/// Only the ends of items are searched, so a faulty item is found by the parser of that item.
pub(in crate::import) struct JsonItems {
    lines: Lines,
    is_in_array: bool,
    /// Whether an array may begin here: at the start of the file, or behind another array. Elsewhere a line that begins
    /// like an array is a faulty line.
    may_begin: bool,
}

/// Result of reading up to the end of an item.
enum End {
    /// The item ended before a comma, a closing bracket or the end of the file.
    Item,
    /// The item is longer than `MAX_LINE_BYTES`.
    TooLong,
    /// The item has a line break inside a text, which JSON forbids.
    Broken,
}

impl JsonItems {
    pub(in crate::import) fn open(file: &Path) -> io::Result<Self> {
        Ok(Self { lines: Lines::open(file)?, is_in_array: false, may_begin: true })
    }

    /// Skips white space and commas, and returns the next byte; `None` at the end of the file.
    fn skip_blank(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.lines.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let is_blank = |byte: &u8| byte.is_ascii_whitespace() || self.is_in_array && *byte == b',';
            let blank = buffer.iter().take_while(|byte| is_blank(byte)).count();
            let next = buffer.get(blank).copied();
            self.lines.number += newlines(&buffer[..blank]);
            self.lines.reader.consume(blank);
            if next.is_some() {
                return Ok(next);
            }
        }
    }

    /// Reads the next item of an array; `None` behind the array.
    fn item(&mut self) -> io::Result<Option<Line>> {
        let Some(first) = self.skip_blank()? else {
            self.is_in_array = false;
            self.lines.ended = true;
            let kind = IssueKind::NotJson("the file ends inside an array".into());
            return Ok(Some((self.lines.number + 1, Err(kind))));
        };
        if first == b']' {
            self.lines.reader.consume(1);
            (self.is_in_array, self.may_begin) = (false, true);
            return Ok(None);
        }
        let (number, mut bytes) = (self.lines.number + 1, Vec::new());
        let item = match self.read_item(&mut bytes)? {
            End::Item => self.lines.text(bytes),
            End::TooLong => Err(IssueKind::FieldTooLong { field: "item", max_bytes: MAX_LINE_BYTES }),
            End::Broken => Err(IssueKind::NotJson("a text does not end in its line".into())),
        };
        Ok(Some((number, item)))
    }

    /// Appends the bytes of an item to `bytes`, up to the comma or bracket behind it.
    fn read_item(&mut self, bytes: &mut Vec<u8>) -> io::Result<End> {
        let (mut depth, mut in_text, mut is_escaped, mut is_long) = (0u64, false, false, false);
        loop {
            let buffer = self.lines.reader.fill_buf()?;
            let mut taken = 0;
            let mut end = buffer.is_empty().then_some(End::Item);
            for &byte in buffer {
                match byte {
                    b'\n' if in_text => end = Some(End::Broken),
                    _ if in_text && is_escaped => is_escaped = false,
                    b'\\' if in_text => is_escaped = true,
                    b'"' => in_text = !in_text,
                    _ if in_text => {}
                    b',' | b']' if depth == 0 => end = Some(End::Item),
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if end.is_some() {
                    break;
                }
                taken += 1;
            }
            if bytes.len() + taken <= MAX_LINE_BYTES {
                bytes.extend_from_slice(&buffer[..taken]);
            } else {
                is_long = true;
            }
            self.lines.number += newlines(&buffer[..taken]);
            self.lines.reader.consume(taken);
            match end {
                Some(End::Item) if is_long => return Ok(End::TooLong),
                Some(end) => return Ok(end),
                None => {}
            }
        }
    }

    fn next_item(&mut self) -> io::Result<Option<Line>> {
        while !self.lines.ended {
            if self.is_in_array {
                if let Some(item) = self.item()? {
                    return Ok(Some(item));
                }
                continue;
            }
            if self.may_begin && self.skip_blank()? == Some(b'[') {
                self.lines.reader.consume(1);
                self.is_in_array = true;
                continue;
            }
            self.may_begin = false;
            return Ok(self.lines.next());
        }
        Ok(None)
    }
}

impl Iterator for JsonItems {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        match self.next_item() {
            Ok(item) => item,
            Err(error) => {
                let kind = self.lines.end(&error);
                Some((self.lines.number + 1, Err(kind)))
            }
        }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}
