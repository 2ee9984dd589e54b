//! Lines about the steps of a run: state, times, memory, throughput and loss.

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, Seconds, TimeShares};
use ratatui::text::{Line, Span};

use super::block::Block;
use super::chart::{bar, curve};
use super::style::{Look, NAME_WIDTH, letter, percent, wrap};
use crate::live::{RunView, SeriesPoint};

/// Returns the parts of the screen about the steps, in their order. The curve of losses has at most `rows` rows.
pub(super) fn blocks(run: &RunView, look: Look, width: usize, rows: usize) -> Vec<Block<'_>> {
    let window = run.window();
    vec![
        Block::from_lines(1, vec![head(run, look)]),
        Block::from_lines(1, verdict(run, look, width)),
        Block::from_lines(1, times(&window.times, look, width)),
        Block::from_lines(1, vec![memory(run, look, width)]),
        Block::from_lines(1, vec![speed(run, look, width)]),
        Block::new(1, rows + 1, move |rows| loss(run, look, width, rows)),
    ]
}

fn head(run: &RunView, look: Look) -> Line<'static> {
    let status = run.status().map_or_else(|| "waiting for the first event".into(), |status| status.to_string());
    let steps = run.step().map(|step| match run.total_steps() {
        Some(total) => format!("step {step} of {total}"),
        None => format!("step {step}"),
    });
    let epoch = run.epoch().map(|epoch| format!("epoch {epoch}"));
    let left = run.time_left().map(|left| format!("{} left", Seconds(left.0.round())));
    let age = run.record_age().filter(|age| age.0 >= 10.0).map(|age| format!("last record {age} ago"));
    let parts: Vec<String> = [Some(status), steps, epoch, left, age].into_iter().flatten().collect();
    Line::from(vec![
        Span::styled(look.text(run.name()), look.strong()),
        Span::raw(look.text(&format!("  {}", parts.join(", ")))),
    ])
}

fn verdict(run: &RunView, look: Look, width: usize) -> Vec<Line<'static>> {
    let verdict = run.verdict();
    let style = verdict.owner.map_or_else(|| look.strong(), |owner| look.owner(owner));
    wrap(&look.text(&verdict.text), width).into_iter().map(|row| Line::styled(row, style)).collect()
}

/// Draws the time of the last steps: a bar with a part for each owner, and what its letters mean.
fn times(times: &TimeShares, look: Look, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(NAME_WIDTH);
    if times.is_empty() || room == 0 {
        return vec![look.named("time", format!("{} (no step was measured)", look.missing()))];
    }
    let mut bar = vec![Span::styled(format!("{:<NAME_WIDTH$}", "time"), look.title())];
    let (mut sum, mut end) = (0.0, 0);
    let mut words: Vec<Span<'static>> = Vec::new();
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut used = 0;
    for (owner, seconds) in times.ranked() {
        sum += seconds;
        let until = (sum / times.total() * room as f64).round() as usize;
        bar.push(Span::styled(letter(owner).to_string().repeat(until - end), look.owner(owner)));
        end = until;
        let word = format!("{} {owner} {}  ", letter(owner), percent(&times.share(owner)));
        if used + word.trim_end().len() > room && used > 0 {
            lines.push(indented(std::mem::take(&mut words)));
            used = 0;
        }
        used += word.len();
        words.push(Span::styled(word, look.owner(owner)));
    }
    lines.push(indented(words));
    // More than two lines of small shares say little.
    lines.truncate(2);
    lines.insert(0, Line::from(bar));
    lines
}

