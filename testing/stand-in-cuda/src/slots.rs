//! A grain of memory that small allocations share.

use crate::size::round_up;

/// Unit of small allocations, which is also their alignment.
pub(crate) const SLOT: u64 = 512;

/// Grain in slots.
#[derive(Debug)]
pub(crate) struct SharedGrain {
    taken: Vec<bool>,
    n_free: usize,
}

impl SharedGrain {
    /// Makes an empty grain of this size.
    pub(crate) fn new(grain: u64) -> Self {
        let n_slots = (grain / SLOT) as usize;
        Self { taken: vec![false; n_slots], n_free: n_slots }
    }

    /// Takes the first free slots for this size that follow each other, and returns their offset in bytes.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let wanted = n_slots(size);
        if wanted > self.n_free {
            return None;
        }
        let mut run = 0;
        let last = self.taken.iter().position(|taken| {
            run = if *taken { 0 } else { run + 1 };
            run == wanted
        })?;
        let first = last + 1 - wanted;
        self.taken[first..=last].fill(true);
        self.n_free -= wanted;
        Some(first as u64 * SLOT)
    }

    /// Frees slots.
    pub(crate) fn give_back(&mut self, offset: u64, size: u64) {
        let (first, n_slots) = ((offset / SLOT) as usize, n_slots(size));
        self.taken[first..first + n_slots].fill(false);
        self.n_free += n_slots;
    }

    /// Returns whether every slot is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_free == self.taken.len()
    }
}

fn n_slots(size: u64) -> usize {
    (round_up(size, SLOT) / SLOT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_follow_each_other_are_taken() {
        let mut grain = SharedGrain::new(8 * SLOT);
        assert_eq!([1, 513, 512, 1024].map(|size| grain.take(size)), [Some(0), Some(512), Some(1536), Some(2048)]);
        assert_eq!((grain.take(1025), grain.take(1024), grain.take(1)), (None, Some(3072), None));
        grain.give_back(512, 513);
        assert_eq!((grain.take(1025), grain.take(1000)), (None, Some(512)));
        for (offset, size) in [(0, 1), (512, 1000), (1536, 512), (2048, 1024), (3072, 1024)] {
            assert!(!grain.is_empty());
            grain.give_back(offset, size);
        }
        assert!(grain.is_empty());
    }
}
