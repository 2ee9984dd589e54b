//! Runs a check on its own thread, within its time limit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::check::{Check, CheckContext, Outcome};
use super::report::CheckReport;

/// Runs `check`, and returns after its time limit at the latest. The thread of a check that does not answer is left
/// behind: a call into a driver that hangs cannot be stopped from outside.
pub(super) fn execute(check: Check) -> CheckReport {
    let Check { id, title, limit, run } = check;
    let begin = Instant::now();
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        let context = CheckContext::new(limit);
        // The other side is gone after the time limit.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(|| run(&context))));
    };
    let outcome = match std::thread::Builder::new().name(format!("check {id}")).spawn(work) {
        Err(error) => Outcome::warn(format!("cannot start a thread for the check: {error}")),
        Ok(_) => match receiver.recv_timeout(limit) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Outcome::fail(format!("the check panicked: {}", message(&*panic))),
            Err(RecvTimeoutError::Timeout) => Outcome::warn(format!("no answer within {}", seconds(limit))),
            Err(RecvTimeoutError::Disconnected) => Outcome::fail("the check ended without an outcome"),
        },
    };
    CheckReport::new(id, title, outcome, begin.elapsed())
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
