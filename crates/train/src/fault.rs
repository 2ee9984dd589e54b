//! Errors of a device, sorted by what can be done about them.

use plimsoll_core::{OutOfMemory, Stage};
use plimsoll_tape::failure::{FailureCause, without_traces};

/// Failure of one micro-batch, or of one read from the device.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Out of memory: the work may succeed in smaller parts.
    Memory(OutOfMemory),
    /// Any other failure, with its cause: a retry would fail again.
    Other(FailureCause, String),
}

impl Fault {
    /// Sorts the message of a device or of a panic.
    pub(crate) fn from_message(stage: Stage, text: String) -> Self {
        match FailureCause::from_message(&text) {
            FailureCause::OutOfMemory => Self::Memory(OutOfMemory { stage, reason: without_traces(&text) }),
            cause @ (FailureCause::Kernel | FailureCause::DeviceLost) => Self::Other(cause, without_traces(&text)),
            cause => Self::Other(cause, text),
        }
    }
}
