//! Report of a run, read from its folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_core::{EndKind, Measure};
use serde::Serialize;

use super::history::RunHistory;
use super::setup::RunSetup;
use super::timestamp::Timestamp;
use crate::{RecordError, RunLock, Summary};

/// Time without a record after which a run that nothing locks counts as ended. Validations of a large model take minutes.
const SILENCE: Duration = Duration::from_secs(600);

/// Report of a run, read from its folder.
///
/// The report prints as a page for people and serializes for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Name of the run, which is the name of its folder.
    pub name: String,
    /// Folder of the run.
    pub folder: PathBuf,
    /// State of the run: complete, running, stopped or failed.
    #[serde(rename = "standing")]
    pub status: RunStatus,
    /// Setup of the run: its device, seed, size and configuration.
    #[serde(rename = "outline")]
    pub setup: RunSetup,
    /// History of the run: its steps, losses and validations.
    #[serde(rename = "course")]
    pub history: RunHistory,
    /// Scores of the best model at the end of the run; empty before the end.
    #[serde(rename = "verdict")]
    pub final_scores: Vec<Measure>,
    /// Files of the folder that cannot be read, with the reasons.
    pub notes: Vec<String>,
}

/// State of a run: complete, running, stopped or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// The run reached its end, and its summary describes its last step.
    Complete,
    /// A process holds the lock of the run; or the run has no lock and wrote a record recently.
    Running,
    /// The run was stopped or killed: its record says so, or it is not complete and no process holds its lock.
    Stopped,
    /// The run ended with an error.
    Failed,
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Complete => "complete",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

/// Reads the runs in `folder`, ordered by their start. Entries that are not runs are skipped.
///
/// A run counts as running while a process holds its lock. In a folder that never had a lock, a run that is not complete
/// counts as running if its last record is newer than `quiet_since`, such as [`RunReport::quiet_since`].
///
/// # Errors
/// [`RecordError::Io`] if the folder cannot be listed. A run that cannot be read has a note instead.
pub fn read_runs(folder: &Path, quiet_since: SystemTime) -> Result<Vec<RunReport>, RecordError> {
    let io = |source| RecordError::Io { path: folder.into(), source };
    let mut reports = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        reports.extend(RunReport::read(&entry.map_err(io)?.path(), quiet_since));
    }
    // A run without a record has only just begun.
    let key = |report: &RunReport| report.history.started.map_or(f64::INFINITY, |time| time.0);
    reports.sort_by(|a, b| key(a).total_cmp(&key(b)).then_with(|| a.name.cmp(&b.name)));
    Ok(reports)
}

impl RunReport {
    /// Returns the time ten minutes ago, the usual `quiet_since` of readers: a run of an older program that has written no
    /// record since then counts as stopped.
    pub fn quiet_since() -> SystemTime {
        SystemTime::now().checked_sub(SILENCE).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Reads the run in `folder`. Returns `None` if the folder has neither a plan nor a record. A run that is not
    /// complete and has no lock counts as running if its last record is newer than `quiet_since`.
    pub fn read(folder: &Path, quiet_since: SystemTime) -> Option<Self> {
        if !["plan.toml", "metrics.jsonl"].iter().any(|name| folder.join(name).is_file()) {
            return None;
        }
        let mut notes = Vec::new();
        let setup = RunSetup::read(folder, &mut notes);
        let mut history = RunHistory::read(folder, setup.hop_seconds, &mut notes);
        let summary = read_summary(folder, &mut notes).filter(|summary| is_of_the_end(summary, &history));
        if let (Some(summary), 0) = (&summary, history.steps) {
            (history.steps, history.epochs) = (summary.steps, summary.epochs);
            notes.push("metrics.jsonl has no steps: their number is that of summary.json".into());
        }
        let status = match (&summary, RunLock::is_held(folder), history.ended, history.last) {
            (_, Some(true), ..) => RunStatus::Running,
            (_, _, Some(EndKind::Failed), _) => RunStatus::Failed,
            (Some(_), ..) => RunStatus::Complete,
            (None, _, Some(EndKind::Stopped), _) => RunStatus::Stopped,
            // An older program locked no folder.
            (None, None, _, Some(last)) if last > Timestamp::from(quiet_since) => RunStatus::Running,
            _ => RunStatus::Stopped,
        };
        let final_scores = summary.map_or_else(Vec::new, |summary| final_scores(summary.scores, &history));
        Some(Self { name: name(folder), folder: folder.into(), status, setup, history, final_scores, notes })
    }

    /// Returns the scores of the run's best model: the scores at the end of the run, or else of the best validation.
    pub fn scores(&self) -> &[Measure] {
        match self.final_scores.is_empty() {
            true => self.history.best_scores(),
            false => &self.final_scores,
        }
    }
}

/// Returns the name of the folder, also if the path is `.`.
fn name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.into());
    // By the given path if it has a name: a link to a run keeps the name of the link.
    let name = folder.file_name().or(whole.file_name());
    name.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

fn read_summary(folder: &Path, notes: &mut Vec<String>) -> Option<Summary> {
    let text = fs::read(folder.join("summary.json")).ok()?;
    serde_json::from_slice(&text).map_err(|error| notes.push(format!("cannot read summary.json: {error}"))).ok()
}

/// Checks that the summary describes the last step. A run that was complete can be resumed with a later end, and its
/// summary is then outdated. A summary of schema version 0 has no steps, and a record may be lost; without steps in both,
/// the run has done nothing.
fn is_of_the_end(summary: &Summary, history: &RunHistory) -> bool {
    let (steps, recorded) = (summary.steps, history.steps);
    summary.complete && (steps == recorded || steps == 0 || recorded == 0) && steps.max(recorded) > 0
}

/// Completes the scores of a summary. A summary of schema version 0 has scores by name only; order, label and unit then
/// come from the validations.
fn final_scores(mut scores: Vec<Measure>, history: &RunHistory) -> Vec<Measure> {
    let validated = history.best_scores();
    let place = |score: &Measure| validated.iter().position(|other| other.name == score.name);
    for score in scores.iter_mut().filter(|score| score.label.is_empty()) {
        let value = score.value;
        match place(score) {
            Some(place) => *score = Measure { value, ..validated[place].clone() },
            None => score.label = score.name.clone(),
        }
    }
    scores.sort_by_key(|score| place(score).unwrap_or(usize::MAX));
    scores
}
