//! Values over the steps of a run, in a bounded number of points.

use serde::Serialize;

/// Maximum number of points. A wide terminal has about 200 columns with two dots each, so more would not be visible.
const POINTS_MAX: usize = 512;

/// Mean value of neighboring steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeriesPoint {
    /// Last step of the point.
    pub step: u64,
    /// Mean of the values of the steps.
    pub value: f64,
}

/// Values over the steps of a run. If there are too many points, neighbors are merged into their means.
///
/// ```
/// use plimsoll_monitor::live::Series;
///
/// let mut losses = Series::default();
/// (1..=10_000).for_each(|step| losses.push(step, 2.5));
/// assert!(losses.points().len() <= 512);
/// assert_eq!(losses.last(), Some((10_000, 2.5)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Points that are complete: each is the mean of `1 << level` values.
    points: Vec<SeriesPoint>,
    level: u32,
    /// Sum and number of the values of the point that is not complete.
    open: (f64, u64),
    last: Option<(u64, f64)>,
}

impl Series {
    /// Adds the value of a step. A value that is NaN or infinite is left out.
    pub fn push(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.last = Some((step, value));
        self.open = (self.open.0 + value, self.open.1 + 1);
        if self.open.1 < 1 << self.level {
            return;
        }
        self.points.push(SeriesPoint { step, value: self.open.0 / self.open.1 as f64 });
        self.open = (0.0, 0);
        if self.points.len() == POINTS_MAX {
            let mean = |pair: &[SeriesPoint]| (pair[0].value + pair[1].value) / 2.0;
            self.points =
                self.points.chunks_exact(2).map(|pair| SeriesPoint { step: pair[1].step, value: mean(pair) }).collect();
            self.level += 1;
        }
    }

    /// Removes the points of `step` and later steps, because the run was resumed before it.
    pub fn truncate_from(&mut self, step: u64) {
        self.points.retain(|point| point.step < step);
        self.open = (0.0, 0);
        self.last = self.points.last().map(|point| (point.step, point.value));
    }

    /// Returns the points in the order of their steps. The newest values that do not fill a point yet are one more point.
    pub fn points(&self) -> Vec<SeriesPoint> {
        let open = self.last.filter(|_| self.open.1 > 0);
        let open = open.map(|(step, _)| SeriesPoint { step, value: self.open.0 / self.open.1 as f64 });
        self.points.iter().copied().chain(open).collect()
    }

    /// Returns the last step with its value; `None` without values.
    pub fn last(&self) -> Option<(u64, f64)> {
        self.last
    }

    /// Returns the lowest and the highest point; `None` without values.
    pub fn range(&self) -> Option<(f64, f64)> {
        let points = self.points();
        let first = points.first()?.value;
        Some(points.iter().fold((first, first), |(low, high), point| (low.min(point.value), high.max(point.value))))
    }
}
