//! The first lines of a page: how each run stands, and where its time went.

use plimsoll_core::{Bytes, Measure, Seconds, TimeOwner, counted};

use super::detail::Detail;
use super::html::{clipped, number, percent, table};
use super::numbers::RunNumbers;
use super::run_data::RunData;
use crate::RunStatus;

/// Number of owners that the verdict names.
const OWNERS: usize = 3;
/// Share of the time from which the verdict names an owner.
const NAMED_SHARE: f64 = 0.01;

/// Makes the verdict of every run: one sentence each.
pub(super) fn verdicts(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    if runs.is_empty() {
        return "<p class=\"verdict\">There is no run to report.</p>\n".into();
    }
    let line = |(color, (run, numbers)): (usize, (&RunData, &RunNumbers))| {
        let key = if runs.len() > 1 { format!("<i class=\"key c{}\"></i>", color % 8) } else { String::new() };
        format!("<p class=\"verdict\">{key}{}</p>\n", sentence(run, numbers, detail))
    };
    runs.iter().zip(numbers).enumerate().map(line).collect()
}

/// Makes the tiles with the most important numbers of a single run.
pub(super) fn tiles(run: &RunData, numbers: &RunNumbers) -> String {
    let mut tiles: Vec<(String, String)> = Vec::new();
    tiles.extend(numbers.scores.iter().take(2).map(|score| (clipped(&score.label, 60), score.formatted_value())));
    tiles.push(("steps".into(), steps(run)));
    tiles.push(("time in the ledger".into(), Seconds(numbers.total_seconds).to_string()));
    tiles.extend(
        numbers.audio_seconds_per_second.map(|speed| ("audio a second".into(), format!("{} s", number(speed)))),
    );
    tiles.push(("waiting for data".into(), share_of(numbers, TimeOwner::Data)));
    tiles.extend((numbers.peak_bytes > 0).then(|| ("peak memory".into(), Bytes(numbers.peak_bytes).to_string())));
    let tile = |(name, value): &(String, String)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>");
    format!("<dl class=\"tiles\">{}</dl>\n", tiles.iter().map(tile).collect::<String>())
}

/// Makes the table of the key numbers of several runs, each with its difference from the first run.
pub(super) fn key_numbers(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    let row = |name: &str, value: &dyn Fn(&RunNumbers) -> Option<f64>, text: &dyn Fn(f64) -> String| {
        let first = numbers.first().and_then(value);
        let cell = |(index, numbers): (usize, &RunNumbers)| match (value(numbers), first) {
            (Some(value), Some(first)) if index > 0 => format!("{}{}", text(value), difference(value, first)),
            (Some(value), _) => text(value),
            (None, _) => "–".into(),
        };
        std::iter::once(name.to_string()).chain(numbers.iter().enumerate().map(cell)).collect::<Vec<_>>()
    };
    let seconds = |value: f64| Seconds(value).to_string();
    let bytes = |value: f64| Bytes(value as u64).to_string();
    let mut rows = score_rows(numbers, detail);
    rows.extend([
        row("last loss", &|run| run.last_loss, &number),
        row("steps", &|run| Some(run.steps as f64), &|steps| steps.to_string()),
        row("time in the ledger", &|run| Some(run.total_seconds), &seconds),
        row("seconds a step", &|run| per_step(run), &seconds),
        row("audio a second (s)", &|run| run.audio_seconds_per_second, &number),
        row("computing", &|run| known_share(run, TimeOwner::Compute), &percent),
        row("waiting for data", &|run| known_share(run, TimeOwner::Data), &percent),
        row("padding", &|run| run.padding, &percent),
        row("peak memory", &|run| Some(run.peak_bytes as f64).filter(|peak| *peak > 0.0), &bytes),
        row("out of memory", &|run| run.events.get("out_of_memory").map(|count| *count as f64), &number),
    ]);
    rows.retain(|row| row[1..].iter().any(|cell| cell != "–"));
    table("numbers", &titles(runs, detail), &rows)
}

/// Makes the titles of a table with a column for each run.
pub(super) fn titles(runs: &[RunData], detail: &Detail) -> Vec<String> {
    let title = |(color, run): (usize, &RunData)| {
        format!("<i class=\"key c{}\"></i>{}", color % 8, clipped(&run.report.name, detail.text.min(80)))
    };
    std::iter::once(String::new()).chain(runs.iter().enumerate().map(title)).collect()
}

