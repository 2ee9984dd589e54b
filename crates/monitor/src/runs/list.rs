//! Table of runs, one run per line.

use super::report::RunReport;
use super::table::{Align, loss, or_unknown, scores, table};

const TITLES: [&str; 12] =
    ["run", "state", "task", "step", "epoch", "loss", "audio/s", "peak", "waited", "started (UTC)", "best", "device"];
/// Indices of the text columns, which are aligned to the left. The other columns are numbers.
const TEXT: [usize; 6] = [0, 1, 2, 9, 10, 11];

/// Formats the runs as a table, one run per line.
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
        history.epochs.to_string(),
        loss(history.losses.last()),
        report.speed_text(),
        report.peak_text(),
        report.waiting_text(),
        or_unknown(history.started),
        scores(report.scores()),
        or_unknown(setup.device.as_ref()),
    ]
}
