//! Sizes and counts of the books of a GPU.

/// Sizes in bytes and counts. Peaks are since the start, or since they were reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Memory of other processes.
    pub(crate) others: u64,
    /// Memory of the context.
    pub(crate) context: u64,
    /// Code of modules.
    pub(crate) code: u64,
    /// Memory set aside for stacks.
    pub(crate) stacks: u64,
    /// Memory that the program asked for and has not freed.
    pub(crate) asked: u64,
    /// Grains of allocations outside of the pool.
    pub(crate) granted: u64,
    /// Memory of the pool in use.
    pub(crate) pool_used: u64,
    /// Grains of the pool.
    pub(crate) pool_reserved: u64,
    /// Pinned memory of the host.
    pub(crate) pinned: u64,
    pub(crate) peak_held: u64,
    pub(crate) peak_own: u64,
    pub(crate) peak_asked: u64,
    pub(crate) peak_pool: u64,
    pub(crate) peak_pinned: u64,
    pub(crate) n_allocations: u64,
    pub(crate) n_frees: u64,
    /// Allocations that were refused, injected failures among them.
    pub(crate) n_refused: u64,
    /// Allocations that failed because the scenario says so.
    pub(crate) n_injected: u64,
    pub(crate) largest_refused: u64,
}

impl Tally {
    /// Raises the peaks to what there is now.
    pub(super) fn note_peaks(&mut self, held: u64, own: u64) {
        self.peak_held = self.peak_held.max(held);
        self.peak_own = self.peak_own.max(own);
        self.peak_asked = self.peak_asked.max(self.asked);
        self.peak_pool = self.peak_pool.max(self.pool_reserved);
    }

    /// Sets the peaks to what there is now.
    pub(super) fn reset_peaks(&mut self, held: u64, own: u64) {
        (self.peak_held, self.peak_own, self.peak_asked) = (held, own, self.asked);
        (self.peak_pool, self.peak_pinned) = (self.pool_reserved, self.pinned);
    }

    /// Adds pinned memory of the host.
    pub(crate) fn pin(&mut self, size: u64) {
        self.pinned += size;
        self.peak_pinned = self.peak_pinned.max(self.pinned);
    }

    /// Removes pinned memory of the host.
    pub(crate) fn unpin(&mut self, size: u64) {
        self.pinned = self.pinned.saturating_sub(size);
    }
}
