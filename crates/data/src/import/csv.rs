//! Tables with commas and quoting, in which one unclosed quotation mark costs its own line and not the rest of the file.
//!
//! A general reader of such tables takes everything from an unclosed mark up to the next one, wherever that is, for one
//! field. Here a field may run over some lines, and where that makes no sense the line that opened it is at fault.

use std::collections::VecDeque;

use super::lines::{Line, Lines};
use super::trouble::Trouble;

/// No field of a transcript has more lines than this.
const FIELD_LINES_MOST: usize = 20;

/// Nor more bytes.
const FIELD_MOST: usize = 256 << 10;

/// The cells of one row, with the number of the line it begins in.
pub(super) type Row = (usize, Result<Vec<String>, Trouble>);

/// The rows of a table, its header included.
pub(super) struct Rows {
    lines: Lines,
    /// Lines that were looked at and not used.
    ahead: VecDeque<Line>,
}

impl Rows {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, ahead: VecDeque::new() }
    }

    /// The row that begins with `line`, whose quotation mark is still open.
    fn over_lines(&mut self, mut whole: String) -> Result<Vec<String>, Trouble> {
        for n in 0..FIELD_LINES_MOST {
            if self.ahead.len() == n {
                self.ahead.extend(self.lines.next());
            }
            let Some((_, Ok(next))) = self.ahead.get(n) else { break };
            whole.push('\n');
            whole.push_str(next);
            if whole.len() > FIELD_MOST {
                break;
            }
            match split(&whole) {
                (_, Quotes::Open) => {}
                (cells, Quotes::Sound) => {
                    self.ahead.drain(..=n);
                    return Ok(cells);
                }
                // What closed the field was the opening of another one.
                (_, Quotes::Astray) => break,
            }
        }
        Err(Trouble::UnclosedQuote)
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let (number, line) = self.ahead.pop_front().or_else(|| self.lines.next())?;
        let row = line.and_then(|line| match split(&line) {
            (_, Quotes::Open) => self.over_lines(line),
            (cells, _) => Ok(cells),
        });
        Some((number, row))
    }
}

/// How the quotation marks of a row stand.
enum Quotes {
    Sound,
    /// The last field is not closed.
    Open,
    /// Something other than a comma follows a closing one.
    Astray,
}

fn split(row: &str) -> (Vec<String>, Quotes) {
    let (mut cells, mut quotes, mut rest) = (vec![], Quotes::Sound, row);
    loop {
        let mut cell = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(after) = unquote(quoted, &mut cell) else { return (cells, Quotes::Open) };
            rest = after;
            if !(rest.is_empty() || rest.starts_with(',')) {
                quotes = Quotes::Astray;
            }
        }
        let (bare, more) = rest.split_once(',').map_or((rest, None), |(bare, more)| (bare, Some(more)));
        cell.push_str(bare);
        cells.push(cell);
        match more {
            Some(more) => rest = more,
            None => return (cells, quotes),
        }
    }
}

/// Reads a field behind its opening mark; gives what follows the closing one, if there is one.
fn unquote<'a>(mut quoted: &'a str, cell: &mut String) -> Option<&'a str> {
    loop {
        let (inside, after) = quoted.split_once('"')?;
        cell.push_str(inside);
        // Two marks are one that is meant.
        let Some(further) = after.strip_prefix('"') else { return Some(after) };
        cell.push('"');
        quoted = further;
    }
}
