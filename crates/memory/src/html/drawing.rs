//! The drawing of the page: an area for each owner over the moments, with axes, phases and a mark at the peak.
//!
//! The areas are SVG and stretch to the width of the page. All text is HTML above them, so that it keeps its size on a
//! small screen.

use plimsoll_core::Bytes;

use super::{Report, escape, grouped, push};
use crate::profile::{owner_name, phase_name};
use crate::timeline::{Owner, PhaseSpan};

/// Height of the drawing in units of the SVG; the width is the number of columns.
const HEIGHT: u64 = 1000;

/// Height of the drawing as a multiple of the peak, which leaves room for the mark of the peak.
const HEADROOM: f64 = 1.16;

/// Largest number of horizontal lines that mark amounts of memory, without the line at zero.
const TICKS_MAX: u64 = 5;

/// The scale of the drawing, from bytes and moments to positions.
struct Scale {
    top: f64,
    moments: f64,
}

impl Scale {
    fn new(report: &Report<'_>) -> Self {
        let top = report.peak.stack.total().0.max(1) as f64 * HEADROOM;
        Self { top, moments: report.profile.moments().max(1) as f64 }
    }

    /// Computes how far below the top of the drawing an amount of `bytes` is drawn, in units of the SVG.
    fn y(&self, bytes: u64) -> u64 {
        HEIGHT - (bytes as f64 / self.top * HEIGHT as f64).round() as u64
    }

    /// Computes how far from the left edge of the drawing `moment` is drawn, in percent of the width.
    fn x(&self, moment: f64) -> f64 {
        moment / self.moments * 100.0
    }

    /// Chooses the amounts at which lines are drawn: multiples of a power of two, which print as round sizes.
    fn ticks(&self) -> Vec<Bytes> {
        let mut step = 1;
        while step * TICKS_MAX < self.top as u64 {
            step *= 2;
        }
        (0..=TICKS_MAX).map(|index| Bytes(index * step)).take_while(|tick| tick.0 as f64 <= self.top).collect()
    }
}

/// Draws the memory of `report` over time, with axes and phases.
pub(super) fn chart(report: &Report<'_>) -> String {
    let scale = Scale::new(report);
    let (svg, ticks, peak) = (svg(report, &scale), ticks(&scale), peak(report, &scale));
    let (phases, moments) = (phases(report, &scale), grouped(report.profile.moments()));
    format!(
        r#"<div class="chart">
<div class="ticks" aria-hidden="true">{ticks}</div>
<div class="plot" id="plot" tabindex="0" role="group" aria-label="Memory over the step; use the arrow keys to move through it">
{svg}
{peak}
<div class="cursor" id="cursor" hidden></div>
<div class="tip" id="tip" role="status" hidden></div>
</div>
<div class="phases">{phases}</div>
<div class="moments" aria-hidden="true"><span>0</span><span>moments</span><span>{moments}</span></div>
</div>"#
    )
}

fn svg(report: &Report<'_>, scale: &Scale) -> String {
    let width = report.columns.len().max(1);
    let (total, moment) = (report.peak.stack.total(), grouped(report.peak.moment));
    let owners: Vec<String> =
        report.owners.iter().map(|(owner, most)| format!("{} up to {most}", owner_name(*owner))).collect();
    let label =
        escape(&format!("Memory by owner over the step: peak {total} at moment {moment}; {}", owners.join(", ")));
    let mut shapes = String::new();
    for tick in scale.ticks() {
        push(&mut shapes, format_args!(r#"<path class="line" d="M0 {}H{width}"/>"#, scale.y(tick.0)));
    }
    let mut below = vec![0; report.columns.len()];
    for &(owner, _) in &report.owners {
        let above = stacked_on(report, &below, owner);
        let (class, path) = (owner_name(owner), area(&positions(&below, scale), &positions(&above, scale)));
        push(&mut shapes, format_args!("\n<path class=\"area {class}\" d=\"{path}\"/>"));
        below = above;
    }
    let size = format!(r#"viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none""#);
    format!("<svg role=\"img\" aria-label=\"{label}\" {size}>{shapes}\n</svg>")
}

/// Computes the upper edge of the area of `owner`, in bytes for each column; `below` is its lower edge.
fn stacked_on(report: &Report<'_>, below: &[u64], owner: Owner) -> Vec<u64> {
    below.iter().zip(&report.columns).map(|(below, column)| below + column.highest.stack.of(owner).0).collect()
}

/// Converts an edge, given in bytes for each column, to vertical positions in the drawing.
fn positions(edge: &[u64], scale: &Scale) -> Vec<u64> {
    edge.iter().map(|&bytes| scale.y(bytes)).collect()
}

/// Writes the SVG path that encloses the area of an owner: forward along the upper edge `above`, back along the lower
/// edge `below`.
fn area(below: &[u64], above: &[u64]) -> String {
    let (Some(first), width) = (above.first(), above.len()) else { return String::new() };
    let mut path = format!("M0 {first}");
    for index in 1..width {
        if above[index] != above[index - 1] {
            push(&mut path, format_args!("H{index}V{}", above[index]));
        }
    }
    push(&mut path, format_args!("H{width}V{}", below[width - 1]));
    for index in (1..width).rev() {
        if below[index] != below[index - 1] {
            push(&mut path, format_args!("H{index}V{}", below[index - 1]));
        }
    }
    path.push_str("H0Z");
    path
}

fn ticks(scale: &Scale) -> String {
    let mut ticks = String::new();
    for tick in scale.ticks() {
        let top = scale.y(tick.0) as f64 / HEIGHT as f64 * 100.0;
        push(&mut ticks, format_args!(r#"<span style="top:{top:.1}%">{tick}</span>"#));
    }
    ticks
}

/// Draws the mark of the peak, with its text on the side with more room.
fn peak(report: &Report<'_>, scale: &Scale) -> String {
    let total = report.peak.stack.total();
    let left = scale.x(report.peak.moment as f64 + 0.5);
    let top = scale.y(total.0) as f64 / HEIGHT as f64 * 100.0;
    let side = if left > 50.0 { "peak leftward" } else { "peak" };
    format!(r#"<div class="{side}" style="left:{left:.2}%;top:{top:.1}%" aria-hidden="true"><b>peak {total}</b></div>"#)
}

/// Draws the phases as bands below the drawing. Of bands that begin in the same column only the first is drawn.
fn phases(report: &Report<'_>, scale: &Scale) -> String {
    let mut bands = String::new();
    let mut last = None;
    for PhaseSpan { phase, start, end } in &report.timeline.phases {
        let column = start * report.columns.len() / report.profile.moments().max(1);
        if last.replace(column) == Some(column) {
            continue;
        }
        let (left, width) = (scale.x(*start as f64), scale.x(end.saturating_sub(*start) as f64));
        let (name, from, to) = (phase_name(*phase), grouped(*start), grouped(*end));
        let (place, label) = (format!("left:{left:.2}%;width:{width:.2}%"), format!("{name}, moments {from} to {to}"));
        push(&mut bands, format_args!(r#"<span style="{place}" title="{label}"><b>{name}</b></span>"#));
    }
    bands
}
