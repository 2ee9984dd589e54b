//! The last lines of a run.

use std::fmt::Write;

use plimsoll_core::{Measure, MeasureUnit};
use plimsoll_monitor::Summary;
use plimsoll_recipes::training::RunFolder;

/// The last lines of a run.
pub(crate) fn last_lines(summary: &Summary, folder: &RunFolder) -> String {
    // Rates are written as initials, other scores as words.
    let score = |score: &Measure| match score.unit {
        MeasureUnit::Share => format!("{} {}", score.name.to_uppercase(), score.formatted_value()),
        _ => score.to_string(),
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
