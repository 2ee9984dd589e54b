//! The command line program `plimsoll`: arguments, printing and exit codes.
//!
//! `plimsoll-recipes` does the work; call it from your own program. The commands are described by `plimsoll --help` and in
//! `docs/commands`.

// First, because its macros replace those of the standard library in the files after it.
#[macro_use]
mod print;

mod advise;
mod align;
mod backend_flag;
mod cli;
mod config;
mod corpus;
mod data;
mod doctor;
mod eval;
mod export;
mod gpu_info;
mod lm;
mod memtest;
mod model;
mod monitor;
mod number;
mod optimize;
mod output;
mod profile;
mod prove;
mod report;
mod run_flag;
mod runs;
mod say;
mod scale;
mod search;
mod signals;
mod stress;
mod terminal;
mod train;
mod transcribe;
mod trial;

use std::ffi::OsString;
use std::process::ExitCode;

use plimsoll_core::CountingAllocator;

use plimsoll_config::invocation::set_program;
use terminal::ExitCodeExt;

/// Parses the arguments of this process, runs the command, and returns its exit code.
///
/// `memory` must be the global allocator of the process: it counts the memory that training on the CPU uses. Call this
/// function first in `main`, before any thread starts: a build for CUDA may set `CUDA_PATH`.
pub fn program(memory: &'static CountingAllocator) -> ExitCode {
    // SAFETY: the program has not started a thread yet.
    #[cfg(feature = "cuda")]
    unsafe {
        plimsoll_recipes::cuda_path::set_cuda_path();
    }
    name_program();
    keep_lines_whole();
    let args: Vec<OsString> = std::env::args_os().map(cli::hyphenated).collect();
    let cli = match cli::parse(&args) {
        Ok(cli) => cli,
        Err(error) => return print_usage(&cli::with_hint(error, &args)),
    };
    start_log(cli.verbose);
    silence_handled_panics();
    // Without it, a limit on the size of files ends the process, and leaves what is half written.
    let _ = signals::write_errors_beyond_limits();
    if !cli.command.handles_signals() {
        // Without it, a signal can leave a half file, and nothing else is different.
        let _ = signals::end_without_drafts();
    }
    let code = cli.command.run(memory, cli.verbose > 0).unwrap_or_else(|failure| failure.print());
    print::finish(code)
}

/// Prints the help, the version, or the error of a wrong command line, and returns the exit code.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Without an output there is no one to report to.
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    let text = error.render();
    match print::uses_color() {
        true => print!("{}", text.ansi()),
        false => print!("{text}"),
    }
    print::finish(ExitCode::SUCCESS)
}

/// Makes hints name the program as it was typed. `cargo xtask` starts it under its own name.
fn name_program() {
    if let Some(typed) = std::env::args_os().next().filter(|typed| !typed.is_empty()) {
        set_program(typed.to_string_lossy());
    }
}

/// Prints messages without line ends of their own: paths and commands in them are copied as they are.
fn keep_lines_whole() {
    let handler = || miette::MietteHandlerOpts::new().wrap_lines(false).build();
    // It fails only where a hook is set already.
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler())));
}

/// Iterates over the environment variables with a Unicode name and value. All variables that Plimsoll reads are
/// Unicode.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Hides the messages of panics that Plimsoll catches and reports itself: an operation that cannot be recorded, and
/// device memory that ran out.
fn silence_handled_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !plimsoll_tape::is_capturing() && !plimsoll_train::is_reported_failure(panic) {
            print(panic);
        }
    }));
}

/// Starts the log on standard error, at the level of `verbose` or with the filter of PLIMSOLL_LOG.
fn start_log(verbose: u8) {
    let level = ["error", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = tracing_subscriber::EnvFilter::try_from_env("PLIMSOLL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // The log must not report on standard error that standard error cannot be written to: that panics.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.log_internal_errors(false).without_time().init();
}
