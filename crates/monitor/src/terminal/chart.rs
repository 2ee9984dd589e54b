//! Bars and curves of characters.

use super::style::Look;
use crate::live::SeriesPoint;

/// Heights of an eighth to eight eighths of a character.
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Heights in ASCII.
const ASCII: [char; 4] = ['_', '.', ':', '#'];

/// Draws a bar of `width` characters, filled to `share`, with a mark at `mark`.
pub(super) fn bar(look: Look, width: usize, share: f64, mark: Option<f64>) -> String {
    let (full, empty, line) = if look.ascii { ('#', '.', '|') } else { ('█', '░', '│') };
    let column = |share: f64| (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let filled = column(share);
    let mark = mark.map(|mark| column(mark).min(width.saturating_sub(1)));
    (0..width)
        .map(|at| {
            if mark == Some(at) {
                line
            } else if at < filled {
                full
            } else {
                empty
            }
        })
        .collect()
}

/// Draws a curve of `width` columns and `rows` rows. The rows come from the top.
pub(super) fn curve(look: Look, points: &[SeriesPoint], width: usize, rows: usize) -> Vec<String> {
    let values = columns(points, width);
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let range = (values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low).max(f64::MIN_POSITIVE);
    let signs: &[char] = if look.ascii { &ASCII } else { &EIGHTHS };
    let levels = rows * signs.len();
    // The lowest value has the lowest sign: an empty column has no value.
    let level = |value: &f64| 1 + ((value - low) / range * (levels - 1) as f64).round() as usize;
    let sign = |level: usize, row: usize| match level.saturating_sub((rows - 1 - row) * signs.len()) {
        0 => ' ',
        part => signs[part.min(signs.len()) - 1],
    };
    (0..rows).map(|row| values.iter().map(|value| sign(level(value), row)).collect()).collect()
}

/// Reduces points to at most `width` means of neighbors.
fn columns(points: &[SeriesPoint], width: usize) -> Vec<f64> {
    let count = points.len().min(width);
    let bounds = |column: usize| column * points.len() / count.max(1);
    let mean = |part: &[SeriesPoint]| part.iter().map(|point| point.value).sum::<f64>() / part.len() as f64;
    (0..count).map(|column| mean(&points[bounds(column)..bounds(column + 1)])).collect()
}
