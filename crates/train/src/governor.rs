//! Limits on the size of micro-batches, which adapt to out-of-memory failures.

use std::collections::BTreeMap;

use plimsoll_core::{BatchShape, Choice};
use serde::{Deserialize, Serialize};

use crate::planned::{PlannedLimit, by_length};

/// Number of steps in a row without failure before a lowered limit is raised.
const QUIET: u32 = 10;
/// Longest wait, in steps, before a limit is raised. Each failed trial doubles the wait, so failures become rare.
const QUIET_MOST: u32 = 1280;
/// Number of length buckets per octave. The governor keeps one limit for each length bucket, a range of utterance
/// lengths; utterances of twice the length are four buckets higher.
const RUNGS_OF_AN_OCTAVE: f64 = 4.0;

/// Governor of memory: the largest number of utterances computed at once, for each utterance length.
///
/// The limits start from a plan or from one number. An out-of-memory failure halves the limit for its length and for
/// all longer ones. After some steps without failure the limit rises again, up to its start. If a single utterance
/// does not fit, the [fallback level](Governor::fallback_level) rises instead: such a level needs less memory and more
/// time.
#[derive(Clone, Debug)]
pub struct Governor {
    ceilings: Vec<PlannedLimit>,
    otherwise: usize,
    state: GovernorState,
}

/// Limits that a governor learned on a device, as a checkpoint stores them: the lowered limits by length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GovernorState {
    buckets: BTreeMap<u32, Bucket>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    limit: usize,
    /// Limit at the start, from the plan or from one number, up to which a lowered limit rises again.
    origin: usize,
    /// Limit before it was last raised, to which it returns if the raised limit fails on trial; 1 before the first
    /// rise.
    held: usize,
    /// Smallest number of utterances that ran out of memory; `None` if none did, or if that many fitted later.
    failed: Option<usize>,
    #[serde(rename = "effort")]
    fallback_level: usize,
    quiet: u32,
    /// Steps to wait before the number of utterances that failed is tried again.
    patience: u32,
    /// Whether the limit was raised, or the fallback level lowered, and the new value is not yet confirmed by steps
    /// without failure.
    on_trial: bool,
}

impl Governor {
    /// Makes a governor that starts with `limit` utterances for every length.
    pub fn new(limit: usize) -> Self {
        Self::from_plan(Vec::new(), limit)
    }

    /// Makes a governor that starts from a planned limit for each length and never exceeds `limit`.
    ///
    /// A planned shape covers all batches that are not longer. For batches longer than all planned shapes, the limit
    /// falls in proportion to the length.
    pub fn from_plan(mut ceilings: Vec<PlannedLimit>, limit: usize) -> Self {
        ceilings.sort_by_key(|planned| by_length(planned.shape));
        Self { ceilings, otherwise: limit.max(1), state: GovernorState::default() }
    }

    /// Returns the number of utterances that may be computed at once if the longest has the frames and tokens of
    /// `shape`.
    pub fn limit(&self, shape: BatchShape) -> usize {
        let learned = self.state.buckets.range(..=bucket_of(shape)).map(|(_, bucket)| bucket.limit).min();
        learned.unwrap_or(usize::MAX).min(self.ceiling(shape)).max(1)
    }

    /// Returns the fallback level for utterances with the length of `shape`: an index into
    /// [`fallbacks`](crate::fallbacks), where 0 is the planned choice.
    pub fn fallback_level(&self, shape: BatchShape) -> usize {
        self.state.buckets.range(..=bucket_of(shape)).map(|(_, bucket)| bucket.fallback_level).max().unwrap_or(0)
    }

    /// Records that the utterances of `shape` did not fit into memory together. Returns whether the limit for this
    /// length fell; it does not fall below 1.
    pub fn record_out_of_memory(&mut self, shape: BatchShape) -> bool {
        let before = self.limit(shape);
        let count = (shape.utterances as usize).min(before);
        let bucket = self.bucket(shape);
        let lower = if bucket.on_trial && bucket.held < count { bucket.held } else { (count / 2).max(1) };
        (bucket.limit, bucket.failed) = (lower, Some(count));
        bucket.restart_waiting();
        lower < before
    }

    /// Records that a single utterance with the length of `shape` did not fit at the current fallback level. Returns
    /// the next level.
    pub fn raise_fallback_level(&mut self, shape: BatchShape) -> usize {
        let fallback_level = self.fallback_level(shape) + 1;
        let bucket = self.bucket(shape);
        (bucket.fallback_level, bucket.limit) = (fallback_level, 1);
        bucket.restart_waiting();
        fallback_level
    }

