//! `plimsoll monitor`: watches GPUs, host and a run.

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use plimsoll_config::ConfigArgs;
use plimsoll_config::invocation::command;
use plimsoll_core::{Bytes, counted, error_chain};
use plimsoll_monitor::RunLock;
use plimsoll_monitor::live::{LiveRun, RunFollower, RunView, line};
use plimsoll_monitor::sample::{
    AlertLimits, Alerts, MachineSource, Monitor, Reading, Replay, Sample, SampleReader, SampleRecorder, Sampler,
    WatchedProcess,
};
use plimsoll_monitor::serve::{ServeError, ServeOptions, Server};
use plimsoll_monitor::terminal::{Update, ViewOptions, page_text, run_terminal};
use plimsoll_recipes::load;
use plimsoll_recipes::training::named_run_in;
use plimsoll_recipes::{Failure, FailureExt};

use crate::environment;
use crate::run_flag::RunArg;

/// Columns and rows of the text that `--once` prints.
const PAGE: (u16, u16) = (100, 32);
/// Shortest interval between two samples. GPM counters need a tenth of a second between two readings.
const INTERVAL_MIN: f64 = 0.2;
/// Longest interval and duration: a year.
const SECONDS_MAX: f64 = 3.2e7;

/// Arguments of `monitor`.
#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// The run to show, too. It may be running, ended, or not begun, and another program may have started it.
    #[command(flatten)]
    run: RunArg,
    /// Print one page and stop.
    #[arg(long)]
    once: bool,
    /// Print JSON: one object for each sample and line.
    #[arg(long)]
    json: bool,
    /// Seconds between two samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds(INTERVAL_MIN))]
    interval: f64,
    /// Stop after this many seconds. Default: never.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.0))]
    duration: Option<f64>,
    /// Record the samples in this file, compressed if it ends in `.zst`. `--replay` plays it back.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Play a recording back instead of reading this machine.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["log_file", "named_run"])]
    replay: Option<PathBuf>,
    /// Speed of `--replay`: 10 is ten times as fast as it happened.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "replay", value_parser = seconds(0.001))]
    speed: f64,
    /// Show all GPUs. Default: only those that CUDA offers to this process.
    #[arg(long)]
    all_gpus: bool,
    /// Draw with characters of ASCII only.
    #[arg(long)]
    ascii: bool,
    /// Serve a live page, Prometheus metrics (/metrics) and JSON (/snapshot) at this address, such as 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "once")]
    serve: Option<String>,
    /// With --serve: accept an address that other machines can reach. The pages are not encrypted, and everyone can read
    /// them.
    #[arg(long, requires = "serve")]
    allow_remote: bool,
    /// The configuration; its `runs_dir` is the folder of the runs.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Returns a parser of seconds that are at least `least`.
fn seconds(least: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match text.parse::<f64>() {
        Ok(seconds) if (least..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("a number from {least} to {SECONDS_MAX:.0} is needed")),
    }
}

/// Source of samples: this machine, or a recording.
enum Samples {
    Machine { monitor: Monitor, last: f64 },
    Recording { replay: Box<dyn Iterator<Item = Sample>>, damaged: Rc<Cell<u64>>, samples: u64 },
}

/// What the command shows: samples, and a run if one is named.
struct Watch {
    samples: Samples,
    run: Option<(RunFollower, PathBuf)>,
    /// Process of the run while it runs.
    process: WatchedProcess,
    view: RunView,
    all_gpus: bool,
    end: Option<Instant>,
}

