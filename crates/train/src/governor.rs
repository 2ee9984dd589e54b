//! Who decides into how many pieces a step is cut, and learns from what did not fit.

use std::collections::BTreeMap;

use plimsoll_core::{BatchShape, Choice};
use serde::{Deserialize, Serialize};

/// Steps at a lowered limit before a little more is tried again.
const QUIET: u32 = 10;
/// The longest such while: each trial that fails makes the next wait twice as long, so that failures die out.
const QUIET_MOST: u32 = 1280;
/// Lengths are told apart in quarters of an octave: twice as long is four rungs higher.
const RUNGS_OF_AN_OCTAVE: f64 = 4.0;

/// The limit on the utterances computed at once, for each length.
///
/// It starts from a plan or from one number. What did not fit halves the limit for its length, and with it for all that
/// is longer; after a quiet while more is tried, until it is back where it began. Where one utterance alone did
/// not fit, it asks for more [fallback_level](Governor::fallback_level) instead: ways of computing that need less memory and more time.
#[derive(Clone, Debug)]
pub struct Governor {
    ceilings: Vec<PlannedLimit>,
    otherwise: usize,
    state: GovernorState,
}

/// What was planned for a length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedLimit {
    /// Batches that are no longer than this, on either side.
    pub shape: BatchShape,
    /// Utterances computed at once.
    pub limit: usize,
    /// How.
    pub choice: Choice,
}

/// What a governor has learned on a device, for a checkpoint: what did not fit, by length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GovernorState {
    buckets: BTreeMap<u32, Bucket>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    limit: usize,
    /// Where the limit stands when nothing fails.
    origin: usize,
    /// The most that held for a while.
    held: usize,
    /// The fewest that did not fit, since as many last did.
    failed: Option<usize>,
    #[serde(rename = "effort")]
    fallback_level: usize,
    quiet: u32,
    /// Steps to wait before what failed is tried once more.
    patience: u32,
    /// Whether the limit was raised, or the effort lowered, and has not yet held for a while.
    on_trial: bool,
}

impl Governor {
    /// A governor that begins with `limit` utterances at once, whatever their length.
    pub fn new(limit: usize) -> Self {
        Self::from_plan(Vec::new(), limit)
    }

    /// A governor that begins with what was planned for each length, and never goes beyond `limit`.
    ///
    /// A shape counts for all batches that are no longer than it; longer ones than any get less in proportion.
    pub fn from_plan(mut ceilings: Vec<PlannedLimit>, limit: usize) -> Self {
        ceilings.sort_by_key(|planned| (planned.shape.frames, planned.shape.tokens));
        Self { ceilings, otherwise: limit.max(1), state: GovernorState::default() }
    }

    /// Utterances of the length of `shape` that may be computed at once.
    pub fn limit(&self, shape: BatchShape) -> usize {
        let learned = self.state.buckets.range(..=bucket_of(shape)).map(|(_, bucket)| bucket.limit).min();
        learned.unwrap_or(usize::MAX).min(self.ceiling(shape)).max(1)
    }

    /// How much effort utterances of this length need even alone: 0 for the way that the plan chose.
    pub fn fallback_level(&self, shape: BatchShape) -> usize {
        self.state.buckets.range(..=bucket_of(shape)).map(|(_, bucket)| bucket.fallback_level).max().unwrap_or(0)
    }

    /// Learns that the utterances of `shape` did not fit together; true where the limit fell, false where it is one
    /// already.
    pub fn record_out_of_memory(&mut self, shape: BatchShape) -> bool {
        let before = self.limit(shape);
        let count = (shape.utterances as usize).min(before);
        let bucket = self.bucket(shape);
        let lower = if bucket.on_trial && bucket.held < count { bucket.held } else { (count / 2).max(1) };
        (bucket.limit, bucket.failed) = (lower, Some(count));
        bucket.restart_waiting();
        lower < before
    }

    /// Learns that an utterance of the length of `shape` did not fit alone, with the effort that there is; gives the next.
    pub fn raise_fallback_level(&mut self, shape: BatchShape) -> usize {
        let fallback_level = self.fallback_level(shape) + 1;
        let bucket = self.bucket(shape);
        (bucket.fallback_level, bucket.limit) = (fallback_level, 1);
        bucket.restart_waiting();
        fallback_level
    }

    /// Learns that a step on a batch of so many utterances fitted, whose pieces were as large as `shape` together; true where
    /// a limit was raised. A batch that is smaller than the limit says nothing of it.
    pub fn record_success(&mut self, shape: BatchShape, batch: usize) -> bool {
        let (place, limit) = (bucket_of(shape), self.limit(shape));
        // What fits at this length fits at every shorter one.
        let buckets = self.state.buckets.range_mut(..=place).map(|(_, bucket)| bucket);
        let raised = buckets.fold(false, |raised, bucket| {
            bucket.record_fit(shape.utterances as usize);
            (batch >= limit && bucket.count_quiet_step()) || raised
        });
        // What is back where it began says nothing any more.
        self.state.buckets.retain(|_, bucket| !bucket.is_back());
        raised
    }

    /// What was learned, for a checkpoint.
    pub fn state(&self) -> &GovernorState {
        &self.state
    }

    /// Takes over what was learned on the same device, under the same budget.
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

    /// What was planned for the shortest length that covers `shape`.
    fn plan_of(&self, shape: BatchShape) -> Option<&PlannedLimit> {
        let covers =
            |planned: &&PlannedLimit| planned.shape.frames >= shape.frames && planned.shape.tokens >= shape.tokens;
        self.ceilings.iter().find(covers)
    }

    /// How a batch of `shape` is computed, where that was planned; what is longer than all that was, as the longest.
    pub fn choice(&self, shape: BatchShape) -> Option<Choice> {
        self.plan_of(shape).or(self.ceilings.last()).map(|planned| planned.choice)
    }
}

impl Bucket {
    fn is_back(&self) -> bool {
        self.limit >= self.origin && self.fallback_level == 0 && !self.on_trial
    }

    /// Begins to wait anew: longer, where it was a trial that failed.
    fn restart_waiting(&mut self) {
        self.patience = if self.on_trial { (self.patience * 2).min(QUIET_MOST) } else { self.patience };
        (self.quiet, self.on_trial) = (0, false);
    }

    /// Learns that so many fitted: what failed before was a moment's trouble, where it was no more than these.
    fn record_fit(&mut self, count: usize) {
        if self.fallback_level == 0 && self.failed.is_some_and(|failed| failed <= count) {
            (self.failed, self.patience) = (None, QUIET);
        }
    }

    /// One more step without trouble; true where a little more is tried from now on.
    fn count_quiet_step(&mut self) -> bool {
        self.quiet += 1;
        if self.limit >= self.origin && self.fallback_level == 0 {
            // Only its trial is not over yet.
            self.on_trial &= self.quiet < QUIET;
            return false;
        }
        let (next, is_bold) = match self.failed {
            _ if self.fallback_level > 0 => (self.limit, self.patience > QUIET),
            None => (self.limit * 2, false),
            Some(failed) if self.limit * 2 < failed => (self.limit * 2, false),
            // Half way to what failed; and when there is nothing between, that once more.
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

/// The rung of the lengths of `shape`. Texts are short beside sound, and grow with it.
fn bucket_of(shape: BatchShape) -> u32 {
    (f64::from(shape.frames.0.max(1)).log2() * RUNGS_OF_AN_OCTAVE).ceil() as u32
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Frames;

    use super::*;

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
        // And in the end all eight do.
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
