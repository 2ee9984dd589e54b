//! Records a run: its events on disk, curves for TensorBoard, and totals for the summary.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::{Bytes, EndKind, TimeShares, error_chain, timing};
use plimsoll_monitor::{Contention, RecordError, Recorder, RunSamples, TensorBoardFile, read_records};
use plimsoll_train::{Event, Observer, RunState, StepEvent};

use super::folder::RunFolder;
use super::unsaved::UnsavedSteps;
use crate::error::{Failure, FailureExt};
use crate::plan::RunPlan;

/// Name of the record, in the folder of a run.
pub(super) const RECORD: &str = "metrics.jsonl";
/// Least time between two looks for the folder of the run, which take some microseconds. A second run in the place of the folder needs
/// longer until it writes its first checkpoint, which this run must not touch.
const LOOKS: Duration = Duration::from_millis(50);

/// Shows a run to a person while it trains. The default methods show nothing.
pub trait RunDisplay {
    /// Called once before the first step; `done` is the number of steps that a resumed run did before.
    fn start(&mut self, done: u64) {
        let _ = done;
    }

    /// Shows `event`. `totals` already include the event.
    fn show(&mut self, event: &Event, totals: &Totals) {
        let _ = (event, totals);
    }

    /// Called once after the last step, before the final evaluation.
    fn finish(&mut self) {}

    /// Shows that the record could not be written. Called once per run.
    fn record_failed(&mut self, error: &RecordError) {
        let _ = error;
    }

    /// Shows that this many lines of the record could not be written until the end of the run.
    fn record_lost(&mut self, lines: usize) {
        let _ = lines;
    }
}

/// A [`RunDisplay`] that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDisplay;

impl RunDisplay for NoDisplay {}

/// Observer of a run: writes its record, adds up totals, and passes each event to a display.
pub(super) struct RunRecorder<'a> {
    display: &'a mut dyn RunDisplay,
    recorder: Recorder,
    /// File of the curves for TensorBoard.
    curves: TensorBoardFile,
    hop_seconds: f64,
    /// Whether writing the record has failed and was shown.
    has_failed: bool,
    /// Time that the run loses to other processes.
    contention: Contention,
    /// Whether the CPU is the device that computes.
    is_host: bool,
    /// Samples of the machine; `None` on the CPU, and where they cannot be written.
    samples: Option<RunSamples>,
    /// Folder of the run, and the flag that stops the run if the folder is lost.
    folder: (RunFolder, &'a AtomicBool),
    /// Time at which the folder was looked for.
    looked: Instant,
    /// Last completed step.
    step: u64,
    /// Whether the end of the run is recorded.
    has_ended: bool,
    /// Totals since the run was started or resumed.
    pub(super) totals: Totals,
    unsaved: Arc<UnsavedSteps>,
}

/// Totals of all steps and validations since the run was started or resumed.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Peak memory of all steps and validations.
    pub peak: Bytes,
    /// Seconds of audio in training batches.
    pub audio_seconds: f64,
    /// Seconds that steps took, without waiting.
    pub step_seconds: f64,
    /// Seconds that steps waited for data.
    pub wait_seconds: f64,
    /// Wall time by owner.
    pub times: TimeShares,
    /// For each step, the share of its time that it waited for its batch.
    waits: Vec<f32>,
    /// Number of utterances left out because they cannot be read or are too short for their text.
    pub left_out: usize,
    /// Number of utterances left out because they do not fit into memory even alone.
    pub unfit: usize,
    /// Number of times that the length policy truncated an utterance.
    pub truncated: usize,
}

impl Totals {
    /// Computes the seconds of audio per second of training.
    pub fn audio_seconds_per_second(&self) -> f64 {
        self.audio_seconds / (self.step_seconds + self.wait_seconds)
    }

    /// Computes the mean seconds per step, with waiting.
    pub fn seconds_per_step(&self) -> f64 {
        (self.step_seconds + self.wait_seconds) / self.waits.len().max(1) as f64
    }

