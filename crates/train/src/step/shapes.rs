//! Shapes that a device has computed, to tell the compilation of kernels from their work.

use std::collections::HashSet;

use plimsoll_core::{BatchShape, TimeOwner, TimeShares, timing};

/// Weight of the newest step in the mean time of a frame.
const NEWEST: f64 = 0.1;

/// Shapes that a device has computed so far, and how long it takes for a frame of one that it knows.
///
/// A GPU compiles and tunes kernels when it meets a shape for the first time, at a moment that no call reports. What such
/// a step takes above the time of its frames counts as compilation, which is an estimate.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownShapes {
    known: HashSet<(BatchShape, u32)>,
    /// Those of them that the current step has computed for the first time.
    new: HashSet<(BatchShape, u32)>,
    /// Padded frames of the current step.
    frames: f64,
    /// Mean seconds for a padded frame; `None` before the first step of known shapes.
    seconds_per_frame: Option<f64>,
}

impl KnownShapes {
    /// Begins a step. Returns the times so far.
    pub(super) fn begin(&mut self) -> TimeShares {
        self.new.clear();
        self.frames = 0.0;
        timing::so_far()
    }

    /// Records a micro-batch of `shape` at a fallback level. Returns whether it is the first one.
    pub(super) fn record(&mut self, shape: BatchShape, level: u32) -> bool {
        let is_new = self.known.insert((shape, level));
        if is_new {
            self.new.insert((shape, level));
        }
        self.frames += f64::from(shape.utterances) * f64::from(shape.frames.0);
        is_new
    }

    /// Returns whether an earlier step has computed a micro-batch of `shape` at a fallback level.
    pub(super) fn has_fitted(&self, shape: BatchShape, level: u32) -> bool {
        self.known.contains(&(shape, level)) && !self.new.contains(&(shape, level))
    }

    /// Forgets a micro-batch that was not computed after all.
    pub(super) fn forget(&mut self, shape: BatchShape, level: u32) {
        self.known.remove(&(shape, level));
    }

    /// Ends a step that began with the times `begun`, and moves the time of compilation to its owner. Nothing is learned
    /// from a step that is not `regular`: a CPU compiles nothing, and a step that ran out of memory took other time.
    pub(super) fn end(&mut self, begun: &TimeShares, regular: bool) {
        if !regular {
            return;
        }
        let since = timing::so_far().since(begun);
        let seconds = since.get(TimeOwner::Submit) + since.get(TimeOwner::Compute);
        if !self.new.is_empty() {
            let usual = self.seconds_per_frame.map_or(0.0, |seconds| seconds * self.frames);
            timing::correct(|times| {
                let rest = (seconds - usual).max(0.0);
                let moved =
                    times.shift(TimeOwner::Compute, TimeOwner::Compile, rest.min(since.get(TimeOwner::Compute)));
                times.shift(TimeOwner::Submit, TimeOwner::Compile, rest - moved);
            });
        } else if self.frames > 0.0 {
            let now = seconds / self.frames;
            self.seconds_per_frame =
                Some(self.seconds_per_frame.map_or(now, |before| before + NEWEST * (now - before)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use plimsoll_core::Frames;

    use super::*;

    fn step(shapes: &mut KnownShapes, utterances: u32, millis: u64) -> TimeShares {
        timing::lap();
        let begun = shapes.begin();
        shapes.record(BatchShape { utterances, frames: Frames(100), tokens: 10 }, 0);
        timing::measure(TimeOwner::Submit, || sleep(Duration::from_millis(millis)));
        shapes.end(&begun, true);
        timing::lap()
    }

    #[test]
    fn a_shape_has_fitted_from_the_next_step_on() {
        let shape = BatchShape { utterances: 4, frames: Frames(100), tokens: 10 };
        let mut shapes = KnownShapes::default();
        shapes.begin();
        shapes.record(shape, 0);
        // The second micro-batch of the first step has more beside it than the first.
        assert!(!shapes.has_fitted(shape, 0));
        shapes.begin();
        assert!(shapes.has_fitted(shape, 0) && !shapes.has_fitted(shape, 1));
        shapes.forget(shape, 0);
        assert!(!shapes.has_fitted(shape, 0));
    }

    #[test]
    fn what_a_new_shape_takes_beyond_its_frames_is_compilation() {
        let mut shapes = KnownShapes::default();
        let first = step(&mut shapes, 4, 4);
        assert_eq!(first.get(TimeOwner::Submit), 0.0, "{first:?}");
        let second = step(&mut shapes, 4, 4);
        assert_eq!(second.get(TimeOwner::Compile), 0.0, "{second:?}");
        // A sleep may be longer than asked, on a busy machine by much.
        let usual = second.get(TimeOwner::Submit) / 2.0;
        let other = step(&mut shapes, 2, 30 + (usual * 1e3) as u64);
        // Half the frames take half the time of the step before.
        assert!((other.get(TimeOwner::Submit) - usual).abs() < 1e-3, "{other:?} beside {second:?}");
        assert!(other.get(TimeOwner::Compile) >= 0.020, "{other:?}");
    }
}
