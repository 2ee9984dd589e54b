//! Errors of a device, sorted by their text into out-of-memory and others.

use plimsoll_core::{OutOfMemory, Stage};

/// Why a piece gave nothing.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Memory ran out: with less of it at once, it may work.
    Memory(OutOfMemory),
    /// Something else, which would happen again.
    Other(String),
}

impl Fault {
    /// What `text`, said by a device or a panic, means.
    pub(crate) fn from_message(stage: Stage, text: String) -> Self {
        match is_out_of_memory(&text) {
            true => Self::Memory(OutOfMemory { stage, reason: text }),
            false => Self::Other(text),
        }
    }
}

/// Whether `text`, said by a device or a panic, says that memory ran out.
pub(crate) fn is_out_of_memory(text: &str) -> bool {
    // CubeCL, wgpu and CUDA have no common type for it, and a panic has none at all.
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
