//! Who decides into how many pieces a step is cut, and learns from what did not fit.

use plimsoll_core::Bytes;

/// The limit on the utterances computed at once.
///
/// It starts at what the configuration says, or at the whole batch; a piece that needed more than the budget, or that
/// the device could not give memory for, halves it.
#[derive(Clone, Debug)]
pub struct Governor {
    limit: usize,
    budget: Option<Bytes>,
}

impl Governor {
    /// A governor that starts at `limit` utterances and knows a memory `budget`, if there is one.
    pub fn new(limit: usize, budget: Option<Bytes>) -> Self {
        Self { limit: limit.max(1), budget }
    }

    /// How many utterances may be computed at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Learns that a step of pieces of at most `utterances` took `peak` at the most; true where the limit fell.
    pub fn saw_peak(&mut self, utterances: usize, peak: Bytes) -> bool {
        self.budget.is_some_and(|budget| peak > budget) && self.halve(utterances)
    }

    /// Learns that a piece of `utterances` did not fit; true where the limit fell, false where it is one already.
    pub fn ran_out(&mut self, utterances: usize) -> bool {
        self.halve(utterances)
    }

    fn halve(&mut self, utterances: usize) -> bool {
        let lower = (utterances.min(self.limit) / 2).max(1);
        let fell = lower < self.limit;
        self.limit = lower.min(self.limit);
        fell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_falls_to_what_fits_and_never_to_zero() {
        let mut governor = Governor::new(16, Some(Bytes(100)));
        assert!(!governor.saw_peak(16, Bytes(100)));
        assert!(governor.saw_peak(12, Bytes(101)));
        assert_eq!(governor.limit(), 6);
        assert!(governor.ran_out(6) && governor.ran_out(3));
        assert_eq!(governor.limit(), 1);
        assert!(!governor.ran_out(1));
        assert!(!Governor::new(4, None).saw_peak(4, Bytes::gib(99)));
    }
}
