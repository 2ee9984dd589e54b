//! Result of a run, for people (`summary.md`) and for programs (`summary.json`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, Measure, MeasureUnit, SCHEMA_VERSION, Seconds, counted, replace_file};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RecordError;

/// Result of a run.
///
/// In `summary.json` every score is a field of its own and, with label and unit, an entry of the list `scores`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SummaryFile", into = "SummaryFile")]
pub struct Summary {
    /// Name of the run.
    pub name: String,
    /// Whether the run reached its end; false if the run was stopped.
    pub complete: bool,
    /// Scores of the model on the held-out utterances.
    pub scores: Vec<Measure>,
    /// Number of held-out utterances.
    pub held_out: usize,
    /// Training time in seconds: steps and waiting for data, without validation.
    pub train_seconds: f64,
    /// Peak memory of the run.
    pub peak_bytes: Bytes,
    /// Number of completed steps.
    pub steps: u64,
    /// Number of completed epochs.
    pub epochs: u64,
    /// Number of parameters of the model.
    pub parameters: u64,
    /// Seconds of audio trained on per second of training.
    pub audio_seconds_per_second: f64,
    /// Share of the training time that was spent waiting for data, from 0 to 1.
    pub wait_share: f64,
    /// Median over the steps of the share of the step's time that was spent waiting for data.
    pub wait_share_median: f64,
    /// 99th percentile over the steps of the share of the step's time that was spent waiting for data.
    pub wait_share_p99: f64,
    /// Numbers of utterances that were left out, by reason.
    pub left_out: Vec<(String, usize)>,
    /// Reasons why the scores may not be those of the best checkpoint; empty if they are.
    pub warnings: Vec<String>,
    /// A few held-out utterances with the output of the model, among them one with a bad output. May be empty.
    pub examples: Vec<Example>,
}

/// Utterance with the output of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Example {
    /// Name of the utterance in the manifest.
    pub name: String,
    /// Reference text of the utterance.
    pub truth: String,
    /// Output of the model for the utterance.
    pub output: String,
}

/// Fields of `summary.json` as they are written and read.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct SummaryFile {
    schema_version: u32,
    name: String,
    complete: bool,
    /// List of scores. `None` in files of schema version 0, which have no such list.
    scores: Option<Vec<Measure>>,
    held_out: usize,
    train_seconds: f64,
    peak_bytes: Bytes,
    steps: u64,
    epochs: u64,
    parameters: u64,
    audio_seconds_per_second: f64,
    wait_share: f64,
    wait_share_median: f64,
    wait_share_p99: f64,
    left_out: Vec<(String, usize)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    examples: Vec<Example>,
    /// Scores by name, and fields that a newer version of the program added.
    #[serde(flatten)]
    by_name: BTreeMap<String, Value>,
}

impl From<Summary> for SummaryFile {
    fn from(summary: Summary) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            by_name: summary.scores.iter().map(|score| (score.name.to_string(), score.value.into())).collect(),
            name: summary.name,
            complete: summary.complete,
            scores: Some(summary.scores),
            held_out: summary.held_out,
            train_seconds: summary.train_seconds,
            peak_bytes: summary.peak_bytes,
            steps: summary.steps,
            epochs: summary.epochs,
            parameters: summary.parameters,
            audio_seconds_per_second: summary.audio_seconds_per_second,
            wait_share: summary.wait_share,
            wait_share_median: summary.wait_share_median,
            wait_share_p99: summary.wait_share_p99,
            left_out: summary.left_out,
            warnings: summary.warnings,
            examples: summary.examples,
        }
    }
}

impl From<SummaryFile> for Summary {
    fn from(file: SummaryFile) -> Self {
        let by_name = file.by_name;
        // Before the schema had a version, the only numbers beside the known ones were scores. They have no label.
        let old_scores = || {
            let numbers = by_name.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
            let unlabeled = |(name, value): (String, f64)| Measure {
                name: name.into(),
                label: "".into(),
                value,
                unit: MeasureUnit::Number,
            };
            numbers.map(unlabeled).collect()
        };
        Self {
            scores: file.scores.unwrap_or_else(old_scores),
            name: file.name,
            complete: file.complete,
            held_out: file.held_out,
            train_seconds: file.train_seconds,
            peak_bytes: file.peak_bytes,
            steps: file.steps,
            epochs: file.epochs,
            parameters: file.parameters,
            audio_seconds_per_second: file.audio_seconds_per_second,
            wait_share: file.wait_share,
            wait_share_median: file.wait_share_median,
            wait_share_p99: file.wait_share_p99,
            left_out: file.left_out,
            warnings: file.warnings,
            examples: file.examples,
        }
    }
}