    /// Records a step without failure: a batch of `batch` utterances, whose largest group had `shape`. Returns whether
    /// a limit was raised. A batch smaller than the limit does not count towards raising it.
    pub fn record_success(&mut self, shape: BatchShape, batch: usize) -> bool {
        let (place, limit) = (bucket_of(shape), self.limit(shape));
        // What fits at this length fits at every shorter one.
        let buckets = self.state.buckets.range_mut(..=place).map(|(_, bucket)| bucket);
        let raised = buckets.fold(false, |raised, bucket| {
            bucket.record_fit(shape.utterances as usize);
            (batch >= limit && bucket.count_quiet_step()) || raised
        });
        // A bucket that is back at its start holds no information.
        self.state.buckets.retain(|_, bucket| !bucket.is_back());
        raised
    }

    /// Returns the learned limits, for a checkpoint.
    pub fn state(&self) -> &GovernorState {
        &self.state
    }

    /// Replaces the learned limits by `state`, which must come from the same device under the same budget.
    pub fn restore(&mut self, state: GovernorState) {
        self.state = state;
    }

    fn bucket(&mut self, shape: BatchShape) -> &mut Bucket {
        let (limit, fallback_level) = (self.limit(shape), self.fallback_level(shape));
        let origin = self.ceiling(shape);
        let fresh =
            Bucket { limit, origin, held: 1, failed: None, fallback_level, quiet: 0, patience: QUIET, on_trial: false };
        self.state.buckets.entry(bucket_of(shape)).or_insert(fresh)
    }

    fn ceiling(&self, shape: BatchShape) -> usize {
        let planned = match (self.plan_of(shape), self.ceilings.last()) {
            (Some(planned), _) => planned.limit,
            (None, Some(longest)) => {
                let frames = longest.shape.frames.0.max(1) as usize;
                longest.limit * frames / (shape.frames.0 as usize).max(frames)
            }
            (None, None) => self.otherwise,
        };
        planned.min(self.otherwise)
    }

    /// Returns the planned limit of the shortest length that covers `shape`; `None` if `shape` is longer than all
    /// planned lengths.
    fn plan_of(&self, shape: BatchShape) -> Option<&PlannedLimit> {
        self.ceilings.iter().find(|planned| planned.shape.covers(shape))
    }

    /// Returns how the plan computes the micro-batches of a batch of `shape`: rematerialized blocks, attention chunk and
    /// precision. A batch longer than all planned lengths gets the choice of the longest; `None` without a plan.
    pub fn choice(&self, shape: BatchShape) -> Option<Choice> {
        self.plan_of(shape).or(self.ceilings.last()).map(|planned| planned.choice)
    }
}

impl Bucket {
    fn is_back(&self) -> bool {
        self.limit >= self.origin && self.fallback_level == 0 && !self.on_trial
    }

    /// After an out-of-memory failure, counts the steps without failure from zero again. If a raised limit or a lowered
    /// fallback level was on trial, the wait before the next trial doubles.
    fn restart_waiting(&mut self) {
        self.patience = if self.on_trial { (self.patience * 2).min(QUIET_MOST) } else { self.patience };
        (self.quiet, self.on_trial) = (0, false);
    }

    /// Records that `count` utterances fitted into memory at once. If `count` or fewer had failed before, that failure
    /// was temporary: it is forgotten, and the wait before a trial is short again.
    fn record_fit(&mut self, count: usize) {
        if self.fallback_level == 0 && self.failed.is_some_and(|failed| failed <= count) {
            (self.failed, self.patience) = (None, QUIET);
        }
    }

    /// Counts a step without failure, and after enough of them raises the limit or lowers the fallback level for a
    /// trial. Returns whether it did.
    fn count_quiet_step(&mut self) -> bool {
        self.quiet += 1;
        if self.limit >= self.origin && self.fallback_level == 0 {
            // Back at the start: only the last trial is still open.
            self.on_trial &= self.quiet < QUIET;
            return false;
        }
        let (next, is_bold) = match self.failed {
            _ if self.fallback_level > 0 => (self.limit, self.patience > QUIET),
            None => (self.limit * 2, false),
            Some(failed) if self.limit * 2 < failed => (self.limit * 2, false),
            // Half way to the number that failed; if there is none between, that number again.
            Some(failed) if self.limit + 1 < failed => (self.limit.midpoint(failed), false),
            Some(_) => (self.limit + 1, true),
        };
        if self.quiet < if is_bold { self.patience } else { QUIET } {
            return false;
        }
        (self.quiet, self.on_trial, self.held) = (0, true, self.limit);
        match self.fallback_level {
            0 => self.limit = next.min(self.origin),
            _ if is_bold => self.fallback_level -= 1,
            _ => self.fallback_level = 0,
        }
        true
    }
}

