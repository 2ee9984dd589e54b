//! Signals: the first requests an orderly stop, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Flags that the handlers of SIGINT and SIGTERM set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Stop flag: true after the first signal.
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of the last signal that the process received.
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs the handlers of SIGINT and SIGTERM.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the check comes before the flag that the same signal sets.
            flag::register_conditional_shutdown(signal, exit_code(signal), signals.stop.clone())?;
            flag::register(signal, signals.stop.clone())?;
            flag::register_usize(signal, signals.last.clone(), signal as usize)?;
        }
        Ok(signals)
    }

    /// Returns the exit code for the last signal.
    pub(crate) fn exit_code(&self) -> u8 {
        exit_code(self.last.load(Ordering::Relaxed) as i32) as u8
    }
}

/// Returns the exit code for a signal by the convention of shells: 128 plus the number of the signal.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}
