//! Parts of the screen, and the lines that each of them gets.

use ratatui::text::Line;

/// Part of the screen.
pub(super) struct Block<'a> {
    /// Lines without which the part says nothing.
    pub(super) min: usize,
    /// Lines that the part can fill.
    pub(super) wanted: usize,
    /// Makes as many lines as the part gets, or fewer.
    make: Box<dyn FnOnce(usize) -> Vec<Line<'static>> + 'a>,
}

impl<'a> Block<'a> {
    /// Creates a part that adapts to its number of lines.
    pub(super) fn new(min: usize, wanted: usize, make: impl FnOnce(usize) -> Vec<Line<'static>> + 'a) -> Self {
        Self { min, wanted: wanted.max(min), make: Box::new(make) }
    }

    /// Creates a part that is cut to its number of lines.
    pub(super) fn from_lines(min: usize, lines: Vec<Line<'static>>) -> Self {
        let wanted = lines.len();
        Self::new(min.min(wanted), wanted, |count| lines.into_iter().take(count).collect())
    }
}

/// Makes the lines of all parts in `height` lines. Parts that come first get their lines first.
pub(super) fn fill(blocks: Vec<Block<'_>>, height: usize) -> Vec<Line<'static>> {
    let counts = shares(blocks.iter().map(|block| (block.min, block.wanted)), height);
    blocks
        .into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .flat_map(|(block, count)| (block.make)(count))
        .collect()
}

/// Divides `height` lines among parts with a smallest and a wanted number of lines.
pub(super) fn shares(parts: impl Iterator<Item = (usize, usize)> + Clone, height: usize) -> Vec<usize> {
    let mut left = height;
    let mut counts: Vec<usize> = parts
        .clone()
        .map(|(min, _)| {
            let count = if min <= left { min } else { 0 };
            left -= count;
            count
        })
        .collect();
    for (count, (min, wanted)) in counts.iter_mut().zip(parts) {
        if *count == min {
            let more = left.min(wanted - min);
            *count += more;
            left -= more;
        }
    }
    counts
}
