//! The backends whose memory use is modeled.

use plimsoll_tape::SimulatedDevice;
use serde::Serialize;

use crate::cube;

/// A backend, with the properties that decide how it uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum BackendRules {
    /// Burn's CPU backend. Its tensors are in the memory of the process.
    Flex {
        /// CPU threads that share an operation.
        threads: usize,
    },
    /// Burn's GPU backends, which are built on CubeCL.
    Cube {
        /// Whether elementwise operations are fused into one kernel, which stores no intermediate results.
        fusion: bool,
    },
}

impl BackendRules {
    /// Returns the backend for the CPU of this machine, with all threads of the CPU.
    pub fn host() -> Self {
        Self::Flex { threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Returns the backend for a GPU with fusion, as this workspace builds it.
    pub fn gpu() -> Self {
        Self::Cube { fusion: true }
    }

    /// Returns the kind of device that the recording simulates.
    pub(crate) fn played(self) -> SimulatedDevice {
        match self {
            Self::Flex { .. } => SimulatedDevice::Cpu,
            Self::Cube { .. } => SimulatedDevice::Gpu,
        }
    }

    /// Returns the alignment in bytes: the backend rounds allocation sizes up to its multiples.
    pub(crate) fn alignment(self) -> usize {
        match self {
            Self::Flex { .. } => 1,
            Self::Cube { .. } => cube::ALIGNMENT,
        }
    }

    /// Returns the bytes of bookkeeping that a parameter and an operation need in host memory, beside the values of
    /// their tensors. Zero for a GPU backend: its bookkeeping is not in GPU memory.
    pub(crate) fn handle_bytes(self) -> HandleBytes {
        match self {
            Self::Flex { .. } => HandleBytes { parameter: 2300, operation: 600 },
            Self::Cube { .. } => HandleBytes::default(),
        }
    }
}

/// Bytes of host memory that Burn needs for bookkeeping, beside the values of tensors. Measured on models of many small
/// layers (docs/LOG.md, 2026-11-21).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleBytes {
    /// Bytes of bookkeeping for each parameter: handle, name and place on the tape.
    pub(crate) parameter: usize,
    /// Bytes of bookkeeping for each operation that waits for the backward pass.
    pub(crate) operation: usize,
}
