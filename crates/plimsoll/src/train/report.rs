//! What came of a run: the summary in its folder and the lines at its end.

use std::fmt::Write;

use plimsoll_core::{Measure, MeasureUnit};
use plimsoll_monitor::Summary;
use plimsoll_train::RunState;

use super::craft::Verdict;
use super::data::Prepared;
use super::folder::RunFolder;
use super::plan::RunPlan;
use super::view::View;

/// The summary of a run that came to its end.
pub(crate) fn summary(
    plan: &RunPlan,
    folder: &RunFolder,
    state: &RunState,
    view: &View,
    verdict: Verdict,
    prepared: &Prepared,
) -> Summary {
    let totals = &view.totals;
    let seconds = (totals.step_seconds + totals.wait_seconds).max(f64::MIN_POSITIVE);
    let mut left_out: Vec<(String, usize)> =
        prepared.left_out.iter().map(|(reason, count)| ((*reason).to_string(), *count)).collect();
    if totals.left_out > 0 {
        left_out.push(("unreadable, or too short for their text, while training".into(), totals.left_out));
    }
    if totals.cut > 0 {
        left_out.push(("cut to `model.max_attention_sequence_length`, counted each time".into(), totals.cut));
    }
    Summary {
        name: folder.name(),
        complete: true,
        scores: verdict.scores,
        held_out: verdict.held_out,
        train_seconds: state.train_seconds,
        peak_bytes: totals.peak,
        steps: state.step,
        epochs: state.position.epoch,
        parameters: plan.parameters,
        audio_seconds_per_second: totals.audio_seconds / seconds,
        wait_share: totals.wait_seconds / seconds,
        wait_share_median: totals.wait_share_at(0.5),
        wait_share_p99: totals.wait_share_at(0.99),
        left_out,
        examples: verdict.examples,
    }
}

/// The last lines of a run.
pub(crate) fn told(summary: &Summary, folder: &RunFolder) -> String {
    // Rates are known by their initials, and a loss is a word.
    let score = |score: &Measure| match score.unit {
        MeasureUnit::Share => format!("{} {}", score.name.to_uppercase(), score.formatted_value()),
        MeasureUnit::Number => score.to_string(),
    };
    let scores: Vec<String> = summary.scores.iter().map(score).collect();
    let mut text = format!(
        "{}: {} on {} held-out utterances, after {} of training in at most {}\n",
        summary.name,
        scores.join(", "),
        summary.held_out,
        plimsoll_core::Seconds(summary.train_seconds),
        summary.peak_bytes,
    );
    for (example, kind) in summary.examples.iter().zip(["good", "middling", "worst"]) {
        let _ = writeln!(text, "  {kind}\n    truth   {}\n    output  {}", example.truth, example.output);
    }
    let path = folder.path().display();
    let _ = writeln!(text, "In {path}: summary.md, metrics.jsonl, plan.toml, checkpoints/");
    text
}
