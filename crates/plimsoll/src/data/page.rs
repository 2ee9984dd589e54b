//! The report on a corpus as one self-contained HTML page: counts, distributions, and the unusable utterances.

use std::fmt::Write;

use plimsoll_core::{Seconds, counted};
use plimsoll_data::Spread;

use super::report::{Report, number};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    h2{margin-top:2rem}table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;vertical-align:top}\
    tr:nth-child(even){background:color-mix(in srgb,currentColor 7%,transparent)}\
    svg{width:100%;height:auto}rect{fill:#3b7dd8}text{fill:currentColor;font-size:11px}";

/// Maximum number of unusable utterances that a page lists, so that a browser can still scroll through it.
const MAX_LISTED: usize = 20_000;

/// Makes the text of the page on `report`.
pub(super) fn page(report: &Report) -> String {
    let Report { path, format, listed, usable, stats, .. } = report;
    let title = escape(&path.display().to_string());
    let total = Seconds(report.total_seconds);
    let mut body = format!(
        "<h1>{title}</h1>\n<p>Format {format}: {} listed, <strong>{usable} usable</strong>, {total} of \
         speech, {}.</p>\n",
        counted(listed, "utterance"),
        counted(stats.speakers, "named voice")
    );
    for (name, spread) in [
        ("Seconds per utterance", &stats.seconds),
        ("Characters per text", &stats.characters),
        ("Characters per second", &stats.pace),
    ] {
        let _ = write!(body, "<h2>{name}</h2>\n{}", histogram(spread));
    }
    if !report.unusable.is_empty() {
        body += "<h2>Not usable</h2>\n<table><tr><th>Reason</th><th>Utterances</th></tr>\n";
        for (kind, count) in &report.unusable {
            let _ = writeln!(body, "<tr><td>{}</td><td>{count}</td></tr>", escape(kind));
        }
        body += "</table>\n<h2>List</h2>\n<table>\n";
        for flaw in report.flaws.iter().take(MAX_LISTED) {
            let _ = writeln!(body, "<tr><td>{}</td><td>{}</td></tr>", escape(flaw.kind), escape(&flaw.text));
        }
        body += "</table>\n";
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
}

/// Draws the bins of a distribution as an SVG picture of 720 by 200 pixels.
fn histogram(spread: &Spread) -> String {
    let Spread { min: least, median, p90: ninetieth, max: most, mean, bins, .. } = spread;
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1) as f64;
    let width = 720.0 / bins.len().max(1) as f64;
    let mut svg = String::from("<svg viewBox=\"0 0 720 200\" role=\"img\">\n");
    for (index, bin) in bins.iter().enumerate() {
        let (x, height) = (index as f64 * width, bin.count as f64 / largest * 160.0);
        let (from, to) = (number(bin.from), number(bin.to));
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{from} to {to}: {}</title></rect>",
            x + 1.0,
            170.0 - height,
            width - 2.0,
            bin.count
        );
        // A number below every third bar only, so that numbers do not overlap.
        if index % 3 == 0 {
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"188\">{from}</text>");
        }
    }
    svg += "</svg>\n";
    let caption =
        format!("{least:.1} to {most:.1}; mean {mean:.1}, median {median:.1}, 90th percentile {ninetieth:.1}");
    format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
