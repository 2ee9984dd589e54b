//! Runs side by side: where they differ, what they scored, and their losses at equal steps.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll_core::{Measure, MeasureUnit};
use serde::Serialize;

use super::card::RunCard;
use super::table::{Align, indented, loss, or_unknown, table};

/// Rows of losses: enough to see two curves cross, few enough to read.
const LOSS_ROWS: u64 = 10;

/// Runs side by side. Each list has one entry for each run, in their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Their names.
    pub runs: Vec<String>,
    /// How they went.
    pub facts: Vec<Difference>,
    /// The configuration's values that are not the same in all.
    pub config: Vec<Difference>,
    /// Whether the scores are those of the end. Where a run has none, those of the best validations are compared:
    /// the two may be of different utterances.
    pub at_the_end: bool,
    /// What their best models scored.
    pub scores: Vec<ScoreRow>,
    /// Their losses at equal steps, as far as all have come.
    pub losses: Vec<LossRow>,
}

/// A fact or a key, and what it is in each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// What it is; none where the run does not say.
    pub values: Vec<Option<String>>,
}

/// A score of each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreRow {
    /// Its short name.
    pub name: String,
    /// What it is.
    pub label: String,
    /// How it is told.
    pub unit: MeasureUnit,
    /// How much it is.
    pub values: Vec<Option<f64>>,
    /// How much more that is than in the first run.
    pub differences: Vec<Option<f64>>,
}

/// The loss of each run at a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossRow {
    /// The last step.
    pub step: u64,
    /// The mean loss over the steps since the row above.
    pub means: Vec<Option<f64>>,
}

/// The runs side by side; as text a page for people.
pub fn compared(cards: &[RunCard]) -> Comparison {
    let at_the_end = cards.iter().all(|card| !card.verdict.is_empty());
    let scored: Vec<&[Measure]> =
        cards.iter().map(|card| if at_the_end { &card.verdict } else { card.course.best_scores() }).collect();
    Comparison {
        runs: cards.iter().map(|card| card.name.clone()).collect(),
        facts: facts(cards),
        config: config(cards),
        at_the_end,
        scores: scores(&scored),
        losses: losses(cards),
    }
}

fn facts(cards: &[RunCard]) -> Vec<Difference> {
    let fact = |name: &str, of: &dyn Fn(&RunCard) -> String| Difference {
        name: name.into(),
        values: cards.iter().map(|card| Some(of(card))).collect(),
    };
    vec![
        fact("state", &|card| card.standing.to_string()),
        fact("steps", &RunCard::told_steps),
        fact("epochs", &|card| card.course.epochs.to_string()),
        fact("last loss", &|card| loss(card.course.losses.last())),
        fact("training time", &|card| card.course.train_seconds.to_string()),
        fact("audio a second", &RunCard::told_speed),
        fact("waited", &RunCard::told_waiting),
        fact("peak memory", &RunCard::told_peak),
        fact("parameters", &|card| or_unknown(card.outline.parameters)),
        fact("device", &|card| or_unknown(card.outline.device.as_ref())),
        fact("commit", &|card| or_unknown(card.outline.commit.as_ref())),
    ]
}

fn config(cards: &[RunCard]) -> Vec<Difference> {
    let keys: BTreeSet<&String> = cards.iter().flat_map(|card| card.outline.config.keys()).collect();
    let row = |key: &String| Difference {
        name: key.clone(),
        values: cards.iter().map(|card| card.outline.config.get(key).cloned()).collect(),
    };
    keys.into_iter().map(row).filter(|row| row.values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

/// Scores of the same name below each other.
fn scores(runs: &[&[Measure]]) -> Vec<ScoreRow> {
    let mut rows: Vec<ScoreRow> = Vec::new();
    for Measure { name, label, unit, .. } in runs.iter().copied().flatten() {
        if rows.iter().any(|row| row.name == *name) {
            continue;
        }
        let of = |scores: &&[Measure]| scores.iter().find(|score| score.name == *name).map(|score| score.value);
        let values: Vec<Option<f64>> = runs.iter().map(of).collect();
        let differences = values.iter().map(|value| Some((*value)? - values[0]?)).collect();
        rows.push(ScoreRow { name: name.to_string(), label: label.to_string(), unit: *unit, values, differences });
    }
    rows
}

fn losses(cards: &[RunCard]) -> Vec<LossRow> {
    let steps = cards.iter().map(|card| card.course.steps).min().unwrap_or(0);
    let rows = LOSS_ROWS.min(steps);
    let end = |row: u64| (u128::from(steps) * u128::from(row) / u128::from(rows)) as u64;
    let row = |row: u64| LossRow {
        step: end(row),
        means: cards.iter().map(|card| card.course.losses.mean_over(end(row - 1) + 1..=end(row))).collect(),
    };
    (1..=rows).map(row).collect()
}

impl ScoreRow {
    fn told(&self, run: usize) -> String {
        let told = |value| Measure { name: "".into(), label: "".into(), value, unit: self.unit }.formatted_value();
        let Some(value) = self.values[run] else { return or_unknown(None::<String>) };
        match self.differences[run] {
            Some(difference) if run > 0 => {
                let sign = if difference < 0.0 { "-" } else { "+" };
                format!("{} ({sign}{})", told(value), told(difference.abs()))
            }
            _ => told(value),
        }
    }
}

impl Comparison {
    /// A table under its title; none where no row is in it.
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

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_string()).chain(cells).collect()
}

fn lines(rows: &[Difference]) -> Vec<Vec<String>> {
    rows.iter().map(|line| row(&line.name, line.values.iter().map(|value| or_unknown(value.as_ref())))).collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scores = self.scores.iter().map(|score| row(&score.name, (0..self.runs.len()).map(|run| score.told(run))));
        let losses = self.losses.iter().map(|at| row(&at.step.to_string(), at.means.iter().map(|mean| loss(*mean))));
        let title = match self.at_the_end {
            true => "Scores of the best models at the end (and how far from the first run's)",
            false => "Scores of the best validations (and how far from the first run's)",
        };
        let sections = [
            self.section("How they went", "", lines(&self.facts), Align::Left),
            self.section("Configuration, where it differs", "", lines(&self.config), Align::Left),
            self.section(title, "", scores.collect(), Align::Left),
            self.section("Mean loss up to equal steps", "step", losses.collect(), Align::Right),
        ];
        f.write_str(&sections.into_iter().flatten().collect::<Vec<_>>().join("\n"))
    }
}
