//! Keys, signals and frames of the view.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::guard::Screen;
use super::options::ViewOptions;
use crate::Timestamp;
use crate::live::RunView;

/// Time between two questions to the source. Keys are answered at once.
const PERIOD: Duration = Duration::from_millis(200);

/// What a source says about the run.
#[derive(Clone, Debug)]
pub enum Update {
    /// There is nothing new.
    Unchanged,
    /// The run has a new state.
    State(Arc<RunView>),
    /// The view is to end.
    End,
}

/// Shows a run in the terminal until `q`, Esc or Ctrl-C is pressed, or `source` ends the view. `source` is asked five times
/// a second, on this thread. Nothing else may write to the terminal meanwhile.
///
/// The terminal is restored at the end, at an error, at a panic of this thread, and at the signals that
/// [`ViewOptions::handle_signals`] names. A panic of another thread shows its message on the screen below the view, and the
/// view goes on. No program can act on SIGKILL: after it, the command `reset` restores the terminal.
///
/// # Errors
/// If the terminal cannot be used, such as a pipe. The terminal is restored.
pub fn run_terminal(mut source: impl FnMut() -> Update, mut options: ViewOptions) -> io::Result<()> {
    let signals = Signals::listen(options.handle_signals)?;
    let mut screen = Screen::open()?;
    let mut run = Arc::new(RunView::default());
    loop {
        match source() {
            Update::Unchanged => {}
            Update::State(state) => run = state,
            Update::End => break,
        }
        // Ages grow also while the source is silent.
        Arc::make_mut(&mut run).set_now(Timestamp::from(SystemTime::now()).0);
        if let Some(terminal) = screen.terminal()? {
            terminal.draw(|frame| draw(frame, &run, &options))?;
        }
        if signals.last().is_some() {
            break;
        }
        if event::poll(PERIOD)? && answer(&event::read()?, &mut options) == Answer::Quit {
            break;
        }
    }
    drop(screen);
    signals.close();
    Ok(())
}

/// What an event of the terminal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Stay,
    Quit,
}

/// Changes the view as a key asks.
pub(super) fn answer(event: &Event, options: &mut ViewOptions) -> Answer {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return Answer::Stay };
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Answer::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return Answer::Quit,
        KeyCode::Char('?') => options.help = !options.help,
        _ => {}
    }
    Answer::Stay
}

/// Signals that end the process, and are held back until the terminal is restored.
struct Signals {
    #[cfg(unix)]
    last: Arc<std::sync::atomic::AtomicUsize>,
    /// Whether the view is over: signals then have their usual effect.
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have no signals that end a process"))]
    is_over: Arc<AtomicBool>,
}

#[cfg(unix)]
impl Signals {
    fn listen(is_wanted: bool) -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        use signal_hook::flag::{register_conditional_default, register_usize};

        let signals = Self { last: Arc::default(), is_over: Arc::default() };
        let wanted: &[i32] = if is_wanted { &[SIGHUP, SIGINT, SIGQUIT, SIGTERM] } else { &[] };
        for &signal in wanted {
            register_conditional_default(signal, signals.is_over.clone())?;
            register_usize(signal, signals.last.clone(), signal as usize)?;
        }
        Ok(signals)
    }

    fn last(&self) -> Option<i32> {
        let last = self.last.load(std::sync::atomic::Ordering::SeqCst);
        (last > 0).then_some(last as i32)
    }

    /// Ends the process as a signal that was held back asks, and lets later signals do what they do.
    fn close(self) {
        self.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        if let Some(signal) = self.last() {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen(_is_wanted: bool) -> io::Result<Self> {
        Ok(Self { is_over: Arc::default() })
    }

    fn last(&self) -> Option<i32> {
        None
    }

    fn close(self) {}
}
