//! The processes of a run: how they are started, found, and disturbed.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};

/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(20);
/// Variable by which the processes of a run are found.
const NAME: &str = "STORM_RUN";
/// Starts of this process so far.
static STARTS: AtomicU64 = AtomicU64::new(0);

/// How the processes of a run are started.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    /// The launcher and its options, without the program.
    pub(crate) words: Vec<String>,
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
    /// The library with which the disk of a process fails.
    pub(crate) bad_disk: PathBuf,
}

/// Processes that train one run together.
pub(crate) struct Cluster {
    launcher: Child,
    name: String,
    output: PathBuf,
}

impl Launcher {
    /// Starts the program with `args`.
    pub(crate) fn start(&self, args: &[&str]) -> Result<Cluster> {
        let orders = self.orders();
        let name = format!("{}-{}", std::process::id(), STARTS.fetch_add(1, Ordering::Relaxed));
        let output = self.folder.join("output.txt");
        let file = fs::File::create(&output)?;
        let (first, options) = self.words.split_first().context("no launcher is named")?;
        let mut command = Command::new(first);
        command.args(options).arg("env");
        // A launcher hands no variables to other machines by itself, and must not have the bad disk.
        command.arg(format!("{NAME}={name}")).arg(format!("BAD_DISK={}", orders.display()));
        command.arg(format!("LD_PRELOAD={}", self.bad_disk.display())).arg(&self.program).args(args);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("NO_COLOR", "1");
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let launcher = command.spawn().with_context(|| format!("cannot start {first}"))?;
        Ok(Cluster { launcher, name, output })
    }

    /// The file with the orders for the bad disk.
    pub(crate) fn orders(&self) -> PathBuf {
        self.folder.join("disk-orders.txt")
    }
}

impl Cluster {
    /// Returns the number of the process with rank `rank`; `None` if it has ended or has not begun.
    pub(crate) fn process(&self, rank: usize) -> Option<u32> {
        let wanted = [format!("{NAME}={}", self.name), format!("OMPI_COMM_WORLD_RANK={rank}")];
        let is_wanted = |process: &u32| {
            let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            let has = |wanted: &String| variables.split(|&byte| byte == 0).any(|found| found == wanted.as_bytes());
            wanted.iter().all(has)
        };
        let entries = fs::read_dir("/proc").ok()?;
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_wanted)
    }

    /// Sends a signal to the process with rank `rank`. Returns whether there was one.
    pub(crate) fn signal(&self, rank: usize, signal: &str) -> Result<bool> {
        let Some(process) = self.process(rank) else { return Ok(false) };
        Ok(tool("kill", &["-s", signal, &process.to_string()])?.success())
    }

    /// Refuses more memory to the process with rank `rank` than `more` bytes above what it has mapped now.
    pub(crate) fn limit_memory(&self, rank: usize, more: u64) -> Result<bool> {
        let Some(process) = self.process(rank) else { return Ok(false) };
        let pages = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
        let Some(pages) = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()) else {
            return Ok(false);
        };
        let limit = format!("--as={}", pages * 4096 + more);
        Ok(tool("prlimit", &["--pid", &process.to_string(), &limit])?.success())
    }

    /// Lets the process with rank `rank` run for a fifth of `time`.
    pub(crate) fn slow(&self, rank: usize, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end && self.signal(rank, "STOP")? {
            sleep(Duration::from_millis(80));
            self.signal(rank, "CONT")?;
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until `found` is true, or the run has ended. Returns whether it goes on.
    pub(crate) fn wait_until(&mut self, limit: Duration, mut found: impl FnMut() -> bool) -> Result<bool> {
        let end = Instant::now() + limit;
        while self.launcher.try_wait()?.is_none() {
            if found() {
                return Ok(true);
            }
            ensure!(Instant::now() < end, "no step in {} s\n{}", limit.as_secs(), self.text());
            sleep(LOOK);
        }
        Ok(false)
    }

    /// Waits for the end of all processes.
    ///
    /// # Errors
    /// If they have not ended within `limit`. They are then killed.
    pub(crate) fn end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.launcher.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > end {
                self.kill_all()?;
                bail!("a process waited for more than {} s\n{}", limit.as_secs(), self.text());
            }
            sleep(LOOK);
        }
    }

    /// Returns what the processes have printed.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    fn kill_all(&mut self) -> io::Result<()> {
        for rank in 0..64 {
            let _ = self.signal(rank, "KILL");
        }
        self.launcher.kill()?;
        self.launcher.wait().map(|_| ())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if matches!(self.launcher.try_wait(), Ok(None)) {
            let _ = self.kill_all();
        }
    }
}

/// Runs a tool of the system.
fn tool(name: &str, args: &[&str]) -> Result<ExitStatus> {
    let mut command = Command::new(name);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().with_context(|| format!("cannot start {name}"))
}
