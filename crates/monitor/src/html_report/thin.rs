//! Curves with fewer points, and smooth curves.

/// Point of a curve.
pub(super) type Point = (f64, f64);

/// Reduces a curve to about `count` points. The lowest and the highest point of each interval stay, so no peak is lost.
pub(super) fn thinned(points: &[Point], count: usize) -> Vec<Point> {
    if points.len() <= count {
        return points.to_vec();
    }
    let length = points.len().div_ceil((count / 2).max(1)).max(1);
    let mut kept = Vec::with_capacity(count + 2);
    for part in points.chunks(length) {
        let by_value = |(_, a): &(usize, &Point), (_, b): &(usize, &Point)| a.1.total_cmp(&b.1);
        let low = part.iter().enumerate().min_by(by_value).map_or(0, |(index, _)| index);
        let high = part.iter().enumerate().max_by(by_value).map_or(0, |(index, _)| index);
        kept.push(part[low.min(high)]);
        if low != high {
            kept.push(part[low.max(high)]);
        }
    }
    kept
}

/// Number of points that a smooth curve of `count` points averages; 1 for a curve that is too short.
pub(super) fn window(count: usize) -> usize {
    if count < 20 { 1 } else { (count / 40).clamp(5, 500) }
}

/// Computes the mean of each point and its neighbors on both sides, over at most `window` points.
pub(super) fn smoothed(points: &[Point], window: usize) -> Vec<Point> {
    let (before, after) = (window.saturating_sub(1) / 2, window / 2);
    let mut sums = vec![0.0];
    for point in points {
        sums.push(sums[sums.len() - 1] + point.1);
    }
    let mean = |index: usize| {
        let (from, to) = (index.saturating_sub(before), (index + after + 1).min(points.len()));
        (points[index].0, (sums[to] - sums[from]) / (to - from) as f64)
    };
    (0..points.len()).map(mean).collect()
}

/// Keeps the highest point of each `window` points, and both ends of the curve.
pub(super) fn highest(points: &[Point], window: usize) -> Vec<Point> {
    let top = |part: &[Point]| part.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let ends = |part: &[Point]| [(part[0].0, top(part)), (part[part.len() - 1].0, top(part))];
    points.chunks(window.max(1)).flat_map(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_extremes_and_order() {
        for count in [1usize, 2, 3, 10, 999, 1000, 5000] {
            let points: Vec<Point> = (0..5000).map(|x| (f64::from(x), f64::from(x * 7919 % 1009))).collect();
            let thin = thinned(&points, count);
            assert!(thin.len() <= count.max(2) + 1, "{count}: {}", thin.len());
            assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let highest = |points: &[Point]| points.iter().map(|point| point.1).fold(0.0, f64::max);
            assert_eq!(highest(&thin), highest(&points));
        }
        assert!(thinned(&[], 10).is_empty());
    }

    #[test]
    fn smooth_points_are_means_and_highest_points_are_above_all() {
        let points: Vec<Point> = [4.0, 2.0, 0.0, 6.0].into_iter().enumerate().map(|(x, y)| (x as f64, y)).collect();
        let smooth: Vec<f64> = smoothed(&points, 2).iter().map(|point| point.1).collect();
        assert_eq!(smooth, [3.0, 1.0, 3.0, 6.0]);
        assert_eq!(smoothed(&points, 3)[1].1, 2.0);
        assert_eq!(smoothed(&points, 1), points);
        assert_eq!(highest(&points, 2), [(0.0, 4.0), (1.0, 4.0), (2.0, 6.0), (3.0, 6.0)]);
    }
}
