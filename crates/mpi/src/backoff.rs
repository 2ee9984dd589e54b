//! Waits between two looks: at first without giving up the core, then longer and longer.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// What to do between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Spin,
    Yield,
    Sleep(Duration),
}

/// An answer of a rank that is ready takes microseconds: shorter than going to sleep and waking up.
const SPIN: Duration = Duration::from_micros(20);
/// Others may need this core to come to their answer, if more ranks run than there are cores.
const YIELD: Duration = Duration::from_millis(2);
/// A sleep is a small part of the time already waited, and never long enough to be seen in a step.
const SLEEP_PART: u32 = 16;
const SLEEP_MAX: Duration = Duration::from_millis(2);

/// The pauses of one wait. They start anew whenever something moves.
pub(crate) struct Backoff {
    moved: u64,
    since: Instant,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { moved: 0, since: Instant::now() }
    }

    /// Pauses. `moved` is a number that changes when something has moved since the last pause.
    pub(crate) fn pause(&mut self, moved: u64) {
        if moved != self.moved {
            *self = Self { moved, since: Instant::now() };
            return;
        }
        match pause_after(self.since.elapsed()) {
            Pause::Spin => hint::spin_loop(),
            Pause::Yield => thread::yield_now(),
            Pause::Sleep(time) => thread::sleep(time),
        }
    }
}

/// Returns what to do after `idle` without any movement.
fn pause_after(idle: Duration) -> Pause {
    match idle {
        idle if idle < SPIN => Pause::Spin,
        idle if idle < YIELD => Pause::Yield,
        idle => Pause::Sleep((idle / SLEEP_PART).min(SLEEP_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        for (idle, expected) in [
            (0, Pause::Spin),
            (19, Pause::Spin),
            (20, Pause::Yield),
            (1_999, Pause::Yield),
            (2_000, Pause::Sleep(Duration::from_micros(125))),
            (3_600_000_000, Pause::Sleep(SLEEP_MAX)),
        ] {
            assert_eq!(pause_after(Duration::from_micros(idle)), expected, "{idle} us");
        }
    }
}
