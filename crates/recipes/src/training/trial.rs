//! Trial runs: some steps of a configuration on the true path of training, in a folder that is deleted afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_config::Loaded;
use plimsoll_core::{BatchSource, CountingAllocator, Draft, Position, Record, TimeOwner};
use plimsoll_data::Shard;
use plimsoll_tape::gpu::{KernelClock, KernelTime};
use plimsoll_train::{Event, LayerClock, LayerTime, StepEvent};

use super::{PlannedRun, RunDisplay, Totals, TrainingOutcome};
use crate::error::{Failure, FailureExt};
use crate::plan::RunPlan;
use crate::reporter::Reporter;

/// When a trial ends, and what is measured beside the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrialOptions {
    /// Number of steps after which the trial ends; `None` for no limit.
    pub steps: Option<u64>,
    /// Time from the first step after which the trial ends; `None` for no limit.
    pub time: Option<Duration>,
    /// Whether the time of each layer is measured. On a GPU this slows the steps.
    pub has_layers: bool,
    /// Whether each kernel of a GPU is timed. This slows the steps.
    pub has_kernels: bool,
}

/// Number of first steps that are left out of measurements, if there are enough others.
const COLD_STEPS: u64 = 5;

/// Result of a trial.
#[derive(Debug)]
pub struct Trial {
    /// Plan of the run, as training would have it.
    pub plan: RunPlan,
    /// Events of the trial with their times.
    pub records: Vec<Record>,
    /// Time of each layer, in the order of computation; empty if not measured.
    pub layers: Vec<LayerTime>,
    /// Time of the kernels of the warm steps by name, the longest first; empty if not measured, and on the CPU.
    pub kernels: Vec<KernelTime>,
    /// Number of steps whose kernels were timed.
    pub kernel_steps: u64,
    /// Size of the model on its device.
    pub placement: Placement,
    /// Number of steps that a run of the configuration has; `None` if it is not limited by steps or epochs.
    pub total_steps: Option<u64>,
    /// Whether the trial was stopped before its end.
    pub was_stopped: bool,
    /// Folder of the run, in `folder`.
    run: PathBuf,
    /// Folder that is deleted with the trial.
    _folder: Draft,
}

/// Where the tensors of a run are. A tensor on another device is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Device that all of them are on.
    pub device: String,
    /// Number of parameter tensors.
    pub parameters: usize,
    /// Number of values of these tensors.
    pub values: u64,
}

impl Trial {
    /// Returns the steps of the trial.
    pub fn steps(&self) -> impl Iterator<Item = &StepEvent> {
        self.records.iter().filter_map(|record| match &record.event {
            Event::Step(step) => Some(step),
            _ => None,
        })
    }

    /// Returns the folder of the run, which has the files of a run that was stopped. It is deleted with this value.
    pub fn folder(&self) -> &Path {
        &self.run
    }

