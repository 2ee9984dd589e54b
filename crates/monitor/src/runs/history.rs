//! History of a run: the totals of its events.

use std::path::Path;

use plimsoll_core::{Bytes, EndKind, Event, Measure, Seconds};
use serde::Serialize;

use super::curve::{LossCurve, LossPoint};
use super::event_log::{Counted, Entry, EventLog, Validation, each_record};
use super::timestamp::Timestamp;

/// History of a run: totals, losses and validations.
///
/// A run that is resumed from a checkpoint repeats the steps after it. The first versions of these steps do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunHistory {
    /// Time of the first record; `None` if no record has a time.
    pub started: Option<Timestamp>,
    /// Time of the last record; `None` if no record has a time.
    pub last: Option<Timestamp>,
    /// Kind of the end, if the last event of the record is an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndKind>,
    /// Number of completed steps.
    pub steps: u64,
    /// Number of completed epochs.
    pub epochs: u64,
    /// Loss of each step, except steps whose loss is NaN or infinite.
    pub losses: LossCurve,
    /// Results of the validations, in order of time.
    pub validations: Vec<Validation>,
    /// Training time: steps and waiting for data, without validation.
    pub train_seconds: Seconds,
    /// Seconds of audio trained on per second of training; `None` if unknown.
    pub audio_seconds_per_second: Option<f64>,
    /// Share of the training time that was spent waiting for data, from 0 to 1.
    pub wait_share: f64,
    /// Largest memory use of any step or validation of the run.
    pub peak_bytes: Bytes,
    /// Number of steps that were not taken, such as steps with an infinite loss.
    pub skipped: u64,
    /// Number of times that memory ran out. Each time the governor lowered its limit.
    pub out_of_memory: u64,
    /// Number of times that the governor lowered its limit, in records of schema version 0, which have no
    /// `out_of_memory`.
    pub lowered: u64,
    /// Number of times that the learning rate was lowered because validations no longer improved.
    pub rate_lowered: u64,
    /// Number of samples that were left out because they cannot be read or are too short for their text.
    pub left_out: u64,
    /// Number of utterances that were left out because they do not fit into memory even alone.
    pub unfit: u64,
    /// Number of steps that used more memory than planned.
    pub over_plan: u64,
    /// Number of checkpoints that could not be written.
    pub not_saved: u64,
}

impl RunHistory {
    /// Reads the record in the folder of a run. Problems are added to `notes`.
    pub(super) fn read(folder: &Path, hop_seconds: Option<f64>, notes: &mut Vec<String>) -> Self {
        let (mut history, mut log) = (Self::default(), EventLog::default());
        each_record(&folder.join("metrics.jsonl"), notes, |record| {
            let time = Some(Timestamp(record.time)).filter(Timestamp::is_plausible);
            history.started = history.started.or(time);
            history.last = time.or(history.last);
            history.ended = match &record.event {
                Event::Ended { end, .. } => Some(*end),
                // Checkpoints are also written after an end.
                Event::Saved { .. } | Event::NotSaved { .. } => history.ended,
                _ => None,
            };
            log.add(record.event);
        });
        history.add(log.into_entries(), hop_seconds);
        history
    }

    /// Returns the validation whose model is kept, or the last validation if none is marked as best; `None` without
    /// validations.
    pub fn best(&self) -> Option<&Validation> {
        self.validations.iter().rfind(|validation| validation.best).or(self.validations.last())
    }

    /// Returns the scores of the best validation; empty without validations.
    pub(super) fn best_scores(&self) -> &[Measure] {
        self.best().map_or(&[], |validation| &validation.scores)
    }

    fn add(&mut self, entries: Vec<(u64, Entry)>, hop_seconds: Option<f64>) {
        let (mut all_frames, mut waited) = (0.0, 0.0);
        for (at, entry) in entries {
            match entry {
                Entry::Step { epoch, loss, frames, step_seconds, wait_seconds, peak } => {
                    (self.steps, self.epochs) = (at, epoch);
                    self.losses.0.extend(loss.map(|loss| LossPoint { step: at, loss }));
                    self.train_seconds.0 += step_seconds + wait_seconds;
                    self.peak_bytes = self.peak_bytes.max(peak);
                    all_frames += frames as f64;
                    waited += wait_seconds;
                }
                Entry::Validated { validation, peak } => {
                    // A run that is resumed at its end is validated there again.
                    if self.validations.last().is_none_or(|last| last.step != validation.step) {
                        self.validations.push(validation);
                    }
                    self.peak_bytes = self.peak_bytes.max(peak);
                }
                Entry::Count(counted, count) => *self.counter(counted) += count,
            }
        }
        let seconds = self.train_seconds.0;
        if seconds > 0.0 {
            self.audio_seconds_per_second = hop_seconds.map(|hop| all_frames * hop / seconds);
            self.wait_share = waited / seconds;
        }
    }

    fn counter(&mut self, counted: Counted) -> &mut u64 {
        match counted {
            Counted::SkippedStep => &mut self.skipped,
            Counted::OutOfMemory => &mut self.out_of_memory,
            Counted::LoweredLimit => &mut self.lowered,
            Counted::LoweredRate => &mut self.rate_lowered,
            Counted::LeftOutSample => &mut self.left_out,
            Counted::UnfitUtterance => &mut self.unfit,
            Counted::Drift => &mut self.over_plan,
            Counted::UnsavedCheckpoint => &mut self.not_saved,
        }
    }
}
