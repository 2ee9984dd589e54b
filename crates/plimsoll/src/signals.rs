//! Signals: training stops in order at the first one, and ends at once at the second; other commands end at the first one and
//! leave no half file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll_core::remove_drafts;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::{SigId, flag, iterator, low_level};

/// State that SIGINT, SIGTERM and SIGHUP set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Stop flag: true after the first signal.
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of the last signal that the process received.
    last: Arc<AtomicUsize>,
    /// Handlers that end the process at the second signal.
    at_second: Vec<SigId>,
}

impl Signals {
    /// Installs the handlers of SIGINT, SIGTERM and SIGHUP. SIGHUP stays ignored if it is, as under `nohup`.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let mut signals = Self::default();
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the check comes before the flag that the same signal sets.
            signals.at_second.push(flag::register_conditional_shutdown(signal, exit_code(signal), asked.clone())?);
            flag::register(signal, asked.clone())?;
            signals.stop_at(signal)?;
        }
        // A terminal that closes sends it twice, by the shell and by the system, and often a SIGTERM too: it is never the
        // second signal that ends the process at once.
        if !is_ignored(SIGHUP) {
            signals.stop_at(SIGHUP)?;
        }
        Ok(signals)
    }

    /// Calls `restore` before a signal ends the process at once: the second SIGINT or SIGTERM, and SIGQUIT. What `restore`
    /// returns lives until the end.
    pub(crate) fn restore_at_end<T>(&mut self, restore: impl Fn() -> T + Send + 'static) -> std::io::Result<()> {
        let mut ending = iterator::Signals::new([SIGINT, SIGTERM, SIGQUIT])?;
        let wait = move || {
            let mut is_asked = false;
            for signal in &mut ending {
                if signal == SIGQUIT || std::mem::replace(&mut is_asked, true) {
                    let _restored = restore();
                    if signal == SIGQUIT {
                        let _ = low_level::emulate_default_handler(signal);
                    }
                    low_level::exit(exit_code(signal));
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait)?;
        for handler in self.at_second.drain(..) {
            low_level::unregister(handler);
        }
        Ok(())
    }

    /// Makes `signal` set the stop flag.
    fn stop_at(&self, signal: i32) -> std::io::Result<()> {
        flag::register_usize(signal, self.last.clone(), signal as usize)?;
        flag::register(signal, self.stop.clone())?;
        Ok(())
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

/// Makes SIGINT, SIGTERM and SIGHUP remove what is half written before they end the process, as they would without this. A
/// signal stays ignored if it is.
pub(crate) fn end_without_drafts() -> std::io::Result<()> {
    let handled = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut received = iterator::Signals::new(handled)?;
    let end = move || {
        if let Some(signal) = received.forever().next() {
            remove_drafts();
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(end).map(drop)
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, as on a full disk. SIGXFSZ would end the process.
pub(crate) fn write_errors_beyond_limits() -> std::io::Result<()> {
    // A handler is enough: nothing reads the flag.
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Returns whether this process was started with `signal` ignored. Known on Linux only; elsewhere it counts as not ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}
