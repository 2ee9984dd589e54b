//! The command line program `plimsoll`: arguments, printing and exit codes.
//!
//! `plimsoll-recipes` does the work; call it from your own program. The commands are described by `plimsoll --help` and in
//! `docs/commands`.

mod backend_flag;
mod cli;
mod config;
mod corpus;
mod data;
mod eval;
mod export;
mod gpu_info;
mod memtest;
mod model;
mod optimize;
mod runs;
mod say;
mod search;
mod signals;
mod terminal;
mod train;
mod transcribe;

use std::process::ExitCode;

use clap::Parser;
use plimsoll_core::CountingAllocator;

use terminal::ExitCodeExt;

/// Parses the arguments of this process, runs the command, and returns its exit code.
///
/// `memory` must be the global allocator of the process: it counts the memory that training on the CPU uses.
pub fn program(memory: &'static CountingAllocator) -> ExitCode {
    let cli = cli::Cli::parse();
    start_log(cli.verbose);
    silence_handled_panics();
    match cli.command.run(memory, cli.verbose > 0) {
        Ok(code) => code,
        Err(failure) => failure.print(),
    }
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
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
