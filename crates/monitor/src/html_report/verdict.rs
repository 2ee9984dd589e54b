//! The first lines of a page: how good each model is, whether it overfits, and where the time went.

use plimsoll_core::units::AudioSpeed;
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
/// Most characters of the label of a score. A label is a few words, and a damaged record may have more.
const LABEL: usize = 200;

/// Makes the heading and the verdict of every run.
pub(super) fn verdicts(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    match runs {
        [] => "<h1>No runs</h1>\n<p class=\"verdict\">There is no run to report.</p>\n".into(),
        [run] => format!("<h1>{}</h1>\n{}", heading(run, detail), verdict(run, &numbers[0])),
        _ => {
            let one = |(color, (run, numbers)): (usize, (&RunData, &RunNumbers))| {
                let (key, heading) = (format!("<i class=\"key c{color}\"></i>"), heading(run, detail));
                format!("<div class=\"run\"><h2>{key}{heading}</h2>\n{}</div>\n", verdict(run, numbers))
            };
            let all: String = runs.iter().zip(numbers).enumerate().map(one).collect();
            format!("<h1>{} compared</h1>\n{all}", counted(runs.len() as u64, "run"))
        }
    }
}

/// Number of a tile: name, value, and what the value compares with.
type Tile = (String, String, String);

/// Makes the tiles with the most important numbers of a single run.
pub(super) fn tiles(run: &RunData, numbers: &RunNumbers) -> String {
    let history = &run.report.history;
    let plain = |name: &str, value: String, context: String| (name.to_string(), value, context);
    let mut tiles: Vec<Tile> = Vec::new();
    let on = held_out(run).map_or_else(String::new, |count| format!("on {}", counted(count, "utterance")));
    // The first score is the verdict.
    tiles.extend(
        numbers
            .scores
            .iter()
            .skip(1)
            .take(4)
            .map(|score| (clipped(label_of(score), LABEL), score.formatted_value(), on.clone())),
    );
    let epochs = match numbers.epochs {
        0 => "in the first epoch".into(),
        count => counted(count, "whole epoch"),
    };
    let total = run.report.setup.total_steps.filter(|total| *total > history.steps);
    let planned = total.map_or(String::new(), |total| format!("of {total}, "));
    tiles.push(plain("steps", history.steps.to_string(), format!("{planned}{epochs}")));
    let training = format!("{} of steps and their data", history.train_seconds);
    tiles.push(plain("time", Seconds(numbers.total_seconds).to_string(), training));
    tiles.extend(
        numbers
            .audio_seconds_per_second
            .map(|speed| plain("speed", AudioSpeed(speed).to_string(), "waiting for data included".into())),
    );
    tiles.extend(
        known_share(numbers, TimeOwner::Data)
            .map(|share| plain("waiting for data", percent(share), "of the time".into())),
    );
    if numbers.peak_bytes > 0 {
        let planned = run.planned_peak.map_or(String::new(), |planned| format!("of {planned} planned"));
        tiles.push(plain("peak memory", Bytes(numbers.peak_bytes).to_string(), planned));
    }
    let tile = |(name, value, context): &Tile| {
        let context = if context.is_empty() { String::new() } else { format!("<dd class=\"context\">{context}</dd>") };
        format!("<div><dt>{name}</dt><dd>{value}</dd>{context}</div>")
    };
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
        row("time", &|run| Some(run.total_seconds), &seconds),
        row("seconds a step", &|run| per_step(run), &seconds),
        row("speed", &|run| run.audio_seconds_per_second, &|speed| AudioSpeed(speed).to_string()),
        row("computing", &|run| known_share(run, TimeOwner::Compute), &percent),
        row("waiting for data", &|run| known_share(run, TimeOwner::Data), &percent),
        row("padding", &|run| run.padding, &percent),
        row("peak memory", &|run| Some(run.peak_bytes as f64).filter(|peak| *peak > 0.0), &bytes),
        row("out of memory", &|run| run.events.get("out_of_memory").map(|count| *count as f64), &number),
    ]);
    rows.retain(|row| row[1..].iter().any(|cell| cell != "–"));
    table("Key numbers", "numbers", &titles(runs, detail), &rows)
}

