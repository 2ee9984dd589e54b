//! Signals: training stops in order at the first one, and ends at once at the second; other commands end at the first one and
//! leave no half file.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use plimsoll_core::{counted, remove_drafts, writes};
use plimsoll_recipes::training::{EndAnswer, UnsavedSteps};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::{SigId, flag, iterator, low_level};

/// Time that a command has to react to a signal before another thread looks whether it can end the process.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks at the stop flag.
const POLL: Duration = Duration::from_millis(50);
/// Looks whether writes have ended, before a process ends without them.
const WRITE_POLLS: usize = 20;

/// What is called before a signal ends the process.
type Restore = Box<dyn Fn() + Send>;

/// State that SIGINT, SIGTERM and SIGHUP set.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    /// Stop flag: true after the first signal.
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of the last signal that the process received.
    last: Arc<AtomicUsize>,
    /// Handlers that end the process at the second signal.
    at_second: Vec<SigId>,
    /// Called before the process ends without its main thread.
    restore: Arc<Mutex<Option<Restore>>>,
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
    pub(crate) fn restore_at_end<T>(
        &mut self,
        restore: impl Fn() -> T + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        let again = restore.clone();
        *self.restore.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Box::new(move || std::mem::forget(again())));
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
        Builder::new().name("signals".into()).spawn(wait)?;
        for handler in self.at_second.drain(..) {
            low_level::unregister(handler);
        }
        Ok(())
    }

    /// Ends the process if a command that keeps nothing was asked to stop and does not within two seconds: it may plan, or
    /// compile kernels.
    pub(crate) fn end_if_busy(&self) -> std::io::Result<()> {
        let signals = self.clone();
        let wait = move || {
            signals.wait();
            sleep(GRACE);
            // A write that ends later would leave its file in a folder that is being removed.
            for _ in 0..WRITE_POLLS {
                if let Some(stopped) = writes::stop() {
                    std::mem::forget(stopped);
                    break;
                }
                sleep(POLL);
            }
            signals.end();
        };
        Builder::new().name("stop".into()).spawn(wait).map(drop)
    }

    /// Ends the process if a run was asked to stop and does not within two seconds, as while a GPU compiles the kernels of a
    /// micro-batch. Where steps would be lost, or while files are written, the run goes on to the end of the micro-batch, and
    /// a line says so. `message` is what to print after the step that it is given; `None` before the run went on.
    pub(crate) fn end_if_stuck(
        &self,
        unsaved: Arc<UnsavedSteps>,
        message: impl Fn(Option<u64>) -> String + Send + 'static,
    ) -> std::io::Result<()> {
        let signals = self.clone();
        let wait = move || {
            signals.wait();
            sleep(GRACE);
            let mut has_said = false;
            loop {
                match unsaved.record_end() {
                    EndAnswer::Ended => return,
                    EndAnswer::Recorded(step) => {
                        signals.restore();
                        eprintln!("{}", message(step));
                        signals.end();
                    }
                    EndAnswer::NotNow(steps) if steps > 0 && !has_said => {
                        has_said = true;
                        let steps = counted(steps, "step");
                        eprintln!("stopping after this micro-batch, to save {steps}; a second signal ends at once");
                    }
                    EndAnswer::NotNow(_) => {}
                }
                sleep(POLL);
            }
        };
        Builder::new().name("stop".into()).spawn(wait).map(drop)
    }

    /// Waits for a signal. The stop flag alone may also say that the folder of the run is gone.
    fn wait(&self) {
        while self.last.load(Ordering::Relaxed) == 0 || !self.stop.load(Ordering::Relaxed) {
            sleep(POLL);
        }
    }

    fn restore(&self) {
        if let Some(restore) = &*self.restore.lock().unwrap_or_else(PoisonError::into_inner) {
            restore();
        }
    }

    /// Ends the process by the last signal, and removes what is half written.
    fn end(&self) {
        remove_drafts();
        low_level::exit(i32::from(self.exit_code()));
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
    Builder::new().name("signals".into()).spawn(end).map(drop)
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
