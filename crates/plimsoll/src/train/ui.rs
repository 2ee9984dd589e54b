//! Ways to show a run while it trains: a progress bar, lines, JSON, or a view of the whole terminal.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use plimsoll_core::Record;
use plimsoll_monitor::RecordError;
use plimsoll_monitor::live::RunFollower;
use plimsoll_monitor::sample::Monitor;
use plimsoll_monitor::terminal::{Update, ViewOptions, restore_terminal, run_terminal};
use plimsoll_recipes::plan::RunPlan;
use plimsoll_recipes::training::{RunDisplay, Totals};
use plimsoll_train::Event;

use super::view::View;
use crate::signals::Signals;

/// Time between two samples of the machine for the view.
const SAMPLES: Duration = Duration::from_secs(1);

/// How a run is shown while it trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ui {
    /// A progress bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// A view of the whole terminal: where the time goes, memory, loss, GPUs, events. `q` closes it, and training goes on.
    Tui,
    /// A progress bar.
    Bars,
    /// A line every `training.log_interval` steps.
    Lines,
    /// One JSON object for each event on standard output, as in metrics.jsonl, and a last one with the summary of the run.
    Json,
}

/// Makes the display of the run in `folder`. A view of the whole terminal restores it also if `signals` end the process at
/// once.
///
/// # Errors
/// If the system installs no handler.
pub(crate) fn display(
    ui: Ui,
    plan: &RunPlan,
    folder: &Path,
    signals: &mut Signals,
) -> std::io::Result<Box<dyn RunDisplay>> {
    Ok(match ui {
        Ui::Tui if std::io::stdout().is_terminal() => {
            signals.restore_at_end(restore_terminal)?;
            Box::new(FullView::start(plan, folder))
        }
        Ui::Json => Box::new(JsonView { inner: View::new(plan, false) }),
        Ui::Lines => Box::new(View::new(plan, false)),
        Ui::Auto | Ui::Tui | Ui::Bars => Box::new(View::new(plan, true)),
    })
}

/// Returns the time in seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Prints each event as JSON on standard output, and what goes wrong on standard error.
struct JsonView {
    inner: View,
}

impl RunDisplay for JsonView {
    fn show(&mut self, event: &Event, totals: &Totals) {
        println!("{}", serde_json::json!(Record::new(now(), event)));
        if !matches!(event, Event::Step(_) | Event::Validated { .. }) {
            self.inner.show(event, totals);
        }
    }

    fn record_failed(&mut self, error: &RecordError) {
        self.inner.record_failed(error);
    }

    fn record_lost(&mut self, lines: usize) {
        self.inner.record_lost(lines);
    }
}

/// A view of the whole terminal on a thread of its own, which follows the record of the run as any other process could.
/// When it is closed, lines follow.
struct FullView {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Shown once the view is closed.
    lines: View,
}

impl FullView {
    fn start(plan: &RunPlan, folder: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (folder, ends) = (folder.to_path_buf(), is_over.clone());
        let view = move || {
            let monitor = Monitor::start(SAMPLES);
            let mut follower = RunFollower::new(&folder);
            let mut run = follower.start();
            let source = || {
                if ends.load(Ordering::Relaxed) {
                    return Update::End;
                }
                monitor.latest().into_iter().for_each(|sample| run.sample(sample));
                // The record may not exist yet.
                let _ = follower.refresh(&mut run);
                Update::State(Arc::new(run.clone()))
            };
            let options = ViewOptions::from_env(|name| std::env::var(name).ok());
            if let Err(error) = run_terminal(source, options) {
                eprintln!("warning: the view of the run is closed: {error}");
            }
        };
        let thread = Some(std::thread::spawn(view));
        Self { is_over, thread, lines: View::new(plan, false) }
    }

    fn is_open(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn close(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl RunDisplay for FullView {
    fn start(&mut self, done: u64) {
        self.lines.start(done);
    }

    fn finish(&mut self) {
        self.close();
        self.lines.finish();
    }

    fn show(&mut self, event: &Event, totals: &Totals) {
        if self.is_open() {
            return;
        }
        if self.thread.is_some() {
            self.close();
            eprintln!("the view is closed; training goes on. Ctrl-C stops it with a checkpoint");
        }
        self.lines.show(event, totals);
    }

    fn record_failed(&mut self, error: &RecordError) {
        if !self.is_open() {
            self.lines.record_failed(error);
        }
    }

    fn record_lost(&mut self, lines: usize) {
        self.lines.record_lost(lines);
    }
}

impl Drop for FullView {
    fn drop(&mut self) {
        self.close();
    }
}
