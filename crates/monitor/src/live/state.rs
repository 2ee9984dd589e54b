//! What is known about a run while it runs, and after its end.

use std::collections::VecDeque;

use plimsoll_core::{Bytes, EndKind, Event, Measure, Record, Seconds, StepEvent};
use serde::Serialize;

use super::event_line::{EventLine, printable};
use super::series::Series;
use super::verdict::Verdict;
use super::window::{LastSteps, StepWindow};
use crate::sample::Sample;
use crate::{RunSetup, RunStatus};

/// Number of events that are kept for views.
const EVENTS_MAX: usize = 50;

/// Numbers of events since the begin of the record. They never fall, also if a resumed run repeats steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCounts {
    /// Steps that were taken, with repetitions.
    pub steps: u64,
    /// Feature frames of the steps, with repetitions.
    pub frames: u64,
    /// Steps that were not taken.
    pub skipped: u64,
    /// Times that memory ran out.
    pub out_of_memory: u64,
    /// Steps that used more memory than planned.
    pub over_plan: u64,
    /// Samples that could not be read, and utterances that do not fit into memory.
    pub left_out: u64,
    /// Validations of the model.
    pub validations: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub not_saved: u64,
}

/// What is known about a run: what its views show.
///
/// It is built from the events of the run and the samples of its machine, in the order in which they happen. What nothing
/// has measured is `None`, and never zero.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent, TimeOwner};
/// use plimsoll_monitor::live::RunView;
///
/// let mut run = RunView::new("toy");
/// for step in 1..=20 {
///     let mut event = StepEvent { step, loss: 2.5, ..StepEvent::default() };
///     event.times.add(TimeOwner::Data, 0.75);
///     event.times.add(TimeOwner::Compute, 0.25);
///     run.observe(&Record::new(1.8e9 + step as f64, Event::Step(event)));
/// }
/// assert_eq!(run.verdict().owner, Some(TimeOwner::Data));
/// assert_eq!((run.step(), run.peak_bytes()), (Some(20), None));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunView {
    name: String,
    status: Option<RunStatus>,
    /// State of the run by its events alone.
    recorded: Option<RunStatus>,
    task: Option<String>,
    device: Option<String>,
    total_steps: Option<u64>,
    hop_seconds: Option<f64>,
    planned_bytes: Option<Bytes>,
    step: Option<u64>,
    epoch: Option<u64>,
    rate: Option<f64>,
    norm: Option<f64>,
    padding: Option<f64>,
    last_steps: LastSteps,
    total: StepWindow,
    losses: Series,
    speeds: Series,
    peaks: Series,
    peak_bytes: Option<Bytes>,
    scores: Vec<Measure>,
    counts: EventCounts,
    events: VecDeque<EventLine>,
    last_record: Option<f64>,
    now: Option<f64>,
    sample: Option<Sample>,
}

impl RunView {
    /// Creates the state of a run without events.
    pub fn new(name: &str) -> Self {
        Self { name: printable(name), ..Self::default() }
    }

    /// Sets what the folder of the run says about its setup.
    pub fn set_setup(&mut self, setup: &RunSetup) {
        self.task = setup.task.as_deref().map(printable);
        self.device = setup.device.as_deref().map(printable);
        self.total_steps = setup.total_steps;
        self.hop_seconds = setup.hop_seconds.filter(|hop| hop.is_finite() && *hop > 0.0);
    }

    /// Sets the peak memory that is planned for the run.
    pub fn set_planned_bytes(&mut self, planned: Option<Bytes>) {
        self.planned_bytes = planned.filter(|planned| planned.0 > 0);
    }

    /// Sets the state of the process of the run, if more is known about it than its events say.
    pub fn set_status(&mut self, status: RunStatus) {
        self.status = Some(status);
    }

    /// Sets the current time in seconds since 1970, from which the ages of records and samples follow.
    pub fn set_now(&mut self, now: f64) {
        self.now = Some(now).filter(|now| now.is_finite());
    }

    /// Adds a sample of the machine. Only the newest sample is kept.
    pub fn sample(&mut self, sample: Sample) {
        self.sample = Some(sample);
    }

    /// Adds an event of the run.
    pub fn observe(&mut self, record: &Record) {
        if record.time.is_finite() {
            self.last_record = Some(record.time);
        }
        self.recorded = match &record.event {
            Event::Ended { end: EndKind::Failed, .. } => Some(RunStatus::Failed),
            Event::Ended { end: EndKind::Stopped, .. } => Some(RunStatus::Stopped),
            Event::Ended { .. } => Some(RunStatus::Complete),
            // Checkpoints are also written after an end.
            Event::Saved { .. } | Event::NotSaved { .. } => self.recorded.or(Some(RunStatus::Running)),
            _ => Some(RunStatus::Running),
        };
        self.status = self.recorded;
        match &record.event {
            Event::Step(step) => self.observe_step(step),
            Event::Ended { times, .. } => self.total.times.add_all(times),
            Event::Validated { scores, peak_bytes, .. } => {
                self.scores.clone_from(scores);
                self.add_peak(*peak_bytes);
            }
            _ => {}
        }
        self.count(&record.event);
        if let Some(line) = EventLine::new(record.time, &record.event) {
            if self.events.len() == EVENTS_MAX {
                self.events.pop_front();
            }
            self.events.push_back(line);
        }
    }

