//! A run in short: what its folder says of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_core::Measure;
use serde::Serialize;
use serde_json::Value;

use super::course::Course;
use super::moment::Moment;
use super::outline::Outline;
use crate::RecordError;

/// A run in short: what its folder says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunCard {
    /// Its name, which is its folder's.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Whether it ended.
    pub standing: Standing,
    /// What it was meant to do.
    pub outline: Outline,
    /// How it went.
    pub course: Course,
    /// What the best model scored at the end; none before.
    pub verdict: Vec<Measure>,
    /// What in its folder cannot be read.
    pub notes: Vec<String>,
}

/// Whether a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It came to its end, and its summary is of its last step.
    Complete,
    /// It wrote a record lately: it seems to be running.
    Running,
    /// It did neither: it was stopped, or something ended it.
    Stopped,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Complete => "complete",
            Self::Running => "running",
            Self::Stopped => "stopped",
        })
    }
}

/// The runs in `folder`, those that started first first. What is no run is passed over.
///
/// A run that is not complete seems to be running where it wrote a record after `quiet_since`.
pub fn read_runs(folder: &Path, quiet_since: SystemTime) -> Result<Vec<RunCard>, RecordError> {
    let io = |source| RecordError::Io { path: folder.into(), source };
    let mut cards = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        cards.extend(RunCard::read(&entry.map_err(io)?.path(), quiet_since));
    }
    // One without a record has only just begun.
    let key = |card: &RunCard| card.course.started.map_or(f64::INFINITY, |moment| moment.0);
    cards.sort_by(|a, b| key(a).total_cmp(&key(b)).then_with(|| a.name.cmp(&b.name)));
    Ok(cards)
}

impl RunCard {
    /// Reads the run in `folder`, where there is one: a folder with a plan or a record. For `quiet_since` see
    /// [`read_runs`].
    pub fn read(folder: &Path, quiet_since: SystemTime) -> Option<Self> {
        if !["plan.toml", "metrics.jsonl"].iter().any(|name| folder.join(name).is_file()) {
            return None;
        }
        let mut notes = Vec::new();
        let outline = Outline::read(folder, &mut notes);
        let course = Course::read(folder, outline.hop_seconds, &mut notes);
        let summary = summary(folder, &mut notes).filter(|summary| is_of_the_end(summary, &course));
        let standing = match (&summary, course.last) {
            (Some(_), _) => Standing::Complete,
            (None, Some(last)) if last > Moment::from(quiet_since) => Standing::Running,
            _ => Standing::Stopped,
        };
        let verdict = summary.map_or_else(Vec::new, |summary| verdict(&summary, &course));
        Some(Self { name: name(folder), folder: folder.into(), standing, outline, course, verdict, notes })
    }

    /// What the run's best model scored: at the end, or else in its validation.
    pub fn scores(&self) -> &[Measure] {
        match self.verdict.is_empty() {
            true => self.course.best_scores(),
            false => &self.verdict,
        }
    }
}

/// The folder's own name, also where it is written as `.`.
fn name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.into());
    // By the path that was given where it has a name: a link to a run is called as it is called.
    let name = folder.file_name().or(whole.file_name());
    name.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

fn summary(folder: &Path, notes: &mut Vec<String>) -> Option<Value> {
    let text = fs::read(folder.join("summary.json")).ok()?;
    let summary = serde_json::from_slice(&text);
    summary.map_err(|error| notes.push(format!("summary.json is no JSON: {error}"))).ok()
}

/// A run that was complete can go on with a later end; its summary is then of the past.
fn is_of_the_end(summary: &Value, course: &Course) -> bool {
    let steps = summary["steps"].as_u64();
    summary["complete"] == true && (course.steps == 0 || steps.is_none_or(|steps| steps == course.steps))
}

/// The summary gives a score as a number under its name; how it is told, the validations know.
fn verdict(summary: &Value, course: &Course) -> Vec<Measure> {
    let measured = |score: &Measure| Some(Measure { value: summary[&*score.name].as_f64()?, ..score.clone() });
    course.best_scores().iter().filter_map(measured).collect()
}
