//! One frame of the view.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget;
use ratatui::{Frame, text::Text};

use super::block::{Block, fill};
use super::options::ViewOptions;
use super::style::Look;
use super::{help, machine, steps};
use crate::live::{RunView, line};

/// Size below which only one line is shown.
const SMALL: (u16, u16) = (40, 10);
/// Width from which steps and machine are shown beside each other.
const WIDE: u16 = 120;

/// Draws a run state into the whole frame. From 120 columns on it has two columns; below 40 columns or 10 rows it is one
/// line.
///
/// ```
/// use plimsoll_monitor::live::RunView;
/// use plimsoll_monitor::terminal::{ViewOptions, draw};
/// use ratatui::{Terminal, backend::TestBackend};
///
/// let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("no device");
/// let run = RunView::new("toy");
/// terminal.draw(|frame| draw(frame, &run, &ViewOptions::default())).expect("no device");
/// ```
pub fn draw(frame: &mut Frame<'_>, run: &RunView, options: &ViewOptions) {
    let area = frame.area();
    render(frame.buffer_mut(), area, run, options);
}

/// Draws a run state as plain text, without colors and without a terminal.
///
/// ```
/// use plimsoll_monitor::live::RunView;
/// use plimsoll_monitor::terminal::{ViewOptions, screen_text};
///
/// let text = screen_text(&RunView::new("toy"), &ViewOptions::default(), 80, 24);
/// assert!(text.starts_with("toy  waiting for the first event\n"));
/// ```
pub fn screen_text(run: &RunView, options: &ViewOptions, width: u16, height: u16) -> String {
    rows_text(run, options, (width, height), height)
}

/// Draws a run state as [`screen_text`] does, without the line of keys: a page to print, which has no keys.
pub fn page_text(run: &RunView, options: &ViewOptions, width: u16, height: u16) -> String {
    rows_text(run, options, (width, height), height.saturating_sub(1))
}

/// Draws a run state, and returns its first rows.
fn rows_text(run: &RunView, options: &ViewOptions, (width, height): (u16, u16), rows: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    render(&mut buffer, area, run, &ViewOptions { no_color: true, ..options.clone() });
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let text: String = (0..rows).map(|y| row(y).trim_end().to_string() + "\n").collect();
    text.trim_end().to_string() + "\n"
}

fn render(buffer: &mut Buffer, area: Rect, run: &RunView, options: &ViewOptions) {
    let look = Look::new(options);
    if area.width < SMALL.0 || area.height < SMALL.1 {
        return show(buffer, area, vec![Line::raw(look.text(&line(run)))]);
    }
    let body = Rect { height: area.height - 1, ..area };
    let height = usize::from(body.height);
    if options.help {
        show(buffer, body, help::lines(run, look));
    } else if area.width < WIDE {
        let width = usize::from(body.width);
        let steps = steps::blocks(run, look, width, (height / 6).min(8));
        let blocks: Vec<Block<'_>> = steps.into_iter().chain(machine::blocks(run, look, width)).collect();
        show(buffer, body, fill(blocks, height));
    } else {
        let left = Rect { width: body.width / 2 - 1, ..body };
        let right = Rect { x: body.x + body.width / 2 + 1, width: body.width - body.width / 2 - 1, ..body };
        show(buffer, left, fill(steps::blocks(run, look, usize::from(left.width), (height / 3).min(16)), height));
        show(buffer, right, fill(machine::blocks(run, look, usize::from(right.width)), height));
    }
    let keys = if options.help { "? back  q quit" } else { "? where the numbers come from  q quit" };
    let footer = Rect { y: area.bottom() - 1, height: 1, ..area };
    show(buffer, footer, vec![Line::styled(keys, look.title())]);
}

fn show(buffer: &mut Buffer, area: Rect, lines: Vec<Line<'static>>) {
    Text::from(lines).render(area, buffer);
}
