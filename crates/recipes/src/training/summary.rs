//! Makes the summary of a complete run.

use std::io::Write;
use std::path::Path;

use plimsoll_core::{read_text_file, replace_file};
use plimsoll_monitor::{RecordError, ReportPage, RunData, RunStatus, Summary};
use plimsoll_train::RunState;

use super::RunContext;
use super::record::Totals;
use super::task::FinalScores;
use crate::error::{Failure, FailureExt};

/// Reads the summary of the run in `folder`; `None` if it has none.
pub(super) fn of_run(folder: &Path) -> Option<Summary> {
    let text = read_text_file(folder.join("summary.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns whether the run in `folder` has a summary of its state after `step`.
pub(super) fn is_of_step(folder: &Path, step: u64) -> bool {
    of_run(folder).is_some_and(|summary| summary.complete && summary.steps == step)
}

/// Writes `report.html` into the folder of a run that has ended with `status`. This process still holds the lock of the
/// run, by which a reader would take it for running.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write_report(folder: &Path, status: RunStatus) -> Result<(), Failure> {
    let Some(mut run) = RunData::read(folder) else { return Ok(()) };
    run.report.status = status;
    let (path, page) = (folder.join("report.html"), ReportPage::new(&[run]).to_html());
    let written = replace_file(&path, |file| file.write_all(page.as_bytes()));
    written.map_err(|source| RecordError::Io { path, source }).failed()
}

/// Makes the summary of `run`, which has ended with `state`.
pub(super) fn summary(run: &RunContext<'_>, state: &RunState, totals: &Totals, scores: FinalScores) -> Summary {
    let seconds = (totals.step_seconds + totals.wait_seconds).max(f64::MIN_POSITIVE);
    let mut left_out: Vec<(String, usize)> =
        run.prepared.left_out.iter().map(|(reason, count)| ((*reason).to_string(), *count)).collect();
    if totals.left_out > 0 {
        left_out.push((
            "unreadable, silent, or too short for their text, while training, counted each time".into(),
            totals.left_out,
        ));
    }
    if totals.unfit > 0 {
        left_out.push(("too large for the memory even alone, while training".into(), totals.unfit));
    }
    if totals.truncated > 0 {
        left_out.push(("cut to `model.max_attention_sequence_length`, counted each time".into(), totals.truncated));
    }
    Summary {
        name: run.folder.name(),
        complete: true,
        scores: scores.scores,
        held_out: scores.held_out,
        train_seconds: state.train_seconds,
        peak_bytes: totals.peak,
        steps: state.step,
        epochs: state.position.epoch,
        parameters: run.plan.parameters,
        audio_seconds_per_second: totals.audio_seconds / seconds,
        wait_share: totals.wait_seconds / seconds,
        wait_share_median: totals.wait_share_at(0.5),
        wait_share_p99: totals.wait_share_at(0.99),
        left_out,
        warnings: Vec::new(),
        examples: scores.examples,
    }
}
