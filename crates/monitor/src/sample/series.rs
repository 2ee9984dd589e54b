//! One number over time, in a fixed amount of memory that keeps every extreme value.

use std::collections::BTreeMap;

use super::reading::Missing;

/// Number of parts of the time. When a series is longer, neighboring parts become one.
pub(super) const PARTS_MAX: usize = 4096;

/// Values of one number over time: the lowest and the highest value of each part of the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    parts: Vec<Option<Part>>,
    /// Whether a value is missing since the last one.
    has_gap: bool,
    /// Number of values.
    count: u64,
    /// Number of missing values by reason. The first reading of a rate is not counted.
    missing: BTreeMap<Missing, u64>,
}

/// Values of a part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    low: f64,
    high: f64,
    /// Whether the lowest value came first.
    rises: bool,
    mean: f64,
    count: u32,
    /// Whether a value is missing before those of this part.
    has_gap_before: bool,
}

impl Part {
    /// Joins two neighboring parts.
    fn joined(self, later: Self) -> Self {
        let low_is_first = self.low <= later.low;
        let high_is_first = self.high >= later.high;
        let rises = match (low_is_first, high_is_first) {
            (true, true) => self.rises,
            (false, false) => later.rises,
            (is_first, _) => is_first,
        };
        let has_gap_before = self.has_gap_before || later.has_gap_before;
        let count = self.count.saturating_add(later.count);
        let mean = self.mean + (later.mean - self.mean) * (f64::from(later.count) / f64::from(count));
        Self { low: self.low.min(later.low), high: self.high.max(later.high), rises, mean, count, has_gap_before }
    }
}

fn join(first: Option<Part>, second: Option<Part>) -> Option<Part> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.joined(second)),
        (first, second) => first.or(second),
    }
}

impl Series {
    /// Adds the value of the part `index`, or the reason why it is missing.
    pub(super) fn add(&mut self, index: usize, value: Result<f64, Missing>) {
        match value {
            Ok(value) => {
                let has_gap_before = std::mem::take(&mut self.has_gap) && self.count > 0;
                let part = Part { low: value, high: value, rises: true, mean: value, count: 1, has_gap_before };
                if self.parts.len() <= index {
                    self.parts.resize(index + 1, None);
                }
                self.parts[index] = join(self.parts[index], Some(part));
                self.count += 1;
            }
            Err(Missing::NeedsTwoReadings) => self.has_gap = true,
            Err(why) => {
                self.has_gap = true;
                *self.missing.entry(why).or_default() += 1;
            }
        }
    }

    /// Makes a gap before the next value.
    pub(super) fn interrupt(&mut self) {
        self.has_gap = true;
    }

    /// Makes one part of each two.
    pub(super) fn halve(&mut self) {
        self.parts = self.parts.chunks(2).map(|pair| join(pair[0], pair.get(1).copied().flatten())).collect();
    }

    /// Returns whether there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many values are missing, by reason.
    pub(crate) fn missing(&self) -> &BTreeMap<Missing, u64> {
        &self.missing
    }

    /// Returns the number of values that were read or are missing.
    pub(crate) fn n_readings(&self) -> u64 {
        self.count + self.missing.values().sum::<u64>()
    }

