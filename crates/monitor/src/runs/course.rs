//! How a run went: what its story sums up to.

use std::path::Path;

use plimsoll_core::{Bytes, Measure, Seconds};
use serde::Serialize;

use super::curve::{LossCurve, LossPoint};
use super::moment::Moment;
use super::story::{Story, Told, each_record};

/// How a run went.
///
/// A run that goes on from a checkpoint takes the steps after it anew; what was recorded of them before no longer
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// The time of the first record.
    pub started: Option<Moment>,
    /// The time of the last record.
    pub last: Option<Moment>,
    /// Steps taken.
    pub steps: u64,
    /// Epochs completed.
    pub epochs: u64,
    /// The loss of each step.
    pub losses: LossCurve,
    /// What the validations found, in their order.
    pub validations: Vec<Validation>,
    /// Time in steps and in waiting for data, validation apart.
    pub train_seconds: Seconds,
    /// Seconds of audio trained on for each second of training.
    pub audio_seconds_per_second: Option<f64>,
    /// Share of the training time that was spent waiting for data.
    pub wait_share: f64,
    /// The most memory in use at once.
    pub peak_bytes: Bytes,
    /// Steps that did not happen.
    pub skipped: u64,
    /// Times that memory ran out.
    pub out_of_memory: u64,
    /// Times that the governor lowered its limit.
    pub lowered: u64,
    /// Samples left out.
    pub left_out: u64,
}

/// What a validation found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// After this step.
    pub step: u64,
    /// Epochs completed.
    pub epoch: u64,
    /// The scores.
    pub scores: Vec<Measure>,
    /// Whether it was the best so far.
    pub best: bool,
}

impl Course {
    /// Reads it from a run's folder; what cannot be read is added to `notes`.
    pub(super) fn read(folder: &Path, hop_seconds: Option<f64>, notes: &mut Vec<String>) -> Self {
        let (mut course, mut story) = (Self::default(), Story::default());
        each_record(&folder.join("metrics.jsonl"), notes, |record| {
            let time = record["time"].as_f64().map(Moment);
            course.started = course.started.or(time);
            course.last = time.or(course.last);
            story.tell(record);
        });
        course.add(story.whole(), hop_seconds);
        course
    }

    /// The validation whose model is kept, or the last one where none is marked.
    pub fn best(&self) -> Option<&Validation> {
        self.validations.iter().rfind(|validation| validation.best).or(self.validations.last())
    }

    /// What that one found.
    pub(super) fn best_scores(&self) -> &[Measure] {
        self.best().map_or(&[], |validation| &validation.scores)
    }

    fn add(&mut self, story: Vec<(u64, Told)>, hop_seconds: Option<f64>) {
        let (mut all_frames, mut waited) = (0.0, 0.0);
        for (at, told) in story {
            match told {
                Told::Step { epoch, loss, frames, step_seconds, wait_seconds, peak } => {
                    (self.steps, self.epochs) = (at, epoch);
                    self.losses.0.extend(loss.map(|loss| LossPoint { step: at, loss }));
                    self.train_seconds.0 += step_seconds + wait_seconds;
                    self.peak_bytes = self.peak_bytes.max(peak);
                    all_frames += frames as f64;
                    waited += wait_seconds;
                }
                Told::Validated { validation, peak } => {
                    // A run that goes on at its end is validated there once more.
                    if self.validations.last().is_none_or(|last| last.step != validation.step) {
                        self.validations.push(validation);
                    }
                    self.peak_bytes = self.peak_bytes.max(peak);
                }
                Told::Skipped => self.skipped += 1,
                Told::OutOfMemory => self.out_of_memory += 1,
                Told::Lowered => self.lowered += 1,
                Told::LeftOut { samples } => self.left_out += samples,
            }
        }
        let seconds = self.train_seconds.0;
        if seconds > 0.0 {
            self.audio_seconds_per_second = hop_seconds.map(|hop| all_frames * hop / seconds);
            self.wait_share = waited / seconds;
        }
    }
}
