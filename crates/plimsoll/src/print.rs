//! `print!`, `println!`, `eprint!` and `eprintln!` that never panic: in this crate they replace those of the standard
//! library.
//!
//! A reader can end early (`transcribe | head`), a disk can be full, a terminal can be closed. Messages on standard error
//! are then lost. When standard output fails, a command that only prints ends; a command whose result is files, such as
//! `train`, goes on without printing.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints to standard output, as `std::print!` does, but never panics.
macro_rules! print {
    ($($text:tt)*) => { $crate::print::print_out(format_args!($($text)*)) };
}

/// Prints a line to standard output, as `std::println!` does, but never panics.
macro_rules! println {
    ($($text:tt)*) => { $crate::print::print_out(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard error, as `std::eprint!` does, but never panics.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print::print_error(format_args!($($text)*)) };
}

/// Prints a line to standard error, as `std::eprintln!` does, but never panics.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::print_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Exit code of a command that ended because its output is no longer read: 128 plus the number of SIGPIPE, as shells show
/// `grep` in the same place.
const NOT_READ: u8 = 141;
/// Exit code of a command whose output cannot be written.
const NOT_WRITTEN: u8 = 1;

/// Whether the command goes on after its output cannot be written.
static GOES_ON: AtomicBool = AtomicBool::new(false);
/// Whether standard output is kept for the file that the command writes.
static IS_KEPT: AtomicBool = AtomicBool::new(false);
/// Whether standard output has failed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Makes this command go on in silence if its output cannot be written. For commands whose result is files.
pub(crate) fn go_on_without_output() {
    GOES_ON.store(true, Ordering::Relaxed);
}

/// Keeps standard output for a file that the command writes there: from now on `print!` prints to standard error.
pub(crate) fn keep_output_for_file() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// Returns whether text on standard output may have colors: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn uses_color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Writes `bytes` to standard output. If they cannot be written, the process ends, or goes on in silence: see
/// [`go_on_without_output`].
pub(crate) fn write_out(bytes: &[u8]) {
    print_with(|out| out.write_all(bytes));
}

/// Writes what is still waiting for standard output, such as the next part of a stream.
pub(crate) fn flush_out() {
    print_with(|out| out.flush());
}

/// Prints to standard output, or to standard error if the output is a file; the function behind `print!`.
pub(crate) fn print_out(text: Arguments<'_>) {
    match IS_KEPT.load(Ordering::Relaxed) {
        true => print_error(text),
        false => print_with(|out| out.write_fmt(text)),
    }
}

/// Prints to standard error; the function behind `eprint!`. A message that cannot be written is lost.
pub(crate) fn print_error(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    if HAS_FAILED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    let written = write(&mut out);
    drop(out);
    if let Err(code) = outcome(written) {
        std::process::exit(i32::from(code));
    }
}

/// Writes the rest of standard output, and returns the exit code of a command that ended with `code`: another one if its
/// output cannot be written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    if HAS_FAILED.load(Ordering::Relaxed) {
        return code;
    }
    match outcome(io::stdout().lock().flush()) {
        Ok(()) => code,
        Err(failed) => ExitCode::from(failed),
    }
}

/// Returns the exit code with which the process ends after `written`, if it ends.
fn outcome(written: io::Result<()>) -> Result<(), u8> {
    let Err(error) = written else { return Ok(()) };
    HAS_FAILED.store(true, Ordering::Relaxed);
    if GOES_ON.load(Ordering::Relaxed) {
        return Ok(());
    }
    if error.kind() == ErrorKind::BrokenPipe {
        return Err(NOT_READ);
    }
    eprintln!("error: cannot write the output: {error}");
    Err(NOT_WRITTEN)
}
