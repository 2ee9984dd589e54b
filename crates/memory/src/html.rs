//! A timeline as one self-contained HTML page: memory by owner over time, and tables of the peak.

use std::fmt::Write;

use plimsoll_core::Bytes;
use serde_json::json;

use crate::profile::{Column, Level, MemoryProfile, OWNERS, owner_name, phase_name};
use crate::timeline::{Allocation, Owner, Phase, Timeline};

mod drawing;
#[cfg(test)]
mod tests;

/// Largest number of columns of the drawing: about the width of the drawing in pixels.
const COLUMNS_MAX: usize = 1200;

/// Number of rows in the table of the largest allocations.
const LARGEST: usize = 20;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/hover.js");

/// Contents of the HTML page, computed once.
struct Report<'a> {
    timeline: &'a Timeline,
    profile: MemoryProfile,
    columns: Vec<Column>,
    peak: Level,
    /// Owners that ever have memory, from the bottom of the drawing, each with the most memory that it has at once.
    owners: Vec<(Owner, Bytes)>,
}

/// Writes `timeline` as an HTML page: a drawing of memory over time, and tables of the peak by owner, phase and
/// allocation.
///
/// The page loads no other file, so it can be mailed, archived and opened offline.
pub fn html_page(title: &str, timeline: &Timeline) -> String {
    let report = Report::new(timeline);
    let title = escape(title);
    let (lead, chart, legend) = (report.summary(), drawing::chart(&report), report.legend());
    let (by_owner, by_phase, largest) = (report.by_owner(), report.by_phase(), report.largest());
    let data = report.data();
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="lead">{lead}</p>
<figure>
{chart}
<figcaption>{legend}</figcaption>
</figure>
<div class="tables">
{by_owner}
{by_phase}
</div>
{largest}
</main>
<script type="application/json" id="data">{data}</script>
<script>
{SCRIPT}</script>
</body>
</html>
"#
    )
}

