//! Runs work that may panic because memory ran out: some backends report out of memory only by a panic.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use plimsoll_tape::failure::FailureCause;

thread_local! {
    static ATTEMPTS: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work` and returns its result. If it panics, the error is the message of the panic.
pub(crate) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    ATTEMPTS.set(ATTEMPTS.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    ATTEMPTS.set(ATTEMPTS.get() - 1);
    done.map_err(|panic| panic_message(&*panic))
}

/// Returns the message of a panic payload.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a thread failed without a message").to_string()
}

/// Returns whether this panic is an out-of-memory failure that the trainer catches and reports as an
/// [`Event`](crate::Event).
///
/// A program need not print such a panic. Call this function in a panic hook.
///
/// ```
/// let print = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !plimsoll_train::is_reported_failure(panic) {
///         print(panic);
///     }
/// }));
/// ```
pub fn is_reported_failure(panic: &PanicHookInfo<'_>) -> bool {
    let text = panic.payload_as_str().unwrap_or_default();
    ATTEMPTS.get() > 0 && FailureCause::from_message(text) == FailureCause::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempted_out_of_memory_panic_is_a_reported_failure() {
        thread_local! {
            static SEEN: Cell<Option<bool>> = const { Cell::new(None) };
        }
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            SEEN.set(Some(is_reported_failure(panic)));
            print(panic);
        }));
        let record_out_of_memory = || panic!("failed to allocate 3 GiB");
        assert_eq!(attempt(record_out_of_memory), Err::<(), _>("failed to allocate 3 GiB".to_string()));
        assert_eq!(SEEN.take(), Some(true));
        assert!(attempt(|| panic!("a bug, for this test")).is_err_and(|text: String| text.contains("bug")));
        assert_eq!(SEEN.take(), Some(false));
        assert!(catch_unwind(AssertUnwindSafe(record_out_of_memory)).is_err());
        assert_eq!(SEEN.take(), Some(false), "not in an attempt");
        assert_eq!(attempt(|| 7), Ok(7));
        let _ = std::panic::take_hook();
    }
}
