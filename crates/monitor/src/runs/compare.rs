//! Comparison of runs: their differences, their scores, and their losses at equal steps.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::{Measure, MeasureUnit};
use serde::Serialize;

use super::report::RunReport;
use super::table::{Align, indented, loss, or_unknown, table};

/// Maximum number of rows of losses: enough to see two curves cross, few enough to read.
const LOSS_ROWS: u64 = 10;

/// Comparison of runs. Every list of values has one entry per run, in the order of the runs.
///
/// The comparison prints as a page for people and serializes for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Facts about the history of each run, such as steps and speed.
    pub facts: Vec<Difference>,
    /// Configuration values that differ between the runs.
    pub config: Vec<Difference>,
    /// Whether the scores were computed at the end of each run. If a run has no such scores, the best validations of
    /// all runs are compared instead, which may cover other utterances.
    pub at_the_end: bool,
    /// Scores of the best model of each run.
    pub scores: Vec<ScoreRow>,
    /// Losses of all runs at equal steps, up to the last step that all runs have reached.
    pub losses: Vec<LossRow>,
}

/// Fact or configuration key with its value in each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the fact or configuration key.
    pub name: String,
    /// Value of the fact or key in each run; `None` for a run without it.
    pub values: Vec<Option<String>>,
}

/// Score with its value in each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreRow {
    /// Short name of the score.
    pub name: String,
    /// Full name of the score.
    pub label: String,
    /// Unit in which the score is printed.
    pub unit: MeasureUnit,
    /// Value of the score in each run; `None` for a run without it.
    pub values: Vec<Option<f64>>,
    /// Value of the score in each run minus its value in the first run; `None` if either run has no value.
    pub differences: Vec<Option<f64>>,
}

/// Mean loss of each run over an interval of steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossRow {
    /// Last step of the interval.
    pub step: u64,
    /// Mean loss of each run over the steps since the previous row; `None` for a run without a loss in these steps.
    pub means: Vec<Option<f64>>,
}

impl Comparison {
    /// Compares `reports`.
    pub fn new(reports: &[RunReport]) -> Self {
        let at_the_end = reports.iter().all(|report| !report.final_scores.is_empty());
        let scores_of = |report: &'_ RunReport| match at_the_end {
            true => report.final_scores.clone(),
            false => report.history.best_scores().to_vec(),
        };
        Self {
            runs: reports.iter().map(|report| report.name.clone()).collect(),
            facts: facts(reports),
            config: config(reports),
            at_the_end,
            scores: score_rows(&reports.iter().map(scores_of).collect::<Vec<_>>()),
            losses: losses(reports),
        }
    }

    /// Formats a table of the comparison under its title, with `first` as the heading of the first column and the names
    /// of the runs as the headings of the other columns. Returns `None` if there are no rows.
    fn section(&self, title: &str, first: &str, rows: Vec<Vec<String>>, align: Align) -> Option<String> {
        if rows.is_empty() {
            return None;
        }
        let titles = row(first, self.runs.iter().cloned());
        let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
        let text = table(&rows, |column| if column == 0 { Align::Left } else { align });
        Some(format!("{title}\n{}", indented(&text)))
    }
}

fn facts(reports: &[RunReport]) -> Vec<Difference> {
    let fact = |name: &str, value: &dyn Fn(&RunReport) -> String| Difference {
        name: name.into(),
        values: reports.iter().map(|report| Some(value(report))).collect(),
    };
    vec![
        fact("state", &|report| report.status.to_string()),
        fact("steps", &RunReport::steps_text),
        fact("epochs", &|report| report.history.epochs.to_string()),
        fact("last loss", &|report| loss(report.history.losses.last())),
        fact("training time", &|report| report.history.train_seconds.to_string()),
        fact("speed", &RunReport::speed_text),
        fact("waited", &RunReport::waiting_text),
        fact("peak memory", &RunReport::peak_text),
        fact("parameters", &|report| or_unknown(report.setup.parameters)),
        fact("device", &|report| or_unknown(report.setup.device.as_ref())),
        fact("commit", &|report| or_unknown(report.setup.commit.as_ref())),
    ]
}

fn config(reports: &[RunReport]) -> Vec<Difference> {
    let keys: BTreeSet<&String> = reports.iter().flat_map(|report| report.setup.config.keys()).collect();
    let row = |key: &String| Difference {
        name: key.clone(),
        values: reports.iter().map(|report| report.setup.config.get(key).cloned()).collect(),
    };
    keys.into_iter().map(row).filter(|row| row.values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

/// Collects the scores of all runs to one row per score.
fn score_rows(runs: &[Vec<Measure>]) -> Vec<ScoreRow> {
    let mut rows: Vec<ScoreRow> = Vec::new();
    for Measure { name, label, unit, .. } in runs.iter().flatten() {
        if rows.iter().any(|row| row.name == *name) {
            continue;
        }
        let value = |scores: &Vec<Measure>| scores.iter().find(|score| score.name == *name).map(|score| score.value);
        let values: Vec<Option<f64>> = runs.iter().map(value).collect();
        let differences = values.iter().map(|value| Some((*value)? - values[0]?)).collect();
        rows.push(ScoreRow { name: name.to_string(), label: label.to_string(), unit: *unit, values, differences });
    }
    rows
}

fn losses(reports: &[RunReport]) -> Vec<LossRow> {
    let steps = reports.iter().map(|report| report.history.steps).min().unwrap_or(0);
    let rows = LOSS_ROWS.min(steps);
    let end = |row: u64| (u128::from(steps) * u128::from(row) / u128::from(rows)) as u64;
    let row = |row: u64| LossRow {
        step: end(row),
        means: reports.iter().map(|report| report.history.losses.mean_over(end(row - 1) + 1..=end(row))).collect(),
    };
    (1..=rows).map(row).collect()
}

impl ScoreRow {
    /// Formats the score of the run with index `run`, and its difference from the first run.
    fn cell(&self, run: usize) -> String {
        let text = |value| Measure { name: "".into(), label: "".into(), value, unit: self.unit }.formatted_value();
        let Some(value) = self.values[run] else { return or_unknown(None::<String>) };
        match self.differences[run] {
            Some(difference) if run > 0 => {
                let sign = if difference < 0.0 { "-" } else { "+" };
                format!("{} ({sign}{})", text(value), text(difference.abs()))
            }
            _ => text(value),
        }
    }
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_string()).chain(cells).collect()
}

fn lines(rows: &[Difference]) -> Vec<Vec<String>> {
    rows.iter().map(|line| row(&line.name, line.values.iter().map(|value| or_unknown(value.as_ref())))).collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scores = self.scores.iter().map(|score| row(&score.name, (0..self.runs.len()).map(|run| score.cell(run))));
        let losses = self.losses.iter().map(|at| row(&at.step.to_string(), at.means.iter().map(|mean| loss(*mean))));
        let title = match self.at_the_end {
            true => "Scores of the best models at the end (and difference from the first run)",
            false => "Scores of the best validations (and difference from the first run)",
        };
        let sections = [
            self.section("Results", "", lines(&self.facts), Align::Left),
            self.section("Configuration, where it differs", "", lines(&self.config), Align::Left),
            self.section(title, "", scores.collect(), Align::Left),
            self.section("Mean loss up to equal steps", "step", losses.collect(), Align::Right),
        ];
        f.write_str(&sections.into_iter().flatten().collect::<Vec<_>>().join("\n"))
    }
}
