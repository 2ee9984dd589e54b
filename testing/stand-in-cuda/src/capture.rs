//! Captures of streams, and the graphs that they make.

use std::thread::ThreadId;

use crate::abi::{Address, Handle, HostFunction, HostSource, HostTarget};
use crate::streams::Work;

/// Capture of a stream and of those that joined it.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Stream that began it and must end it.
    pub(crate) stream: Handle,
    pub(crate) mode: CaptureMode,
    pub(crate) thread: ThreadId,
    /// Whether something happened that a capture forbids.
    pub(crate) is_invalid: bool,
    pub(crate) graph: Graph,
}

/// Calls that a capture forbids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CaptureMode {
    /// Unsafe calls of every thread.
    Global,
    /// Unsafe calls of the thread of the capture.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl CaptureMode {
    /// Returns the mode with this number.
    pub(crate) fn new(number: u32) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].get(number as usize).copied()
    }
}

/// Recorded work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// Recorded piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Kernel(KernelNode),
    Copy(CopyNode),
    /// Copies of the rows of one copy.
    Rows(Vec<CopyNode>),
    Set(SetNode),
    Host(HostNode),
    Allocate,
    Free,
}

/// Recorded launch.
#[derive(Clone, Debug)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) pointers: Vec<Pointer>,
    /// Made-up time of the kernel.
    pub(crate) work: Work,
}

/// Argument of a kernel that looks like an address on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pointer {
    pub(crate) address: Address,
    pub(crate) parameter: usize,
    /// Whether it is a part of a structure, whose numbers may look like an address.
    pub(crate) is_in_structure: bool,
    /// Whether the kernel may write through it.
    pub(crate) is_written: bool,
}

/// Recorded copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyNode {
    Up { to: Address, from: HostSource, size: usize },
    Down { to: HostTarget, from: Address, size: usize },
    Within { to: Address, from: Address, size: usize },
}

/// Recorded filling of memory with a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetNode {
    pub(crate) to: Address,
    pub(crate) value: u32,
    /// Bytes of the value.
    pub(crate) width: usize,
    pub(crate) count: usize,
}

/// Recorded call of a function of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNode {
    pub(crate) function: HostFunction,
    /// Argument, which is the program's own.
    pub(crate) data: usize,
}

impl Node {
    /// Returns the number of the kind (`CUgraphNodeType`).
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) | Self::Rows(_) => 1,
            Self::Set(_) => 2,
            Self::Host(_) => 3,
            Self::Allocate => 10,
            Self::Free => 11,
        }
    }
}
