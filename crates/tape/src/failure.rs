//! Causes of a device's failure. Burn hands them on as text, so they are found in the words of the error that began it.
//!
//! No other part of a training reads that text. A test of a build with a GPU backend compares the words with CubeCL's own
//! error types. Only work that ran out of memory is tried again, in smaller parts.

pub use crate::bridge::{UnsupportedDevice, check_device};

/// Cause of a device's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureCause {
    /// The device has no memory left. The same work may succeed in smaller parts.
    OutOfMemory,
    /// A kernel cannot run: it does not compile, or it takes more shared memory or threads than the device has. The same work
    /// fails each time, however small.
    Kernel,
    /// The device answers no longer, and every later operation fails: a kernel read foreign memory, or the driver was reset.
    DeviceLost,
    /// Any other failure.
    Other,
}

/// Words of the errors that say that the device is gone.
const LOST: &[&str] = &[
    "the device is poisoned",
    "the device was poisoned",
    "device lost",
    "device is lost",
    "cuda_error_device_unavailable",
];
/// Words of the errors of a kernel that did not run.
const KERNEL: &[&str] = &[
    "a compilation error happened during launch",
    "too many resources were requested during launch",
    "an unknown error happened during launch",
    "was torn down before it could say what went wrong",
];
/// Words of the errors of memory that a device does not have.
const MEMORY: &[&str] = &[
    "out of memory",
    "out of device memory",
    "out-of-memory error",
    "cuda_error_out_of_memory",
    "not enough memory",
    "can't allocate",
    "failed to allocate",
    "couldn't map storage for a deferred allocation",
    "was never allocated: the reservation behind it failed",
    "memory location was never initialized",
];
/// Beginnings of what follows an error, and is not part of it: the calls that led to it.
const TRACES: &[&str] = &["backtrace", "asked at:"];
/// Beginnings of the lines with which the next error begins.
const CAUSES: &[&str] = &["caused by:", "the bytes were never written"];

impl FailureCause {
    /// Finds the cause in the message of a device or of a panic.
    ///
    /// An error of CubeCL names the work that it stopped, and what began it: `bytes were never written` with a kernel that
    /// does not compile below it. The cause is what began it. Of several, the one counts after which a retry makes least
    /// sense.
    ///
    /// ```
    /// use plimsoll_tape::failure::FailureCause;
    ///
    /// let message = "The bytes were never written (failure #1, still claiming 1 buffer(s))\nCaused by:\n  ";
    /// let with = |root: &str| FailureCause::from_message(&format!("{message}{root}"));
    /// assert_eq!(with("out of device memory allocating 1024 bytes"), FailureCause::OutOfMemory);
    /// assert_eq!(with("A compilation error happened during launch"), FailureCause::Kernel);
    /// ```
    pub fn from_message(message: &str) -> Self {
        let text = without_traces(message).to_lowercase();
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        match () {
            () if has(LOST) => Self::DeviceLost,
            () if has(KERNEL) => Self::Kernel,
            () if has(MEMORY) => Self::OutOfMemory,
            () => Self::Other,
        }
    }

    /// Returns what a person can do about it; `None` if that depends on the message.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory => Some("the work needs smaller parts, or less beside it"),
            Self::Kernel => Some(
                "this is no lack of memory, and a retry does not help: update the driver, compute in another precision, or \
                 remove the cache of compiled kernels",
            ),
            Self::DeviceLost => Some("start the program again and go on from the last checkpoint, which is whole"),
            Self::Other => None,
        }
    }
}

