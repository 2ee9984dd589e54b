//! Pictures of a model's output: heat maps with axes in a single SVG file.
//!
//! The cells are an embedded PNG, because a spectrogram has a hundred thousand of them. All other parts are text and
//! lines, which stay sharp and searchable. The picture has a white background, so that it looks the same in a dark
//! editor.

mod axis;
mod colors;
mod layout;
mod svg;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::Path;

use plimsoll_core::replace_file;

use self::axis::Tick;
pub use self::axis::{Axis, Ticks};
use self::colors::PALETTE_LEN;
use self::layout::{BAR_WIDTH, Bar, Layout, Panel, TICK};
use self::svg::{Anchor, Frame, PALE_INK, Svg, Text};
use crate::RecordError;

/// Picture of heat maps, one below the other.
///
/// ```
/// use plimsoll_monitor::{Axis, Heatmap, Picture, Ticks};
///
/// let alignment = Heatmap {
///     title: "alignment".into(),
///     values: &[0.9, 0.2, 0.0, 0.1, 0.8, 1.0],
///     columns: 3,
///     x: Axis { label: "decoder step".into(), ticks: Ticks::Scale { from: 0.0, to: 3.0 } },
///     y: Axis { label: "text".into(), ticks: Ticks::Labels(vec!["h".into(), "i".into()]) },
/// };
/// let svg = Picture { maps: vec![alignment], shared: false }.to_svg();
/// assert!(svg.starts_with("<svg"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Picture<'a> {
    /// Heat maps from top to bottom.
    pub maps: Vec<Heatmap<'a>>,
    /// Whether the heat maps are compared: a value then has the same color in all heat maps, and heat maps whose x axes
    /// are all a [`Ticks::Scale`] share one x axis.
    pub shared: bool,
}

/// Heat map with its title and axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap<'a> {
    /// Title of the heat map.
    pub title: String,
    /// Values of the cells: rows from bottom to top, each `columns` long. NaN is gray.
    pub values: &'a [f32],
    /// Number of cells in a row.
    pub columns: usize,
    /// Axis below the heat map.
    pub x: Axis,
    /// Axis left of the heat map, from bottom to top.
    pub y: Axis,
}

impl Picture<'_> {
    /// Writes the picture to `path` and replaces an existing file.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be written.
    ///
    /// # Panics
    /// In the same cases as [`Picture::to_svg`]: values that are not whole rows, a wrong number of labels, or an
    /// invalid scale.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let svg = self.to_svg();
        replace_file(path, |file| file.write_all(svg.as_bytes()))
            .map_err(|source| RecordError::Io { path: path.into(), source })
    }

    /// Formats the picture as the text of an SVG file.
    ///
    /// # Panics
    /// If the values of a heat map are not whole rows, if there is not one label per cell, or if a scale is not finite
    /// or is decreasing.
    pub fn to_svg(&self) -> String {
        let layout = Layout::new(self);
        let mut svg = Svg::default();
        for (map, panel) in self.maps.iter().zip(&layout.panels) {
            draw_map(&mut svg, map, panel);
        }
        for bar in &layout.bars {
            draw_bar(&mut svg, bar);
        }
        if self.maps.is_empty() {
            draw_nothing(&mut svg, Frame { x: 0.0, y: 0.0, width: layout.width, height: layout.height });
        }
        let titles: Vec<&str> = self.maps.iter().map(|map| map.title.as_str()).collect();
        svg.page(layout.width, layout.height, &titles.join(" / "))
    }
}

impl Heatmap<'_> {
    /// Returns the number of rows, after a check that values, columns and axes fit together.
    fn rows(&self) -> usize {
        if self.columns == 0 {
            assert!(self.values.is_empty(), "{:?} has values but no columns", self.title);
            return 0;
        }
        let (cells, columns) = (self.values.len(), self.columns);
        assert!(cells.is_multiple_of(columns), "{:?}: {cells} values are not whole rows of {columns}", self.title);
        self.x.ticks.check(columns);
        self.y.ticks.check(cells / columns);
        cells / columns
    }
}

fn draw_map(svg: &mut Svg, map: &Heatmap<'_>, panel: &Panel) {
    let plot = panel.plot;
    if !map.title.is_empty() {
        let title = svg::fitted(&map.title, plot.width, 15.0);
        svg.text(plot.x, plot.y - 12.0, &title, Text { size: 15.0, bold: true, ..Text::default() });
    }
    let Some(colors) = panel.colors else {
        return draw_nothing(svg, plot);
    };
    // The first row is the lowest one, and an image starts at the top.
    let cells: Vec<u8> = map.values.chunks(map.columns).rev().flatten().map(|&value| colors.index(value)).collect();
    svg.image(panel.image, &cells, map.columns);
    svg.frame(plot);
    for tick in &panel.y_ticks {
        draw_tick_up(svg, plot.x, -TICK, plot, tick);
    }
    for tick in &panel.x_ticks {
        draw_tick_across(svg, plot, tick, panel.x_labeled);
    }
    let style = Text { size: 13.0, anchor: Anchor::Middle, ..Text::default() };
    let (middle, label) = (plot.y + plot.height / 2.0, svg::fitted(&map.y.label, plot.height, 13.0));
    svg.text(panel.y_label_at, middle, &label, Text { upwards: true, ..style });
    if panel.x_labeled {
        let label = svg::fitted(&map.x.label, plot.width, 13.0);
        svg.text(plot.x + plot.width / 2.0, plot.bottom() + 38.0, &label, style);
    }
}

/// Draws a tick at the edge `x` of `plot`, `length` pixels to the right, or to the left if `length` is negative.
fn draw_tick_up(svg: &mut Svg, x: f64, length: f64, plot: Frame, tick: &Tick) {
    let y = plot.bottom() - tick.at * plot.height;
    svg.line(x, y, x + length, y);
    let anchor = if length < 0.0 { Anchor::End } else { Anchor::Start };
    // A third of the font size centers digits on the tick.
    svg.text(x + length * 1.75, y + 4.0, &tick.label, Text { anchor, ..Text::default() });
}

fn draw_tick_across(svg: &mut Svg, plot: Frame, tick: &Tick, labeled: bool) {
    let x = plot.x + tick.at * plot.width;
    svg.line(x, plot.bottom(), x, plot.bottom() + TICK);
    if labeled {
        let style = Text { anchor: Anchor::Middle, ..Text::default() };
        svg.text(x, plot.bottom() + TICK + 13.0, &tick.label, style);
    }
}

fn draw_bar(svg: &mut Svg, bar: &Bar) {
    let frame = Frame { width: BAR_WIDTH, ..bar.frame };
    // Every other color from brightest to darkest: a short bar has no pixels for more.
    let cells: Vec<u8> = (0..PALETTE_LEN).rev().step_by(2).collect();
    svg.image(frame, &cells, 1);
    svg.frame(frame);
    for tick in &bar.ticks {
        draw_tick_up(svg, frame.x + frame.width, TICK, frame, tick);
    }
}

fn draw_nothing(svg: &mut Svg, frame: Frame) {
    svg.frame(frame);
    let (x, y) = (frame.x + frame.width / 2.0, frame.y + frame.height / 2.0 + 4.0);
    let style = Text { size: 13.0, anchor: Anchor::Middle, color: PALE_INK, ..Text::default() };
    svg.text(x, y, "nothing to show", style);
}
