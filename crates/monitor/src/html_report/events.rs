//! Table of the notable events of a run.

use plimsoll_core::counted;

use super::detail::Detail;
use super::html::{clipped, folded, note, section, table};
use super::notice::NoticeKind;
use super::run_data::RunData;

/// Longest list that is shown unfolded.
const OPEN_ROWS: usize = 5;

/// Makes the section of the events of all runs.
pub(super) fn events(runs: &[RunData], detail: &Detail) -> String {
    let body: String = runs.iter().map(|run| run_events(run, runs.len() > 1, detail)).collect();
    section("events", "Events", &body)
}

fn run_events(run: &RunData, is_named: bool, detail: &Detail) -> String {
    let mut html = String::new();
    for kind in NoticeKind::ALL.into_iter().filter(|kind| run.notices.count(*kind) > 0) {
        html += &of_kind(run, kind, detail);
    }
    let damaged = (run.damaged > 0).then(|| format!("{} of the record are no records", counted(run.damaged, "line")));
    let problems: Vec<String> = run.report.notes.iter().cloned().chain(damaged).collect();
    let notes: String = problems.iter().take(detail.rows).map(|text| note(&clipped(text, detail.text))).collect();
    html = notes + &html;
    if html.is_empty() {
        return html;
    }
    let name = clipped(&run.report.name, detail.text.min(80));
    if is_named { format!("<h3>{name}</h3>\n{html}") } else { html }
}

fn of_kind(run: &RunData, kind: NoticeKind, detail: &Detail) -> String {
    let (kept, count) = (run.notices.of(kind), run.notices.count(kind));
    let row = |(step, text): &(Option<u64>, String)| {
        vec![step.map_or("–".into(), |step| format!("step {step}")), clipped(text, detail.text)]
    };
    let rows: Vec<Vec<String>> = kept.iter().take(detail.rows).map(row).collect();
    let mut body = table(kind.title(), "list steps", &[], &rows);
    let hidden = count - rows.len() as u64;
    if hidden > 0 {
        body += &note(&format!("Not shown: {hidden} more."));
    }
    let class = if kind.is_problem() { "badge bad" } else { "badge" };
    let title = format!("{} <span class=\"{class}\">{count}</span>", kind.title());
    match rows.len() <= OPEN_ROWS && kind.is_problem() {
        true => folded(&title, &body).replacen("<details>", "<details open>", 1),
        false => folded(&title, &body),
    }
}