impl<'a> Report<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        let profile = MemoryProfile::new(timeline);
        let columns = profile.columns(COLUMNS_MAX);
        let peak = profile.peak();
        let owners =
            OWNERS.into_iter().map(|owner| (owner, profile.most(owner))).filter(|(_, most)| most.0 > 0).collect();
        Self { timeline, profile, columns, peak, owners }
    }

    /// Returns the phase at `moment`; `None` outside of all phases.
    fn phase_at(&self, moment: usize) -> Option<Phase> {
        let at = self.timeline.phases.iter().find(|span| span.start <= moment && moment < span.end);
        at.map(|span| span.phase)
    }

    /// Writes the summary of the report in two sentences: the peak, and the number of allocations and moments.
    fn summary(&self) -> String {
        let (count, moments) = (grouped(self.timeline.allocations.len()), grouped(self.profile.moments()));
        let at = self.phase_at(self.peak.moment).map(|phase| format!(" ({})", phase_name(phase)));
        format!(
            "The peak is <strong>{}</strong> at moment {}{}. The step makes {count} allocations in {moments} moments; \
             a moment is one operation, or one allocation inside it.",
            self.peak.stack.total(),
            grouped(self.peak.moment),
            at.unwrap_or_default(),
        )
    }

    /// Writes the legend: every owner with its color and its largest memory, from the top of the drawing.
    fn legend(&self) -> String {
        let mut items = String::new();
        for (owner, most) in self.owners.iter().rev() {
            let name = owner_name(*owner);
            push(&mut items, format_args!(r#"<li>{}{name} <b>{most}</b></li>"#, swatch(*owner)));
        }
        format!("<p>Largest memory of each owner, from the top of the drawing:</p>\n<ul>{items}</ul>")
    }

    /// Writes the table of the memory of each owner at the peak.
    fn by_owner(&self) -> String {
        let stack = self.profile.at(self.peak.moment);
        let total = stack.total();
        let mut owners: Vec<(Owner, Bytes)> = self.owners.iter().map(|&(owner, _)| (owner, stack.of(owner))).collect();
        owners.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let mut rows = String::new();
        for (owner, bytes) in owners {
            let share = bytes.0 as f64 / total.0.max(1) as f64 * 100.0;
            let name = owner_name(owner);
            push(&mut rows, format_args!("<tr><th scope=row>{}{name}<td>{bytes}<td>{share:.1} %\n", swatch(owner)));
        }
        let foot = format!("<tfoot><tr><th scope=row>all<td>{total}<td>100 %</tfoot>");
        let foot = if total.0 > 0 { foot } else { String::new() };
        table("At the peak, by owner", &["owner", "memory", "share"], &rows, &foot)
    }

    /// Writes the table of the peak of each phase.
    fn by_phase(&self) -> String {
        let mut phases: Vec<(Phase, Level)> = Vec::new();
        for span in &self.timeline.phases {
            let highest = self.profile.highest(span.start..span.end);
            match phases.iter_mut().find(|(phase, _)| *phase == span.phase) {
                Some((_, before)) if before.stack.total() >= highest.stack.total() => {}
                Some((_, before)) => *before = highest,
                None => phases.push((span.phase, highest)),
            }
        }
        let mut rows = String::new();
        for (phase, Level { moment, stack }) in phases {
            let (name, moment, total) = (phase_name(phase), grouped(moment), stack.total());
            push(&mut rows, format_args!("<tr><th scope=row>{name}<td>{total}<td>{moment}\n"));
        }
        table("Peak of each phase", &["phase", "memory", "moment"], &rows, "")
    }

    /// Writes the table of the largest allocations that are alive at the peak.
    fn largest(&self) -> String {
        let at = self.peak.moment;
        let alive = self.timeline.allocations.iter().filter(|one| one.birth <= at && at < one.death);
        let mut alive: Vec<&Allocation> = alive.collect();
        alive.sort_by_key(|one| std::cmp::Reverse(one.size));
        let count = grouped(alive.len());
        let mut rows = String::new();
        for one in alive.into_iter().take(LARGEST) {
            let (size, owner, phase) = (one.size, owner_name(one.owner), phase_name(one.phase));
            let (swatch, made_by) = (swatch(one.owner), escape(one.made_by));
            push(&mut rows, format_args!("<tr><td>{size}<td>{swatch}{owner}<td>{phase}<td><code>{made_by}</code>\n"));
        }
        let caption = format!("Largest of the {count} allocations that are alive at the peak");
        table(&caption, &["size", "owner", "phase", "made by"], &rows, "")
    }

    /// Writes the JSON for the script: for each column its range, its highest moment, and the bytes of each owner at
    /// that moment.
    fn data(&self) -> String {
        let column = |column: &Column| {
            let head = [column.moments.start, column.moments.end, column.highest.moment].map(|moment| moment as u64);
            head.into_iter().chain(self.owners.iter().map(|&(owner, _)| column.highest.stack.of(owner).0)).collect()
        };
        let columns: Vec<Vec<u64>> = self.columns.iter().map(column).collect();
        let owners: Vec<&str> = self.owners.iter().map(|&(owner, _)| owner_name(owner)).collect();
        let phases: Vec<_> = self.timeline.phases.iter().map(|s| (phase_name(s.phase), s.start, s.end)).collect();
        json!({ "owners": owners, "phases": phases, "columns": columns }).to_string()
    }
}

fn table(caption: &str, heads: &[&str], rows: &str, foot: &str) -> String {
    let heads: String = heads.iter().map(|head| format!("<th scope=col>{head}")).collect();
    let empty = "<tr><td colspan=4>none\n";
    let rows = if rows.is_empty() { empty } else { rows };
    format!(
        "<section class=\"table\"><h2>{caption}</h2>\n<table><thead><tr>{heads}</thead>\n<tbody>\n{rows}</tbody>{foot}\
         </table></section>"
    )
}

/// Writes a square in the color of `owner`.
fn swatch(owner: Owner) -> String {
    format!(r#"<i class="swatch {}"></i>"#, owner_name(owner))
}

/// Appends formatted text to `page`.
fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string cannot fail");
}

/// Writes a number with commas between its thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes `text` for an HTML element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
