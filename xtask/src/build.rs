//! Builds an executable, and shows how far the build is and how long it still takes.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, code_of};

/// Seconds that each crate of a cold build takes, as `cargo build --timings` measured them on two cores.
const TIMES: &str = include_str!("build_times.txt");
/// Crate that takes longest.
const LONGEST: &str = "burn-flex";
/// Seconds of a crate that the list does not name.
const SMALL: f64 = 0.7;
/// Builds that take less than this show nothing but their warnings: on a terminal, and elsewhere.
const SHORT: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(20)];
/// Time between two lines where the output is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Time between two drawings of the bar.
const TICK: Duration = Duration::from_millis(500);
/// Cores from which on more of them make a cold build no faster: crates wait for each other.
const MOST_CORES: usize = 10;
/// Number of characters of the bar.
const WIDTH: usize = 30;

/// Message of a running cargo.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// A crate was begun.
    Begun(String),
    /// A crate is done. `is_fresh`: it was done before this build.
    Done { name: String, is_fresh: bool },
    /// A line for the person, such as a warning.
    Line(String),
    /// Path of the executable.
    Executable(PathBuf),
}

/// Builds one executable and returns its path, or the exit code of cargo if the build fails. Prints nothing when the
/// executable was up to date.
pub(crate) fn build_executable<S: AsRef<OsStr>>(args: &[S]) -> Result<Result<PathBuf, ExitCode>> {
    let mut command = cargo();
    command.arg("build").args(args).arg("--message-format=json-render-diagnostics");
    let is_terminal = io::stderr().is_terminal();
    if is_terminal && env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
    let stdout = child.stdout.take().expect("stdout was piped above");
    let stderr = child.stderr.take().expect("stderr was piped above");
    let (sender, messages) = channel();
    let to_main = sender.clone();
    let readers = [
        std::thread::spawn(move || relay(stdout, artifact, &to_main)),
        std::thread::spawn(move || relay(stderr, |line| Some(status(line)), &sender)),
    ];
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let has_cuda = args.iter().any(|arg| arg.as_ref() == "cuda");
    let mut progress = Progress::new(TIMES, has_cuda, cores);
    let (mut bar, mut executable) = (Bar::new(is_terminal), None);
    loop {
        match messages.recv_timeout(TICK) {
            Ok(Message::Line(line)) => bar.print(&line)?,
            Ok(Message::Executable(path)) => executable = Some(path),
            Ok(Message::Begun(name)) => progress.begin(name),
            Ok(Message::Done { name, is_fresh }) => progress.finish(&name, is_fresh),
            Err(RecvTimeoutError::Timeout) => bar.draw(&progress)?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    bar.clear()?;
    let status = child.wait().context("cannot wait for cargo")?;
    for reader in readers {
        reader.join().expect("a reader does not panic").context("cannot read cargo")?;
    }
    if !status.success() {
        return Ok(Err(code_of(status)));
    }
    match executable {
        Some(path) => Ok(Ok(path)),
        None => bail!("cargo built no executable"),
    }
}

/// Sends what `read` finds in each line.
fn relay(from: impl Read, read: impl Fn(&str) -> Option<Message>, to: &Sender<Message>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        if let Some(message) = read(&String::from_utf8_lossy(&line)) {
            // The other side is gone only if the build ends early.
            let _ = to.send(message);
        }
        line.clear();
    }
    Ok(())
}

/// Reads one of cargo's JSON messages. A few fields are no reason to build a JSON library.
fn artifact(message: &str) -> Option<Message> {
    if !message.starts_with(r#"{"reason":"compiler-artifact""#) {
        return None;
    }
    if let Some(path) = text_after(message, r#""executable":""#) {
        return Some(Message::Executable(path.into()));
    }
    let (_, target) = message.split_once(r#""target":{"#)?;
    if target.starts_with(r#""kind":["custom-build"]"#) {
        return None;
    }
    let name = text_after(target, r#""name":""#)?.replace('_', "-");
    Some(Message::Done { name, is_fresh: message.contains(r#""fresh":true"#) })
}

/// Returns the JSON text that follows `field`.
fn text_after(message: &str, field: &str) -> Option<String> {
    let (_, rest) = message.split_once(field)?;
    let mut text = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            char => text.push(char),
        }
    }
}

/// Reads a line that cargo writes for a person.
fn status(line: &str) -> Message {
    let plain = without_colors(line);
    let mut words = plain.split_whitespace();
    match (words.next(), words.next()) {
        (Some("Compiling"), Some(name)) if plain.starts_with(' ') => Message::Begun(name.into()),
        // The output of the program follows.
        (Some("Finished"), _) if plain.starts_with(' ') => Message::Begun(String::new()),
        _ => Message::Line(line.into()),
    }
}

/// Removes the orders for colors.
fn without_colors(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// How far a build is.
struct Progress {
    /// Seconds of each crate that is not done, on two cores.
    left: BTreeMap<&'static str, f64>,
    /// Crates that are being compiled.
    running: BTreeSet<String>,
    /// Seconds that this build has compiled, as the list has them, and when it began with the first of them.
    compiled: f64,
    begun: Option<Instant>,
    cores: usize,
}

impl Progress {
    /// Begins with the list `times`: a line for each crate with its seconds, after `cuda` if only a build with CUDA has it.
    fn new(times: &'static str, has_cuda: bool, cores: usize) -> Self {
        let crate_of = |line: &'static str| {
            let (only_cuda, line) = line.strip_prefix("cuda ").map_or((false, line), |line| (true, line));
            let (name, seconds) = line.split_once(' ')?;
            (has_cuda || !only_cuda).then_some((name, seconds.parse().ok()?))
        };
        let left = times.lines().filter_map(crate_of).collect();
        Self { left, running: BTreeSet::new(), compiled: 0.0, begun: None, cores }
    }

    fn begin(&mut self, name: String) {
        if !name.is_empty() {
            self.begun.get_or_insert_with(Instant::now);
            self.running.insert(name);
        }
    }

    fn finish(&mut self, name: &str, is_fresh: bool) {
        self.running.remove(name);
        let seconds = self.left.remove(name).unwrap_or(SMALL);
        if !is_fresh {
            self.compiled += seconds;
        }
    }

    /// Returns the share of the build that is done.
    fn share(&self) -> f64 {
        self.compiled / (self.compiled + self.left.values().sum::<f64>()).max(f64::MIN_POSITIVE)
    }

    /// Returns whether Burn is compiled already, so that this build compiles changes only.
    fn is_warm(&self) -> bool {
        !self.left.contains_key(LONGEST)
    }

    /// Predicts the remaining time of a first build: from the cores alone at first, then more and more by the speed so far. A
    /// later build compiles parts of crates, so only its own speed says something; `None` before a crate is done.
    fn remaining(&self, elapsed: Duration) -> Option<Duration> {
        let left: f64 = self.left.values().sum();
        if self.is_warm() {
            let pace = elapsed.as_secs_f64() / self.compiled;
            return (self.compiled > 0.0).then(|| Duration::from_secs_f64(left * pace));
        }
        // The list has the seconds of crates of which two were compiled at a time.
        let by_cores = 1.0 / self.cores.clamp(1, MOST_CORES) as f64;
        // Half of the weight after a minute of compiling.
        let measured = self.compiled;
        let known = 60.0 * self.cores as f64;
        let pace = (elapsed.as_secs_f64() + known * by_cores) / (measured + known);
        Some(Duration::from_secs_f64(left * pace))
    }

    /// Returns the crate that takes longest of those that are being compiled.
    fn longest(&self) -> Option<&str> {
        let seconds = |name: &&String| (self.left.get(name.as_str()).copied().unwrap_or(0.0) * 1e3) as u64;
        self.running.iter().max_by_key(seconds).map(String::as_str)
    }
}

/// The bar of a build, or a line from time to time where the output is no terminal.
struct Bar {
    is_terminal: bool,
    is_drawn: bool,
    /// When the last line was written; `None` before the first.
    last_line: Option<Instant>,
}

impl Bar {
    fn new(is_terminal: bool) -> Self {
        Self { is_terminal, is_drawn: false, last_line: None }
    }

    fn draw(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(begun) = progress.begun else { return Ok(()) };
        let remaining = progress.remaining(begun.elapsed());
        if self.last_line.is_none() {
            if remaining.unwrap_or_else(|| begun.elapsed()) < SHORT[usize::from(!self.is_terminal)] {
                return Ok(());
            }
            let what =
                if progress.is_warm() { "compiling what has changed" } else { "compiling Burn and Plimsoll, once" };
            let time = remaining.map(|time| format!(": {}", about(time))).unwrap_or_default();
            self.print(&format!("{what}{time}\n"))?;
            self.last_line = Some(Instant::now());
        }
        let text = line(progress, remaining);
        if self.is_terminal {
            self.is_drawn = true;
            let mut stderr = io::stderr().lock();
            write!(stderr, "\r\x1b[K{text}")?;
            return stderr.flush();
        }
        if self.last_line.is_some_and(|last| last.elapsed() >= LINE_EVERY) {
            self.last_line = Some(Instant::now());
            writeln!(io::stderr(), "{text}")?;
        }
        Ok(())
    }

    fn print(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        io::stderr().write_all(line.as_bytes())
    }

    /// Wipes the bar off.
    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_drawn) {
            io::stderr().write_all(b"\r\x1b[K")?;
        }
        Ok(())
    }
}

/// Formats the bar with the time that is left.
fn line(progress: &Progress, remaining: Option<Duration>) -> String {
    let share = progress.share();
    let full = (share * WIDTH as f64) as usize;
    let bar: String = (0..WIDTH).map(|place| if place < full { '#' } else { '.' }).collect();
    let name = progress.longest().map(|name| format!(", {name}")).unwrap_or_default();
    let time = remaining.map(|time| format!(", {} left", about(time))).unwrap_or_default();
    format!("[{bar}] {:3.0} %{time}{name}", share * 100.0)
}

/// Formats a prediction.
fn about(time: Duration) -> String {
    match time.as_secs() {
        0..90 => format!("about {} seconds", time.as_secs().div_ceil(10).max(1) * 10),
        seconds => format!("about {} minutes", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_are_read() {
        let artifact = |rest: &str| artifact(&format!(r#"{{"reason":"compiler-artifact",{rest}}}"#));
        let done = |name: &str, is_fresh| Some(Message::Done { name: name.into(), is_fresh });
        let target = r#""target":{"kind":["lib"],"name":"burn_flex"},"executable":null"#;
        assert_eq!(artifact(&format!(r#"{target},"fresh":false"#)), done("burn-flex", false));
        assert_eq!(artifact(&format!(r#"{target},"fresh":true"#)), done("burn-flex", true));
        let program = r#""target":{"kind":["bin"],"name":"a"},"executable":"/tmp/a \"b\"\\c","fresh":true"#;
        assert_eq!(artifact(program), Some(Message::Executable(r#"/tmp/a "b"\c"#.into())));
        assert_eq!(artifact(r#""target":{"kind":["custom-build"],"name":"x"},"executable":null"#), None);
        assert_eq!(super::artifact(r#"{"reason":"build-finished"}"#), None);
        assert_eq!(super::artifact(r#"{"reason":"compiler-artifact","executable":"/tmp"#), None);
    }

    #[test]
    fn lines_of_cargo_are_progress_or_for_the_person() {
        let begun = |name: &str| Message::Begun(name.into());
        assert_eq!(status("   Compiling burn-flex v0.22.1\n"), begun("burn-flex"));
        assert_eq!(status("\x1b[1m\x1b[32m   Compiling\x1b[0m syn v2.0.1\n"), begun("syn"));
        assert_eq!(status("    Finished `dev` profile [optimized] target(s) in 0.1s\n"), begun(""));
        for line in ["warning: unused\n", "    Blocking waiting for file lock\n", "Finished work\n", "caf\u{e9}\n"] {
            assert_eq!(status(line), Message::Line(line.into()));
        }
    }

    #[test]
    fn the_time_is_predicted_from_the_cores_and_then_from_the_speed() {
        let times = "burn-flex 400\nserde 100\ncuda turso-core 500\n";
        let seconds =
            |progress: &Progress, elapsed| progress.remaining(Duration::from_secs(elapsed)).map(|time| time.as_secs());
        let minutes = |progress: &Progress, elapsed| seconds(progress, elapsed).unwrap() / 60;
        assert_eq!(minutes(&Progress::new(times, false, 2), 0), 4);
        assert_eq!(minutes(&Progress::new(times, true, 2), 0), 8);
        assert!(minutes(&Progress::new(times, true, 64), 0) < 2);
        // A machine at a tenth of the speed shows in the first crates.
        let mut slow = Progress::new(times, false, 2);
        slow.begin("serde".into());
        slow.finish("serde", false);
        assert!(minutes(&slow, 500) > 12, "{}", minutes(&slow, 500));
        // What was done before counts as nothing, and says nothing about parts of crates.
        let mut warm = Progress::new("burn-flex 400\nserde 100\nsyn 50\n", false, 2);
        warm.finish("burn-flex", true);
        assert_eq!((warm.share(), seconds(&warm, 9)), (0.0, None));
        warm.finish("serde", false);
        assert_eq!(seconds(&warm, 4), Some(2));
        warm.finish("syn", false);
        assert_eq!((warm.share(), seconds(&warm, 9)), (1.0, Some(0)));
    }

    #[test]
    fn the_bar_names_the_crate_that_takes_longest() {
        let mut progress = Progress::new("burn-flex 300\nserde 100\n", false, 2);
        progress.finish("serde", false);
        for name in ["a", "burn-flex"] {
            progress.begin(name.into());
        }
        let text = line(&progress, Some(Duration::from_secs(150)));
        assert_eq!(text, "[#######.......................]  25 %, about 3 minutes left, burn-flex");
        assert_eq!(line(&progress, None), "[#######.......................]  25 %, burn-flex");
        assert_eq!(about(Duration::from_secs(71)), "about 80 seconds");
    }

    #[test]
    fn the_list_of_times_has_seconds_for_the_crates_that_take_longest() {
        for name in [LONGEST, "plimsoll-recipes"] {
            assert!(Progress::new(TIMES, false, 2).left.contains_key(name), "{name}");
        }
        for line in TIMES.lines() {
            let seconds = line.strip_prefix("cuda ").unwrap_or(line).split_once(' ').map(|(_, seconds)| seconds);
            assert!(seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok_and(|n| n > 0.0)), "{line}");
        }
    }
}
