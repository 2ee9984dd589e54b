//! Level of detail of a page: a page that is too large is made again with less.

/// Limits of what a page shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail {
    /// Points of a curve.
    pub(super) points: usize,
    /// Bars of the time ledger of a run.
    pub(super) bars: usize,
    /// Rows of a long table.
    pub(super) rows: usize,
    /// Characters of a text from a file.
    pub(super) text: usize,
    /// Bytes of all sounds, as they stand in the page.
    pub(super) sound_bytes: usize,
    /// Bytes of all pictures, as they stand in the page.
    pub(super) picture_bytes: usize,
}

impl Detail {
    /// Levels of detail, each less than the one before: sounds go first, then pictures, then points and rows.
    pub(super) fn levels() -> impl Iterator<Item = Self> {
        let most =
            Self { points: 1000, bars: 120, rows: 200, text: 500, sound_bytes: 1_100_000, picture_bytes: 600_000 };
        let sounds = [1_100_000, 500_000, 200_000, 0].map(|sound_bytes| Self { sound_bytes, ..most });
        let fewer = [(600, 120, 100, 300), (300, 60, 50, 200), (120, 30, 20, 100), (40, 12, 5, 60), (10, 6, 2, 40)];
        let fewer =
            fewer.map(|(points, bars, rows, text)| Self { points, bars, rows, text, sound_bytes: 0, picture_bytes: 0 });
        let silent = Self { sound_bytes: 0, picture_bytes: 200_000, ..most };
        sounds.into_iter().chain([silent]).chain(fewer)
    }
}
