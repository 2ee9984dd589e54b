//! Times in whole milliseconds.

/// Longest time that is written: a bit more than eleven days.
const MAX_MILLISECONDS: f64 = 1e9;

/// Start and end in whole milliseconds; the end is always after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Milliseconds {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Milliseconds {
    /// Rounds times in seconds. What is no number or negative becomes 0.
    pub(super) fn new(start: f64, end: f64) -> Self {
        // The conversion makes 0 of NaN.
        let round = |seconds: f64| (seconds * 1000.0).round().clamp(0.0, MAX_MILLISECONDS) as u64;
        let start = round(start);
        Self { start, end: round(end).max(start + 1) }
    }

    /// Moves the start, and the end if necessary, so that the span does not start before `earliest`.
    pub(super) fn after(self, earliest: u64) -> Self {
        let start = self.start.max(earliest);
        Self { start, end: self.end.max(start + 1) }
    }

    /// Divides the span into parts whose lengths are in proportion to `weights`.
    pub(super) fn shares(self, weights: &[usize]) -> impl Iterator<Item = Self> {
        let total = weights.iter().sum::<usize>().max(1) as u64;
        let length = self.end - self.start;
        let mut before = 0;
        let spans: Vec<Self> = weights
            .iter()
            .map(|&weight| {
                let start = self.start + length * before / total;
                before += weight as u64;
                Self { start, end: (self.start + length * before / total).max(start + 1) }
            })
            .collect();
        spans.into_iter()
    }

    /// Returns the start in seconds.
    pub(super) fn start(self) -> f64 {
        self.start as f64 / 1000.0
    }

    /// Returns the end in seconds.
    pub(super) fn end(self) -> f64 {
        self.end as f64 / 1000.0
    }
}

/// Removes control characters from a text.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).collect()
}
