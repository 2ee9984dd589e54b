//! Runs commands of this program as processes of their own, so that a crash is a result and memory is counted apart.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_monitor::doctor::Outcome;
use plimsoll_recipes::{Failure, FailureExt};
use serde::de::DeserializeOwned;

/// File of the record in the folder of a run.
pub(super) const RECORD: &str = "metrics.jsonl";
/// Time between two looks at a process.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// How commands are run: with one configuration, in a folder that is deleted afterwards.
pub(super) struct Commands<'a> {
    /// File of the configuration.
    pub(super) config: PathBuf,
    /// Folder for runs and outputs.
    pub(super) folder: PathBuf,
    /// Set when a person asked to stop.
    pub(super) stop: &'a AtomicBool,
}

/// A command that has ended, or whose time was up.
pub(super) struct Ended {
    /// How it ended; `None` if its time was up, or a person asked to stop.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) seconds: f64,
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    pub(super) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Reads the report that it printed.
    ///
    /// # Errors
    /// How it ended, if it printed nothing; otherwise what of the report cannot be read.
    pub(super) fn report<T: DeserializeOwned>(&self) -> Result<T, Outcome> {
        if self.stdout.trim().is_empty() {
            return Err(self.failure());
        }
        let unreadable = |error| Outcome::fail(format!("what it printed is not the report of this version: {error}"));
        serde_json::from_str(&self.stdout).map_err(unreadable)
    }

    /// Returns a failure with how it ended and what it said last.
    pub(super) fn failure(&self) -> Outcome {
        let how = match self.status {
            Some(status) => format!("it ended with {status}"),
            None => format!("it did not end in {:.0} s", self.seconds),
        };
        let said: Vec<&str> = self.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = said[said.len().saturating_sub(4)..].join("\n");
        Outcome::fail(if last.is_empty() { how } else { format!("{how}:\n{last}") })
    }
}

impl Commands<'_> {
    /// Returns the folder of the run `name`.
    pub(super) fn run_folder(&self, name: &str) -> PathBuf {
        self.runs().join(name)
    }

    fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    /// Starts `arguments` with more variables of the environment; the outputs go to files.
    fn start(&self, environment: &[(&str, PathBuf)], arguments: &[String]) -> Result<Child, Failure> {
        let program = std::env::current_exe().failed()?;
        let output = |name| File::create(self.folder.join(name));
        Command::new(program)
            .args(arguments)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output("stdout").failed()?)
            .stderr(output("stderr").failed()?)
            .spawn()
            .failed()
    }

    /// Runs `arguments` for at most `limit`. `watch` is called again and again until it returns false: then the process is
    /// killed.
    pub(super) fn run_while(
        &self,
        arguments: &[String],
        limit: Duration,
        watch: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Failure> {
        self.run_in(&[], arguments, limit, &mut |_| watch())
    }

    /// Runs `arguments` as [`run_while`](Self::run_while) does, with more variables of the `environment`. `watch` is given the number
    /// of the process.
    pub(super) fn run_in(
        &self,
        environment: &[(&str, PathBuf)],
        arguments: &[String],
        limit: Duration,
        watch: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Ended, Failure> {
        let begun = Instant::now();
        let mut child = self.start(environment, arguments)?;
        let status = loop {
            if let Some(status) = child.try_wait().failed()? {
                break Some(status);
            }
            if begun.elapsed() > limit || !watch(child.id()) || self.stop.load(Ordering::Relaxed) {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            sleep(POLL);
        };
        let read = |name| {
            fs::read(self.folder.join(name))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default()
        };
        Ok(Ended { status, stdout: read("stdout"), stderr: read("stderr"), seconds: begun.elapsed().as_secs_f64() })
    }

    /// Runs `command` with the configuration and `more` arguments, for at most `limit`.
    pub(super) fn run(&self, command: &str, more: &[&str], limit: Duration) -> Result<Ended, Failure> {
        self.run_while(&self.arguments(command, more), limit, &mut || true)
    }

    /// Returns the arguments of `command` with the configuration.
    pub(super) fn arguments(&self, command: &str, more: &[&str]) -> Vec<String> {
        let runs = format!("runs_dir={}", toml_text(&self.runs()));
        let config = self.config.to_string_lossy();
        [&[command, "--config", &config, "--set", &runs], more].concat().into_iter().map(String::from).collect()
    }
}

/// Writes a path as a text of TOML.
fn toml_text(path: &Path) -> String {
    toml::Value::String(AsRef::<OsStr>::as_ref(path).to_string_lossy().into_owned()).to_string()
}
