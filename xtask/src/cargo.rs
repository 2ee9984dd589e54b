//! Cargo called from inside `cargo run`: the same fingerprints as if a person had called it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// The package that brings in every dependency of the workspace, with the features that all crates together use.
pub(crate) const ONE_BUILD: &str = "one-build";

/// Returns the root of the workspace. `cargo run` is asked first, so that a moved checkout is still found.
pub(crate) fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().expect("xtask lies in a folder of the workspace").to_owned()
}

/// Returns the target directory: `cargo run` put this binary into `TARGET/<profile>/`, whatever set `TARGET`.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let xtask = env::current_exe().context("cannot find the path of xtask itself")?;
    Ok(xtask.ancestors().nth(2).context("xtask was not built into a target directory")?.to_owned())
}

/// Makes a cargo command in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_xtask(&mut command);
    command.current_dir(root());
    // A relative path was meant from where the person stands, not from the root.
    if let Some(target) = env::var_os("CARGO_TARGET_DIR")
        && let Ok(target) = std::path::absolute(target)
    {
        command.env("CARGO_TARGET_DIR", target);
    }
    command
}

/// Removes from the environment of `command` the variables that `cargo run` added for xtask.
///
/// Build scripts watch some of these variables (`CARGO_PKG_NAME` for one), so a nested build that kept them would
/// compile dependencies again after a plain `cargo build`, and a plain `cargo build` would compile them again after the
/// nested build.
pub(crate) fn forget_xtask(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_about_xtask) {
            command.env_remove(name);
        }
    }
    for name in ["LD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"] {
        if env::var_os(name).is_none() {
            continue;
        }
        let others = library_paths(name);
        match env::join_paths(&others) {
            Ok(joined) if !others.is_empty() => command.env(name, joined),
            _ => command.env_remove(name),
        };
    }
}

/// Returns the search path for libraries in the variable `name`, without what `cargo run` added for xtask.
pub(crate) fn library_paths(name: &str) -> Vec<PathBuf> {
    let paths = env::var_os(name).unwrap_or_default();
    env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty() && !added_by_cargo_run(path)).collect()
}

fn is_about_xtask(name: &str) -> bool {
    matches!(name, "CARGO" | "OUT_DIR" | "CARGO_CRATE_NAME" | "CARGO_BIN_NAME" | "CARGO_PRIMARY_PACKAGE")
        || name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
}

/// Returns whether `cargo run` added `path` to the search path for libraries: the path is an output folder of xtask, or
/// a library folder of the toolchain.
fn added_by_cargo_run(path: &Path) -> bool {
    let built = env::current_exe().ok().and_then(|xtask| Some(xtask.parent()?.to_owned()));
    let toolchain = env::var_os("CARGO").and_then(|cargo| Some(Path::new(&cargo).parent()?.parent()?.to_owned()));
    built.is_some_and(|dir| path.starts_with(dir)) || toolchain.is_some_and(|dir| path.starts_with(dir))
}

/// Returns whether `cargo NAME` exists on this machine, as a component or an installed command.
pub(crate) fn has_command(name: &str) -> bool {
    let mut ask = cargo();
    ask.args([name, "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    ask.status().is_ok_and(|status| status.success())
}

/// Returns the exit code of a finished child; 1 when a signal ended the child.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Replaces this process by `program`, so that signals and the exit code are the program's.
pub(crate) fn become_program(program: &Path, args: &[OsString]) -> Result<ExitCode> {
    become_command(call_of(program, args))
}

/// Makes the command that runs `program` as if a person had called it.
pub(crate) fn call_of(program: &Path, args: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    forget_xtask(&mut command);
    command
}

/// Replaces this process by the one that `command` starts.
pub(crate) fn become_command(mut command: Command) -> Result<ExitCode> {
    start(&mut command).with_context(|| format!("cannot start {}", command.get_program().display()))
}

#[cfg(unix)]
fn start(command: &mut Command) -> io::Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    // The program names itself in its hints by what the person typed.
    Err(command.arg0("cargo xtask").exec())
}

#[cfg(not(unix))]
fn start(command: &mut Command) -> io::Result<ExitCode> {
    command.status().map(code_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_which_variables_are_about_xtask() {
        for (name, expected) in [
            ("CARGO", true),
            ("CARGO_PKG_NAME", true),
            ("CARGO_MANIFEST_DIR", true),
            ("CARGO_HOME", false),
            ("CARGO_TARGET_DIR", false),
            ("CARGO_TERM_COLOR", false),
            ("CARGO_BUILD_JOBS", false),
        ] {
            assert_eq!(is_about_xtask(name), expected, "{name}");
        }
    }
}
