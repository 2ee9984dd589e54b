//! The memory pools of CubeCL: how they divide GPU memory into pages, and how much of it a run reserves.
//!
//! Follows `memory_management` of `cubecl-server` 0.11.3. Small allocations have pages of their own. All other
//! allocations share pages that are one MiB larger than the largest allocation so far, and take the first hole that is
//! large enough. An allocation that is larger than the pages starts a new pool with larger pages. Empty pages of an old
//! pool are freed, empty pages of the current pool stay. (CubeCL also moves allocations off old pages when the device
//! is nearly full. Such moves are not modeled: a run that preallocates its pages has no old pages.)
//!
//! So the size of the first allocation decides the size of all pages, and a run chooses it (see `page`): few large pages
//! waste less than many pages that one tensor fills.

/// Size in bytes of a page for small allocations.
pub(crate) const SMALL_PAGE: u64 = 8 << 20;
/// Size in bytes of the largest allocation that counts as small.
pub(crate) const SMALL_MAX: u64 = 64 << 10;
/// Smallest page size in bytes for allocations that are not small.
const SMALLEST_PAGE: u64 = 2 << 20;
/// Bytes by which a page is larger than the allocation that it is made for. Page sizes are multiples of this number.
pub(crate) const SLACK: u64 = 1 << 20;

/// Position of an allocation in the pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) pool: u32,
    page: u32,
    start: u64,
    size: u64,
}

impl Slot {
    /// No position.
    pub(crate) const NONE: Self = Self { pool: u32::MAX, page: 0, start: 0, size: 0 };
}

/// Memory pools of a device. The first pool is for small allocations, the last pool for all other allocations. Pools
/// between these two are old and only free pages.
#[derive(Debug)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    /// Bytes of all pages.
    pub(crate) reserved: u64,
    /// Bytes of each page of new pools that stay free.
    pub(crate) spare: u64,
}

impl Default for Pools {
    fn default() -> Self {
        Self { pools: vec![Pool::new(SMALL_PAGE, 0), Pool::new(SMALLEST_PAGE, 0)], reserved: 0, spare: 0 }
    }
}

impl Pools {
    /// Reserves `size` bytes.
    pub(crate) fn reserve(&mut self, size: u64) -> Slot {
        self.free_old_pages();
        let mut pool = if size <= SMALL_MAX { 0 } else { self.pools.len() - 1 };
        if size > self.pools[pool].room() {
            let page_size = (size + self.spare + SLACK).next_multiple_of(SLACK);
            self.pools.push(Pool::new(page_size, self.spare));
            pool += 1;
        }
        let (page, start, added) = self.pools[pool].reserve(size);
        self.reserved += added;
        Slot { pool: pool as u32, page: page as u32, start, size }
    }

    /// Frees the allocation at `slot`.
    pub(crate) fn free(&mut self, slot: Slot) {
        self.pools[slot.pool as usize].pages[slot.page as usize].free(slot.start, slot.size);
    }

    /// Frees the empty pages of all pools except the first, for small tensors, and the newest.
    fn free_old_pages(&mut self) {
        let last = self.pools.len() - 1;
        self.reserved -= self.pools[1..last].iter_mut().map(Pool::release_empty).sum::<u64>();
    }

    /// Frees all empty pages, as a cleanup does.
    pub(crate) fn release_empty(&mut self) {
        self.reserved -= self.pools.iter_mut().map(Pool::release_empty).sum::<u64>();
    }
}

#[derive(Debug)]
struct Pool {
    page_size: u64,
    /// Bytes of each page that stay free.
    spare: u64,
    pages: Vec<Page>,
}

impl Pool {
    fn new(page_size: u64, spare: u64) -> Self {
        Self { page_size, spare, pages: Vec::new() }
    }

    /// Returns the bytes of a page that allocations may take.
    fn room(&self) -> u64 {
        self.page_size - self.spare
    }

    /// Frees the empty pages, which are not used again. Returns the bytes that they had.
    fn release_empty(&mut self) -> u64 {
        let (page_size, room) = (self.page_size, self.room());
        let mut freed = 0;
        for page in self.pages.iter_mut().filter(|page| page.holes == [(0, room)]) {
            page.holes.clear();
            page.most = 0;
            freed += page_size;
        }
        freed
    }

    /// Reserves `size` bytes. Returns the page, the start on the page, and the bytes by which the reserved memory grew.
    fn reserve(&mut self, size: u64) -> (usize, u64, u64) {
        for (index, page) in self.pages.iter_mut().enumerate() {
            if let Some(start) = page.reserve(size) {
                return (index, start, 0);
            }
        }
        let mut page = Page { holes: vec![(0, self.room())], most: self.room() };
        let start = page.reserve(size).unwrap_or_default();
        self.pages.push(page);
        (self.pages.len() - 1, start, self.page_size)
    }
}

/// A page of memory: its free ranges (holes), each with its start and its length, in the order of their starts.
#[derive(Debug)]
struct Page {
    holes: Vec<(u64, u64)>,
    /// Upper bound of the length of the longest hole. The bound becomes exact when a search fails.
    most: u64,
}

impl Page {
    fn reserve(&mut self, size: u64) -> Option<u64> {
        if self.most < size {
            return None;
        }
        let Some(index) = self.holes.iter().position(|&(_, length)| length >= size) else {
            self.most = self.holes.iter().map(|&(_, length)| length).max().unwrap_or_default();
            return None;
        };
        let (start, length) = self.holes[index];
        match length > size {
            true => self.holes[index] = (start + size, length - size),
            false => {
                self.holes.remove(index);
            }
        }
        Some(start)
    }

    fn free(&mut self, start: u64, size: u64) {
        let index = self.holes.partition_point(|&(hole, _)| hole < start);
        let meets_before = index > 0 && self.holes[index - 1].0 + self.holes[index - 1].1 == start;
        let meets_after = self.holes.get(index).is_some_and(|&(hole, _)| hole == start + size);
        let length = match (meets_before, meets_after) {
            (true, true) => {
                let (_, after) = self.holes.remove(index);
                self.holes[index - 1].1 += size + after;
                self.holes[index - 1].1
            }
            (true, false) => {
                self.holes[index - 1].1 += size;
                self.holes[index - 1].1
            }
            (false, true) => {
                self.holes[index] = (start, self.holes[index].1 + size);
                self.holes[index].1
            }
            (false, false) => {
                self.holes.insert(index, (start, size));
                size
            }
        };
        self.most = self.most.max(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn larger_pages_replace_old_ones() {
        let mut pools = Pools::default();
        let first = pools.reserve(MIB);
        let large = pools.reserve(10 * MIB);
        assert_eq!(pools.reserved, 13 * MIB);
        // The old page has room, but it is not used any more.
        let second = pools.reserve(6 * MIB);
        assert_eq!((second.pool, pools.reserved), (large.pool, 24 * MIB));
        pools.free(first);
        pools.reserve(4096);
        assert_eq!(pools.reserved, SMALL_PAGE + 22 * MIB, "an empty old page is freed");
    }
}
