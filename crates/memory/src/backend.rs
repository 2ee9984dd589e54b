//! Whose memory is asked for: the rules of a backend.

use plimsoll_tape::SimulatedDevice;
use serde::Serialize;

use crate::cube;

/// A backend, with what decides how it uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum BackendRules {
    /// Burn's CPU backend, where memory is the process's own.
    Flex {
        /// Threads that share an operation.
        threads: usize,
    },
    /// Burn's GPU backends.
    Cube {
        /// Whether operations on single values are joined to one kernel, and what lies between them is never written.
        fusion: bool,
    },
}

impl BackendRules {
    /// The CPU of this machine.
    pub fn host() -> Self {
        Self::Flex { threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// A card, with fusion on, as this workspace builds it.
    pub fn card() -> Self {
        Self::Cube { fusion: true }
    }

    /// What a recording must play.
    pub(crate) fn played(self) -> SimulatedDevice {
        match self {
            Self::Flex { .. } => SimulatedDevice::Cpu,
            Self::Cube { .. } => SimulatedDevice::Gpu,
        }
    }

    /// Sizes are multiples of so many bytes.
    pub(crate) fn grain(self) -> usize {
        match self {
            Self::Flex { .. } => 1,
            Self::Cube { .. } => cube::GRAIN,
        }
    }

    /// What the host keeps for each handle on a parameter, and for each operation that is on the tape. On a card it is
    /// not the card's memory.
    pub(crate) fn small_things(self) -> SmallThings {
        match self {
            Self::Flex { .. } => SmallThings { parameter: 2300, operation: 600 },
            Self::Cube { .. } => SmallThings::default(),
        }
    }
}

/// Bytes of what is no tensor: measured by making models of many small layers (docs/LOG.md, 2026-11-21).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SmallThings {
    /// Of a parameter: its handle, its name, its place on the tape.
    pub(crate) parameter: usize,
    /// Of an operation that waits for the backward pass.
    pub(crate) operation: usize,
}
