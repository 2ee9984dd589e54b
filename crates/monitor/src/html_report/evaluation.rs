//! The errors of a recognizer on held-out utterances: intervals, speakers, lengths, confused words, worst utterances.

use std::fs;
use std::path::Path;

use plimsoll_core::counted;
use serde::Deserialize;

use super::detail::Detail;
use super::examples::{Room, text_example};
use super::html::{clipped, note, percent, section, table};
use super::run_data::RunData;
use crate::Example;

/// File with the evaluation, in the folder of a run: what `plimsoll eval --json` prints.
const FILE: &str = "evaluation.json";
/// Fewest speakers or utterances whose interval says something.
const DRAWN_MIN: usize = 5;
/// Most rows of a table.
const ROWS: usize = 20;
/// Most rows of a table of words.
const WORDS: usize = 10;
/// Most worst utterances.
const WORST: usize = 10;

/// Evaluation of a recognizer. Unknown fields are skipped, and missing ones are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Evaluation {
    utterances: u64,
    search: Search,
    details: Details,
    /// Utterances with the highest character error rates, the worst first.
    pub(super) worst: Vec<Worst>,
}

/// A badly recognized utterance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Worst {
    /// Name of the utterance in the manifest.
    pub(super) name: String,
    truth: String,
    heard: String,
    cer: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Search {
    kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    words: Interval,
    characters: Interval,
    /// Whether sets are drawn from `speakers` or from `utterances`.
    resampled: String,
    /// Number of these.
    drawn: usize,
    correct_utterances: u64,
    speakers: Vec<Group>,
    lengths: Vec<Group>,
    confused_words: Vec<Confusion>,
    deleted_words: Vec<Ranked>,
    inserted_words: Vec<Ranked>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Interval {
    rate: f64,
    low: f64,
    high: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Group {
    name: String,
    utterances: u64,
    words: Counts,
    characters: Counts,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    hits: u64,
    substitutions: u64,
    deletions: u64,
    insertions: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Confusion {
    reference: String,
    hypothesis: String,
    count: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Ranked {
    text: String,
    count: u64,
    occurrences: u64,
}

impl Counts {
    fn rate(self) -> f64 {
        let Self { hits, substitutions, deletions, insertions } = self;
        let [wrong, all] = [[substitutions, deletions, insertions], [hits, substitutions, deletions]]
            .map(|counts| counts.into_iter().fold(0u64, u64::saturating_add) as f64);
        wrong / all
    }
}

impl Evaluation {
    /// Reads the evaluation in the folder of a run; `None` if it is missing, damaged or empty.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(FILE)).ok()?;
        let mut found: Self = serde_json::from_str(&text).ok()?;
        found.worst.truncate(WORST);
        (found.utterances > 0).then_some(found)
    }

    /// Says how sure the error rates are; empty where too few were drawn.
    pub(super) fn interval(&self) -> Option<String> {
        let Details { words, characters, resampled, drawn, .. } = &self.details;
        let unit = if resampled == "speakers" { "speaker" } else { "utterance" };
        let rate = |name: &str, interval: &Interval| {
            let [rate, low, high] = [interval.rate, interval.low, interval.high].map(|share| share * 100.0);
            format!("{name} <b>{rate:.1}\u{a0}%</b> ({low:.1} to {high:.1}\u{a0}%)")
        };
        let drawn = (*drawn >= DRAWN_MIN).then(|| counted(*drawn as u64, unit))?;
        let (cer, wer) = (rate("CER", characters), rate("WER", words));
        Some(format!("{cer}, {wer}. In parentheses: 95 % intervals, drawn over {drawn}"))
    }
}

/// Makes the section of the errors of all runs that have an evaluation.
pub(super) fn errors(runs: &[RunData], detail: &Detail, room: &mut Room) -> String {
    let body: String = runs.iter().map(|run| run_errors(run, runs.len() > 1, detail, room)).collect();
    section("errors", "Errors", &body)
}

fn run_errors(run: &RunData, is_named: bool, detail: &Detail, room: &mut Room) -> String {
    let Some(evaluation) = &run.evaluation else { return String::new() };
    let Evaluation { utterances, search, details, worst } = evaluation;
    let count = counted(*utterances, "utterance");
    let search =
        if search.kind.is_empty() { String::new() } else { format!(" with {} search", clipped(&search.kind, 40)) };
    let mut html = format!(
        "<p>On {count}{search}: {}. Without an error: <b>{}</b> of {utterances}.</p>\n",
        evaluation.interval().unwrap_or_else(|| "too few for intervals".into()),
        details.correct_utterances,
    );
    html += "<div class=\"columns\">";
    html += &groups("By speaker", &details.speakers, detail);
    html += &groups("By length", &details.lengths, detail);
    html += &confusions(&details.confused_words, detail);
    html += &ranked("Left out", &details.deleted_words, detail);
    html += &ranked("Added", &details.inserted_words, detail);
    html += "</div>\n";
    if !worst.is_empty() {
        html += "<h3>Worst utterances</h3>\n";
    }
    for Worst { name, truth, heard, cer } in worst.iter().take(detail.rows) {
        let example = Example { name: name.clone(), truth: truth.clone(), output: heard.clone() };
        html += &text_example(&example, &format!("CER {}", percent(*cer)), &run.recordings, room, detail);
    }
    let name = clipped(&run.report.name, detail.text.min(80));
    if is_named { format!("<h3>{name}</h3>\n{html}") } else { html }
}

/// Says how to get the errors of a recognizer that was not evaluated; nothing for another model.
pub(super) fn hint(run: &RunData) -> String {
    let is_recognizer = run.report.scores().iter().any(|score| score.name == "cer");
    if run.evaluation.is_some() || !is_recognizer || run.report.setup.task.as_deref() != Some("asr") {
        return String::new();
    }
    note(&format!(
        "For errors by speaker and length, confused words and the worst utterances, write the output of <code>plimsoll eval --run \
         {} --json</code> to <code>evaluation.json</code> in the folder of the run, and make this page again.",
        clipped(&run.report.name, 80)
    ))
}

fn groups(title: &str, groups: &[Group], detail: &Detail) -> String {
    let row = |group: &Group| {
        let cell = |counts: Counts| percent(counts.rate());
        let count = group.utterances.to_string();
        vec![clipped(&group.name, detail.text.min(80)), count, cell(group.characters), cell(group.words)]
    };
    let titles = [title, "utterances", "CER", "WER"].map(ToString::to_string);
    listed(title, &titles, &groups.iter().collect::<Vec<_>>(), ROWS, |group| row(group), detail)
}

/// Makes the table of the confusions that happened more than once: a single one is an example.
fn confusions(confusions: &[Confusion], detail: &Detail) -> String {
    let repeated: Vec<&Confusion> = confusions.iter().filter(|found| found.count > 1).collect();
    let text = |text: &str| clipped(text, detail.text.min(80));
    let row = |found: &Confusion| {
        vec![text(&found.reference), format!("<ins>{}</ins>", text(&found.hypothesis)), found.count.to_string()]
    };
    let titles = ["Said", "recognized as", "times"].map(ToString::to_string);
    listed("Most confused words", &titles, &repeated, WORDS, |found| row(found), detail)
}

fn ranked(title: &str, words: &[Ranked], detail: &Detail) -> String {
    let repeated: Vec<&Ranked> = words.iter().filter(|word| word.count > 1).collect();
    let row = |word: &Ranked| {
        let of = if word.occurrences > 0 { format!(" <small>of {}</small>", word.occurrences) } else { String::new() };
        vec![clipped(&word.text, detail.text.min(80)), format!("{}{of}", word.count)]
    };
    listed(title, &[title.into(), "times".into()], &repeated, WORDS, |word| row(word), detail)
}

/// Makes a table of the first rows, and says how many are left out.
fn listed<T>(
    caption: &str,
    titles: &[String],
    all: &[&T],
    rows_max: usize,
    row: impl Fn(&T) -> Vec<String>,
    detail: &Detail,
) -> String {
    let most = detail.rows.min(rows_max);
    let rows: Vec<Vec<String>> = all.iter().take(most).map(|part| row(part)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let hidden = all.len() - rows.len();
    let more = if hidden > 0 { note(&format!("Not shown: {hidden} more.")) } else { String::new() };
    format!("<div>{}{more}</div>", table(caption, "numbers", titles, &rows))
}