/// Returns the lines of an error without the calls that led to it, joined by spaces.
pub fn without_traces(message: &str) -> String {
    let mut is_trace = false;
    let mut lines = Vec::new();
    for line in message.lines().map(str::trim) {
        let start = line.to_lowercase();
        // A trace ends with the next cause.
        is_trace = !CAUSES.iter().any(|cause| start.starts_with(cause))
            && (is_trace || TRACES.iter().any(|trace| start.starts_with(trace)));
        if !is_trace && !line.is_empty() {
            lines.push(line);
        }
    }
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: FailureCause) {
        assert_eq!(FailureCause::from_message(message), expected, "{message}");
    }

    #[test]
    fn the_innermost_cause_counts() {
        let unwritten = |root: &str| {
            format!(
                "An error happened during execution\nCaused by:\n  Several failures at once\nCaused by:\n  The bytes were \
                 never written (failure #7, still claiming 3 buffer(s))\n  skipped `Matmul`: it needed memory 3, which \
                 carried the failure\nCaused by:\n  {root}\nAsked at:\n  0: cubecl::out of memory\n"
            )
        };
        check(
            &unwritten("An IO error happened\nCaused by:\n  out of device memory allocating 9 bytes\n"),
            FailureCause::OutOfMemory,
        );
        check(
            &unwritten("A launch error happened\nCaused by:\n  A compilation error happened during launch"),
            FailureCause::Kernel,
        );
        check(
            &unwritten(
                "A launch error happened\nCaused by:\n  Too many resources were requested during launch\nToo much shared memory requested.",
            ),
            FailureCause::Kernel,
        );
        check(&unwritten("The device is poisoned\nCaused by:\n  an illegal address"), FailureCause::DeviceLost);
        check(&unwritten("a bug in a layer"), FailureCause::Other);
        // One kernel that cannot run among buffers without memory: a retry meets it again.
        let both = unwritten("out of device memory allocating 9 bytes")
            + &unwritten("A compilation error happened during launch");
        check(&both, FailureCause::Kernel);
    }

    #[test]
    fn panics_of_other_backends_are_sorted_by_their_words() {
        check("failed to allocate 3 GiB", FailureCause::OutOfMemory);
        check("CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\"", FailureCause::OutOfMemory);
        check("Not enough memory left.", FailureCause::OutOfMemory);
        check("Parent device is lost", FailureCause::DeviceLost);
        check("A declared boundary tensor was never initialized or referenced", FailureCause::Other);
        check("index out of bounds", FailureCause::Other);
        check("", FailureCause::Other);
    }

    #[test]
    fn traces_are_left_out_up_to_the_next_cause() {
        let text = "A launch failed\nBacktrace:\n 0: a\n 1: b\nCaused by:\n  no memory\nAsked at:\n 0: c\n";
        assert_eq!(without_traces(text), "A launch failed Caused by: no memory");
    }
}

/// The words against the types that write them: a new version of CubeCL that changes them fails here.
#[cfg(all(test, feature = "cube"))]
mod typed {
    use cubecl_server::compiler::CompilationError;
    use cubecl_server::server::{IoError, LaunchError, ResourceLimitError, ServerError};

    use super::*;

    #[test]
    fn each_error_of_cubecl_has_its_cause() {
        let (size, reason) = (1 << 30, String::from("reason"));
        let kernel: [LaunchError; 4] = [
            CompilationError::Generic { reason: reason.clone(), backtrace: Default::default() }.into(),
            ResourceLimitError::SharedMemory { requested: 2, max: 1, backtrace: Default::default() }.into(),
            ResourceLimitError::Units { requested: 2, max: 1, backtrace: Default::default() }.into(),
            LaunchError::Unknown { reason: reason.clone(), backtrace: Default::default() },
        ];
        let memory: [ServerError; 4] = [
            LaunchError::OutOfMemory { reason, backtrace: Default::default() }.into(),
            IoError::OutOfMemory { size, backtrace: Default::default() }.into(),
            IoError::BufferTooBig { size, backtrace: Default::default() }.into(),
            IoError::PageSizesExhausted { size, backtrace: Default::default() }.into(),
        ];
        let kernel = kernel.map(|error| (ServerError::from(error), FailureCause::Kernel));
        let memory = memory.map(|error| (error, FailureCause::OutOfMemory));
        let torn = (ServerError::TornDown, FailureCause::Kernel);
        for (error, cause) in kernel.into_iter().chain(memory).chain([torn]) {
            assert_eq!(FailureCause::from_message(&error.to_string()), cause, "{error}");
            let chain = vec!["skipped `Matmul`: it needed memory 3, which carried the failure".into()];
            let root = Box::new(error);
            let later = ServerError::Unwritten { failure: 1, claimed: 2, chain, root, backtrace: Default::default() };
            assert_eq!(FailureCause::from_message(&later.to_string()), cause, "{later}");
            let several = ServerError::Several { errors: vec![later], backtrace: Default::default() };
            assert_eq!(FailureCause::from_message(&several.to_string()), cause, "{several}");
        }
    }
}
