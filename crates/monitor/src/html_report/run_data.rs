//! What a page shows of a run, read from the run's folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::{Bytes, Event, MicroBatch, PoolMemory, Record, StepEvent, TimeOwner, TimeShares};
use serde::Serialize;

use super::evaluation::Evaluation;
use super::media::{Media, Recordings, read_media};
use super::notice::Notices;
use super::plan::PlanFile;
use crate::sample::SampleTrace;
use crate::{RecordError, RunReport, RunSamples, Summary};

/// Upper bound of the seconds that a damaged record can add to an owner, so that sums stay finite.
const SECONDS_MAX: f64 = 1e12;

/// One run, as a [`ReportPage`](super::ReportPage) shows it.
#[derive(Clone, Debug)]
pub struct RunData {
    /// Report of the run.
    pub report: RunReport,
    /// Steps, without those that were repeated after a resume.
    pub(super) steps: Vec<StepFacts>,
    /// Times by owner, in the order of the record, with those of steps that were repeated later.
    pub(super) spans: Vec<TimeSpan>,
    pub(super) times_from: TimeSource,
    pub(super) notices: Notices,
    /// Number of steps that were taken again after a resume.
    pub(super) repeated: u64,
    /// Number of lines of the record that are no records.
    pub(super) damaged: u64,
    pub(super) planned_peak: Option<Bytes>,
    /// Memory pools of the GPU at the end.
    pub(super) pools: Option<PoolMemory>,
    pub(super) plan: PlanFile,
    pub(super) summary: Option<Summary>,
    /// Evaluation of a recognizer, if the folder holds one.
    pub(super) evaluation: Option<Evaluation>,
    pub(super) media: Media,
    /// Recordings of the utterances that the page shows.
    pub(super) recordings: Recordings,
    pub(super) machine: MachineData,
}

/// Samples of the machine of a run.
#[derive(Clone, Debug)]
pub(super) enum MachineData {
    /// The run has none: only a run on a GPU writes them.
    Absent,
    /// They cannot be read, for this reason.
    Unreadable(String),
    /// They were read. A page needs them only for reading, and runs are copied.
    Read(Arc<SampleTrace>),
}

/// Facts of a training step that curves show.
#[derive(Clone, Debug)]
pub(super) struct StepFacts {
    pub(super) step: u64,
    pub(super) loss: f64,
    pub(super) parts: BTreeMap<String, f64>,
    pub(super) norm: f64,
    pub(super) rate: f64,
    pub(super) micro_batches: usize,
    /// Number of utterances of the batch; 0 if not recorded.
    pub(super) utterances: u64,
    pub(super) frames: u64,
    pub(super) padding: f64,
    pub(super) step_seconds: f64,
    pub(super) wait_seconds: f64,
    pub(super) peak: Bytes,
}

/// Times of a step, or of the end of a run after a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeSpan {
    pub(super) step: u64,
    pub(super) times: TimeShares,
}

/// Source of the times by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TimeSource {
    /// The record names the owners.
    Record,
    /// The record has only the duration of steps and of waiting for data.
    StepAndWait,
}

impl RunData {
    /// Reads the run in `folder`. Returns `None` if the folder has neither a plan nor a record. Files that are missing
    /// or damaged leave gaps on the page.
    pub fn read(folder: &Path) -> Option<Self> {
        let report = RunReport::read(folder, RunReport::quiet_since())?;
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let plan = PlanFile::read(folder);
        let summary: Option<Summary> = serde_json::from_str(&text("summary.json")).ok();
        let evaluation = Evaluation::read(folder);
        let examples = summary.iter().flat_map(|summary| &summary.examples).map(|example| &*example.name);
        let worst = evaluation.iter().flat_map(|evaluation| &evaluation.worst).map(|worst| &*worst.name);
        let recordings = Recordings::read(&report.setup.config, examples.chain(worst));
        let mut data = Self {
            report,
            steps: Vec::new(),
            spans: Vec::new(),
            times_from: TimeSource::Record,
            notices: Notices::default(),
            repeated: 0,
            damaged: 0,
            planned_peak: plan.peak(),
            pools: None,
            plan,
            summary,
            evaluation,
            recordings,
            media: read_media(&folder.join("samples")),
            machine: MachineData::read(&folder.join(RunSamples::FILE)),
        };
        data.read_record(&folder.join("metrics.jsonl"));
        Some(data)
    }

