//! Runs every test of the workspace, with nextest where it is installed, and a short training with the CUDA build.

use std::env;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::Misuse;
use crate::cargo::{ONE_BUILD, cargo, code_of, has_command};
use crate::mpi;
use crate::smoke;

/// Environment variable that enables the tests named `long_*`; without it they return at once.
const LONG: &str = "PLIMSOLL_LONG";

/// Environment variable with the number of tests that nextest runs at once.
const THREADS: &str = "NEXTEST_TEST_THREADS";

/// Option for the training on a GPU that does not exist, and nothing else.
const PAPER_GPU: &str = "--paper-gpu";

/// Arguments that choose what is compiled.
const TARGETS: [&str; 9] =
    ["--lib", "--bins", "--bin", "--tests", "--test", "--examples", "--example", "--all-targets", "--doc"];

/// Settings of `cargo xtask test`: the test runner, and the tests to run.
pub(crate) struct Wish {
    pub(crate) nextest: bool,
    pub(crate) long: bool,
    pub(crate) locked: bool,
    /// Further arguments of the user: a test name, `-p crate`, options of the runner.
    pub(crate) extra: Vec<OsString>,
}

/// Runs `cargo xtask test [--long] [extra]`, or `cargo xtask test --paper-gpu`.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode> {
    if args.iter().any(|arg| arg == PAPER_GPU) {
        return match args {
            [_] => smoke::run(),
            _ => Err(Misuse(format!("`cargo xtask test {PAPER_GPU}` takes nothing else")).into()),
        };
    }
    let mut wish = Wish::here();
    wish.extra = args.iter().filter(|arg| *arg != "--long").cloned().collect();
    wish.long |= wish.extra.len() < args.len();
    wish.fulfil()
}

impl Wish {
    /// Returns the settings by which this machine runs the tests: with nextest if it is installed.
    pub(crate) fn here() -> Self {
        Self {
            nextest: has_command("nextest"),
            long: env::var_os(LONG).is_some_and(|value| !value.is_empty()),
            locked: false,
            extra: Vec::new(),
        }
    }

    /// Runs the tests, then the examples in the documentation, then a training on a GPU that does not exist where the build
    /// with CUDA is present; stops at the first failure.
    pub(crate) fn fulfil(&self) -> Result<ExitCode> {
        for args in self.commands() {
            let mut command = cargo();
            command.args(&args);
            if self.long {
                command.env(LONG, "1");
            }
            if env::var_os(THREADS).is_none() {
                command.env(THREADS, threads().to_string());
            }
            let status = command.status().context("cannot start cargo")?;
            if !status.success() {
                return Ok(code_of(status));
            }
        }
        if self.extra.is_empty() {
            let code = smoke::run()?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
            if self.long {
                let code = mpi::long_step()?;
                if code != ExitCode::SUCCESS {
                    return Ok(code);
                }
            }
        }
        if !self.extra.is_empty() {
            println!("the examples in the documentation were left out: run them with `cargo xtask test`");
        }
        if !self.long {
            println!("long tests were skipped: run them with `cargo xtask test --long`");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Lists the arguments of the cargo commands, in order: the tests, then the examples in the documentation. Programs in
    /// `examples` are not linked for it; clippy compiles them.
    fn commands(&self) -> Vec<Vec<OsString>> {
        let mut tests: Vec<OsString> = if self.nextest { words("nextest run") } else { words("test") };
        tests.extend(self.common());
        if !self.extra.iter().any(|arg| TARGETS.iter().any(|target| arg == target)) {
            tests.push("--tests".into());
        }
        if self.nextest {
            // Two filters would mean "either", so one that a person wrote stands alone.
            let filters = ["-E", "--filterset", "--filter-expr"];
            if !self.long && !self.extra.iter().any(|arg| filters.iter().any(|filter| arg == filter)) {
                tests.extend(["-E".into(), "not test(/(^|::)long_/)".into()]);
            }
            tests.extend(self.extra.iter().cloned());
        } else {
            tests.extend(self.extra.iter().cloned());
            if !self.long {
                if !self.extra.iter().any(|arg| arg == "--") {
                    tests.push("--".into());
                }
                // libtest knows substrings only, and a bare `long_` would also skip `belong_to`.
                tests.extend(words("--skip ::long_"));
            }
        }
        if !self.extra.is_empty() {
            return vec![tests];
        }
        let mut documents = words("test --doc");
        documents.extend(self.common());
        vec![tests, documents]
    }

    fn common(&self) -> Vec<OsString> {
        let chosen = self.extra.iter().any(|arg| {
            let arg = arg.to_string_lossy();
            arg == "-p" || arg == "--package" || arg.starts_with("--package=")
        });
        // Beside the chosen crates, so that they are compiled with what the program was compiled with.
        let mut args = if chosen { vec!["-p".into(), ONE_BUILD.into()] } else { words("--workspace") };
        if self.locked {
            args.push("--locked".into());
        }
        args
    }
}

/// Returns the number of tests to run at once: one more than there are cores, because many wait for a program that waits for a disk.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get) + 1
}

fn words(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nextest: bool, long: bool, extra: &str, expected: &[&str]) {
        let extra = extra.split_whitespace().map(OsString::from).collect();
        let commands = Wish { nextest, long, locked: false, extra }.commands();
        let found: Vec<String> =
            commands.iter().map(|args| args.join(OsString::from(" ").as_os_str()).to_string_lossy().into()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn runs_the_tests_and_then_the_documents() {
        let documents = "test --doc --workspace";
        let (nextest, test) = ("nextest run --workspace --tests", "test --workspace --tests");
        check(true, true, "", &[nextest, documents]);
        check(true, false, "", &[&format!("{nextest} -E not test(/(^|::)long_/)"), documents]);
        check(false, true, "", &[test, documents]);
        check(false, false, "", &[&format!("{test} -- --skip ::long_"), documents]);
    }

    #[test]
    fn extra_arguments_choose_a_part() {
        check(true, true, "-p plimsoll-core units", &["nextest run -p one-build --tests -p plimsoll-core units"]);
        check(true, false, "-E test(units)", &["nextest run --workspace --tests -E test(units)"]);
        check(
            false,
            false,
            "--package=plimsoll-core --lib",
            &["test -p one-build --package=plimsoll-core --lib -- --skip ::long_"],
        );
        check(false, false, "units -- --nocapture", &["test --workspace --tests units -- --nocapture --skip ::long_"]);
    }

    #[test]
    fn locked_goes_to_both() {
        let wish = Wish { nextest: true, long: true, locked: true, extra: Vec::new() };
        assert!(wish.commands().iter().all(|args| args.iter().any(|arg| arg == "--locked")));
    }
}
