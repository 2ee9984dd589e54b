//! Allocations that fail because the scenario says so.

use crate::scenario::AllocationFailures;

/// Counts allocations, and says which of them fail.
#[derive(Debug)]
pub(crate) struct FailureCounter {
    rules: AllocationFailures,
    /// Number of allocations so far.
    n_attempts: u64,
    random: u64,
}

impl FailureCounter {
    /// Makes a counter for the rules of a GPU.
    pub(crate) fn new(rules: AllocationFailures) -> Self {
        let random = rules.chance.map_or(0, |(_, seed)| seed);
        Self { rules, n_attempts: 0, random }
    }

    /// Counts an allocation, and returns its number from 1 and whether it fails.
    pub(crate) fn count(&mut self, size: u64) -> (u64, bool) {
        self.n_attempts += 1;
        let number = self.n_attempts;
        let by_chance = self.rules.chance.is_some_and(|(chance, _)| self.draw() < chance);
        let rules = &self.rules;
        let by_rule = rules.at.contains(&number)
            || rules.every.is_some_and(|every| number.is_multiple_of(every))
            || rules.above.is_some_and(|above| size > above);
        (number, by_rule || by_chance)
    }

    /// Draws a number from 0 to 1 (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(rules: AllocationFailures, sizes: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut counter = FailureCounter::new(rules);
        sizes
            .into_iter()
            .map(|size| counter.count(size))
            .filter(|(_, fails)| *fails)
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn allocations_fail_by_each_rule() {
        let rules = AllocationFailures::default;
        assert!(failed(rules(), 0..100).is_empty());
        assert_eq!(failed(AllocationFailures { at: vec![7, 2], ..rules() }, 0..100), [2, 7]);
        assert_eq!(failed(AllocationFailures { every: Some(40), ..rules() }, 0..100), [40, 80]);
        assert_eq!(failed(AllocationFailures { above: Some(97), ..rules() }, 0..100), [99, 100]);
    }

    #[test]
    fn chance_has_its_frequency_and_repeats() {
        let draw =
            |seed| failed(AllocationFailures { chance: Some((0.1, seed)), ..AllocationFailures::default() }, 0..10_000);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!((900..1100).contains(&draw(1).len()), "{}", draw(1).len());
    }
}
