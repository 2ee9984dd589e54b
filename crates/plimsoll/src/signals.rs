//! Signals: the first asks for an orderly end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What the signals have asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Set once a signal came.
    pub(crate) stop: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the check comes before the flag that the same signal sets.
            flag::register_conditional_shutdown(signal, exit_code(signal), signals.stop.clone())?;
            flag::register(signal, signals.stop.clone())?;
            flag::register_usize(signal, signals.which.clone(), signal as usize)?;
        }
        Ok(signals)
    }

    /// The exit code of the signal that came.
    pub(crate) fn exit_code(&self) -> u8 {
        exit_code(self.which.load(Ordering::Relaxed) as i32) as u8
    }
}

/// The shell's convention.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}
