//! Addresses of a GPU: which of them are free.

use std::collections::BTreeMap;

/// Address of the first GPU. No program on a common system has its own memory there, so that an address of the host is
/// never taken for one of a GPU.
const FIRST: u64 = 0x1000_0000_0000;

/// Addresses that each GPU has.
const SPAN: u64 = 0x0100_0000_0000;

/// Free addresses of a GPU, as ranges from their start to their size.
#[derive(Debug)]
pub(crate) struct Addresses {
    holes: BTreeMap<u64, u64>,
}

impl Addresses {
    /// Makes the addresses of the GPU with this number, all of them free: those for allocations in whole grains, and
    /// those for its pool. Apart from each other, grains begin at multiples of their size.
    pub(crate) fn of_grains_and_pool(gpu: usize) -> [Self; 2] {
        let first = FIRST + gpu as u64 * SPAN;
        [first, first + SPAN / 2].map(|start| Self { holes: BTreeMap::from([(start, SPAN / 2)]) })
    }

    /// Takes addresses from the first hole that is large enough.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let (start, room) = self.holes.iter().find(|(_, room)| **room >= size).map(|(start, room)| (*start, *room))?;
        self.holes.remove(&start);
        if room > size {
            self.holes.insert(start + size, room - size);
        }
        Some(start)
    }

    /// Gives addresses back, and joins neighboring holes.
    pub(crate) fn give_back(&mut self, mut start: u64, mut size: u64) {
        if let Some(after) = self.holes.remove(&(start + size)) {
            size += after;
        }
        let before = self.holes.range(..start).next_back().map(|(before, room)| (*before, *room));
        if let Some((before, room)) = before.filter(|(before, room)| before + room == start) {
            (start, size) = (before, room + size);
        }
        self.holes.insert(start, size);
    }
}

/// Returns the number of the GPU that an address would belong to.
pub(crate) fn gpu_of(address: u64) -> Option<usize> {
    address.checked_sub(FIRST).map(|offset| (offset / SPAN) as usize).filter(|gpu| *gpu < 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_joined_in_every_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let [_, mut addresses] = Addresses::of_grains_and_pool(3);
            let taken = [4096, 512, 8192].map(|size| (addresses.take(size).unwrap(), size));
            assert!(taken.iter().all(|(start, _)| gpu_of(*start) == Some(3)));
            for place in order {
                addresses.give_back(taken[place].0, taken[place].1);
            }
            assert_eq!(addresses.holes, Addresses::of_grains_and_pool(3)[1].holes);
        }
    }

    #[test]
    fn the_first_hole_that_is_large_enough_is_taken() {
        let [mut addresses, _] = Addresses::of_grains_and_pool(0);
        let [first, _, third, _] = [4096, 512, 1024, 512].map(|size| addresses.take(size).unwrap());
        addresses.give_back(first, 4096);
        addresses.give_back(third, 1024);
        assert_eq!([8192, 512, 4096].map(|size| addresses.take(size).unwrap() - first), [6144, 0, 14336]);
        assert_eq!(addresses.take(SPAN), None);
        assert_eq!([0, FIRST - 1, FIRST, FIRST + SPAN].map(gpu_of), [None, None, Some(0), Some(1)]);
    }
}
