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
/// not fit, it asks for more [effort](Governor::effort) instead: ways of computing that need less memory and more time.
#[derive(Clone, Debug)]
pub struct Governor {
    ceilings: Vec<Planned>,
    otherwise: usize,
    knowledge: Knowledge,
}

/// What was planned for a length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
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
pub struct Knowledge {
    rungs: BTreeMap<u32, Rung>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rung {
    limit: usize,
    /// Where the limit stands when nothing fails.
    origin: usize,
    /// The most that held for a while.
    held: usize,
    /// The fewest that did not fit, since as many last did.
    failed: Option<usize>,
    effort: usize,
    quiet: u32,
    /// Steps to wait before what failed is tried once more.
    patience: u32,
    /// Whether the limit was raised, or the effort lowered, and has not yet held for a while.
    on_trial: bool,
}

impl Governor {
    /// A governor that begins with `limit` utterances at once, whatever their length.
    pub fn new(limit: usize) -> Self {
        Self::planned(Vec::new(), limit)
    }

    /// A governor that begins with what was planned for each length, and never goes beyond `limit`.
    ///
    /// A shape counts for all batches that are no longer than it; longer ones than any get less in proportion.
    pub fn planned(mut ceilings: Vec<Planned>, limit: usize) -> Self {
        ceilings.sort_by_key(|planned| (planned.shape.frames, planned.shape.tokens));
        Self { ceilings, otherwise: limit.max(1), knowledge: Knowledge::default() }
    }

    /// Utterances of the length of `shape` that may be computed at once.
    pub fn limit(&self, shape: BatchShape) -> usize {
        let learned = self.knowledge.rungs.range(..=rung_of(shape)).map(|(_, rung)| rung.limit).min();
        learned.unwrap_or(usize::MAX).min(self.ceiling(shape)).max(1)
    }

    /// How much effort utterances of this length need even alone: 0 for the way that the plan chose.
    pub fn effort(&self, shape: BatchShape) -> usize {
        self.knowledge.rungs.range(..=rung_of(shape)).map(|(_, rung)| rung.effort).max().unwrap_or(0)
    }

    /// Learns that the utterances of `shape` did not fit together; true where the limit fell, false where it is one
    /// already.
    pub fn ran_out(&mut self, shape: BatchShape) -> bool {
        let before = self.limit(shape);
        let count = (shape.utterances as usize).min(before);
        let rung = self.rung(shape);
        let lower = if rung.on_trial && rung.held < count { rung.held } else { (count / 2).max(1) };
        (rung.limit, rung.failed) = (lower, Some(count));
        rung.failed();
        lower < before
    }

    /// Learns that an utterance of the length of `shape` did not fit alone, with the effort that there is; gives the next.
    pub fn strain(&mut self, shape: BatchShape) -> usize {
        let effort = self.effort(shape) + 1;
        let rung = self.rung(shape);
        (rung.effort, rung.limit) = (effort, 1);
        rung.failed();
        effort
    }

    /// Learns that a step on a batch of so many utterances fitted, whose pieces were as large as `shape` together; true where
    /// a limit was raised. A batch that is smaller than the limit says nothing of it.
    pub fn went_well(&mut self, shape: BatchShape, batch: usize) -> bool {
        let (place, limit) = (rung_of(shape), self.limit(shape));
        // What fits at this length fits at every shorter one.
        let rungs = self.knowledge.rungs.range_mut(..=place).map(|(_, rung)| rung);
        let raised = rungs.fold(false, |raised, rung| {
            rung.fitted(shape.utterances as usize);
            (batch >= limit && rung.wait()) || raised
        });
        // What is back where it began says nothing any more.
        self.knowledge.rungs.retain(|_, rung| !rung.is_back());
        raised
    }

    /// What was learned, for a checkpoint.
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Takes over what was learned on the same device, under the same budget.
    pub fn restore(&mut self, knowledge: Knowledge) {
        self.knowledge = knowledge;
    }

    fn rung(&mut self, shape: BatchShape) -> &mut Rung {
        let (limit, effort) = (self.limit(shape), self.effort(shape));
        let origin = self.ceiling(shape);
        let fresh = Rung { limit, origin, held: 1, failed: None, effort, quiet: 0, patience: QUIET, on_trial: false };
        self.knowledge.rungs.entry(rung_of(shape)).or_insert(fresh)
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
    fn plan_of(&self, shape: BatchShape) -> Option<&Planned> {
        let covers = |planned: &&Planned| planned.shape.frames >= shape.frames && planned.shape.tokens >= shape.tokens;
        self.ceilings.iter().find(covers)
    }

    /// How a batch of `shape` is computed, where that was planned; what is longer than all that was, as the longest.
    pub fn choice(&self, shape: BatchShape) -> Option<Choice> {
        self.plan_of(shape).or(self.ceilings.last()).map(|planned| planned.choice)
    }
}

impl Rung {
    fn is_back(&self) -> bool {
        self.limit >= self.origin && self.effort == 0 && !self.on_trial
    }