    /// Returns the quantile `rank` (0 to 1) over the steps of the share of a step's time that it waited for its batch.
    /// The first step does not count: it always waits for the loader to start.
    pub fn wait_share_at(&self, rank: f64) -> f64 {
        let mut waits = self.waits.get(1..).unwrap_or_default().to_vec();
        waits.sort_by(f32::total_cmp);
        let place = (waits.len().saturating_sub(1) as f64 * rank).round() as usize;
        waits.get(place).map_or(0.0, |wait| f64::from(*wait))
    }
}

impl<'a> RunRecorder<'a> {
    /// Opens the record of a run at `state` to append to it, and starts the display. `is_host`: whether the CPU computes.
    /// Sets `stop` if the folder is deleted or replaced while the run trains.
    ///
    /// # Errors
    /// If the files cannot be opened.
    pub(super) fn open(
        (plan, is_host): (&RunPlan, bool),
        (folder, stop): (&RunFolder, &'a AtomicBool),
        state: &RunState,
        display: &'a mut dyn RunDisplay,
    ) -> Result<Self, Failure> {
        let recorder = Recorder::append(&folder.path().join(RECORD)).failed()?;
        let curves = TensorBoardFile::create(&folder.path().join("tensorboard"), state.step).failed()?;
        let hop_seconds = plan.features.hop_length as f64 / f64::from(plan.features.sample_rate);
        display.start(state.step);
        let cuda_index = crate::device::cuda_index(&plan.config.device);
        let samples = if is_host { None } else { RunSamples::start(folder.path(), cuda_index).ok() };
        let (step, totals) = (state.step, Totals::default());
        Ok(Self {
            display,
            recorder,
            curves,
            hop_seconds,
            has_failed: false,
            contention: Contention::new(),
            is_host,
            samples,
            folder: (folder.clone(), stop),
            looked: Instant::now(),
            step,
            has_ended: false,
            totals,
            unsaved: Arc::default(),
        })
    }

    /// Counts the time of the processes `neighbors`, which train the same run on this machine, as the run's own.
    pub(super) fn beside(mut self, neighbors: &[u32]) -> Self {
        self.contention = Contention::new().with_family(neighbors.to_vec());
        self
    }

    /// Counts the steps without a checkpoint in `unsaved`.
    pub(super) fn counting(mut self, unsaved: Arc<UnsavedSteps>) -> Self {
        self.unsaved = unsaved;
        self
    }

    /// Reports to the display of the run that no more steps follow. The record files stay open.
    pub(super) fn finish(&mut self) {
        self.display.finish();
    }

    /// Records that the run was stopped after its last step, in its evaluation.
    pub(super) fn record_stop(&mut self) {
        let (reason, times) = (String::new(), timing::lap());
        self.observe(&Event::Ended { step: self.step, end: EndKind::Stopped, reason, times });
    }

    /// Records that the run failed after its last step.
    pub(super) fn record_failure(&mut self, failure: &Failure) {
        let (reason, times) = (error_chain(failure), timing::lap());
        self.observe(&Event::Ended { step: self.step, end: EndKind::Failed, reason, times });
    }

    /// Returns the totals; those of the record in `folder` if no step was taken since the run was resumed.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub(super) fn totals_of_the_run(&self, folder: &Path) -> Result<Totals, RecordError> {
        if !self.totals.waits.is_empty() {
            return Ok(self.totals.clone());
        }
        let mut totals = Totals::default();
        for record in read_records(&folder.join(RECORD))? {
            totals.add(&record.event, self.hop_seconds);
        }
        Ok(totals)
    }
}

