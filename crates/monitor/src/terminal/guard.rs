//! The terminal as it was before the view, whatever happens.

use std::io::{self, Stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

/// The terminal in the mode of the view. Dropping it, and a panic of any thread, restores the terminal.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether the terminal has the mode of the view. A panic hook stays installed, and does nothing after the view.
    is_open: Arc<AtomicBool>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let is_open = Arc::new(AtomicBool::new(true));
        restore_at_panic(is_open.clone());
        // The guard exists before the mode changes: what follows may fail halfway.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let screen = Self { terminal, is_open };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&self.is_open);
    }
}

/// Restores the terminal once. Errors have no remedy here, and the view is over.
fn restore(is_open: &AtomicBool) {
    if is_open.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// Restores the terminal before a panic prints its message, which would else be lost with the screen of the view.
fn restore_at_panic(is_open: Arc<AtomicBool>) {
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore(&is_open);
        earlier(panic);
    }));
}