    /// Begins to wait anew: longer, where it was a trial that failed.
    fn failed(&mut self) {
        self.patience = if self.on_trial { (self.patience * 2).min(QUIET_MOST) } else { self.patience };
        (self.quiet, self.on_trial) = (0, false);
    }

    /// Learns that so many fitted: what failed before was a moment's trouble, where it was no more than these.
    fn fitted(&mut self, count: usize) {
        if self.effort == 0 && self.failed.is_some_and(|failed| failed <= count) {
            (self.failed, self.patience) = (None, QUIET);
        }
    }

    /// One more step without trouble; true where a little more is tried from now on.
    fn wait(&mut self) -> bool {
        self.quiet += 1;
        if self.limit >= self.origin && self.effort == 0 {
            // Only its trial is not over yet.
            self.on_trial &= self.quiet < QUIET;
            return false;
        }
        let (next, is_bold) = match self.failed {
            _ if self.effort > 0 => (self.limit, self.patience > QUIET),
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
        match self.effort {
            0 => self.limit = next.min(self.origin),
            _ if is_bold => self.effort -= 1,
            _ => self.effort = 0,
        }
        true
    }
}

/// The rung of the lengths of `shape`. Texts are short beside sound, and grow with it.
fn rung_of(shape: BatchShape) -> u32 {
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
        assert!(governor.ran_out(shape(12, 100)));
        assert_eq!(governor.limit(shape(16, 100)), 6);
        assert!(governor.ran_out(shape(6, 100)) && governor.ran_out(shape(3, 100)));
        assert_eq!(governor.limit(shape(16, 100)), 1);
        assert!(!governor.ran_out(shape(1, 100)));
    }

    #[test]
    fn what_is_longer_gets_no_more_and_what_is_shorter_keeps_its_own() {
        let mut governor = Governor::new(16);
        governor.ran_out(shape(16, 400));
        let limits = [100, 300, 400, 1000].map(|frames| governor.limit(shape(16, frames)));
        assert_eq!(limits, [16, 16, 8, 8]);
    }

    #[test]
    fn it_grows_back_and_each_failed_trial_waits_longer() {
        let mut governor = Governor::new(8);
        let mut failures = Vec::new();
        for step in 0..2000 {
            let at_once = governor.limit(shape(8, 100)) as u32;
            // In truth five fit.
            if at_once > 5 && governor.ran_out(shape(at_once, 100)) {
                failures.push(step);
            } else {
                governor.went_well(shape(at_once, 100), 8);
            }
        }
        let gaps: Vec<i32> = failures.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.len() < 8 && gaps.windows(2).all(|two| two[1] > two[0]), "{gaps:?}");
        assert!((4..6).contains(&governor.limit(shape(8, 100))));
        // And in the end all eight do.
        for _ in 0..40_000 {
            governor.went_well(shape(governor.limit(shape(8, 100)) as u32, 100), 8);
        }
        assert_eq!(governor.limit(shape(8, 100)), 8);
    }

    #[test]
    fn a_plan_gives_each_length_its_own_limit() {
        let planned = |frames, limit| Planned { shape: shape(0, frames), limit, choice: Choice::default() };
        let governor = Governor::planned(vec![planned(400, 4), planned(100, 16)], 12);
        let limits = [50, 100, 101, 400, 800, 4000].map(|frames| governor.limit(shape(1, frames)));
        assert_eq!(limits, [12, 12, 4, 4, 2, 1]);
    }

    #[test]
    fn effort_rises_where_one_alone_does_not_fit_and_falls_again() {
        let mut governor = Governor::new(4);
        assert_eq!((governor.strain(shape(1, 800)), governor.strain(shape(1, 800))), (1, 2));
        assert_eq!((governor.effort(shape(1, 400)), governor.effort(shape(1, 900))), (0, 2));
        for _ in 0..2 * QUIET {
            governor.went_well(shape(1, 800), 4);
        }
        assert_eq!(governor.effort(shape(1, 800)), 0);
    }

    #[test]
    fn what_it_learned_goes_through_a_checkpoint() {
        let mut governor = Governor::new(8);
        governor.ran_out(shape(4, 400));
        let mut other = Governor::new(8);
        other.restore(serde_json::from_value(serde_json::to_value(governor.knowledge()).unwrap()).unwrap());
        assert_eq!(other.limit(shape(8, 400)), 2);
    }
}
