//! Columns of text, and how the numbers in them are told.

use plimsoll_core::{Bytes, Measure, Seconds};

use super::card::RunCard;

/// What stands in a table where a fact is unknown.
pub(super) const UNKNOWN: &str = "-";

/// Whether the cells of a column begin at one place or end at one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows of cells below each other. What stands in a cell cannot break its line.
pub(super) fn table(rows: &[Vec<String>], align: impl Fn(usize) -> Align) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match align(column) {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Every line of `text` two signs further in.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Without what a terminal would take as an order.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A fact, or that it is unknown.
pub(super) fn or_unknown(fact: Option<impl ToString>) -> String {
    fact.map_or_else(|| UNKNOWN.into(), |fact| fact.to_string())
}

/// A loss.
pub(super) fn loss(loss: Option<f64>) -> String {
    or_unknown(loss.map(|loss| format!("{loss:.3}")))
}

/// Scores with their names.
pub(super) fn scores(scores: &[Measure]) -> String {
    match scores {
        [] => UNKNOWN.into(),
        scores => scores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

impl RunCard {
    /// Steps taken, and how many it will be.
    pub(super) fn told_steps(&self) -> String {
        match self.outline.total_steps {
            Some(total) => format!("{}/{total}", self.course.steps),
            None => self.course.steps.to_string(),
        }
    }

    /// The audio trained on in a second; as a number of seconds, which compares better than hours and minutes.
    pub(super) fn told_speed(&self) -> String {
        or_unknown(self.course.audio_seconds_per_second.map(|speed| format!("{speed:.0} s")))
    }

    /// The most memory in use; a device that cannot say is no device that needs none.
    pub(super) fn told_peak(&self) -> String {
        or_unknown(Some(self.course.peak_bytes).filter(|peak| *peak > Bytes(0)))
    }

    /// The share of the time that was waited.
    pub(super) fn told_waiting(&self) -> String {
        let known = self.course.train_seconds > Seconds(0.0);
        or_unknown(known.then(|| format!("{:.1} %", self.course.wait_share * 100.0)))
    }
}
