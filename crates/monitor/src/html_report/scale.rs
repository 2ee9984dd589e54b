//! Scale of an axis: the place of a value between 0 and 1, and the values that are marked.

/// Scale of an axis, linear or logarithmic. Its range is never empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

/// Ratio of the largest to the smallest value from which a scale is logarithmic, if it may be.
const WIDE: f64 = 12.0;
/// Largest size of a value that is drawn, so that no range overflows.
const LARGEST: f64 = 1e150;
/// Smallest size of a constant that is not drawn as zero.
const SMALLEST: f64 = 1e-150;

impl Scale {
    /// Makes a linear scale of a range.
    pub(super) fn linear(low: f64, high: f64) -> Self {
        let (low, high) = (low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST));
        // A constant is in the middle of a range of its own size: a learning rate of 0.001 must not look like zero.
        let pad = match low.abs() {
            _ if high - low > low.abs() * 1e-9 => 0.0,
            ..SMALLEST => 0.5,
            size => size * 0.5,
        };
        Self { low: low - pad, high: high.max(low) + pad, logarithmic: false }
    }

    /// Makes a scale that holds all finite `values`; `None` without one.
    pub(super) fn fitting(
        values: impl Iterator<Item = f64>,
        from_zero: bool,
        may_be_logarithmic: bool,
    ) -> Option<Self> {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return None;
        }
        if may_be_logarithmic && low > 0.0 && high / low > WIDE {
            return Some(Self { low: low.log10(), high: high.log10(), logarithmic: true });
        }
        Some(match from_zero {
            true if high <= 0.0 && low >= 0.0 => Self::linear(0.0, 1.0),
            true => Self::linear(low.min(0.0), high.max(0.0) * 1.04),
            false => Self::linear(low - (high - low) * 0.04, high + (high - low) * 0.04),
        })
    }

    /// Returns whether the scale is logarithmic.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Returns the place of `value`, from 0 to 1; a value outside of the range is at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let place = (value.clamp(-LARGEST, LARGEST) - self.low) / (self.high - self.low);
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns at most about `count` round values with their places.
    pub(super) fn ticks(&self, count: usize) -> Vec<(f64, f64)> {
        let values = if self.logarithmic { self.decades(count) } else { self.round_values(count) };
        values.into_iter().map(|value| (value, self.place(value))).collect()
    }

    fn round_values(&self, count: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil();
        // A step that is too small beside the values does not move them: the count is a bound of its own.
        (0..=count * 2)
            .map(|index| (first + index as f64) * step)
            .take_while(|value| *value <= self.high + step * 1e-6)
            // No minus before zero.
            .map(|value| if value.abs() < step * 1e-6 { 0.0 } else { value })
            .collect()
    }

    fn decades(&self, count: usize) -> Vec<f64> {
        let whole = |factors: &[f64], stride: i32| -> Vec<f64> {
            let range = self.low.floor() as i32..=self.high.ceil() as i32;
            let powers = range.filter(|power| power.rem_euclid(stride) == 0).map(|power| 10f64.powi(power));
            let values = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
            values.filter(|value| (self.low - 1e-9..=self.high + 1e-9).contains(&value.log10())).collect()
        };
        let fine = whole(&[1.0, 2.0, 5.0], 1);
        if fine.len() <= count + 1 {
            return fine;
        }
        (1..).map(|stride| whole(&[1.0], stride)).find(|values| values.len() <= count + 1).unwrap_or(fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_round_and_inside() {
        for (low, high) in
            [(0.0, 1.0), (0.0, 7.3), (-2.0, 3.0), (5.0, 5.0), (1e-9, 2e-9), (0.0, 1e300), (1e9, 1e9 + 1.0)]
        {
            let scale = Scale::linear(low, high);
            let ticks = scale.ticks(5);
            assert!((1..=11).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(ticks.iter().all(|(_, place)| (0.0..=1.0).contains(place)), "{low} {high}: {ticks:?}");
        }
        assert_eq!(Scale::linear(0.0, 1.0).ticks(5).iter().map(|tick| tick.0).collect::<Vec<_>>().len(), 6);
    }

    #[test]
    fn a_wide_range_is_logarithmic_and_places_stay_inside() {
        let wide = Scale::fitting([0.01, 100.0].into_iter(), false, true).unwrap();
        assert!(wide.is_logarithmic());
        assert!((wide.place(1.0) - 0.5).abs() < 1e-9);
        assert_eq!((wide.place(-1.0), wide.place(f64::NAN), wide.place(1e300)), (0.0, 0.0, 1.0));
        assert!((2..=7).contains(&wide.ticks(5).len()));
        let huge = Scale::fitting([1e-300, 1e300].into_iter(), false, true).unwrap();
        assert!((2..=6).contains(&huge.ticks(5).len()), "{:?}", huge.ticks(5));
        assert_eq!(Scale::fitting([f64::NAN].into_iter(), true, true), None);
        let one = Scale::fitting([3.0].into_iter(), false, false).unwrap();
        assert!((one.place(3.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_constant_is_in_the_middle_and_differs_from_zero() {
        for value in [1e-300, 1e-100, 1e-9, 0.001, -0.02, 0.4, 5.0, -3e4, 1e100, 1e300, 0.0] {
            let scale = Scale::fitting([value, value].into_iter(), false, true).unwrap();
            assert!((scale.place(value) - 0.5).abs() < 1e-6, "{value}");
            let ticks = scale.ticks(5);
            assert!((2..=11).contains(&ticks.len()), "{value}: {ticks:?}");
            let has_zero = ticks.iter().any(|tick| tick.0 == 0.0);
            assert_eq!(has_zero, f64::abs(value) < SMALLEST, "{value}: {ticks:?}");
        }
    }
}
