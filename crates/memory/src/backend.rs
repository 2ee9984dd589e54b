//! The backends whose memory use is modeled.

use burn::tensor::DType;
use plimsoll_tape::SimulatedDevice;
use serde::Serialize;

/// Alignment in bytes on CUDA: CubeCL rounds allocation sizes up to its multiples.
const CUDA_ALIGNMENT: usize = 512;

/// The same with Vulkan, Metal and WebGPU.
const WGPU_ALIGNMENT: usize = 256;

/// Smallest alignment in bytes of a row, where rows are padded.
const SMALLEST_ROW_ALIGNMENT: usize = 16;

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
        /// Whether each row of a tensor begins at an aligned address, with unused bytes before it (CUDA). A fused kernel
        /// leaves none.
        padded_rows: bool,
    },
}

impl BackendRules {
    /// Returns the backend for the CPU of this machine, with all threads of the CPU.
    pub fn host() -> Self {
        Self::Flex { threads: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Returns the backend for an NVIDIA GPU with fusion, as this workspace builds it.
    pub fn cuda() -> Self {
        Self::Cube { fusion: true, padded_rows: true }
    }

    /// Returns the backend for a GPU with Vulkan, Metal or WebGPU, with fusion, as this workspace builds it.
    pub fn wgpu() -> Self {
        Self::Cube { fusion: true, padded_rows: false }
    }

    /// Returns the kind of device that the recording simulates.
    pub(crate) fn played(self) -> SimulatedDevice {
        match self {
            Self::Flex { .. } => SimulatedDevice::Cpu,
            Self::Cube { .. } => SimulatedDevice::Gpu,
        }
    }

    /// Returns the bytes of a value of `dtype`. A recording for a GPU has truth values of four bytes, as Vulkan stores them.
    pub(crate) fn width(self, dtype: DType) -> usize {
        match (self, dtype) {
            (Self::Cube { padded_rows: true, .. }, DType::Bool(_)) => 1,
            _ => dtype.size(),
        }
    }

    /// Returns whether a group of threads sees what others wrote before, in the same kernel.
    pub(crate) fn shows_writes(self) -> bool {
        matches!(self, Self::Cube { padded_rows: true, .. })
    }

    /// Returns the alignment in bytes: the backend rounds allocation sizes up to its multiples.
    pub(crate) fn alignment(self) -> usize {
        match self {
            Self::Flex { .. } => 1,
            Self::Cube { padded_rows: true, .. } => CUDA_ALIGNMENT,
            Self::Cube { padded_rows: false, .. } => WGPU_ALIGNMENT,
        }
    }

    /// Returns the number of elements of `width` bytes from the start of a row of `row` elements to that of the next row, in
    /// a tensor that a kernel writes (`optimal_align` of `cubecl-runtime`).
    pub(crate) fn row_pitch(self, row: usize, width: usize) -> usize {
        match self {
            Self::Cube { padded_rows: true, .. } if row > 1 => {
                let align = (row * width).next_power_of_two().clamp(SMALLEST_ROW_ALIGNMENT, CUDA_ALIGNMENT);
                (row * width).next_multiple_of(align) / width
            }
            _ => row,
        }
    }

    /// Computes the bytes of a tensor of `shape` that a kernel writes, before they are rounded.
    pub(crate) fn output_bytes(self, shape: &[usize], width: usize) -> usize {
        let Some((&row, outer)) = shape.split_last() else { return width };
        outer.iter().product::<usize>() * self.row_pitch(row, width) * width
    }

    /// Returns the bytes of bookkeeping that a parameter and an operation need in host memory, beside the values of
    /// their tensors. Zero for a GPU backend: its bookkeeping is not in GPU memory.
    pub(crate) fn handle_bytes(self) -> HandleBytes {
        match self {
            Self::Flex { .. } => HandleBytes { parameter: 3000, operation: 900 },
            Self::Cube { .. } => HandleBytes::default(),
        }
    }
}

/// Bytes of host memory that Burn needs for bookkeeping, beside the values of tensors: round numbers with which no case
/// of `memtest --verify` is predicted 1 % too low
/// (docs/log/memory-accuracy.md, "What autodiff keeps for an operation").
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleBytes {
    /// Bytes of bookkeeping for each parameter, and again for each parameter of a rematerialized block: handle, name and
    /// place on the tape.
    pub(crate) parameter: usize,
    /// Bytes of bookkeeping for each operation that waits for the backward pass: one that depends on a parameter, outside of
    /// rematerialized blocks.
    pub(crate) operation: usize,
}
