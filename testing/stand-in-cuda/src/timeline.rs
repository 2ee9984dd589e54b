//! How the memory of a GPU went, in a bounded number of points.

/// Most points of a timeline.
const MOST: usize = 1024;

/// Peaks of memory over time. Time is the number of changes. When it is full, neighbors become one point.
#[derive(Debug)]
pub(crate) struct Timeline {
    points: Vec<Point>,
    /// Changes of each point.
    stride: u64,
    n_changes: u64,
}

/// Peaks in some changes of the memory that follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Most memory that programs have asked for.
    pub(crate) asked: u64,
    /// Most memory that the GPU has given away.
    pub(crate) held: u64,
}

impl Timeline {
    /// Makes an empty timeline.
    pub(crate) fn new() -> Self {
        Self { points: Vec::new(), stride: 1, n_changes: 0 }
    }

    /// Adds a change.
    pub(crate) fn add(&mut self, asked: u64, held: u64) {
        let point = Point { asked, held };
        if self.n_changes.is_multiple_of(self.stride) {
            if self.points.len() == MOST {
                self.points = self.points.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], Point::higher)).collect();
                self.stride *= 2;
            }
            self.points.push(point);
        } else if let Some(last) = self.points.last_mut() {
            *last = last.higher(&point);
        }
        self.n_changes += 1;
    }

    /// Returns the number of changes of each point, and the points.
    pub(crate) fn points(&self) -> (u64, &[Point]) {
        (self.stride, &self.points)
    }
}

impl Point {
    fn higher(self, other: &Self) -> Self {
        Self { asked: self.asked.max(other.asked), held: self.held.max(other.held) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stay_while_points_are_joined() {
        for n_changes in [0, 1, 1000, 1024, 1025, 5000, 100_000] {
            let mut timeline = Timeline::new();
            (0..n_changes).for_each(|change| timeline.add(change % 777, change));
            let (stride, points) = timeline.points();
            assert!(points.len() <= MOST && stride * points.len() as u64 >= n_changes);
            assert_eq!(points.iter().map(|point| point.held).max(), n_changes.checked_sub(1));
            assert_eq!(points.iter().map(|point| point.asked).max(), (0..n_changes).map(|change| change % 777).max());
            assert!(points.is_sorted_by_key(|point| point.held));
        }
    }
}
