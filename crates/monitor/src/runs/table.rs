//! Tables with aligned columns, and the number format of their cells.

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, Measure, Seconds};

use super::report::RunReport;

/// Table cell of an unknown fact.
pub(super) const UNKNOWN: &str = "-";

/// Alignment of a table column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Formats rows of cells in aligned columns. Control characters in a cell are replaced, so that a cell cannot break its
/// line.
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

/// Indents every line of `text` by two spaces.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Replaces control characters of `text`, which a terminal would execute, by spaces.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Formats a fact; `-` for `None`, an unknown fact.
pub(super) fn or_unknown(fact: Option<impl ToString>) -> String {
    fact.map_or_else(|| UNKNOWN.into(), |fact| fact.to_string())
}

/// Formats a loss with three decimals; `-` for `None`, an unknown loss.
pub(super) fn loss(loss: Option<f64>) -> String {
    or_unknown(loss.map(|loss| format!("{loss:.3}")))
}

/// Formats scores with their names in one line; `-` if there are none.
pub(super) fn scores(scores: &[Measure]) -> String {
    match scores {
        [] => UNKNOWN.into(),
        scores => scores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

impl RunReport {
    /// Formats the number of completed steps, and the planned number if known.
    pub(super) fn steps_text(&self) -> String {
        match self.setup.total_steps {
            Some(total) => format!("{}/{total}", self.history.steps),
            None => self.history.steps.to_string(),
        }
    }

    /// Formats the audio trained on per second, as a plain number of seconds, which compares better than hours and
    /// minutes.
    pub(super) fn speed_text(&self) -> String {
        or_unknown(self.history.audio_seconds_per_second.map(|speed| AudioSpeed(speed).to_string()))
    }

    /// Formats the peak memory. Zero means that the device cannot measure it.
    pub(super) fn peak_text(&self) -> String {
        or_unknown(Some(self.history.peak_bytes).filter(|peak| *peak > Bytes(0)))
    }

    /// Formats the share of the training time that was spent waiting for data.
    pub(super) fn waiting_text(&self) -> String {
        let known = self.history.train_seconds > Seconds(0.0);
        or_unknown(known.then(|| format!("{:.1} %", self.history.wait_share * 100.0)))
    }
}
