//! Commands with a time limit, and commands that show that they still run.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Time between two looks at a child.
const TICK: Duration = Duration::from_millis(100);
/// Number of the last lines of a failed command that its error shows.
const LINES_SHOWN: usize = 20;

/// Returns what a command prints, or `None` if it does not start, fails, or runs for more than `limit`.
pub(super) fn output_within(command: &mut Command, limit: Duration) -> Option<String> {
    let log = LogFile::new().ok()?;
    command.stdin(Stdio::null()).stdout(log.file().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let status = wait(&mut child, limit, || {}).ok()??;
    status.success().then(|| log.text())
}

/// Returns whether a command succeeds within `limit`.
pub(super) fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    output_within(command, limit).is_some()
}

/// Runs a command, and prints on standard error what it does and since when. `detail` returns what to show of its
/// progress, if something is known; the last line of its output otherwise.
///
/// # Errors
/// If the command does not start or fails; the error then holds the last lines of its output.
pub(super) fn run(label: &str, command: &mut Command, detail: impl Fn() -> Option<String>) -> Result<String> {
    let log = LogFile::new()?;
    command.stdin(Stdio::null()).stdout(log.file()?).stderr(log.file()?);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut progress = Progress::new(label);
    let mut child = command.spawn().with_context(|| format!("cannot start `{program}`"))?;
    let status = wait(&mut child, Duration::MAX, || {
        progress.show(|| detail().or_else(|| log.last_line()));
    })?;
    let is_done = status.is_some_and(|status| status.success());
    progress.finish(if is_done { "done" } else { "failed" });
    let text = log.text();
    match is_done {
        true => Ok(text),
        false => {
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n  ");
            bail!("{label}: `{program}` failed\n  {last}")
        }
    }
}

/// Waits for a child and calls `each` at every tick. `None` if it ran for more than `limit` and was stopped.
fn wait(child: &mut Child, limit: Duration, mut each: impl FnMut()) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        each();
        sleep(TICK);
    }
}

/// The line on standard error that shows what runs. A terminal shows one line that changes; a file gets a line now and
/// then.
struct Progress<'a> {
    label: &'a str,
    start: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(label: &'a str) -> Self {
        let is_terminal = io::stderr().is_terminal();
        if !is_terminal {
            eprintln!("{label} ...");
        }
        Self { label, start: Instant::now(), shown: None, is_terminal }
    }

    fn show(&mut self, detail: impl Fn() -> Option<String>) {
        let interval = Duration::from_secs(if self.is_terminal { 1 } else { 10 });
        if self.shown.unwrap_or(self.start).elapsed() < interval {
            return;
        }
        self.shown = Some(Instant::now());
        let line = line(self.label, self.start.elapsed(), detail().as_deref().unwrap_or_default());
        match self.is_terminal {
            true => eprint!("\r\x1b[K{line}"),
            false => eprintln!("{line}"),
        }
        let _ = io::stderr().flush();
    }

    fn finish(&self, result: &str) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("{}", line(self.label, self.start.elapsed(), result));
    }
}

/// Formats a line of progress, short enough for a terminal of 100 columns.
fn line(label: &str, elapsed: Duration, detail: &str) -> String {
    let mut line = format!("{label}, {} s", elapsed.as_secs());
    if !detail.is_empty() {
        line.push_str(": ");
        line.push_str(detail);
    }
    let printable = line.chars().map(|char| if char.is_control() { ' ' } else { char });
    printable.take(99).collect()
}

/// File for the output of a command, removed when dropped. A pipe would have to be read while the command runs.
struct LogFile(PathBuf);

impl LogFile {
    fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-cuda-{}-{}.log", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self) -> Result<File> {
        File::options().append(true).open(&self.0).with_context(|| format!("cannot write {}", self.0.display()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.0).unwrap_or_default()).into_owned()
    }

    fn last_line(&self) -> Option<String> {
        let text = self.text();
        let last = text.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty())?;
        Some(last.to_owned())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_progress_stay_short_and_printable() {
        assert_eq!(line("unpacking", Duration::from_millis(2900), "libLLVM.a"), "unpacking, 2 s: libLLVM.a");
        assert_eq!(line("unpacking", Duration::ZERO, ""), "unpacking, 0 s");
        for length in 0..300 {
            let detail = "x\x1b[31m\t".repeat(length);
            let line = line("label", Duration::from_secs(length as u64), &detail);
            assert!(line.chars().count() < 100 && !line.chars().any(char::is_control), "{line:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn output_and_failure_are_kept() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let limit = Duration::from_secs(60);
        assert_eq!(output_within(&mut shell("echo one; echo two >&2"), limit).as_deref(), Some("one\n"));
        assert_eq!(output_within(&mut shell("echo one; exit 3"), limit), None);
        assert_eq!(output_within(&mut Command::new("no-such-command-here"), limit), None);
        assert_eq!(output_within(&mut shell("exec sleep 60"), Duration::ZERO), None);
        let error = run("a step", &mut shell("echo reason >&2; exit 1"), || None).unwrap_err().to_string();
        assert!(error.contains("a step") && error.contains("reason"), "{error}");
    }
}