    fn observe_step(&mut self, event: &StepEvent) {
        if self.step.is_some_and(|last| event.step <= last) {
            // The run was resumed, and repeats this step.
            self.last_steps.clear();
            [&mut self.losses, &mut self.speeds, &mut self.peaks]
                .into_iter()
                .for_each(|series| series.truncate_from(event.step));
        }
        let window = StepWindow::for_step(event);
        self.last_steps.push(window);
        self.total.add(&window);
        (self.step, self.epoch) = (Some(event.step), Some(event.position.epoch));
        self.rate = Some(event.rate).filter(|rate| rate.is_finite());
        self.norm = Some(event.norm).filter(|norm| norm.is_finite());
        self.padding = Some(event.padding).filter(|padding| padding.is_finite() && event.frames > 0);
        self.losses.push(event.step, event.loss);
        let speed = window.audio_seconds_per_second(self.hop_seconds);
        self.speeds.push(event.step, speed.unwrap_or(f64::NAN));
        if event.peak_bytes.0 > 0 {
            self.peaks.push(event.step, event.peak_bytes.0 as f64);
        }
        self.add_peak(event.peak_bytes);
    }

    /// Zero means that the device cannot measure its memory.
    fn add_peak(&mut self, peak: Bytes) {
        self.peak_bytes = self.peak_bytes.max(Some(peak).filter(|peak| peak.0 > 0));
    }

    fn count(&mut self, event: &Event) {
        let counts = &mut self.counts;
        let (counter, count) = match event {
            Event::Step(step) => {
                counts.frames = counts.frames.saturating_add(step.frames);
                (&mut counts.steps, 1)
            }
            Event::Skipped { .. } => (&mut counts.skipped, 1),
            Event::OutOfMemory { .. } => (&mut counts.out_of_memory, 1),
            Event::Drift { .. } => (&mut counts.over_plan, 1),
            Event::LeftOut { samples } => (&mut counts.left_out, samples.len() as u64),
            Event::Unfit { names, .. } => (&mut counts.left_out, names.len() as u64),
            Event::Validated { .. } => (&mut counts.validations, 1),
            Event::Saved { .. } => (&mut counts.checkpoints, 1),
            Event::NotSaved { .. } => (&mut counts.not_saved, 1),
            _ => return,
        };
        *counter += count;
    }
}

/// What views read.
impl RunView {
    /// Returns the name of the run.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the run is running, and how it ended; `None` before its first event.
    pub fn status(&self) -> Option<RunStatus> {
        self.status
    }

    /// Returns whether the run is running, and how it ended, by its events alone; `None` before its first event.
    pub fn recorded_status(&self) -> Option<RunStatus> {
        self.recorded
    }

    /// Returns the task of the run, such as `asr`.
    pub fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Returns the name of the device that trains.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Returns the sentence about the last steps.
    pub fn verdict(&self) -> Verdict {
        Verdict::new(&self.window())
    }

    /// Returns the sums over the last 50 steps.
    pub fn window(&self) -> StepWindow {
        self.last_steps.sum()
    }

    /// Returns the sums over all steps, with the repeated steps of a resumed run.
    pub fn total(&self) -> &StepWindow {
        &self.total
    }

    /// Returns the number of the last step.
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// Returns the number of completed epochs.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Returns the number of steps of the whole run.
    pub fn total_steps(&self) -> Option<u64> {
        self.total_steps
    }

    /// Returns the time until the last step, at the speed of the last steps; `None` if the run does not run, or its
    /// number of steps or speed is not known.
    pub fn time_left(&self) -> Option<Seconds> {
        let left = self.total_steps?.checked_sub(self.step?)?;
        let is_running = self.status == Some(RunStatus::Running);
        is_running.then_some(Seconds(left as f64 * self.window().seconds_per_step()?))
    }

    /// Returns the seconds of audio per second over the last steps.
    pub fn audio_seconds_per_second(&self) -> Option<f64> {
        self.window().audio_seconds_per_second(self.hop_seconds)
    }

    /// Returns the seconds of audio of all steps.
    pub fn audio_seconds(&self) -> Option<f64> {
        Some(self.counts.frames as f64 * self.hop_seconds?).filter(|_| self.counts.frames > 0)
    }

    /// Returns the losses.
    pub fn losses(&self) -> &Series {
        &self.losses
    }

    /// Returns the seconds of audio per second, step by step.
    pub fn speeds(&self) -> &Series {
        &self.speeds
    }

    /// Returns the peak memory in bytes, step by step.
    pub fn peaks(&self) -> &Series {
        &self.peaks
    }

    /// Returns the learning rate of the last step.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns the gradient norm of the last step, before clipping.
    pub fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// Returns the share of padding in the last batch.
    pub fn padding(&self) -> Option<f64> {
        self.padding
    }

    /// Returns the peak memory of the run.
    pub fn peak_bytes(&self) -> Option<Bytes> {
        self.peak_bytes
    }

    /// Returns the planned peak memory.
    pub fn planned_bytes(&self) -> Option<Bytes> {
        self.planned_bytes
    }

    /// Returns the scores of the last validation.
    pub fn scores(&self) -> &[Measure] {
        &self.scores
    }

    /// Returns the numbers of events.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// Returns the last events, the newest first.
    pub fn events(&self) -> impl Iterator<Item = &EventLine> {
        self.events.iter().rev()
    }

    /// Returns the newest sample of the machine.
    pub fn last_sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// Returns the current time in seconds since 1970; `None` if it was not set.
    pub fn now(&self) -> Option<f64> {
        self.now
    }

    /// Returns the time of the last record in seconds since 1970.
    pub fn last_record(&self) -> Option<f64> {
        self.last_record
    }

    /// Returns the time since the last record; `None` if it or the current time is not known.
    pub fn record_age(&self) -> Option<Seconds> {
        self.age(self.last_record?)
    }

    /// Returns the time since the last sample; `None` if it or the current time is not known.
    pub fn sample_age(&self) -> Option<Seconds> {
        self.age(self.sample.as_ref()?.time)
    }

    fn age(&self, time: f64) -> Option<Seconds> {
        Some(Seconds((self.now? - time).max(0.0).round()))
    }
}