fn score_rows(numbers: &[RunNumbers], detail: &Detail) -> Vec<Vec<String>> {
    let mut names: Vec<&Measure> = Vec::new();
    for score in numbers.iter().flat_map(|run| &run.scores) {
        if names.iter().all(|known| known.name != score.name) {
            names.push(score);
        }
    }
    let row = |known: &Measure| {
        let of = |run: &RunNumbers| run.scores.iter().find(|score| score.name == known.name).cloned();
        let first = numbers.first().and_then(of).map(|score| score.value);
        let cell = |(index, run): (usize, &RunNumbers)| match (of(run), first) {
            (Some(score), Some(first)) if index > 0 => {
                format!("{}{}", score.formatted_value(), difference(score.value, first))
            }
            (Some(score), _) => score.formatted_value(),
            (None, _) => "–".into(),
        };
        let label = clipped(&known.label, detail.text);
        std::iter::once(label).chain(numbers.iter().enumerate().map(cell)).collect()
    };
    names.into_iter().take(detail.rows).map(row).collect()
}

/// Formats the difference of `value` from that of the first run, as a share of the latter.
fn difference(value: f64, first: f64) -> String {
    let change = (value - first) / first.abs();
    let text = match change {
        _ if value == first => "=".into(),
        _ if !change.is_finite() => return String::new(),
        _ if change.abs() < 0.0005 => "≈".into(),
        _ if change.abs() < 0.1 => format!("{:+.1} %", change * 100.0),
        _ if change.abs() < 10.0 => format!("{:+.0} %", change * 100.0),
        _ => format!("× {}", number(value / first)),
    };
    format!(" <small>{}</small>", text.replace('-', "−"))
}

fn sentence(run: &RunData, numbers: &RunNumbers, detail: &Detail) -> String {
    let name = clipped(&run.report.name, detail.text.min(80));
    let class = match run.report.status {
        RunStatus::Complete => "good",
        RunStatus::Running => "live",
        RunStatus::Stopped => "warn",
        RunStatus::Failed => "bad",
    };
    let badge = format!("<span class=\"badge {class}\">{}</span>", run.report.status);
    let mut text = format!("<b>{name}</b> {badge} at step {}", steps(run));
    // First how good the model is, then whether it will get better, then where the time went.
    if let Some(score) = numbers.scores.first() {
        let held_out = run.summary.as_ref().map(|summary| summary.held_out).filter(|count| *count > 0);
        let of = held_out.map_or(String::new(), |count| format!(" on {}", counted(count, "held-out utterance")));
        let at = numbers.best_step.map_or(String::new(), |step| format!(" (step {step})"));
        let value = score.formatted_value().replace(' ', "\u{a0}");
        text += &format!(". Best {}: <b>{}</b>{of}{at}", clipped(&score.label, 60), value);
    }
    if let Some(overfitting) = run.report.history.overfitting() {
        text += &format!(". <b>Attention</b>: {overfitting}");
    }
    text += &match owners(numbers) {
        owners if owners.is_empty() => ". The record holds no times".into(),
        owners => format!(". Where its {} went: {owners}", Seconds(numbers.total_seconds)),
    };
    text + "."
}

/// Formats the largest owners of the time, and the share without a known owner; empty without times.
fn owners(numbers: &RunNumbers) -> String {
    let share = |owner: TimeOwner| numbers.times.share(owner);
    let known = numbers.times.ranked().into_iter().map(|(owner, _)| owner).filter(|owner| *owner != TimeOwner::Unknown);
    let named = known.enumerate().filter(|(rank, owner)| *rank == 0 || share(*owner) >= NAMED_SHARE).take(OWNERS);
    let unknown = Some(TimeOwner::Unknown).filter(|owner| share(*owner) > 0.0);
    let all = named.map(|(_, owner)| owner).chain(unknown);
    all.map(|owner| format!("<b>{}</b> {}", percent(share(owner)), owner.label())).collect::<Vec<_>>().join(", ")
}

fn steps(run: &RunData) -> String {
    let done = run.report.history.steps;
    let total = run.report.setup.total_steps.filter(|total| *total > done);
    total.map_or(done.to_string(), |total| format!("{done} of {total}"))
}

fn share_of(numbers: &RunNumbers, owner: TimeOwner) -> String {
    known_share(numbers, owner).map_or("–".into(), percent)
}

fn known_share(numbers: &RunNumbers, owner: TimeOwner) -> Option<f64> {
    (numbers.total_seconds > 0.0).then(|| numbers.times.share(owner))
}

fn per_step(numbers: &RunNumbers) -> Option<f64> {
    let steps = numbers.step_events as f64 + numbers.steps_repeated as f64;
    (steps > 0.0 && numbers.total_seconds > 0.0).then(|| numbers.total_seconds / steps)
}
