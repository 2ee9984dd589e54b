//! The summary that `train` prints at the end of a run.

use std::fmt::Write;

use plimsoll_core::{Measure, counted};
use plimsoll_monitor::Summary;
use plimsoll_recipes::training::RunFolder;
use serde_json::{Value, json};

/// Makes the last event of `--ui json`: the summary of the run and its folder.
pub(crate) fn last_event(summary: &Summary, folder: &RunFolder) -> Value {
    json!({"event": "summary", "folder": folder.path(), "summary": summary})
}

/// Formats the scores of a run, up to three example utterances, and the files of the run.
pub(crate) fn last_lines(summary: &Summary, folder: &RunFolder) -> String {
    // Error rates have initials as names, in capitals; other scores have words.
    let score = |score: &Measure| match score.name.as_ref() {
        "cer" | "wer" | "lm_cer" | "lm_wer" => score.to_string().replacen("cer", "CER", 1).replacen("wer", "WER", 1),
        _ => score.to_string(),
    };
    let scores: Vec<String> = summary.scores.iter().map(score).collect();
    let mut text = format!(
        "{}: {} on {}, after {} of training in at most {}\n",
        summary.name,
        scores.join(", "),
        counted(summary.held_out, "held-out utterance"),
        plimsoll_core::Seconds(summary.train_seconds),
        summary.peak_bytes,
    );
    let kinds: &[&str] = match summary.examples.len() {
        1 => &["the only one"],
        2 => &["best", "worst"],
        _ => &["best", "typical", "worst"],
    };
    for (example, kind) in summary.examples.iter().zip(kinds) {
        let _ = writeln!(text, "  {kind}\n    truth   {}\n    output  {}", example.truth, example.output);
    }
    for warning in &summary.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let path = folder.path().display();
    let _ = writeln!(text, "Files in {path}: report.html, summary.md, metrics.jsonl, plan.toml, checkpoints/");
    text
}
