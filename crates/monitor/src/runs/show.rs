//! Page for people with the details of one run.

use std::fmt::{self, Write};

use plimsoll_core::{Measure, Seconds};

use super::curve::{LossCurve, POINTS_MAX, sparkline};
use super::event_log::Validation;
use super::history::RunHistory;
use super::report::{RunReport, RunStatus};
use super::table::{Align, UNKNOWN, indented, loss, or_unknown, plain, scores, table};

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut page = format!("{}: {}\n\n", plain(&self.name), headline(self));
        page += &indented(&table(&facts(self), |_| Align::Left));
        page += &curve(&self.history.losses);
        page += &validations(&self.history.validations);
        if let Some(overfitting) = self.history.overfitting() {
            write!(page, "\nAttention\n  {overfitting}\n")?;
        }
        if !self.final_scores.is_empty() {
            write!(page, "\nThe best model at the end\n  {}\n", scores(&self.final_scores))?;
        }
        if !self.notes.is_empty() {
            write!(page, "\nNotes\n{}", indented(&self.notes.join("\n")))?;
        }
        f.write_str(&page)
    }
}

fn headline(report: &RunReport) -> String {
    let RunHistory { steps, epochs, .. } = report.history;
    let of = match (report.status, report.setup.total_steps) {
        (RunStatus::Running | RunStatus::Stopped | RunStatus::Failed, Some(total)) => format!(" of {total}"),
        _ => String::new(),
    };
    let state = match report.status {
        RunStatus::Complete => "complete after",
        RunStatus::Running => "running, at",
        RunStatus::Stopped => "stopped at",
        RunStatus::Failed => "failed after",
    };
    format!("{state} step {steps}{of}, epochs completed: {epochs}")
}

fn facts(report: &RunReport) -> Vec<Vec<String>> {
    let RunReport { setup, history, .. } = report;
    let ended = history.started.zip(history.last).map(|(start, last)| match last.0 - start.0 {
        seconds if seconds >= 0.0 => format!("{last}, {} later", Seconds(seconds)),
        // The clock was set back between two sessions of the run.
        _ => last.to_string(),
    });
    let facts = [
        ("folder", report.folder.display().to_string()),
        ("task", or_unknown(setup.task.as_ref())),
        ("device", or_unknown(setup.device.as_ref())),
        ("parameters", or_unknown(setup.parameters)),
        ("seed", or_unknown(setup.seed)),
        ("commit", or_unknown(setup.commit.as_ref())),
        ("started (UTC)", or_unknown(history.started)),
        ("last record", or_unknown(ended)),
        ("training time", history.train_seconds.to_string()),
        ("speed", report.speed_text()),
        ("waiting for data", report.waiting_text()),
        ("peak memory", report.peak_text()),
        ("learning rate", rate(history)),
        ("problems", problems(history)),
    ];
    facts.map(|(name, fact)| vec![name.to_string(), fact]).into()
}

fn rate(history: &RunHistory) -> String {
    match history.rate_lowered {
        0 => "as scheduled".into(),
        times => format!("lowered after validations that did not improve: {times}"),
    }
}

fn problems(history: &RunHistory) -> String {
    let counts = [
        (history.skipped, "steps not taken"),
        (history.out_of_memory, "times out of memory"),
        (history.lowered, "times the batch limit was lowered"),
        (history.over_plan, "steps above the planned memory"),
        (history.left_out, "times an utterance was left out"),
        (history.unfit, "utterances too large for the memory"),
        (history.not_saved, "checkpoints not written"),
    ];
    let found: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

fn curve(losses: &LossCurve) -> String {
    let points = losses.thinned(POINTS_MAX);
    let [Some(first), Some(last)] = [points.first(), points.last()] else { return String::new() };
    let all = || points.iter().map(|point| point.loss);
    let [low, high] = [all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max)];
    let each = losses.0.len().div_ceil(POINTS_MAX);
    let scale = if each > 1 { format!("each block is the mean of {each} steps; ") } else { String::new() };
    format!(
        "\nLoss\n  {} {} {}\n  {scale}lowest {low:.3}, highest {high:.3}, last step {}\n",
        loss(Some(first.loss)),
        sparkline(&points),
        loss(Some(last.loss)),
        loss(losses.last()),
    )
}

fn validations(all: &[Validation]) -> String {
    if all.is_empty() {
        return String::new();
    }
    // A resumed run may measure more than it did before: one column per name that occurs.
    let mut names: Vec<&str> = Vec::new();
    for score in all.iter().flat_map(|validation| &validation.scores) {
        if !names.contains(&&*score.name) {
            names.push(&score.name);
        }
    }
    let titles = ["step", "epoch"].iter().chain(&names).map(ToString::to_string).collect();
    let mut rows: Vec<Vec<String>> = vec![titles];
    for Validation { step, epoch, scores, best } in all {
        let value =
            |name| scores.iter().find(|score| score.name == name).map_or(UNKNOWN.into(), Measure::formatted_value);
        let mut row = vec![step.to_string(), epoch.to_string()];
        row.extend(names.iter().map(|name| value(*name)));
        row.push(if *best { "best so far".into() } else { String::new() });
        rows.push(row);
    }
    let mark = names.len() + 2;
    let text = table(&rows, |column| if column == mark { Align::Left } else { Align::Right });
    format!("\nValidations\n{}", indented(&text))
}
