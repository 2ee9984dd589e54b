//! The terminal as it was before the view, whatever happens.

use std::io::{self, Stdout, StdoutLock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

/// Mode of the terminal of the view that is open: a process has one terminal.
static OPEN: Mutex<Option<Arc<Mode>>> = Mutex::new(None);

/// The terminal in the mode of the view. Dropping it, and a panic of any thread, restores the terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    mode: Arc<Mode>,
}

/// Mode of the terminal. A panic hook stays installed, and does nothing after the view.
#[derive(Debug)]
struct Mode {
    /// Whether the terminal has the mode of the view.
    is_open: AtomicBool,
    /// Whether another thread has panicked, and its message is printed: the view may have the terminal again.
    may_return: AtomicBool,
    /// Thread of the view.
    thread: ThreadId,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let (is_open, may_return) = (AtomicBool::new(true), AtomicBool::new(false));
        let mode = Arc::new(Mode { is_open, may_return, thread: thread::current().id() });
        restore_at_panic(mode.clone());
        // The guard exists before the mode changes: what follows may fail halfway.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(mode.clone());
        let screen = Self { terminal, mode };
        enter()?;
        Ok(screen)
    }

    /// Returns the terminal to draw on; `None` while another thread prints the message of its panic.
    ///
    /// The message stays on the screen below the view, where it is found after the view.
    pub(super) fn terminal(&mut self) -> io::Result<Option<&mut Terminal<CrosstermBackend<Stdout>>>> {
        if self.mode.may_return.swap(false, Ordering::SeqCst) {
            self.mode.is_open.store(true, Ordering::SeqCst);
            enter()?;
            self.terminal.clear()?;
        }
        Ok(self.mode.is_open.load(Ordering::SeqCst).then_some(&mut self.terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.mode.restore();
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Restores the terminal if [`run_terminal`](super::run_terminal) has it, for a thread that ends the process at once.
/// Nothing is drawn while the result lives.
pub fn restore_terminal() -> StdoutLock<'static> {
    let output = io::stdout().lock();
    if let Some(mode) = &*OPEN.lock().unwrap_or_else(PoisonError::into_inner) {
        mode.restore();
    }
    output
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

impl Mode {
    /// Restores the terminal once. Errors have no remedy here, and the view is over.
    fn restore(&self) {
        if self.is_open.swap(false, Ordering::SeqCst) {
            let _ = disable_raw_mode();
            let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        }
    }
}

/// Restores the terminal before a panic prints its message, which would else be lost with the screen of the view.
fn restore_at_panic(mode: Arc<Mode>) {
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let was_open = mode.is_open.load(Ordering::SeqCst);
        mode.restore();
        earlier(panic);
        if was_open && thread::current().id() != mode.thread {
            mode.may_return.store(true, Ordering::SeqCst);
        }
    }));
}
