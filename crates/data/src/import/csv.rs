//! Reads tables with quoting, separated by commas, or by semicolons or tabs as some spreadsheets save them. An unclosed quotation mark costs one line, not the rest of the file.
//!
//! A general CSV reader takes everything from an unclosed mark to the next mark for one field. In this reader a field
//! may span a few lines only; where no mark closes it in that range, the line with the opening mark is an issue and
//! reading continues behind that line.

use std::collections::VecDeque;

use super::lines::{Line, Lines};
use super::tables::delimiter_of;
use crate::issue::IssueKind;

/// Largest number of further lines that are searched for the quotation mark that closes a field.
const MAX_FIELD_LINES: usize = 20;

/// Number of bytes of a row beyond which the search for the closing quotation mark ends.
const MAX_FIELD_BYTES: usize = 256 << 10;

/// Row of a table: the number of the line that it begins in, and its cells or the issue of a row that cannot be read.
pub(super) type Row = (usize, Result<Vec<String>, IssueKind>);

/// Reader of the rows of a table, including its header.
pub(super) struct Rows {
    lines: Lines,
    /// Lines that were read in search of a closing quotation mark, but belong to later rows.
    ahead: VecDeque<Line>,
    /// Character between the cells; `None` before the header.
    delimiter: Option<char>,
}

impl Rows {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, ahead: VecDeque::new(), delimiter: None }
    }

    /// Completes a row whose first line, `whole`, leaves a quotation mark open.
    fn read_multiline(&mut self, mut whole: String, delimiter: char) -> Result<Vec<String>, IssueKind> {
        for n in 0..MAX_FIELD_LINES {
            if self.ahead.len() == n {
                self.ahead.extend(self.lines.next());
            }
            let Some((_, Ok(next))) = self.ahead.get(n) else { break };
            whole.push('\n');
            whole.push_str(next);
            if whole.len() > MAX_FIELD_BYTES {
                break;
            }
            match split(&whole, delimiter) {
                (_, Quotes::Open) => {}
                (cells, Quotes::Balanced) => {
                    self.ahead.drain(..=n);
                    return Ok(cells);
                }
                // The mark that closed the field was meant to open another.
                (_, Quotes::Misplaced) => break,
            }
        }
        Err(IssueKind::UnclosedQuote)
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let (number, line) = self.ahead.pop_front().or_else(|| self.lines.next())?;
        let row = line.and_then(|line| {
            let of_header = || delimiter_of(&line).map_or(',', |(delimiter, _)| delimiter);
            let delimiter = *self.delimiter.get_or_insert_with(of_header);
            match split(&line, delimiter) {
                (_, Quotes::Open) => self.read_multiline(line, delimiter),
                (cells, _) => Ok(cells),
            }
        });
        Some((number, row))
    }
}

/// State of the quotation marks of a row.
enum Quotes {
    Balanced,
    /// The last field of the row is not closed.
    Open,
    /// A closing mark is followed by something other than a delimiter.
    Misplaced,
}

fn split(row: &str, delimiter: char) -> (Vec<String>, Quotes) {
    let (mut cells, mut quotes, mut rest) = (vec![], Quotes::Balanced, row);
    loop {
        let mut cell = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(after) = unquote(quoted, &mut cell) else { return (cells, Quotes::Open) };
            rest = after;
            if !(rest.is_empty() || rest.starts_with(delimiter)) {
                quotes = Quotes::Misplaced;
            }
        }
        let (bare, more) = rest.split_once(delimiter).map_or((rest, None), |(bare, more)| (bare, Some(more)));
        cell.push_str(bare);
        cells.push(cell);
        match more {
            Some(more) => rest = more,
            None => return (cells, quotes),
        }
    }
}

/// Appends a quoted field to `cell`, and returns the rest of the row behind the closing mark; `None` without a closing
/// mark.
fn unquote<'a>(mut quoted: &'a str, cell: &mut String) -> Option<&'a str> {
    loop {
        let (inside, after) = quoted.split_once('"')?;
        cell.push_str(inside);
        // Two marks stand for one.
        let Some(further) = after.strip_prefix('"') else { return Some(after) };
        cell.push('"');
        quoted = further;
    }
}