fn indented(words: Vec<Span<'static>>) -> Line<'static> {
    let mut spans = vec![Span::raw(" ".repeat(NAME_WIDTH))];
    spans.extend(words);
    Line::from(spans)
}

/// Draws the peak memory as a part of the planned memory, with a mark at the plan.
fn memory(run: &RunView, look: Look, width: usize) -> Line<'static> {
    let Some(peak) = run.peak_bytes() else {
        let planned = run.planned_bytes().map(|planned| format!(", {planned} planned"));
        return look.named("memory", format!("{} (not measured){}", look.missing(), planned.unwrap_or_default()));
    };
    let Some(planned) = run.planned_bytes() else {
        return look.named("memory", format!("peak {peak}, {} planned (no plan)", look.missing()));
    };
    let text = format!(" peak {peak} of {planned} planned{}", if peak > planned { ", above the plan" } else { "" });
    // The bar ends a quarter above the plan, so that a peak above the plan is visible.
    let whole = 1.25 * planned.0.max(1) as f64;
    let bar_width = (width.saturating_sub(NAME_WIDTH + text.len())).min(60);
    let bar = bar(look, bar_width, peak.0 as f64 / whole, Some(planned.0 as f64 / whole));
    look_line(look, "memory", bar + &text)
}

fn speed(run: &RunView, look: Look, width: usize) -> Line<'static> {
    let speed = look.value(run.audio_seconds_per_second(), |speed| AudioSpeed(speed).to_string());
    let step = look.value(run.window().seconds_per_step(), |seconds| format!("{} a step", Seconds(seconds)));
    let padding = look.value(run.padding(), |padding| percent(&padding));
    let mut text = format!("{speed}, {step}");
    let more = format!(", padding {padding}");
    // A number that is cut would be another number.
    if NAME_WIDTH + text.chars().count() + more.chars().count() <= width {
        text += &more;
    }
    text += "  ";
    let room = width.saturating_sub(NAME_WIDTH + text.chars().count()).min(60);
    let points = run.speeds().points();
    let curve = if room >= 8 && points.len() > 1 { curve(look, &points, room, 1).concat() } else { String::new() };
    look_line(look, "speed", text + &curve)
}

/// Draws the losses: numbers first, and a curve in the rows that are left.
fn loss(run: &RunView, look: Look, width: usize, rows: usize) -> Vec<Line<'static>> {
    let Some((_, last)) = run.losses().last() else {
        return vec![look.named("loss", format!("{} (no step yet)", look.missing()))];
    };
    let scores: String = run.scores().iter().map(|score| format!(", {score}")).collect();
    let rate = look.value(run.rate(), |rate| format!("{rate:.2e}"));
    let norm = look.value(run.norm(), |norm| format!("{norm:.2}"));
    let text = format!("{last:.3}, rate {rate}, gradient {norm}{scores}");
    let points = logarithmic(run.losses().points());
    let room = width.saturating_sub(NAME_WIDTH);
    let mut lines = vec![look_line(look, "loss", look.text(&text))];
    if rows > 1 && points.len() > 1 {
        let (low, high) = run.losses().range().unwrap_or_default();
        let labels = [format!("{high:.3}"), format!("{low:.3}")];
        let curve = curve(look, &points, room, rows - 1);
        let last = curve.len() - 1;
        lines.extend(curve.into_iter().enumerate().map(|(row, text)| {
            let label = if row == 0 {
                &labels[0]
            } else if row == last {
                &labels[1]
            } else {
                ""
            };
            Line::raw(format!("{label:>width$} {text}", width = NAME_WIDTH - 1))
        }));
    }
    lines
}

/// Losses fall by orders of magnitude at first. Their logarithms keep later changes visible.
fn logarithmic(points: Vec<SeriesPoint>) -> Vec<SeriesPoint> {
    if points.iter().any(|point| point.value <= 0.0) {
        return points;
    }
    points.into_iter().map(|point| SeriesPoint { value: point.value.ln(), ..point }).collect()
}

/// Makes a line whose characters are those of the look already.
fn look_line(look: Look, name: &str, rest: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<NAME_WIDTH$}"), look.title()), Span::raw(rest)])
}

/// Formats a used part of an amount of memory.
pub(super) fn part_of(used: &Bytes, total: Option<&Bytes>) -> String {
    total.map_or_else(|| used.to_string(), |total| format!("{used} of {total}"))
}
