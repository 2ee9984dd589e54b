//! What a GPU did, in numbers.

/// Counts and sizes of the work of a GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) bytes_within: u64,
    pub(crate) bytes_set: u64,
    pub(crate) n_uploads: u64,
    pub(crate) n_reads: u64,
    pub(crate) n_copies: u64,
    pub(crate) n_sets: u64,
    /// Kernels that were launched outside of graphs.
    pub(crate) n_launches: u64,
    /// Kernels that graphs have launched.
    pub(crate) n_replayed_launches: u64,
    /// Graphs that were launched.
    pub(crate) n_replays: u64,
    pub(crate) n_syncs: u64,
    /// Pointers and copies to memory that is not allocated.
    pub(crate) n_wild: u64,
    pub(crate) n_modules: u64,
    pub(crate) n_refused_modules: u64,
    /// Largest stack of a thread.
    pub(crate) max_stack: u32,
    pub(crate) n_spilling_kernels: u64,
}

/// Numbers of graphs in the whole machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphCounts {
    /// Captures that have begun.
    pub(crate) n_captures: u64,
    /// Captures that have ended with a graph.
    pub(crate) n_captured: u64,
    /// Launches that were recorded and not run.
    pub(crate) n_captured_launches: u64,
    pub(crate) n_instantiated: u64,
}
