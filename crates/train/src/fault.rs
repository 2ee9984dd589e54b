//! Errors of a device, sorted by their text into out-of-memory and others.

use plimsoll_core::{OutOfMemory, Stage};

/// Failure of one micro-batch, or of one read from the device.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Out of memory: the work may succeed in smaller parts.
    Memory(OutOfMemory),
    /// Any other failure: a retry would fail again.
    Other(String),
}

impl Fault {
    /// Sorts the message of a device or of a panic into out-of-memory and other failures.
    pub(crate) fn from_message(stage: Stage, text: String) -> Self {
        match is_out_of_memory(&text) {
            true => Self::Memory(OutOfMemory { stage, reason: text }),
            false => Self::Other(text),
        }
    }
}

/// Returns whether the message of a device or of a panic means out of memory.
pub(crate) fn is_out_of_memory(text: &str) -> bool {
    // CubeCL, wgpu and CUDA share no error type for it, and a panic has no type at all, so the text decides.
    const SIGNS: [&str; 11] = [
        "out of memory",
        "out_of_memory",
        "outofmemory",
        "out of device memory",
        "needed memory",
        "not enough memory",
        "was never allocated",
        "was never initialized",
        "bytes were never written",
        "can't allocate",
        "failed to allocate",
    ];
    let lower = text.to_lowercase();
    SIGNS.iter().any(|sign| lower.contains(sign))
}