    /// Returns the lowest and the highest value; `None` without a value.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let all = self.parts.iter().copied().fold(None, join)?;
        Some((all.low, all.high))
    }

    /// Returns curves without gaps inside, as pairs of time and value with at most two points in each of `columns` columns:
    /// the lowest and the highest value. `seconds` is the duration of a part.
    pub(super) fn curves(&self, seconds: f64, columns: usize) -> Vec<Vec<(f64, f64)>> {
        self.in_columns(seconds, columns, |part| {
            let [first, last] = if part.rises { [part.low, part.high] } else { [part.high, part.low] };
            if first == last { vec![(0.5, first)] } else { vec![(0.25, first), (0.75, last)] }
        })
    }

    /// Returns curves like [`curves`](Self::curves), with one point in each column: the mean of its values.
    pub(super) fn means(&self, seconds: f64, columns: usize) -> Vec<Vec<(f64, f64)>> {
        self.in_columns(seconds, columns, |part| vec![(0.5, part.mean)])
    }

    /// Makes the points of each column from its values. Their places are from 0 to 1.
    fn in_columns(
        &self,
        seconds: f64,
        columns: usize,
        points: impl Fn(&Part) -> Vec<(f64, f64)>,
    ) -> Vec<Vec<(f64, f64)>> {
        let length = self.parts.len().div_ceil(columns.max(1)).max(1);
        let mut curves: Vec<Vec<(f64, f64)>> = Vec::new();
        for (column, parts) in self.parts.chunks(length).enumerate() {
            let Some(part) = parts.iter().copied().fold(None, join) else { continue };
            if part.has_gap_before || curves.is_empty() {
                curves.push(Vec::new());
            }
            let at = |place: f64| (column as f64 + place) * length as f64 * seconds;
            if let Some(curve) = curves.last_mut() {
                curve.extend(points(&part).into_iter().map(|(place, value)| (at(place), value)));
            }
        }
        curves
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn series(values: &[Result<f64, Missing>]) -> Series {
        let mut series = Series::default();
        values.iter().enumerate().for_each(|(index, value)| series.add(index, *value));
        series
    }

    #[test]
    fn a_missing_value_is_a_gap_and_never_zero() {
        let lost = Err(Missing::Lost);
        let first = Err(Missing::NeedsTwoReadings);
        let series = series(&[first, Ok(5.0), Ok(6.0), lost, lost, Ok(7.0), lost]);
        let curves = series.curves(1.0, 100);
        assert_eq!(curves, [vec![(1.5, 5.0), (2.5, 6.0)], vec![(5.5, 7.0)]]);
        assert_eq!(series.means(1.0, 1), [vec![(3.0, 6.0)]]);
        assert_eq!((series.n_readings(), series.missing().get(&Missing::Lost)), (6, Some(&3)));
        assert_eq!(series.missing().len(), 1);
        let nothing = self::series(&[lost; 3]);
        assert!(nothing.is_empty() && nothing.curves(1.0, 10).is_empty() && nothing.range().is_none());
    }

    #[test]
    fn an_interruption_is_a_gap_without_a_missing_value() {
        let mut series = series(&[Ok(1.0)]);
        series.interrupt();
        series.add(1, Ok(1.0));
        assert_eq!((series.curves(2.0, 10).len(), series.n_readings()), (2, 2));
    }

    proptest! {
        #[test]
        fn extremes_stay_and_points_are_few(
            values in vec(prop_oneof![8 => (0.0..100.0_f64).prop_map(Ok), 1 => Just(Err(Missing::Lost))], 1..600),
            columns in 1_usize..80,
            halvings in 0_u32..4,
        ) {
            let mut series = series(&values);
            (0..halvings).for_each(|_| series.halve());
            let curves = series.curves(f64::from(1 << halvings), columns);
            let points: Vec<(f64, f64)> = curves.concat();
            prop_assert!(points.len() <= 2 * columns);
            prop_assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{points:?}");
            let known: Vec<f64> = values.iter().copied().filter_map(Result::ok).collect();
            let range = |values: &mut dyn Iterator<Item = f64>| {
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
            };
            let drawn = range(&mut points.iter().map(|point| point.1));
            let read = range(&mut known.into_iter());
            prop_assert_eq!(drawn, read);
            let means = series.means(1.0, columns).concat();
            prop_assert!(means.len() <= columns && means.is_empty() == points.is_empty());
            prop_assert!(means.iter().all(|(_, mean)| (read.0 - 1e-9..=read.1 + 1e-9).contains(mean)), "{means:?}");
            prop_assert!(points.iter().all(|point| point.0 < (values.len() + (1 << halvings) * 600) as f64));
        }
    }
}