    /// Trains `loaded` as `options` say, as `train` would. The folder of the run is deleted with the result. The folder is made where the
    /// runs are, so that checkpoints are written to the same disk. A trial ignores the limits of the configuration, and
    /// ends without a final evaluation. `stop` ends it early.
    ///
    /// # Errors
    /// As for [`PlannedRun::new`], and if training fails.
    pub fn run(
        mut loaded: Loaded,
        options: TrialOptions,
        (memory, reporter): (&'static CountingAllocator, &dyn Reporter),
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<Self, Failure> {
        let runs_dir = std::mem::take(&mut loaded.config.runs_dir);
        let folder = trial_folder(&runs_dir)?;
        loaded.config.runs_dir = folder.path().to_path_buf();
        loaded.config.name = None;
        let mut planned = PlannedRun::new(loaded, memory, reporter)?;
        let training = &mut planned.plan.training;
        let total_steps = training.total_steps;
        (training.total_steps, training.epochs, training.max_seconds, training.early_stopping) =
            (None, None, None, None);
        let mut run = planned.start()?;
        run.measure_memory(stop)?;
        let clock = options.has_layers.then(|| Arc::new(LayerClock::default()));
        run.layers.clone_from(&clock);
        let ends = AtomicBool::new(false);
        let mut watched = TrialDisplay {
            inner: display,
            options,
            begun: None,
            stop,
            ends: &ends,
            steps: 0,
            records: Vec::new(),
            clock: None,
            kernels: Vec::new(),
            kernel_steps: 0,
        };
        let outcome = std::thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            let ends = &ends;
            // The display sees a request to stop only after a step.
            scope.spawn(move || {
                while is_done.recv_timeout(POLL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    ends.fetch_or(stop.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            let outcome = run.train(ends, &mut watched);
            drop(done);
            outcome
        })?;
        // The data may have ended before the trial.
        watched.end_kernels();
        let TrialDisplay { records, kernels, kernel_steps, .. } = watched;
        // A trial has no limit of its own, so it is complete only if the data ended.
        let was_stopped = stop.load(Ordering::Relaxed) && !matches!(outcome, TrainingOutcome::Complete { .. });
        let layers = clock.map(|clock| clock.times()).unwrap_or_default();
        let placement = run.placement.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let path = run.folder.path().to_path_buf();
        let mut plan = run.plan;
        plan.config.runs_dir = runs_dir;
        Ok(Self {
            plan,
            records,
            layers,
            kernels,
            kernel_steps,
            placement,
            total_steps,
            was_stopped,
            run: path,
            _folder: folder,
        })
    }
}

/// Time between two looks at a request to stop.
const POLL: Duration = Duration::from_millis(50);
/// Begin of the names of trial folders. `runs` does not list hidden folders.
const PREFIX: &str = ".trial-";
/// Age from which the folder of a trial belongs to a process that was killed.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Removes the folders of trials that were killed.
fn remove_old(runs_dir: &Path) {
    for entry in std::fs::read_dir(runs_dir).into_iter().flatten().flatten() {
        let is_trial = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_trial && age.is_some_and(|age| age > OLD) {
            // Another process may remove it at the same time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a folder for trials in `runs_dir`. It is deleted when the result is dropped, or when a signal ends the process; that
/// of a process that was killed, a day later.
///
/// # Errors
/// If `runs_dir` cannot be written to.
pub fn trial_folder(runs_dir: &Path) -> Result<Draft, Failure> {
    remove_old(runs_dir);
    std::fs::create_dir_all(runs_dir)
        .and_then(|()| tempfile::Builder::new().prefix(PREFIX).tempdir_in(runs_dir))
        .map(|folder| Draft::of(folder.keep()))
        .map_err(|error| {
            let message = format!("a trial cannot write into {}: {error}", runs_dir.display());
            Failure::invalid(message, "`--set runs_dir=FOLDER` names another folder")
        })
}

/// Keeps the events of a trial, and ends it.
struct TrialDisplay<'a> {
    inner: &'a mut dyn RunDisplay,
    options: TrialOptions,
    begun: Option<Instant>,
    /// Set by a person or a signal.
    stop: &'a AtomicBool,
    /// Ends the run.
    ends: &'a AtomicBool,
    steps: u64,
    records: Vec<Record>,
    /// Clock of the kernels of the warm steps, while they run.
    clock: Option<KernelClock>,
    kernels: Vec<KernelTime>,
    kernel_steps: u64,
}

impl TrialDisplay<'_> {
    /// Times the kernels of all steps but the cold ones.
    fn time_kernels(&mut self, event: &Event) {
        if !self.options.has_kernels || !matches!(event, Event::Step(_)) {
            return;
        }
        match &self.clock {
            Some(clock) => {
                clock.read();
                self.kernel_steps += 1;
            }
            None if self.steps >= cold_steps(self.options.steps) => self.clock = Some(KernelClock::start()),
            None => {}
        }
    }

    fn end_kernels(&mut self) {
        if let Some(clock) = self.clock.take() {
            self.kernels = clock.finish();
        }
    }
}

impl RunDisplay for TrialDisplay<'_> {
    fn start(&mut self, done: u64) {
        self.begun = Some(Instant::now());
        self.inner.start(done);
    }

    fn show(&mut self, event: &Event, totals: &Totals) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.records.push(Record::new(time, event.clone()));
        self.steps += u64::from(matches!(event, Event::Step(_)));
        self.time_kernels(event);
        let is_late = self.options.time.zip(self.begun).is_some_and(|(time, begun)| begun.elapsed() >= time);
        if self.options.steps.is_some_and(|steps| self.steps >= steps) || is_late || self.stop.load(Ordering::Relaxed) {
            // What follows the last step belongs to no step.
            self.end_kernels();
            self.ends.store(true, Ordering::Relaxed);
        }
        self.inner.show(event, totals);
    }

    fn finish(&mut self) {
        self.inner.finish();
    }
}

/// Speed of loading without training.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadingSpeed {
    /// Number of batches that were loaded.
    pub batches: u64,
    /// Seconds of audio per second.
    pub audio_seconds_per_second: f64,
}

impl PlannedRun<'_> {
    /// Loads batches of the second epoch as training does, without training: `count` of them, or as many as fit into
    /// `time`. A trial before this one has loaded few of these utterances.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn loading_speed(&self, count: u64, time: Duration) -> Result<LoadingSpeed, Failure> {
        let mut source = self.prepared.training_source(&self.plan, Position::epoch_start(1), Shard::default());
        let features = &self.plan.features;
        let hop_seconds = features.hop_length as f64 / f64::from(features.sample_rate);
        let (begun, mut frames, mut batches) = (Instant::now(), 0, 0);
        while batches < count && begun.elapsed() < time {
            let Some(delivered) = source.next_batch() else { break };
            let delivered = delivered.failed()?;
            frames += delivered.batch.frame_lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
            batches += 1;
            source.recycle(delivered.batch);
        }
        let seconds = begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(LoadingSpeed { batches, audio_seconds_per_second: frames as f64 * hop_seconds / seconds })
    }
}

/// Returns the steps of `steps` that are measured: without the first ones, in which threads start, caches are empty and a
/// GPU compiles kernels. At most a third of the steps is left out.
pub fn warm_steps<'a>(steps: impl Iterator<Item = &'a StepEvent>) -> Vec<&'a StepEvent> {
    let steps: Vec<&StepEvent> = steps.collect();
    let cold = cold_steps(Some(steps.len() as u64)) as usize;
    steps[cold..].to_vec()
}

/// Returns the number of first steps that are not measured, of `steps` in all.
fn cold_steps(steps: Option<u64>) -> u64 {
    steps.map_or(COLD_STEPS, |steps| (steps / 3).min(COLD_STEPS))
}

/// Returns the wall time of `step` in seconds.
pub fn wall_seconds(step: &StepEvent) -> f64 {
    match step.times.is_empty() {
        true => step.step_seconds + step.wait_seconds,
        false => step.times.total(),
    }
}

/// Returns the wall time of `step` in seconds without what other processes took.
pub fn own_seconds(step: &StepEvent) -> f64 {
    wall_seconds(step) - step.times.get(TimeOwner::OtherProcess)
}