impl Summary {
    /// Writes `summary.json` and `summary.md` into the folder of the run.
    ///
    /// # Errors
    /// [`RecordError::Io`] if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), RecordError> {
        let json = serde_json::to_string_pretty(self).expect("a summary is plain data");
        for (name, text) in [("summary.json", json), ("summary.md", self.to_markdown())] {
            let path = folder.join(name);
            replace_file(&path, |file| std::io::Write::write_all(file, text.as_bytes()))
                .map_err(|source| RecordError::Io { path, source })?;
        }
        Ok(())
    }

    /// Formats the summary as a Markdown page for people.
    pub fn to_markdown(&self) -> String {
        let mut page = format!("# {}\n\n", self.name);
        let state = if self.complete { "complete" } else { "stopped before its end" };
        let mut rows = vec![("state", state.to_string())];
        rows.extend(self.scores.iter().map(|score| (&*score.label, score.formatted_value())));
        rows.extend([
            ("held-out utterances", self.held_out.to_string()),
            ("training time", Seconds(self.train_seconds).to_string()),
            ("steps", format!("{} in {}", self.steps, counted(self.epochs, "epoch"))),
            ("parameters", self.parameters.to_string()),
            ("peak memory", self.peak_bytes.to_string()),
            ("speed", AudioSpeed(self.audio_seconds_per_second).to_string()),
            ("waiting for data", self.waiting()),
        ]);
        page.push_str("| | |\n|---|---|\n");
        for (name, value) in rows {
            let _ = writeln!(page, "| {name} | {value} |");
        }
        if !self.warnings.is_empty() {
            page.push_str("\n## Warnings\n\n");
            for warning in &self.warnings {
                let _ = writeln!(page, "- {warning}");
            }
        }
        if !self.left_out.is_empty() {
            page.push_str("\n## Left out\n\n");
            for (reason, count) in &self.left_out {
                let _ = writeln!(page, "- {}: {reason}", counted(count, "utterance"));
            }
        }
        if !self.examples.is_empty() {
            page.push_str("\n## Examples\n");
        }
        for Example { name, truth, output } in &self.examples {
            let _ = write!(page, "\n`{name}`\n\n- truth: {truth}\n- output: {output}\n");
        }
        page
    }

    fn waiting(&self) -> String {
        let [whole, median, most] = [self.wait_share, self.wait_share_median, self.wait_share_p99].map(|s| s * 100.0);
        format!("{whole:.1} % of the time (per step {median:.2} % in the median, {most:.1} % at the 99th percentile)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let example = Example { name: "a".into(), truth: "one two".into(), output: "one too".into() };
        Summary {
            name: "toy".into(),
            complete: true,
            scores: vec![
                Measure::share("cer", "character error rate", 0.0512),
                Measure::share("wer", "word error rate", 0.2),
            ],
            held_out: 160,
            train_seconds: 271.4,
            peak_bytes: Bytes::mib(150),
            steps: 900,
            epochs: 9,
            parameters: 700_000,
            audio_seconds_per_second: 140.0,
            wait_share: 0.012,
            wait_share_median: 0.001,
            wait_share_p99: 0.043,
            left_out: vec![("too long".into(), 3)],
            warnings: vec![],
            examples: vec![example],
        }
    }

    #[test]
    fn warnings_are_written_and_read() {
        let summary = Summary { warnings: vec!["the best checkpoint is damaged".into()], ..summary() };
        assert!(summary.to_markdown().contains("## Warnings\n\n- the best checkpoint is damaged\n"));
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
    }

    #[test]
    fn the_page_has_scores_costs_and_examples() {
        insta::assert_snapshot!(summary().to_markdown());
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let json = serde_json::to_value(summary()).unwrap();
        assert_eq!((&json["cer"], &json["schema_version"]), (&0.0512.into(), &SCHEMA_VERSION.into()));
        assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary());
    }

    #[test]
    fn an_old_summary_is_read() {
        let old =
            r#"{"name": "a", "complete": true, "cer": 0.25, "held_out": 3, "steps": 9, "left_out": [["long", 2]]}"#;
        let Summary { scores, held_out, steps, left_out, .. } = serde_json::from_str(old).unwrap();
        assert_eq!((held_out, steps, &left_out[..]), (3, 9, &[("long".to_string(), 2)][..]));
        assert_eq!((scores.len(), &*scores[0].name, scores[0].value), (1, "cer", 0.25));
        let newer = r#"{"schema_version": 2, "scores": [], "watts": 300}"#;
        assert_eq!(serde_json::from_str::<Summary>(newer).unwrap(), Summary::default());
    }
}
