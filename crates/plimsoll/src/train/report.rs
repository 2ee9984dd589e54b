//! What came of a run: the summary in its folder and the lines at its end.

use std::fmt::Write;

use plimsoll_monitor::{Example, Summary};
use plimsoll_speech::asr::{Evaluation, Heard};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_train::RunState;

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
    evaluation: &Evaluation,
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
        cer: evaluation.characters.rate(),
        wer: evaluation.words.rate(),
        held_out: evaluation.utterances.len(),
        train_seconds: state.train_seconds,
        peak_bytes: totals.peak,
        steps: state.step,
        epochs: state.position.epoch,
        parameters: plan.parameters,
        audio_seconds_per_second: totals.audio_seconds / seconds,
        wait_share: totals.wait_seconds / seconds,
        left_out,
        examples: examples(evaluation),
    }
}

/// Three utterances: a good one, a middling one and the worst, by their error rates.
fn examples(evaluation: &Evaluation) -> Vec<Example> {
    let rate = |heard: &&Heard| ErrorCounts::characters(&heard.truth, &heard.heard).rate();
    let mut sorted: Vec<&Heard> = evaluation.utterances.iter().collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then_with(|| a.name.cmp(&b.name)));
    let last = sorted.len().saturating_sub(1);
    let mut places = vec![0, last / 2, last];
    places.dedup();
    let example =
        |heard: &&Heard| Example { name: heard.name.clone(), truth: heard.truth.clone(), output: heard.heard.clone() };
    places.into_iter().filter_map(|place| sorted.get(place)).map(example).collect()
}

/// The last lines of a run.
pub(crate) fn told(summary: &Summary, folder: &RunFolder) -> String {
    let mut text = format!(
        "{}: CER {:.2} %, WER {:.2} % on {} held-out utterances, after {} of training in at most {}\n",
        summary.name,
        summary.cer * 100.0,
        summary.wer * 100.0,
        summary.held_out,
        plimsoll_core::Seconds(summary.train_seconds),
        summary.peak_bytes,
    );
    for (example, kind) in summary.examples.iter().zip(["good", "middling", "worst"]) {
        let _ = writeln!(text, "  {kind}\n    truth   {}\n    output  {}", example.truth, example.output);
    }
    let path = folder.path().display();
    let _ = writeln!(text, "In {path}: summary.md, metrics.jsonl, plan.toml, checkpoints/");
    let _ = writeln!(text, "To read a recording with it: cargo xtask transcribe FILE.wav --run {path}");
    text
}
