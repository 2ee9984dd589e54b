//! Opens a GPU before it is used, so that a failure has a message: backends panic, often in a thread of their own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Failure;

/// Largest number of characters of a reason in a message.
const REASON_CHARACTERS: usize = 300;

/// Runs `open`, which opens the device that messages call `name`. A panic in it, or in another thread at the same time, is not
/// printed: its message becomes the reason of the failure.
///
/// # Errors
/// If there was a panic.
pub(crate) fn open_quietly(name: &str, open: impl FnOnce()) -> Result<(), Failure> {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let print = take_hook();
    let record = reasons.clone();
    set_hook(Box::new(move |panic| {
        let reason = message(panic.payload());
        record.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
    }));
    // Nothing of a device that did not open is used afterwards.
    let opened = catch_unwind(AssertUnwindSafe(open));
    set_hook(print);
    let reasons = std::mem::take(&mut *reasons.lock().unwrap_or_else(PoisonError::into_inner));
    // The first panic is the cause, and others follow from it.
    match (opened, reasons.into_iter().next()) {
        (Ok(()), None) => Ok(()),
        (Err(payload), None) => Err(failure(name, &message(&*payload))),
        (_, Some(reason)) => Err(failure(name, &reason)),
    }
}

fn failure(name: &str, reason: &str) -> Failure {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = reason.chars().take(REASON_CHARACTERS).collect();
    let help =
        "`doctor` checks the driver and its libraries, `gpu-info` lists the GPUs; `--backend cpu` computes on the CPU";
    Failure::invalid(format!("{name} cannot be opened: {reason}"), help)
}

/// Returns the message of a panic.
fn message(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the driver gave no reason".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the hook of panics belongs to the process.
    #[test]
    fn panics_while_a_device_opens_become_the_reason_of_a_failure() {
        assert!(open_quietly("CUDA device 0", || ()).is_ok());
        let own = open_quietly("CUDA device 0", || panic!("cuInit failed with {}", 100)).unwrap_err();
        assert_eq!(own.to_string(), "CUDA device 0 cannot be opened: cuInit failed with 100");
        let of_another = open_quietly("CUDA device 1", || {
            let opened = std::thread::spawn(|| panic!("cannot load\n  libcuda.so")).join();
            opened.expect("the thread of the device ended");
        });
        let of_another = of_another.unwrap_err().to_string();
        assert_eq!(of_another, "CUDA device 1 cannot be opened: cannot load libcuda.so");
        // A thread that panics without harm to the caller: nothing can be computed all the same.
        let unnoticed = open_quietly("CUDA device 0", || drop(std::thread::spawn(|| panic!("no device")).join()));
        assert!(unnoticed.unwrap_err().to_string().ends_with("no device"));
    }
}
