//! The contexts of a thread. A GPU has one context, and its handle is made from the number of the GPU.

use std::cell::RefCell;

use crate::abi::Handle;
use crate::capture::CaptureMode;
use crate::errors::{Answer, INVALID_CONTEXT};

/// Handles of contexts and pools: the kind above these bits, and the number of the GPU below.
const KIND_SHIFT: u32 = 40;
const CONTEXT: usize = 100;
const POOL: usize = 101;

thread_local! {
    /// Numbers of GPUs; the last one is current. `None` is a context that the thread has set to null.
    static STACK: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: RefCell<CaptureMode> = const { RefCell::new(CaptureMode::Global) };
}

/// Returns the handle of the context of a GPU.
pub(crate) fn context_handle(gpu: usize) -> Handle {
    (CONTEXT << KIND_SHIFT) + (gpu + 1) * 16
}

/// Returns the handle of the memory pool of a GPU.
pub(crate) fn pool_handle(gpu: usize) -> Handle {
    (POOL << KIND_SHIFT) + (gpu + 1) * 16
}

/// Returns the number of the GPU of a context.
pub(crate) fn gpu_of_context(handle: Handle) -> Option<usize> {
    gpu_of(handle, CONTEXT)
}

/// Returns the number of the GPU of a memory pool.
pub(crate) fn gpu_of_pool(handle: Handle) -> Option<usize> {
    gpu_of(handle, POOL)
}

fn gpu_of(handle: Handle, kind: usize) -> Option<usize> {
    let number = handle.checked_sub(kind << KIND_SHIFT)?;
    (number < 1 << KIND_SHIFT && number.is_multiple_of(16)).then_some(number / 16)?.checked_sub(1)
}

/// Returns the number of the GPU whose context is current.
pub(crate) fn current() -> Answer<usize> {
    STACK.with_borrow(|stack| stack.last().copied().flatten()).ok_or(INVALID_CONTEXT)
}

/// Replaces the current context.
pub(crate) fn set_current(gpu: Option<usize>) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(gpu);
    });
}

/// Makes a context current until it is popped.
pub(crate) fn push(gpu: usize) {
    STACK.with_borrow_mut(|stack| stack.push(Some(gpu)));
}

/// Makes the context current that was so before, and returns the number of the GPU of the other one.
pub(crate) fn pop() -> Answer<usize> {
    STACK.with_borrow_mut(Vec::pop).flatten().ok_or(INVALID_CONTEXT)
}

/// Returns which calls captures forbid this thread.
pub(crate) fn capture_mode() -> CaptureMode {
    CAPTURE_MODE.with_borrow(|mode| *mode)
}

/// Replaces which calls captures forbid this thread, and returns what it was.
pub(crate) fn exchange_capture_mode(mode: CaptureMode) -> CaptureMode {
    CAPTURE_MODE.replace(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_form_a_stack() {
        assert_eq!((current(), pop()), (Err(INVALID_CONTEXT), Err(INVALID_CONTEXT)));
        set_current(Some(1));
        push(2);
        assert_eq!(current(), Ok(2));
        set_current(Some(3));
        assert_eq!((pop(), current()), (Ok(3), Ok(1)));
        set_current(None);
        assert_eq!(current(), Err(INVALID_CONTEXT));
    }

    #[test]
    fn handles_have_a_kind() {
        for gpu in 0..16 {
            assert_eq!((gpu_of_context(context_handle(gpu)), gpu_of_pool(pool_handle(gpu))), (Some(gpu), Some(gpu)));
            assert_eq!((gpu_of_context(pool_handle(gpu)), gpu_of_pool(context_handle(gpu))), (None, None));
        }
        assert_eq!((gpu_of_context(0), gpu_of_context(context_handle(0) + 1)), (None, None));
    }
}
