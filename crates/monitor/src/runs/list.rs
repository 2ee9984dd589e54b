//! Table of runs, one run per line.

use super::report::RunReport;
use super::table::{Align, loss, or_unknown, table};

const TITLES: [&str; 9] = ["run", "state", "task", "step", "loss", "speed", "peak", "started (UTC)", "best"];
/// Indices of the text columns, which are aligned to the left. The other columns are numbers.
const TEXT: [usize; 5] = [0, 1, 2, 7, 8];

/// Formats the runs as a table, one run per line, with what they differ in. The best score is the one by which the best
/// model is chosen.
pub fn run_table(reports: &[RunReport]) -> String {
    if reports.is_empty() {
        return "no runs here\n".into();
    }
    let mut rows = vec![TITLES.map(String::from).to_vec()];
    rows.extend(reports.iter().map(row));
    table(&rows, |column| if TEXT.contains(&column) { Align::Left } else { Align::Right })
}

fn row(report: &RunReport) -> Vec<String> {
    let RunReport { name, status, setup, history, .. } = report;
    vec![
        name.clone(),
        status.to_string(),
        or_unknown(setup.task.as_ref()),
        report.steps_text(),
        loss(history.losses.last()),
        report.speed_text(),
        report.peak_text(),
        or_unknown(history.started),
        or_unknown(report.scores().first()),
    ]
}
