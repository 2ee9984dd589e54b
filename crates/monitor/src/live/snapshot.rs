//! A run state as JSON, for programs.

use plimsoll_core::{Bytes, Measure};
use serde::{Serialize, Serializer};

use super::event_line::EventLine;
use super::series::{Series, SeriesPoint};
use super::state::{EventCounts, RunView};
use super::verdict::Verdict;
use super::window::StepWindow;
use crate::RunStatus;
use crate::sample::Sample;

/// Version of the fields of [`RunSnapshot`]. New fields do not change it; a field that is removed, or means something else,
/// raises it.
pub const SNAPSHOT_VERSION: u32 = 1;

/// A run state as programs read it. A value that is not known is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSnapshot {
    /// Version of the fields: [`SNAPSHOT_VERSION`].
    pub schema_version: u32,
    /// Name of the run.
    pub name: String,
    /// State of the run; `None` before its first event.
    pub status: Option<RunStatus>,
    /// Task of the run.
    pub task: Option<String>,
    /// Name of the device that trains.
    pub device: Option<String>,
    /// Time of the snapshot in seconds since 1970.
    pub time: Option<f64>,
    /// Seconds since the last record.
    pub record_age_seconds: Option<f64>,
    /// Seconds since the sample was taken.
    pub sample_age_seconds: Option<f64>,
    /// Sentence about the last steps.
    pub verdict: Verdict,
    /// Number of the last step.
    pub step: Option<u64>,
    /// Number of steps of the whole run.
    pub total_steps: Option<u64>,
    /// Number of completed epochs.
    pub epoch: Option<u64>,
    /// Seconds until the last step.
    pub seconds_left: Option<f64>,
    /// Sums over the last steps.
    pub window: StepWindow,
    /// Sums over all steps.
    pub total: StepWindow,
    /// Wall time of a step over the last steps, in seconds.
    pub seconds_per_step: Option<f64>,
    /// Seconds of audio per second over the last steps.
    pub audio_seconds_per_second: Option<f64>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Learning rate of the last step.
    pub learning_rate: Option<f64>,
    /// Gradient norm of the last step.
    pub gradient_norm: Option<f64>,
    /// Share of padding in the last batch.
    pub padding: Option<f64>,
    /// Losses by step, thinned.
    pub losses: Vec<SeriesPoint>,
    /// Seconds of audio per second by step, thinned.
    pub speeds: Vec<SeriesPoint>,
    /// Peak memory of the run.
    pub peak_bytes: Option<Bytes>,
    /// Planned peak memory.
    pub planned_bytes: Option<Bytes>,
    /// Peak memory by step in bytes, thinned.
    pub peaks: Vec<SeriesPoint>,
    /// Scores of the last validation.
    pub scores: Vec<Measure>,
    /// Numbers of events.
    pub counts: EventCounts,
    /// Last events, the newest first.
    pub events: Vec<EventLine>,
    /// Newest sample of the machine.
    pub sample: Option<Sample>,
}

impl RunView {
    /// Returns all that programs read, with the version of its fields.
    pub fn snapshot(&self) -> RunSnapshot {
        let window = self.window();
        let points = |series: &Series| series.points();
        RunSnapshot {
            schema_version: SNAPSHOT_VERSION,
            name: self.name().into(),
            status: self.status(),
            task: self.task().map(Into::into),
            device: self.device().map(Into::into),
            time: self.now(),
            record_age_seconds: self.record_age().map(|age| age.0),
            sample_age_seconds: self.sample_age().map(|age| age.0),
            verdict: self.verdict(),
            step: self.step(),
            total_steps: self.total_steps(),
            epoch: self.epoch(),
            seconds_left: self.time_left().map(|left| left.0),
            seconds_per_step: window.seconds_per_step(),
            window,
            total: *self.total(),
            audio_seconds_per_second: self.audio_seconds_per_second(),
            loss: self.losses().last().map(|(_, loss)| loss),
            learning_rate: self.rate(),
            gradient_norm: self.norm(),
            padding: self.padding(),
            losses: points(self.losses()),
            speeds: points(self.speeds()),
            peak_bytes: self.peak_bytes(),
            planned_bytes: self.planned_bytes(),
            peaks: points(self.peaks()),
            scores: self.scores().to_vec(),
            counts: *self.counts(),
            events: self.events().cloned().collect(),
            sample: self.last_sample().cloned(),
        }
    }
}

impl Serialize for RunView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.snapshot().serialize(serializer)
    }
}
