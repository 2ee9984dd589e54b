//! Loss curve of a run, and its reduction to a few points.

use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

/// Maximum number of points of a curve in JSON, and of characters of a sparkline: 64 characters fit into a line of a
/// terminal.
pub(super) const POINTS_MAX: usize = 64;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Loss of each step, except steps whose loss is NaN or infinite. It serializes to its means over at most 64 equal
/// intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossCurve(pub(crate) Vec<LossPoint>);

/// Loss at a step, or mean loss of an interval of steps that ends at this step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPoint {
    /// Step of the loss, or last step of the interval.
    pub step: u64,
    /// Loss at the step, or mean loss of the interval.
    pub loss: f64,
}

impl LossCurve {
    /// Returns the loss of the last step; `None` if no step has a loss.
    pub fn last(&self) -> Option<f64> {
        self.0.last().map(|point| point.loss)
    }

    /// Reduces the curve to its means over at most `count` equal intervals, each with the last step of its interval.
    pub fn thinned(&self, count: usize) -> Vec<LossPoint> {
        let length = self.0.len().div_ceil(count.max(1)).max(1);
        self.0
            .chunks(length)
            .map(|points| LossPoint { step: points[points.len() - 1].step, loss: mean(points) })
            .collect()
    }

    /// Returns the mean loss over the range `steps`, or `None` if the range contains no loss.
    pub fn mean_over(&self, steps: RangeInclusive<u64>) -> Option<f64> {
        let from = self.0.partition_point(|point| point.step < *steps.start());
        let points = &self.0[from..self.0.partition_point(|point| point.step <= *steps.end()).max(from)];
        (!points.is_empty()).then(|| mean(points))
    }
}

impl Serialize for LossCurve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.thinned(POINTS_MAX).serialize(serializer)
    }
}

/// Draws the points as a line of block characters. Losses fall by orders of magnitude at first, so heights are
/// logarithms if all losses are above zero: later changes then stay visible.
pub(super) fn sparkline(points: &[LossPoint]) -> String {
    let logarithmic = points.iter().all(|point| point.loss > 0.0);
    let height = |loss: f64| if logarithmic { loss.ln() } else { loss };
    let heights: Vec<f64> = points.iter().map(|point| height(point.loss)).collect();
    let low = heights.iter().copied().fold(f64::INFINITY, f64::min);
    let range = heights.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low;
    let block = |height: &f64| BLOCKS[(((height - low) / range.max(f64::MIN_POSITIVE) * 7.0).round() as usize).min(7)];
    heights.iter().map(block).collect()
}

fn mean(points: &[LossPoint]) -> f64 {
    points.iter().map(|point| point.loss).sum::<f64>() / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(losses: &[f64]) -> LossCurve {
        LossCurve((1..).zip(losses).map(|(step, &loss)| LossPoint { step, loss }).collect())
    }

    #[test]
    fn a_sparkline_spans_lowest_to_highest() {
        for (losses, expected) in [
            (&[][..], ""),
            (&[2.0], "▁"),
            (&[2.0, 2.0], "▁▁"),
            (&[128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0], "█▇▆▅▄▃▂▁"),
            (&[7.0, -7.0, 0.0], "█▁▅"),
        ] {
            assert_eq!(sparkline(&curve(losses).0), expected, "{losses:?}");
        }
    }

    #[test]
    fn thinning_keeps_the_mean_and_the_end() {
        let curve = curve(&[1.0, 3.0, 5.0, 7.0, 9.0]);
        let thinned = |count| curve.thinned(count).iter().map(|point| (point.step, point.loss)).collect::<Vec<_>>();
        assert_eq!(thinned(5).len(), 5);
        assert_eq!(thinned(3), [(2, 2.0), (4, 6.0), (5, 9.0)]);
        assert_eq!(thinned(0), [(5, 5.0)]);
        assert_eq!(LossCurve::default().thinned(3), []);
    }

    #[test]
    fn a_mean_covers_only_existing_steps() {
        let curve = curve(&[1.0, 3.0, 5.0]);
        for (steps, expected) in [(1..=2, Some(2.0)), (3..=9, Some(5.0)), (4..=9, None), (0..=0, None)] {
            assert_eq!(curve.mean_over(steps.clone()), expected, "{steps:?}");
        }
    }
}
