//! What came of a run, for people and for scripts.

use std::fmt::Write;
use std::path::Path;

use plimsoll_core::{Bytes, Measure, Seconds};
use serde::{Serialize, Serializer};

use crate::RecordError;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// Whether it ran to its end or was stopped.
    pub complete: bool,
    /// What was measured on the held-out utterances; in the file each is a key of its own.
    #[serde(flatten, serialize_with = "by_name")]
    pub scores: Vec<Measure>,
    /// Held-out utterances.
    pub held_out: usize,
    /// Seconds of training: steps and waiting for data, validation apart.
    pub train_seconds: f64,
    /// The most memory in use at once.
    pub peak_bytes: Bytes,
    /// Steps taken.
    pub steps: u64,
    /// Epochs completed.
    pub epochs: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Seconds of audio trained on for each second of training.
    pub audio_seconds_per_second: f64,
    /// Share of the training time that was spent waiting for data.
    pub wait_share: f64,
    /// The same of a step: half of the steps waited less.
    pub wait_share_median: f64,
    /// The same of a step: ninety-nine in a hundred waited less.
    pub wait_share_p99: f64,
    /// Utterances left out, by reason.
    pub left_out: Vec<(String, usize)>,
    /// A few utterances, the worst not hidden.
    pub examples: Vec<Example>,
}

/// What was said and what was heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The utterance's name in the manifest.
    pub name: String,
    /// Its text.
    pub truth: String,
    /// What the model read.
    pub output: String,
}

impl Summary {
    /// Writes `summary.json` and `summary.md` into a run's folder.
    pub fn write(&self, folder: &Path) -> Result<(), RecordError> {
        let json = serde_json::to_string_pretty(self).expect("a summary is plain data");
        for (name, text) in [("summary.json", json), ("summary.md", self.to_markdown())] {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| RecordError::Io { path, source })?;
        }
        Ok(())
    }

    /// The summary as a page for people.
    pub fn to_markdown(&self) -> String {
        let mut page = format!("# {}\n\n", self.name);
        let state = if self.complete { "complete" } else { "stopped before its end" };
        let mut rows = vec![("state", state.to_string())];
        rows.extend(self.scores.iter().map(|score| (&*score.label, score.formatted_value())));
        rows.extend([
            ("held-out utterances", self.held_out.to_string()),
            ("training time", Seconds(self.train_seconds).to_string()),
            ("steps", format!("{} in {} epochs", self.steps, self.epochs)),
            ("parameters", self.parameters.to_string()),
            ("peak memory", self.peak_bytes.to_string()),
            ("speed", format!("{:.0} s of audio a second", self.audio_seconds_per_second)),
            ("waiting for data", self.waiting()),
        ]);
        page.push_str("| | |\n|---|---|\n");
        for (name, value) in rows {
            let _ = writeln!(page, "| {name} | {value} |");
        }
        if !self.left_out.is_empty() {
            page.push_str("\n## Left out\n\n");
            for (reason, count) in &self.left_out {
                let _ = writeln!(page, "- {count} utterances: {reason}");
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
        format!("{whole:.1} % of the time (of a step {median:.2} % in the median, {most:.1} % at the 99th percentile)")
    }
}

fn by_name<S: Serializer>(scores: &[Measure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scores.iter().map(|score| (&score.name, score.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_matters() {
        let example = Example { name: "a".into(), truth: "one two".into(), output: "one too".into() };
        let summary = Summary {
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
            examples: vec![example],
        };
        insta::assert_snapshot!(summary.to_markdown());
        assert_eq!(serde_json::to_value(&summary).unwrap()["cer"], 0.0512);
    }
}
