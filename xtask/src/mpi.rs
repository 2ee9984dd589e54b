//! Compiles, lints and tests the build with MPI, where an MPI library and libclang are installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::cargo::{ONE_BUILD, cargo, code_of};

/// How to get what is missing.
const INSTALL: &str = "`sudo apt-get install libopenmpi-dev openmpi-bin libclang-dev` installs it";

/// The checks, in order. The package `one-build` makes them use what the other steps have compiled.
const CHECKS: &[&str] = &[
    "clippy -p plimsoll-mpi -p plimsoll --features plimsoll-mpi/mpi,plimsoll/mpi --all-targets --locked -- -D warnings",
    "test -p plimsoll-mpi --features plimsoll-mpi/mpi --tests --locked",
    "test -p plimsoll --features plimsoll/mpi --test it --locked -- clusters::with_mpi",
];

/// The program with which a storm of accidents runs. It is left in the build folder.
const PROGRAM: &str = "build -p plimsoll --features plimsoll/mpi --bin plimsoll --locked";

/// What takes longer: a run of four processes under accidents.
const STORM: &[&str] = &["run", "-p", "storm", "--locked", "--", "--steps", "40", "--no-hang"];

/// Runs the checks where they can run, as a step of all checks: says what is missing where they cannot.
pub(crate) fn step() -> Result<ExitCode> {
    if is_missing() { Ok(ExitCode::SUCCESS) } else { run_checks(CHECKS) }
}

/// Runs the storm where it can run, as a part of all long tests.
pub(crate) fn long_step() -> Result<ExitCode> {
    if is_missing() {
        return Ok(ExitCode::SUCCESS);
    }
    let code = run_checks(&[PROGRAM])?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    Ok(code_of(cargo().args(STORM).status().context("cannot start cargo")?))
}

/// Runs the checks. The exit code is 2 if something is missing for them.
pub(crate) fn run() -> Result<ExitCode> {
    if is_missing() { Ok(ExitCode::from(2)) } else { run_checks(CHECKS) }
}

/// Returns whether something is missing for the checks, and says what.
fn is_missing() -> bool {
    let missing = missing(starts("mpicc") && starts("mpirun"), has_libclang());
    if let Some(missing) = missing {
        println!("skipped: the build with MPI cannot be checked here: {missing} is missing; {INSTALL}");
    }
    missing.is_some()
}

/// Runs the checks, and stops at the first that fails.
fn run_checks(checks: &[&str]) -> Result<ExitCode> {
    for check in checks {
        let mut words = check.split(' ');
        let mut command = cargo();
        command.args(words.next()).args(["-p", ONE_BUILD]).args(words);
        let status = command.status().context("cannot start cargo")?;
        if !status.success() {
            return Ok(code_of(status));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what is missing for the build with MPI; `None` if nothing is.
fn missing(has_mpi: bool, has_libclang: bool) -> Option<&'static str> {
    match (has_mpi, has_libclang) {
        (true, true) => None,
        (false, true) => Some("an MPI library with its headers"),
        (true, false) => Some("libclang"),
        (false, false) => Some("an MPI library with its headers, and libclang,"),
    }
}

/// Returns whether a program starts.
fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns whether libclang is where its users look for it.
fn has_libclang() -> bool {
    let named = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/opt/llvm/lib"].map(PathBuf::from);
    let inside = |root: &Path| -> Vec<PathBuf> {
        fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let is_libclang = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libclang.") || name.starts_with("libclang-")
    };
    let folders = roots.iter().flat_map(|root| {
        let deeper = inside(root).into_iter().filter(|path| path.is_dir());
        deeper.flat_map(|path| [path.join("lib"), path]).collect::<Vec<_>>()
    });
    let mut all = named.into_iter().chain(roots.clone()).chain(folders);
    all.any(|folder| is_libclang(&folder) || inside(&folder).iter().any(|path| is_libclang(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(true, true), None);
        for (mpi, clang) in [(false, true), (true, false), (false, false)] {
            let text = missing(mpi, clang).unwrap();
            assert_eq!((text.contains("MPI"), text.contains("libclang")), (!mpi, !clang), "{text}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_does_not_start() {
        assert!(!starts("no such program"));
    }
}
