//! Report of one or several runs as a single HTML file.
//!
//! The file needs nothing else: it holds its style, its plots, its pictures and its sounds, and it asks no server for
//! anything. It contains no program, and its content policy forbids any. The numbers of the page stand in it as JSON, in
//! the element with the id `data`.

mod curves;
mod detail;
mod errors;
mod evaluation;
mod events;
mod examples;
mod html;
mod ledger;
mod machine;
mod machine_plots;
mod machine_text;
mod media;
mod memory;
mod notice;
mod numbers;
mod plan;
mod plot;
mod run_data;
mod scale;
mod setup;
#[cfg(test)]
mod tests;
mod thin;
mod verdict;
mod word_diff;

pub use run_data::RunData;

use detail::Detail;
use examples::Room;
use html::{clipped, escaped, folded, note, number, section};
use numbers::{NUMBERS_VERSION, PageNumbers, RunNumbers};
use plot::Plot;

use crate::owner_colors::{OWNER_CLASSES, OWNER_VARIABLES};

/// Largest page, in bytes: a page can be sent by mail and opens at once.
const PAGE_BYTES_MAX: usize = 2_000_000;
/// Most runs of a page: with more, colors and columns are too similar.
const RUNS_MAX: usize = 8;
/// Style of the page, between the colors of the owners of time and their classes.
const STYLE: &str = include_str!("style.css");
/// Forbids programs, and everything that is not in the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:";

/// Report of one or several runs as a single HTML file.
///
/// ```
/// use plimsoll_core::{Event, StepEvent};
/// use plimsoll_monitor::{Recorder, ReportPage, RunData};
///
/// let folder = tempfile::tempdir()?;
/// let mut recorder = Recorder::append(&folder.path().join("metrics.jsonl"))?;
/// recorder.record(&Event::Step(StepEvent { step: 1, loss: 4.0, ..StepEvent::default() }))?;
/// let run = RunData::read(folder.path()).expect("the folder has a record");
/// let page = ReportPage::new(&[run]).to_html();
/// assert!(page.starts_with("<!DOCTYPE html>") && page.len() < 2_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReportPage {
    html: String,
}

impl ReportPage {
    /// Makes the report of `runs`. Several runs are compared with the first of them. A page has at most eight runs and
    /// at most 2 MB: if there is more, sounds are left out first, then pictures, then points of curves and rows of lists.
    pub fn new(runs: &[RunData]) -> Self {
        let mut pages = Detail::levels().map(|detail| page(runs, &detail));
        let mut html = pages.next().unwrap_or_default();
        while html.len() >= PAGE_BYTES_MAX {
            let Some(smaller) = pages.next() else { break };
            html = smaller;
        }
        Self { html }
    }

    /// Returns the whole file.
    pub fn to_html(&self) -> String {
        self.html.clone()
    }
}

fn page(all: &[RunData], detail: &Detail) -> String {
    let runs = &all[..all.len().min(RUNS_MAX)];
    let numbers: Vec<RunNumbers> = runs.iter().map(|run| RunNumbers::new(run, detail.bars)).collect();
    let names: Vec<String> = runs.iter().map(|run| clipped(&run.report.name, detail.text.min(80))).collect();
    let title = if names.is_empty() { "no runs".into() } else { names.join(", ") };
    let mut body = format!("<header>\n{}", verdict::verdicts(runs, &numbers, detail));
    if all.len() > runs.len() {
        body += &note(&format!("Runs that do not fit on this page: {}.", all.len() - runs.len()));
    }
    body += &match runs {
        [] => String::new(),
        [run] => verdict::tiles(run, &numbers[0]),
        _ => verdict::key_numbers(runs, &numbers, detail),
    };
    let sections = if runs.is_empty() { String::new() } else { sections(runs, &numbers, detail) };
    body += &format!("{}</header>\n<main>\n{sections}", contents(&sections));
    let runs_left_out = all.len() - runs.len();
    let data = PageNumbers { schema_version: NUMBERS_VERSION, runs: numbers, runs_left_out }.to_json();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\
         \"Content-Security-Policy\" content=\"{POLICY}\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n\
         {}{STYLE}{}</style>\n</head>\n<body>\n{HATCH}\n{body}</main>\n<footer>Made by plimsoll-monitor {}. The numbers of \
         this page are in it as JSON, in the element <code>data</code>.</footer>\n<script type=\"application/json\" \
         id=\"data\">{data}</script>\n</body>\n</html>\n",
        *OWNER_VARIABLES,
        *OWNER_CLASSES,
        env!("CARGO_PKG_VERSION"),
    )
}