    /// Returns the times of the whole record by owner.
    pub(super) fn times(&self) -> TimeShares {
        let mut times = TimeShares::default();
        self.spans.iter().for_each(|span| times.add_all(&span.times));
        times
    }

    fn read_record(&mut self, path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let mut last_is_damaged = false;
        for line in BufReader::new(file).split(b'\n') {
            let Ok(line) = line else { break };
            let record: Result<Record, _> = serde_json::from_slice(&line);
            last_is_damaged = record.is_err();
            match record {
                Ok(record) => self.add(record.event),
                Err(_) => self.damaged += 1,
            }
        }
        // A killed process leaves its last line incomplete.
        self.damaged -= u64::from(last_is_damaged);
        if self.spans.is_empty() {
            self.times_from = TimeSource::StepAndWait;
            self.spans = self.steps.iter().map(untimed_span).collect();
        }
    }

    fn add(&mut self, event: Event) {
        self.notices.add(&event, self.steps.last().map(|step| step.step));
        match event {
            Event::Step(event) => {
                self.add_times(event.step, &event.times);
                let kept = self.steps.partition_point(|known| known.step < event.step);
                self.repeated += (self.steps.len() - kept) as u64;
                self.steps.truncate(kept);
                self.steps.push(StepFacts::from(event));
            }
            Event::Pools { memory, .. } => self.pools = Some(memory),
            Event::Ended { step, times, .. } => self.add_times(step, &times),
            _ => {}
        }
    }

    fn add_times(&mut self, step: u64, times: &TimeShares) {
        let mut safe = TimeShares::default();
        times.iter().for_each(|(owner, seconds)| safe.add(owner, seconds_in_bounds(seconds)));
        if !safe.is_empty() {
            self.spans.push(TimeSpan { step, times: safe });
        }
    }
}

impl MachineData {
    fn read(path: &Path) -> Self {
        if !path.exists() {
            return Self::Absent;
        }
        match SampleTrace::read(path) {
            Ok(trace) => Self::Read(Arc::new(trace)),
            // The page may go to others, so it does not hold the path.
            Err(RecordError::Io { source, .. }) => Self::Unreadable(source.to_string()),
            Err(RecordError::Line { line, .. } | RecordError::NoSamples { line, .. }) => {
                Self::Unreadable(format!("line {line} is no sample"))
            }
        }
    }

    /// Returns the samples; `None` if there is none.
    pub(super) fn trace(&self) -> Option<&SampleTrace> {
        match self {
            Self::Read(trace) if trace.samples > 0 => Some(trace),
            _ => None,
        }
    }
}

impl From<StepEvent> for StepFacts {
    fn from(event: StepEvent) -> Self {
        let included = event.ledger.iter().filter(|part| part.fallback_level != MicroBatch::LEFT_OUT);
        Self {
            step: event.step,
            loss: event.loss,
            parts: event.parts.into_iter().map(|(name, value)| (name.into_owned(), value)).collect(),
            norm: event.norm,
            rate: event.rate,
            micro_batches: event.micro_batches,
            utterances: included.map(|part| u64::from(part.len)).sum(),
            frames: event.frames,
            padding: event.padding,
            step_seconds: seconds_in_bounds(event.step_seconds),
            wait_seconds: seconds_in_bounds(event.wait_seconds),
            peak: event.peak_bytes,
        }
    }
}

fn seconds_in_bounds(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.clamp(0.0, SECONDS_MAX) } else { 0.0 }
}

/// Returns the times of a step of a record without owners.
fn untimed_span(step: &StepFacts) -> TimeSpan {
    let mut times = TimeShares::default();
    times.add(TimeOwner::Data, step.wait_seconds);
    times.add(TimeOwner::Unknown, step.step_seconds);
    TimeSpan { step: step.step, times }
}