/// Returns the length bucket of `shape` by its frames. Tokens are not counted: texts are short beside audio, and grow
/// with it.
fn bucket_of(shape: BatchShape) -> u32 {
    (f64::from(shape.frames.0.max(1)).log2() * RUNGS_OF_AN_OCTAVE).ceil() as u32
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Bytes, Frames};

    use super::*;
    use crate::planned::PlannedPeaks;

    fn shape(utterances: u32, frames: u32) -> BatchShape {
        BatchShape { utterances, frames: Frames(frames), tokens: 10 }
    }

    #[test]
    fn the_limit_falls_to_what_fits_and_never_to_zero() {
        let mut governor = Governor::new(16);
        assert!(governor.record_out_of_memory(shape(12, 100)));
        assert_eq!(governor.limit(shape(16, 100)), 6);
        assert!(governor.record_out_of_memory(shape(6, 100)) && governor.record_out_of_memory(shape(3, 100)));
        assert_eq!(governor.limit(shape(16, 100)), 1);
        assert!(!governor.record_out_of_memory(shape(1, 100)));
    }

    /// Lengths and limits in every order: a step is judged by the length that its limit comes from.
    #[test]
    fn the_peak_of_a_step_belongs_to_the_length_of_its_limit() {
        let mut key = 1u64;
        let mut next = |most: u64| {
            key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((key >> 33) % most) as u32
        };
        for _ in 0..500 {
            let shapes: Vec<BatchShape> = (0..1 + next(6))
                .map(|_| BatchShape { utterances: 8, frames: Frames(100 + next(300)), tokens: 5 + next(30) })
                .collect();
            let limits =
                (1..).zip(&shapes).map(|(limit, &shape)| PlannedLimit { shape, limit, choice: Choice::default() });
            let governor = Governor::from_plan(limits.collect(), usize::MAX);
            let peaks = PlannedPeaks::new((1..).zip(&shapes).map(|(peak, &shape)| (shape, Bytes(peak))).collect());
            for _ in 0..20 {
                let batch = BatchShape { utterances: 8, frames: Frames(50 + next(400)), tokens: 1 + next(40) };
                let limit = governor.plan_of(batch).map(|planned| Bytes(planned.limit as u64));
                assert_eq!(peaks.of(batch), limit, "{shapes:?} {batch:?}");
            }
        }
    }

    #[test]
    fn a_failure_lowers_the_limit_for_longer_batches_only() {
        let mut governor = Governor::new(16);
        governor.record_out_of_memory(shape(16, 400));
        let limits = [100, 300, 400, 1000].map(|frames| governor.limit(shape(16, frames)));
        assert_eq!(limits, [16, 16, 8, 8]);
    }

    #[test]
    fn the_limit_recovers_and_each_failed_trial_waits_longer() {
        let mut governor = Governor::new(8);
        let mut failures = Vec::new();
        for step in 0..2000 {
            let at_once = governor.limit(shape(8, 100)) as u32;
            // In truth five fit.
            if at_once > 5 && governor.record_out_of_memory(shape(at_once, 100)) {
                failures.push(step);
            } else {
                governor.record_success(shape(at_once, 100), 8);
            }
        }
        let gaps: Vec<i32> = failures.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.len() < 8 && gaps.windows(2).all(|two| two[1] > two[0]), "{gaps:?}");
        assert!((4..6).contains(&governor.limit(shape(8, 100))));
        // From now on all eight fit.
        for _ in 0..40_000 {
            governor.record_success(shape(governor.limit(shape(8, 100)) as u32, 100), 8);
        }
        assert_eq!(governor.limit(shape(8, 100)), 8);
    }

    #[test]
    fn a_plan_gives_each_length_its_own_limit() {
        let planned = |frames, limit| PlannedLimit { shape: shape(0, frames), limit, choice: Choice::default() };
        let governor = Governor::from_plan(vec![planned(400, 4), planned(100, 16)], 12);
        let limits = [50, 100, 101, 400, 800, 4000].map(|frames| governor.limit(shape(1, frames)));
        assert_eq!(limits, [12, 12, 4, 4, 2, 1]);
    }

    #[test]
    fn the_fallback_level_rises_and_falls_again() {
        let mut governor = Governor::new(4);
        assert_eq!(
            (governor.raise_fallback_level(shape(1, 800)), governor.raise_fallback_level(shape(1, 800))),
            (1, 2)
        );
        assert_eq!((governor.fallback_level(shape(1, 400)), governor.fallback_level(shape(1, 900))), (0, 2));
        for _ in 0..2 * QUIET {
            governor.record_success(shape(1, 800), 4);
        }
        assert_eq!(governor.fallback_level(shape(1, 800)), 0);
    }

    #[test]
    fn governor_state_survives_a_checkpoint() {
        let mut governor = Governor::new(8);
        governor.record_out_of_memory(shape(4, 400));
        let mut other = Governor::new(8);
        other.restore(serde_json::from_value(serde_json::to_value(governor.state()).unwrap()).unwrap());
        assert_eq!(other.limit(shape(8, 400)), 2);
    }
}