impl Totals {
    /// Adds `event` to the totals. A frame lasts `hop_seconds`.
    fn add(&mut self, event: &Event, hop_seconds: f64) {
        let totals = self;
        match event {
            Event::Step(StepEvent { frames, step_seconds, wait_seconds, peak_bytes, truncated, times, .. }) => {
                totals.times.add_all(times);
                totals.truncated += truncated;
                totals.peak = totals.peak.max(*peak_bytes);
                totals.audio_seconds += *frames as f64 * hop_seconds;
                totals.step_seconds += step_seconds;
                totals.wait_seconds += wait_seconds;
                totals.waits.push((wait_seconds / (step_seconds + wait_seconds).max(f64::MIN_POSITIVE)) as f32);
            }
            Event::Validated { peak_bytes, .. } => totals.peak = totals.peak.max(*peak_bytes),
            Event::LeftOut { samples } => totals.left_out += samples.len(),
            Event::Unfit { names, .. } => totals.unfit += names.len(),
            Event::Ended { times, .. } => totals.times.add_all(times),
            _ => {}
        }
    }
}

impl RunRecorder<'_> {
    /// Adds `event` to the TensorBoard curves.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn write_curves(&mut self, event: &Event) -> Result<(), RecordError> {
        let curves = &mut self.curves;
        match event {
            Event::Step(event) => {
                let StepEvent { step, loss, frames, step_seconds, wait_seconds, peak_bytes, .. } = event;
                let seconds = (step_seconds + wait_seconds).max(f64::MIN_POSITIVE);
                curves.scalar("train/loss", *step, *loss)?;
                for (name, part) in &event.parts {
                    curves.scalar(&format!("train/loss of {name}"), *step, *part)?;
                }
                curves.scalar("train/gradient norm", *step, event.norm)?;
                curves.scalar("train/learning rate", *step, event.rate)?;
                curves.scalar("speed/audio seconds a second", *step, *frames as f64 * self.hop_seconds / seconds)?;
                curves.scalar("speed/share waited for data", *step, wait_seconds / seconds)?;
                for (owner, seconds) in event.times.iter() {
                    curves.scalar(&format!("time/{}", owner.name()), *step, seconds)?;
                }
                curves.scalar("memory/MiB", *step, peak_bytes.0 as f64 / f64::from(1 << 20))
            }
            Event::Validated { step, scores, .. } => scores
                .iter()
                .try_for_each(|score| curves.scalar(&format!("validation/{}", score.name), *step, score.value)),
            _ => Ok(()),
        }
    }
}

impl RunRecorder<'_> {
    /// Stops the run if its folder is gone, so that it does not go on for hours without a place for its result.
    fn look_for_folder(&mut self) {
        if self.looked.elapsed() >= LOOKS {
            self.looked = Instant::now();
            let (folder, stop) = &self.folder;
            if folder.is_lost() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns `event` with the time that other processes took as theirs.
    fn with_lost_time(&mut self, mut event: Event) -> Event {
        if let Event::Step(StepEvent { times, .. }) | Event::Ended { times, .. } = &mut event {
            self.contention.attribute(times, self.is_host);
            if let Some(samples) = &self.samples {
                samples.attribute(times);
            }
        }
        event
    }
}

impl Drop for RunRecorder<'_> {
    fn drop(&mut self) {
        // A panic ends the run without an error. Nothing is shown: the panic has its own message.
        if !self.has_ended {
            let reason = "the program stopped in the middle of the run".into();
            let (end, times) = (EndKind::Failed, timing::lap());
            let _ = self.recorder.record(&Event::Ended { step: self.step, end, reason, times });
        }
    }
}

impl Observer for RunRecorder<'_> {
    fn observe(&mut self, event: &Event) {
        self.step = event.step().filter(|_| matches!(event, Event::Step(_))).unwrap_or(self.step);
        self.has_ended |= matches!(event, Event::Ended { .. });
        self.unsaved.observe(event);
        self.look_for_folder();
        // A measurement of what the record costs turns it off with the clocks.
        if timing::is_off() {
            return self.display.show(event, &self.totals);
        }
        let event = &self.with_lost_time(event.clone());
        self.totals.add(event, self.hop_seconds);
        self.display.show(event, &self.totals);
        if let Err(error) = self.recorder.record(event).and_then(|()| self.write_curves(event))
            && !self.has_failed
        {
            self.has_failed = true;
            self.display.record_failed(&error);
        }
        let unwritten = self.recorder.unwritten();
        if self.has_ended && unwritten > 0 {
            self.display.record_lost(unwritten);
        }
    }
}
