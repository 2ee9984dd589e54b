//! Setup of the runs: machine, data and configuration.

use plimsoll_core::Bytes;

use super::detail::Detail;
use super::html::{clipped, escaped, folded, grouped, note, section, table};
use super::run_data::RunData;
use super::verdict::titles;
use crate::{Comparison, Difference, RunReport};

/// Makes the section of the configuration: where runs differ, and then all of it.
pub(super) fn configuration(runs: &[RunData], detail: &Detail) -> String {
    let mut html = String::new();
    if runs.len() > 1 {
        let reports: Vec<RunReport> = runs.iter().map(|run| run.report.clone()).collect();
        let differences = Comparison::new(&reports).config;
        html += &match differences.is_empty() {
            true => note("The configurations are equal."),
            false => rows_of(runs, &differences, detail),
        };
    }
    for run in runs {
        let config = &run.report.setup.config;
        let row = |(key, value): (&String, &String)| {
            vec![format!("<code>{}</code>", clipped(key, detail.text)), clipped(value, detail.text)]
        };
        let rows: Vec<_> = config.iter().take(detail.rows).map(row).collect();
        let mut body = table("All settings", "list", &[], &rows);
        if config.len() > rows.len() {
            body += &note(&format!("Not shown: {} more.", config.len() - rows.len()));
        }
        if !rows.is_empty() {
            html += &folded(&format!("All settings of {}", clipped(&run.report.name, detail.text.min(80))), &body);
        }
    }
    section("configuration", "Configuration", &html)
}

/// Makes the section of the machine and the data.
pub(super) fn setup(runs: &[RunData], detail: &Detail) -> String {
    let mut names: Vec<&'static str> = Vec::new();
    let facts: Vec<Vec<(&'static str, String)>> = runs.iter().map(facts).collect();
    for (name, _) in facts.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let row = |name: &&'static str| {
        let cell = |facts: &Vec<(&'static str, String)>| {
            let found = facts.iter().find(|fact| fact.0 == *name);
            found.map_or("–".into(), |fact| clipped(&fact.1, detail.text))
        };
        std::iter::once(escaped(name)).chain(facts.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    let titles = if runs.len() > 1 { titles(runs, detail) } else { Vec::new() };
    let table = table("Setup", "list", &titles, &rows);
    // A reader cannot change it any more: it is folded, and stands last.
    if table.is_empty() {
        table
    } else {
        section("setup", "Setup", &folded("Machine, data and plan of the run", &table))
    }
}

fn rows_of(runs: &[RunData], differences: &[Difference], detail: &Detail) -> String {
    let row = |difference: &Difference| {
        let cell = |value: &Option<String>| value.as_ref().map_or("–".into(), |value| clipped(value, detail.text));
        let name = format!("<code>{}</code>", clipped(&difference.name, detail.text));
        std::iter::once(name).chain(difference.values.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = differences.iter().take(detail.rows).map(row).collect();
    table("Settings that differ", "list", &titles(runs, detail), &rows)
}

fn facts(run: &RunData) -> Vec<(&'static str, String)> {
    let (setup, history) = (&run.report.setup, &run.report.history);
    let known = |name, value: Option<String>| value.map(|value| (name, value));
    let bytes = |bytes: Bytes| Some(bytes).filter(|bytes| bytes.0 > 0).map(|bytes| bytes.to_string());
    let mut facts: Vec<(&'static str, String)> = [
        known("task", setup.task.clone()),
        known("device", setup.device.clone()),
        known("parameters", setup.parameters.map(grouped)),
        known("seed", setup.seed.map(|seed| seed.to_string())),
        known("commit", setup.commit.clone()),
        known("started (UTC)", history.started.map(|time| time.to_string())),
        known("last record (UTC)", history.last.map(|time| time.to_string())),
        known("training time", Some(history.train_seconds.to_string())),
        known("epochs completed", Some(history.epochs.to_string())),
        known("peak memory", bytes(history.peak_bytes)),
        known("planned peak", run.planned_peak.and_then(bytes)),
        known("memory budget", run.plan.budget().and_then(bytes)),
        known("memory pools at the end", run.pools.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .flatten()
    .collect();
    facts.extend(run.plan.facts());
    if let Some(summary) = &run.summary {
        let left_out: usize = summary.left_out.iter().fold(0, |sum, reason| sum.saturating_add(reason.1));
        facts.push(("held-out utterances of the scores", summary.held_out.to_string()));
        facts.push(("utterances left out", left_out.to_string()));
    }
    facts
}
