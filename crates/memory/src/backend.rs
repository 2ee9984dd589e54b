//! Whose memory is asked for: the rules of a backend.

use plimsoll_tape::Played;
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
    pub fn gpu() -> Self {
        Self::Cube { fusion: true }
    }

    /// What a recording must play.
    pub(crate) fn played(self) -> Played {
        match self {
            Self::Flex { .. } => Played::Host,
            Self::Cube { .. } => Played::Card,
        }
    }

    /// Sizes are multiples of so many bytes.
    pub(crate) fn alignment(self) -> usize {
        match self {
            Self::Flex { .. } => 1,
            Self::Cube { .. } => cube::ALIGNMENT,
        }
    }

    /// What the host keeps for each handle on a parameter, and for each operation that is on the tape. On a card it is
    /// not the card's memory.
    pub(crate) fn handle_bytes(self) -> HandleBytes {
        match self {
            Self::Flex { .. } => HandleBytes { parameter: 2300, operation: 600 },
            Self::Cube { .. } => HandleBytes::default(),
        }
    }
}

/// Bytes of what is no tensor: measured by making models of many small layers (docs/LOG.md, 2026-11-21).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleBytes {
    /// Of a parameter: its handle, its name, its place on the tape.
    pub(crate) parameter: usize,
    /// Of an operation that waits for the backward pass.
    pub(crate) operation: usize,
}
