//! Lowest, mean and highest value and 95th percentile of a number over time, in a fixed amount of memory.

use serde::{Deserialize, Serialize};

/// Number of values that the percentile is computed from. A run of any length keeps between half of them and all.
const KEPT_MAX: usize = 2048;

/// Collects the values of one number over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Collector {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    /// Sum of value times seconds, and of seconds.
    weighted: f64,
    seconds: f64,
    /// Every `stride`-th value.
    kept: Vec<f64>,
    stride: u64,
}

/// Values of a number over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Lowest value.
    pub min: f64,
    /// Mean over the covered time.
    pub mean: f64,
    /// Highest value.
    pub max: f64,
    /// Value that 95 % of the readings do not exceed. In long runs it is computed from evenly spaced readings.
    pub p95: f64,
    /// Time that the readings cover: each stands for the time since the sample before.
    pub seconds: f64,
    /// Number of readings.
    pub count: u64,
}

impl Collector {
    /// Adds a value that stands for the last `seconds`.
    pub(super) fn add(&mut self, value: f64, seconds: f64) {
        (self.min, self.max) = match self.count {
            0 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
        self.stride = self.stride.max(1);
        if self.count.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT_MAX {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.kept.push(value);
            }
        }
        self.count += 1;
        self.sum += value;
        self.weighted += value * seconds;
        self.seconds += seconds;
    }

    /// Returns the statistics; `None` if there was no value.
    pub(super) fn statistics(&self) -> Option<Statistics> {
        let &Self { count, min, max, sum, weighted, seconds, .. } = self;
        if count == 0 {
            return None;
        }
        let mean = if seconds > 0.0 { weighted / seconds } else { sum / count as f64 };
        let mut kept = self.kept.clone();
        kept.sort_by(f64::total_cmp);
        let rank = (kept.len() * 95).div_ceil(100).max(1) - 1;
        Some(Statistics { min, mean: mean.clamp(min, max), max, p95: kept[rank], seconds, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_its_own_statistics() {
        for n in [1, 2, 19, 20, 21, 2048, 2049, 10_000] {
            let mut collector = Collector::default();
            (0..n).for_each(|_| collector.add(3.5, 0.5));
            let Statistics { min, mean, max, p95, seconds, count } = collector.statistics().unwrap();
            assert_eq!([min, mean, max, p95, seconds], [3.5, 3.5, 3.5, 3.5, f64::from(n) * 0.5], "{n}");
            assert_eq!(count, n as u64);
            assert!(collector.kept.len() <= KEPT_MAX);
        }
        assert_eq!(Collector::default().statistics(), None);
    }

    #[test]
    fn the_percentile_of_a_ramp_is_close_at_any_length() {
        for n in [1, 10, 100, 2048, 2049, 5000, 100_000] {
            let mut collector = Collector::default();
            (1..=n).for_each(|value| collector.add(f64::from(value) / f64::from(n), 1.0));
            let statistics = collector.statistics().unwrap();
            let slack = 1.0 / f64::from(n).min(1000.0);
            assert!(
                (statistics.p95 - 0.95).abs() <= slack.max(0.05 * f64::from(u8::from(n < 20))),
                "{n}: {statistics:?}"
            );
            assert_eq!(statistics.max, 1.0);
        }
    }

    #[test]
    fn the_mean_is_one_over_time() {
        let mut collector = Collector::default();
        collector.add(1.0, 0.0);
        assert_eq!(collector.statistics().unwrap().mean, 1.0);
        collector.add(1.0, 9.0);
        collector.add(11.0, 1.0);
        assert_eq!(collector.statistics().unwrap().mean, 2.0);
    }
}
