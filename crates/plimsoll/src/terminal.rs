//! Messages, progress bars, and the exit codes of failures.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_recipes::reporter::{Level, Progress, Reporter, Silent};
use plimsoll_recipes::{Failure, FailureKind};

/// Exit code of a command that failed while it ran.
const FAILED: u8 = 1;
/// Exit code of wrong usage, configuration or input.
const INVALID: u8 = 2;

/// Printing of a failure, with the exit code that it stands for.
pub(crate) trait ExitCodeExt {
    /// Prints the message of the failure on standard error and returns the exit code.
    fn print(&self) -> ExitCode;

    /// Returns the exit code.
    fn exit_code(&self) -> ExitCode;
}

impl ExitCodeExt for Failure {
    fn print(&self) -> ExitCode {
        eprintln!("{:?}", self.report());
        self.exit_code()
    }

    fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind() {
            FailureKind::Invalid => INVALID,
            FailureKind::Failed => FAILED,
        })
    }
}

/// Exit code of `memtest` and `optimize` if the run does not fit into memory.
pub(crate) const DOES_NOT_FIT: u8 = 3;

/// A reporter that prints to standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal;

impl Reporter for Terminal {
    fn line(&self, level: Level, text: &str) {
        match level {
            Level::Info => eprintln!("{text}"),
            Level::Note => eprintln!("note: {text}"),
            Level::Warning => eprintln!("warning: {text}"),
        }
    }

    fn progress(&self, label: &str, length: Option<u64>) -> Box<dyn Progress> {
        let bar = match length {
            Some(length) => bar(label, length),
            None => spinner(label),
        };
        Box::new(Bar(bar))
    }
}

/// A reporter of one process of a run, by its rank: the first one prints as [`Terminal`], the others only warnings, with
/// their rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessReporter(pub(crate) usize);

impl Reporter for ProcessReporter {
    fn line(&self, level: Level, text: &str) {
        match (self.0, level) {
            (0, _) => Terminal.line(level, text),
            (rank, Level::Warning) => Terminal.line(level, &format!("process {rank}: {text}")),
            _ => {}
        }
    }

    fn progress(&self, label: &str, length: Option<u64>) -> Box<dyn Progress> {
        match self.0 {
            0 => Terminal.progress(label, length),
            _ => Box::new(Silent),
        }
    }
}

/// A progress bar that is removed from the terminal when dropped.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Makes a progress bar with `length` units; hidden if standard error is not a terminal.
pub(crate) fn bar(label: &str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {eta} left").expect("the template is valid");
    ProgressBar::new(length).with_style(style).with_message(label.to_owned())
}

/// Makes a spinner for work of unknown length; hidden if standard error is not a terminal.
pub(crate) fn spinner(label: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Makes a progress bar for reading `count` recordings; hidden for a single recording.
pub(crate) fn reading_bar(count: usize) -> ProgressBar {
    if count < 2 { ProgressBar::hidden() } else { bar("reading recordings", count as u64) }
}