/// Makes the sections in the order in which a reader asks: what the model does, how it learned, what it took, on what.
fn sections(runs: &[RunData], numbers: &[RunNumbers], detail: &Detail) -> String {
    let mut room = Room::of(detail);
    let mut body = examples::examples(runs, detail, &mut room);
    body += &errors::errors(runs, detail, &mut room);
    let [learning, closer] = curves::learning(runs);
    let closer = folded_plots("Learning rate, gradient and terms of the loss", runs, &closer, detail);
    let mut drawn = plots(runs, &learning, detail);
    if drawn.is_empty() {
        drawn = note("No curve yet: a curve takes two steps with a finite loss.");
    }
    body += &section("learning", "Learning", &(drawn + &note(&curves::without_loss(runs)) + &closer));
    let time = ledger::ledger(runs, numbers, detail) + &ledger::totals(runs, numbers, detail);
    let batches =
        folded_plots("Batches: padding, audio, utterances, micro-batches", runs, &curves::batches(runs), detail);
    let speed = plots(runs, &[curves::speed(runs)], detail);
    body += &section("time", "Where the time went", &(time + &speed + &batches));
    let memory = match runs {
        [run] => memory::memory(run, &numbers[0], detail),
        _ => plots(runs, &[curves::memory(runs)], detail),
    };
    body += &section("memory", "Memory", &memory);
    body += &section("gpu", "The GPU during the run", &machine::machine(runs, detail));
    body += &events::events(runs, detail);
    body += &setup::configuration(runs, detail);
    body + &setup::setup(runs, detail)
}

/// Makes the links to the sections.
fn contents(sections: &str) -> String {
    let link = |part: &str| {
        let (id, rest) = part.split_once("\">\n<h2>")?;
        Some(format!("<a href=\"#{id}\">{}</a> ", rest.split_once("</h2>")?.0))
    };
    let links: String = sections.split("<section id=\"").skip(1).filter_map(link).collect();
    if links.is_empty() { links } else { format!("<nav aria-label=\"Sections\">{links}</nav>\n") }
}

/// Pattern of the time without a known owner.
const HATCH: &str = "<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" \
                     width=\"24\" height=\"24\" patternUnits=\"userSpaceOnUse\"><rect class=\"hatch-back\" \
                     width=\"24\" height=\"24\"/><path class=\"hatch-line\" d=\"M0 24L24 0M-6 6L6 -6M18 30L30 18\"/>\
                     </pattern></defs></svg>";

fn plots(runs: &[RunData], plots: &[Plot], detail: &Detail) -> String {
    // One range of steps for all plots: what happens at one place in two of them happened at the same time.
    let last_step = runs.iter().map(|run| run.report.history.steps).max().unwrap_or(0) as f64;
    let (mut drawn, mut constant) = (String::new(), Vec::new());
    for plot in plots {
        match plot.constant() {
            Some(value) if plot.curves.iter().any(|curve| curve.points.len() > 1) => {
                let unit = if plot.unit.is_empty() { String::new() } else { format!(" {}", escaped(&plot.unit)) };
                constant.push(format!("{}: always {}{unit}.", escaped(&plot.title), number(value)));
            }
            _ => drawn += &plot.to_html(last_step, detail.points),
        }
    }
    let drawn = if drawn.is_empty() { drawn } else { format!("<div class=\"plots\">{drawn}</div>\n") };
    drawn + &note(&constant.join(" "))
}

/// Draws plots for a closer look, which a reader unfolds.
fn folded_plots(title: &str, runs: &[RunData], all: &[Plot], detail: &Detail) -> String {
    let body = plots(runs, all, detail);
    if body.is_empty() { body } else { folded(title, &body) }
}
