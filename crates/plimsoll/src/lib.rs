//! The program `plimsoll`: arguments, printing and exit codes.
//!
//! What the commands do is in `plimsoll-recipes`, which a program of your own can call without this one.

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

/// Runs the command of this process's arguments; `memory` counts what the process holds, and is its global allocator.
pub fn program(memory: &'static CountingAllocator) -> ExitCode {
    let cli = cli::Cli::parse();
    start_log(cli.verbose);
    keep_answers_quiet();
    match cli.command.run(memory, cli.verbose > 0) {
        Ok(code) => code,
        Err(failure) => failure.print(),
    }
}

/// The environment, less the variables whose names or values are not Unicode: none of ours is.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// A model that cannot be recorded, and memory that ran out, say so by a panic, which becomes a message of ours and is not
/// printed beside it.
fn keep_answers_quiet() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !plimsoll_tape::is_capturing() && !plimsoll_train::is_answer(panic) {
            print(panic);
        }
    }));
}

fn start_log(verbose: u8) {
    let level = ["error", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = tracing_subscriber::EnvFilter::try_from_env("PLIMSOLL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
