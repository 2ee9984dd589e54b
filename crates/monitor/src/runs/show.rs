//! One run in detail.

use std::fmt::Write;

use plimsoll_core::{Measure, Seconds};

use super::card::{RunCard, Standing};
use super::course::{Course, Validation};
use super::curve::{LossCurve, POINTS_MAX, sparkline};
use super::table::{Align, UNKNOWN, indented, loss, or_unknown, plain, scores, table};

/// All that is known of a run, as a page.
pub fn shown(card: &RunCard) -> String {
    let mut page = format!("{}: {}\n\n", plain(&card.name), headline(card));
    page += &indented(&table(&facts(card), |_| Align::Left));
    page += &curve(&card.course.losses);
    page += &validations(&card.course.validations);
    if !card.verdict.is_empty() {
        let _ = write!(page, "\nThe best model at the end\n  {}\n", scores(&card.verdict));
    }
    if !card.notes.is_empty() {
        let _ = write!(page, "\nNotes\n{}", indented(&card.notes.join("\n")));
    }
    page
}

fn headline(card: &RunCard) -> String {
    let Course { steps, epochs, .. } = card.course;
    let of = match (card.standing, card.outline.total_steps) {
        (Standing::Running | Standing::Stopped, Some(total)) => format!(" of {total}"),
        _ => String::new(),
    };
    let state = match card.standing {
        Standing::Complete => "complete after",
        Standing::Running => "running, at",
        Standing::Stopped => "stopped at",
    };
    format!("{state} step {steps}{of}, epochs completed: {epochs}")
}

fn facts(card: &RunCard) -> Vec<Vec<String>> {
    let RunCard { outline, course, .. } = card;
    let ended =
        course.started.zip(course.last).map(|(start, last)| format!("{last}, {} later", Seconds(last.0 - start.0)));
    let facts = [
        ("folder", card.folder.display().to_string()),
        ("task", or_unknown(outline.task.as_ref())),
        ("device", or_unknown(outline.device.as_ref())),
        ("parameters", or_unknown(outline.parameters)),
        ("seed", or_unknown(outline.seed)),
        ("commit", or_unknown(outline.commit.as_ref())),
        ("started (UTC)", or_unknown(course.started)),
        ("last record", or_unknown(ended)),
        ("training time", course.train_seconds.to_string()),
        ("audio a second", card.told_speed()),
        ("waiting for data", card.told_waiting()),
        ("peak memory", card.told_peak()),
        ("went wrong", went_wrong(course)),
    ];
    facts.map(|(name, fact)| vec![name.to_string(), fact]).into()
}

fn went_wrong(course: &Course) -> String {
    let counts = [
        (course.skipped, "steps not taken"),
        (course.out_of_memory, "times out of memory"),
        (course.lowered, "times the limit was lowered"),
        (course.left_out, "samples left out"),
    ];
    let told: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect();
    if told.is_empty() { "nothing".into() } else { told.join(", ") }
}

fn curve(losses: &LossCurve) -> String {
    let points = losses.thinned(POINTS_MAX);
    let [Some(first), Some(last)] = [points.first(), points.last()] else { return String::new() };
    let all = || points.iter().map(|point| point.loss);
    let [low, high] = [all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max)];
    let each = losses.0.len().div_ceil(POINTS_MAX);
    let told = if each > 1 { format!("each sign is the mean of {each} steps; ") } else { String::new() };
    format!(
        "\nLoss\n  {} {} {}\n  {told}lowest {low:.3}, highest {high:.3}, last step {}\n",
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
    // A later program may measure more; a column is for each name that ever came.
    let mut names: Vec<&str> = Vec::new();
    for score in all.iter().flat_map(|validation| &validation.scores) {
        if !names.contains(&&*score.name) {
            names.push(&score.name);
        }
    }
    let titles = ["step", "epoch"].iter().chain(&names).map(ToString::to_string).collect();
    let mut rows: Vec<Vec<String>> = vec![titles];
    for Validation { step, epoch, scores, best } in all {
        let of = |name| scores.iter().find(|score| score.name == name).map_or(UNKNOWN.into(), Measure::formatted_value);
        let mut row = vec![step.to_string(), epoch.to_string()];
        row.extend(names.iter().map(|name| of(*name)));
        row.push(if *best { "the best so far".into() } else { String::new() });
        rows.push(row);
    }
    let mark = names.len() + 2;
    let text = table(&rows, |column| if column == mark { Align::Left } else { Align::Right });
    format!("\nValidations\n{}", indented(&text))
}
