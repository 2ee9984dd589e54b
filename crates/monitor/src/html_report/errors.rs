//! The section of the errors of recognizers.

use plimsoll_core::counted;

use super::detail::Detail;
use super::evaluation::{Confusion, Counts, Evaluation, Group, Ranked, Worst};
use super::examples::{Room, text_example};
use super::html::{clipped, note, percent, section, table};
use super::run_data::RunData;
use crate::Example;

/// Most rows of a table.
const ROWS: usize = 20;
/// Most rows of a table of words.
const WORDS: usize = 10;

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