/// Watches GPUs, host and a run until the user ends it.
pub(crate) fn monitor(args: &MonitorArgs) -> Result<ExitCode, Failure> {
    let folder = watched_folder(args)?;
    let recorded = args.replay.as_ref().map(|path| recording(path, args.speed)).transpose()?;
    let live = LiveRun::default();
    let server = args.serve.as_ref().map(|address| serve(address, &live, args.allow_remote)).transpose()?;
    // Before the first sample, so that the address is the first line: a sample can raise an alert.
    if let Some(server) = &server {
        eprintln!("http://{0} shows the page, http://{0}/metrics the metrics for Prometheus", server.address());
    }
    let mut watch = Watch::start(args, folder, recorded)?;
    if args.once {
        watch.wait_for_rates(args.interval);
        match args.json {
            true => println!("{}", json(&watch.view)),
            false => print!("{}", page_text(&watch.view, &options(args), PAGE.0, PAGE.1)),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let period = Duration::from_secs_f64(args.interval);
    if server.is_none() && !args.json && std::io::stdout().is_terminal() {
        let options = ViewOptions { handle_signals: true, ..options(args) };
        run_terminal(|| watch.update(), options).failed()?;
    } else {
        while watch.refresh() {
            live.publish(watch.view.clone());
            match (args.json, server.is_some()) {
                (true, _) => println!("{}", json(&watch.view)),
                (false, true) => {}
                (false, false) => println!("{}", watch.line()),
            }
            if watch.is_live() {
                std::thread::sleep(period);
            }
        }
    }
    match watch.samples {
        Samples::Machine { monitor, .. } if !args.json => print!("{}", monitor.stop()),
        Samples::Machine { .. } => {}
        Samples::Recording { damaged, samples, .. } => print_gaps(samples, damaged.get()),
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &MonitorArgs) -> ViewOptions {
    let options = ViewOptions::from_env(|name| std::env::var(name).ok());
    ViewOptions { ascii: options.ascii || args.ascii, ..options }
}

fn json(view: &RunView) -> String {
    serde_json::to_string(view).expect("a view is plain data")
}

fn serve(address: &str, live: &LiveRun, allow_remote: bool) -> Result<Server, Failure> {
    let options = ServeOptions { allow_remote, ..ServeOptions::default() };
    Server::bind(address, live.clone(), options).map_err(|error| {
        let help = match &error {
            ServeError::Bind { source, .. } if source.kind() == ErrorKind::AddrInUse => {
                "another program uses this port: give another one, or port 0 for any that is free"
            }
            ServeError::Bind { .. } => "give an address of this machine with a port, such as 127.0.0.1:9100",
            _ => "use an address of this machine such as 127.0.0.1:9100, or --allow-remote for others",
        };
        Failure::invalid(error_chain(&error), help)
    })
}

/// Finds the folder of the run that a person named. The run may begin later.
fn run_folder(named: &Path, config: &ConfigArgs) -> Result<PathBuf, Failure> {
    let runs = load(config, environment())?.config.runs_dir;
    let (found, by_name) = (named_run_in(named, &runs), runs.join(named));
    let may_begin = !found.exists() && !named.is_absolute() && by_name.parent().is_some_and(Path::is_dir);
    Ok(if may_begin { by_name } else { found })
}

/// Returns the folder of the run that the command watches, if a run is named.
fn watched_folder(args: &MonitorArgs) -> Result<Option<PathBuf>, Failure> {
    let folder = args.run.named().map(|run| run_folder(run, &args.config)).transpose()?;
    if folder.is_none() {
        load(&args.config, environment())?;
    }
    // A run may begin later, and a file is none.
    let is_none = |folder: &Path| !folder.join("metrics.jsonl").is_file() && RunLock::holder(folder).is_none();
    if let Some(folder) = folder.as_deref().filter(|folder| folder.is_file() || args.once && is_none(folder)) {
        let named = args.run.named().unwrap_or(folder);
        return Err(Failure::no_run(named, &load(&args.config, environment())?.config.runs_dir));
    }
    Ok(folder)
}

/// Returns the number of the process that trains the run in `folder`, if this process can see it.
fn process_of(folder: &Path) -> Option<u32> {
    RunLock::holder(folder)?.visible_pid()
}

impl Watch {
    fn start(args: &MonitorArgs, folder: Option<PathBuf>, recorded: Option<Samples>) -> Result<Self, Failure> {
        let run = folder.map(|folder| (RunFollower::new(&folder), folder));
        let view = run.as_ref().map_or_else(|| RunView::new("this machine"), |(run, _)| run.start());
        let process = WatchedProcess::none();
        process.set(run.as_ref().and_then(|(_, folder)| process_of(folder)));
        let samples = match recorded {
            Some(samples) => samples,
            None => machine(args, &process)?,
        };
        let end = args.duration.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        Ok(Self { samples, run, process, view, all_gpus: args.all_gpus, end })
    }

    /// Waits until there is a sample with rates, which need two readings.
    fn wait_for_rates(&mut self, interval: f64) {
        let patience = Instant::now() + Duration::from_secs_f64(2.0 * interval + 5.0);
        let mut n_samples = 0;
        while n_samples < 2 && Instant::now() < patience {
            let before = self.view.last_sample().map(|sample| sample.time);
            if !self.refresh() {
                return;
            }
            n_samples += usize::from(self.view.last_sample().map(|sample| sample.time) != before);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Reads everything that is new. Returns `false` at the end of the recording or of the duration.
    fn refresh(&mut self) -> bool {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return false;
        }
        let sample = match &mut self.samples {
            Samples::Machine { monitor, last } => {
                monitor.latest().filter(|sample| sample.time > std::mem::replace(last, sample.time))
            }
            Samples::Recording { replay, samples, .. } => match replay.next() {
                Some(sample) => {
                    *samples += 1;
                    Some(sample)
                }
                None => return false,
            },
        };
        if let Some(mut sample) = sample {
            if !self.all_gpus && sample.gpus.iter().any(|gpu| gpu.cuda_index.is_some()) {
                sample.gpus.retain(|gpu| gpu.cuda_index.is_some());
            }
            self.view.sample(sample);
        }
        // A record that cannot be read now may be readable later.
        if let Some((run, folder)) = &mut self.run {
            let _ = run.refresh(&mut self.view);
            self.process.set(process_of(folder));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.view.set_now(if self.is_live() { now } else { self.view.last_sample().map_or(now, |sample| sample.time) });
        true
    }

    /// Formats the newest numbers as one line: those of the run, or those of the machine.
    fn line(&self) -> String {
        let Some(sample) = self.view.last_sample().filter(|_| self.run.is_none()) else { return line(&self.view) };
        let share =
            |reading: &Reading<f64>| reading.value().map_or("–".into(), |share| format!("{:.0} %", share * 100.0));
        let bytes = |reading: &Reading<Bytes>| reading.value().map_or("–".into(), Bytes::to_string);
        let mut parts = vec![
            format!("CPU {}", share(&sample.host.cpu)),
            format!("{} of {} free", bytes(&sample.host.memory_available), bytes(&sample.host.memory_total)),
        ];
        parts.extend(sample.gpus.iter().map(|gpu| {
            let (used, total) = (bytes(&gpu.memory_used), bytes(&gpu.memory_total));
            format!("GPU {} had a kernel {} of the time, {used} of {total}", gpu.index, share(&gpu.utilization))
        }));
        parts.extend(sample.no_gpu.as_ref().map(|_| "no GPU".to_string()));
        parts.join(", ")
    }

    fn update(&mut self) -> Update {
        if self.refresh() { Update::State(Arc::new(self.view.clone())) } else { Update::End }
    }

    /// Returns whether the samples are of now. A recording keeps its own time.
    fn is_live(&self) -> bool {
        matches!(self.samples, Samples::Machine { .. })
    }
}

/// Starts to sample this machine, with alerts on standard error where nothing is drawn.
fn machine(args: &MonitorArgs, process: &WatchedProcess) -> Result<Samples, Failure> {
    let mut recorder = args.log_file.as_deref().map(SampleRecorder::append).transpose().invalid()?;
    let limits = Alerts::new(AlertLimits::default());
    let mut alerts = if args.all_gpus { limits.for_all_gpus() } else { limits };
    let is_drawn = !args.json && args.serve.is_none() && std::io::stdout().is_terminal();
    let on_sample = move |sample: &Sample| {
        for alert in alerts.observe(sample) {
            if !is_drawn {
                eprintln!("{alert}");
            }
        }
        if let Some(Err(error)) = recorder.as_mut().map(|recorder| recorder.record(sample)) {
            eprintln!("warning: {error}: the recording ends here");
            recorder = None;
        }
    };
    let period = Duration::from_secs_f64(args.interval);
    let process = process.clone();
    let open = move || Sampler::new(MachineSource::open().with_process(&process));
    let monitor = Monitor::start_with(period, open, on_sample);
    Ok(Samples::Machine { monitor, last: f64::NEG_INFINITY })
}

/// Opens a recording to play it back.
fn recording(path: &Path, speed: f64) -> Result<Samples, Failure> {
    let reader = SampleReader::open(path).map_err(|error| {
        Failure::invalid(error_chain(&error), format!("`{}` makes a recording", command("monitor --log-file FILE")))
    })?;
    let damaged = Rc::new(Cell::new(0));
    let count = damaged.clone();
    let samples = reader.filter_map(move |read| {
        count.set(count.get() + u64::from(read.is_err()));
        read.ok()
    });
    let replay = Box::new(Replay::new(samples, speed, std::thread::sleep));
    Ok(Samples::Recording { replay, damaged, samples: 0 })
}

/// Says what a recording lacks that was played back.
fn print_gaps(samples: u64, damaged: u64) {
    if damaged > 0 {
        eprintln!("warning: {} of the recording left out: no sample", counted(damaged, "line"));
    }
    if samples == 0 {
        eprintln!("warning: the recording has no sample");
    }
}
