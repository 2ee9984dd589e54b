//! Runs below each other, one a line.

use super::card::RunCard;
use super::table::{Align, loss, or_unknown, scores, table};

const TITLES: [&str; 12] =
    ["run", "state", "task", "step", "epoch", "loss", "audio/s", "peak", "waited", "started (UTC)", "best", "device"];
/// Text begins at one place; from `step` to `waited` there are numbers.
const TEXT: [usize; 6] = [0, 1, 2, 9, 10, 11];

/// The runs as a table, one a line.
pub fn listed(cards: &[RunCard]) -> String {
    if cards.is_empty() {
        return "no runs here\n".into();
    }
    let mut rows = vec![TITLES.map(String::from).to_vec()];
    rows.extend(cards.iter().map(row));
    table(&rows, |column| if TEXT.contains(&column) { Align::Left } else { Align::Right })
}

fn row(card: &RunCard) -> Vec<String> {
    let RunCard { name, standing, outline, course, .. } = card;
    vec![
        name.clone(),
        standing.to_string(),
        or_unknown(outline.task.as_ref()),
        card.told_steps(),
        course.epochs.to_string(),
        loss(course.losses.last()),
        card.told_speed(),
        card.told_peak(),
        card.told_waiting(),
        or_unknown(course.started),
        scores(card.scores()),
        or_unknown(outline.device.as_ref()),
    ]
}
