//! Cargo called from inside `cargo run`: the same fingerprints as if a person had called it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

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

/// Builds one executable and returns its path, or the exit code of cargo if the build fails. Prints nothing when the
/// executable was up to date.
pub(crate) fn build_executable<S: AsRef<OsStr>>(args: &[S]) -> Result<Result<PathBuf, ExitCode>> {
    let mut command = cargo();
    command.arg("build").args(args).arg("--message-format=json-render-diagnostics");
    if io::stderr().is_terminal() {
        // Through the pipe cargo would show neither its bar nor its colors.
        command.env("CARGO_TERM_PROGRESS_WHEN", "always").env("CARGO_TERM_PROGRESS_WIDTH", "80");
        if env::var_os("CARGO_TERM_COLOR").is_none() {
            command.env("CARGO_TERM_COLOR", "always");
        }
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
    let stderr = child.stderr.take().expect("stderr was piped above");
    let relay = std::thread::spawn(move || relay_without_finish(stderr, io::stderr()));
    let mut messages = String::new();
    child.stdout.take().expect("stdout was piped above").read_to_string(&mut messages).context("cannot read cargo")?;
    let status = child.wait().context("cannot wait for cargo")?;
    relay.join().expect("the relay does not panic").context("cannot show what cargo says")?;
    if !status.success() {
        return Ok(Err(code_of(status)));
    }
    match messages.lines().rev().find_map(executable) {
        Some(path) => Ok(Ok(path)),
        None => bail!("cargo built no executable"),
    }
}

/// Copies cargo's output, except the line that says that cargo has finished, so that the output of the program follows.
fn relay_without_finish(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let (mut buffer, mut line) = ([0; 4096], Vec::new());
    loop {
        let n_bytes = from.read(&mut buffer)?;
        if n_bytes == 0 {
            return to.write_all(&line);
        }
        for &byte in &buffer[..n_bytes] {
            line.push(byte);
            if byte == b'\n' || byte == b'\r' {
                let text = String::from_utf8_lossy(&line);
                match text.split_once("Finished") {
                    // What stands before it may be the order to wipe the progress bar off.
                    Some((before, after)) if after.contains(" profile [") => {
                        to.write_all(before.trim_end_matches(' ').as_bytes())?;
                        to.write_all(if before.contains('\x1b') { b"\x1b[0m" } else { b"" })?;
                    }
                    _ => to.write_all(&line)?,
                }
                line.clear();
            }
        }
        to.flush()?;
    }
}

/// Finds the path of the built executable in one of cargo's JSON messages; `None` if the message has none. A single
/// field is no reason to build a JSON library.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once(r#""executable":""#)?;
    let mut path = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(path.into()),
            '\\' => path.push(chars.next()?),
            char => path.push(char),
        }
    }
}

/// Returns the exit code of a finished child; 1 when a signal ended the child.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Replaces this process by `program`, so that signals and the exit code are the program's.
pub(crate) fn become_program(program: &Path, args: &[OsString]) -> Result<ExitCode> {
    become_program_with(program, args, &[])
}

/// Replaces this process by `program` with these variables in its environment.
pub(crate) fn become_program_with(
    program: &Path,
    args: &[OsString],
    variables: &[(&str, OsString)],
) -> Result<ExitCode> {
    let mut command = Command::new(program);
    command.args(args);
    forget_xtask(&mut command);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    start(&mut command).with_context(|| format!("cannot start {}", program.display()))
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
    fn finds_the_executable_in_a_message() {
        let check = |message: &str, expected: Option<&str>| {
            assert_eq!(executable(message), expected.map(PathBuf::from), "{message}");
        };
        check(
            r#"{"reason":"compiler-artifact","executable":"/t/debug/plimsoll","fresh":true}"#,
            Some("/t/debug/plimsoll"),
        );
        check(r#"{"executable":"C:\\t\\plimsoll.exe","fresh":true}"#, Some(r"C:\t\plimsoll.exe"));
        check(r#"{"reason":"compiler-artifact","executable":null}"#, None);
        check(r#"{"reason":"build-finished","success":true}"#, None);
    }

    #[test]
    fn leaves_out_the_finish_alone() {
        let check = |said: &str, shown: &str| {
            let mut out = Vec::new();
            relay_without_finish(said.as_bytes(), &mut out).expect("memory takes every byte");
            assert_eq!(String::from_utf8_lossy(&out), shown, "{said:?}");
        };
        check("    Finished `dev` profile [optimized] target(s) in 0.1s\n", "");
        check("   Compiling core v0.1.0\n    Finished `dev` profile [x]\n", "   Compiling core v0.1.0\n");
        check("warning: Finished is a word\n", "warning: Finished is a word\n");
        check(
            " Building [=> ] 1/2\r\x1b[K\x1b[1m    Finished\x1b[0m `dev` profile [x]\n",
            " Building [=> ] 1/2\r\x1b[K\x1b[1m\x1b[0m",
        );
        check("error: no newline", "error: no newline");
    }

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