/// Makes the titles of a table with a column for each run.
pub(super) fn titles(runs: &[RunData], detail: &Detail) -> Vec<String> {
    let title = |(color, run): (usize, &RunData)| {
        format!("<i class=\"key c{}\"></i>{}", color, clipped(&run.report.name, detail.text.min(80)))
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

/// Makes the name of a run with its state.
fn heading(run: &RunData, detail: &Detail) -> String {
    let name = clipped(&run.report.name, detail.text.min(80));
    let class = match run.report.status {
        RunStatus::Complete | RunStatus::Running => "",
        RunStatus::Stopped => " warn",
        RunStatus::Failed => " bad",
    };
    let state = format!("<span class=\"badge{class}\">{}</span>", run.report.status);
    format!("{name} {state} <small>step {}</small>", steps(run))
}

/// Says how good the model is, then whether it overfits, then where the time went.
fn verdict(run: &RunData, numbers: &RunNumbers) -> String {
    let history = &run.report.history;
    let class = if history.overfitting().is_some() { "fit warn" } else { "fit" };
    let time = match owners(numbers) {
        owners if owners.is_empty() => "The record holds no times".into(),
        owners => format!("Where its {} went: {owners}", Seconds(numbers.total_seconds)),
    };
    format!(
        "<p class=\"verdict\">{}.</p>\n<p class=\"{class}\">{}.</p>\n<p class=\"went\">{time}.</p>\n",
        score_of(run, numbers),
        first_upper(&(history.fit() + &still_better(run, numbers))),
    )
}

/// Says that the score improved after the loss began to show overfitting; empty if it did not.
fn still_better(run: &RunData, numbers: &RunNumbers) -> String {
    let (Some(overfitting), Some(best)) = (run.report.history.overfitting(), numbers.best_step) else {
        return String::new();
    };
    match numbers.scores.first() {
        Some(score) if best > overfitting.step() => {
            format!(". Its {} was best later, after step {best}", clipped(label_of(score), LABEL))
        }
        _ => String::new(),
    }
}

/// Says the first score, on how many held-out utterances, and of which step.
fn score_of(run: &RunData, numbers: &RunNumbers) -> String {
    let Some(score) = numbers.scores.first() else { return "No score yet: the run has not been validated".into() };
    let of = held_out(run).map_or(String::new(), |count| format!(" on {}", counted(count, "held-out utterance")));
    let at = numbers.best_step.map_or(String::new(), |step| format!(", with the checkpoint of step {step}"));
    let value = |score: &Measure| score.formatted_value().replace(' ', "\u{a0}");
    let name = format!("lm_{}", score.name);
    let better = numbers.scores.iter().find(|other| other.name == name && other.value < score.value);
    let with_language =
        better.map_or(String::new(), |other| format!("; <b>{}</b> with the language of its texts", value(other)));
    format!("{} <b>{}</b>{of}{at}{with_language}", first_upper(&clipped(label_of(score), LABEL)), value(score))
}

/// Returns the number of utterances that the scores are of.
fn held_out(run: &RunData) -> Option<u64> {
    let scored = run.summary.as_ref().map(|summary| summary.held_out as u64).filter(|count| *count > 0);
    scored.or(run.plan.held_out())
}

fn label_of(score: &Measure) -> &str {
    if score.label.is_empty() { &score.name } else { &score.label }
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Formats the largest owners of the time, and the share without a known owner if it is large; empty without times.
fn owners(numbers: &RunNumbers) -> String {
    let share = |owner: TimeOwner| numbers.times.share(owner);
    let known = numbers.times.ranked().into_iter().map(|(owner, _)| owner).filter(|owner| *owner != TimeOwner::Unknown);
    let named = known.enumerate().filter(|(rank, owner)| *rank == 0 || share(*owner) >= NAMED_SHARE).take(OWNERS);
    let unknown = Some(TimeOwner::Unknown).filter(|owner| share(*owner) >= NAMED_SHARE);
    let all = named.map(|(_, owner)| owner).chain(unknown);
    all.map(|owner| format!("<b>{}</b> {}", percent(share(owner)), owner.label())).collect::<Vec<_>>().join(", ")
}

fn steps(run: &RunData) -> String {
    let done = run.report.history.steps;
    let total = run.report.setup.total_steps.filter(|total| *total > done);
    total.map_or(done.to_string(), |total| format!("{done} of {total}"))
}

fn known_share(numbers: &RunNumbers, owner: TimeOwner) -> Option<f64> {
    (numbers.total_seconds > 0.0).then(|| numbers.times.share(owner))
}

fn per_step(numbers: &RunNumbers) -> Option<f64> {
    let steps = numbers.step_events as f64 + numbers.steps_repeated as f64;
    (steps > 0.0 && numbers.total_seconds > 0.0).then(|| numbers.total_seconds / steps)
}
