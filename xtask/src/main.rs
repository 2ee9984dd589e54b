//! Builds and starts Plimsoll with the features that its device needs, and runs the checks of the workspace.
//!
//! It uses none of our crates, so it builds in seconds while the program takes minutes. It forwards a command that it
//! does not know to the program.

mod backend;
mod bench;
mod build;
mod cargo;
mod ci;
mod cuda;
mod forward;
mod help;
mod mpi;
mod paper_gpu;
mod smoke;
mod soak;
mod test;
mod tidy;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    dispatch(&args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(if error.is::<Misuse>() { 2 } else { 1 })
    })
}

fn dispatch(args: &[OsString]) -> Result<ExitCode> {
    let Some((command, rest)) = args.split_first() else { return Ok(help::print()) };
    let asks_for_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    match command.to_str() {
        Some("--help" | "-h") => Ok(help::print()),
        // `help train` is a question to the program.
        Some("help") if rest.is_empty() => Ok(help::print()),
        Some("test" | "tidy" | "ci" | "cuda" | "sample-docs") if asks_for_help => Ok(help::print()),
        Some("test") => test::run(rest),
        Some("tidy") => tidy::run(&texts(rest)),
        Some("sample-docs") => tidy::sample_docs::run(&texts(rest)),
        Some("ci") => ci::run(&texts(rest)),
        Some("cuda") => cuda::run(&texts(rest)),
        Some("paper-gpu") => match soak::asked(rest) {
            Some(rest) => soak::run(rest),
            None => paper_gpu::run(rest),
        },
        Some("bench") => bench::run(rest),
        _ => forward::run(args),
    }
}

fn texts(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Error of a wrong command line: exit code 2, as in shells and `clap`.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}
