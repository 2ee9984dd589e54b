//! Work that may run out of memory, and whose panic is an answer: some backends have no other way to say so.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use crate::step::is_out_of_memory;

thread_local! {
    static ATTEMPTS: Cell<u32> = const { Cell::new(0) };
}

/// Does `work`; a panic becomes what it said.
pub(crate) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    ATTEMPTS.set(ATTEMPTS.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    ATTEMPTS.set(ATTEMPTS.get() - 1);
    done.map_err(|panic| told(&*panic))
}

/// What a panic said.
pub(crate) fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a thread of the step failed").to_string()
}

/// Whether `panic` only says that memory ran out, to a trainer who asked for it: it becomes an event, and a program need not
/// print it. For a panic hook.
///
/// ```
/// let print = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !plimsoll_train::is_answer(panic) {
///         print(panic);
///     }
/// }));
/// ```
pub fn is_answer(panic: &PanicHookInfo<'_>) -> bool {
    let text = panic.payload_as_str().unwrap_or_default();
    ATTEMPTS.get() > 0 && is_out_of_memory(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_where_somebody_asked_and_memory_is_what_it_is_about() {
        thread_local! {
            static SEEN: Cell<Option<bool>> = const { Cell::new(None) };
        }
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            SEEN.set(Some(is_answer(panic)));
            print(panic);
        }));
        let ran_out = || panic!("failed to allocate 3 GiB");
        assert_eq!(attempt(ran_out), Err::<(), _>("failed to allocate 3 GiB".to_string()));
        assert_eq!(SEEN.take(), Some(true));
        assert!(attempt(|| panic!("a bug, for this test")).is_err_and(|text: String| text.contains("bug")));
        assert_eq!(SEEN.take(), Some(false));
        assert!(catch_unwind(AssertUnwindSafe(ran_out)).is_err());
        assert_eq!(SEEN.take(), Some(false), "nobody asked");
        assert_eq!(attempt(|| 7), Ok(7));
        let _ = std::panic::take_hook();
    }
}
