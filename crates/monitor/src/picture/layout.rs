//! Layout of a picture: positions of all its parts, in pixels.

use super::axis::{Direction, Tick};
use super::colors::Colors;
use super::svg::{Frame, TEXT_SIZE, text_width};
use super::{Heatmap, Picture, Ticks};

const MARGIN: f64 = 24.0;
/// Length of a tick, in pixels.
pub(super) const TICK: f64 = 4.0;
/// Width of a color bar, in pixels.
pub(super) const BAR_WIDTH: f64 = 14.0;
/// Distance from a plot to its color bar, in pixels.
const BAR_GAP: f64 = 20.0;
/// Distance between the text of one heat map and the title of the next, in pixels.
const MAP_GAP: f64 = 18.0;
const TITLE_HEIGHT: f64 = 22.0;
/// Height of the numbers below a plot and of the axis label below the numbers, in pixels.
const X_AXIS_HEIGHT: f64 = 42.0;
const Y_LABEL_WIDTH: f64 = 24.0;
/// Distance from the baseline of the label of a y axis to the numbers of the axis, in pixels.
const Y_LABEL_GAP: f64 = 10.0;
const EMPTY_HEIGHT: f64 = 120.0;
/// Approximate width of a plot, in pixels; every cell has a whole number of pixels.
const PLOT_WIDTH: usize = 720;
const PLOT_HEIGHT: usize = 200;
/// Minimum height of a row with a label, in pixels.
const LABEL_HEIGHT: usize = 14;
/// Maximum width of a plot, in pixels. Cells of a wider plot are shrunk below one pixel.
const PLOT_WIDTH_MAX: usize = 1200;
const PLOT_HEIGHT_MAX: usize = 960;

/// Layout of the whole picture.
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Positions of the heat maps, one per map.
    pub(super) panels: Vec<Panel>,
    pub(super) bars: Vec<Bar>,
}

/// Position of a heat map.
pub(super) struct Panel {
    pub(super) plot: Frame,
    /// Position of the cells. It is narrower than the plot if the x axis is shared with a longer heat map.
    pub(super) image: Frame,
    /// Range of values that the colors cover. `None` if the heat map has no values to show.
    pub(super) colors: Option<Colors>,
    pub(super) y_ticks: Vec<Tick>,
    pub(super) y_label_at: f64,
    pub(super) x_ticks: Vec<Tick>,
    /// Whether the x axis has a label and numbers. If not, it has ticks only.
    pub(super) x_labeled: bool,
}

/// Position of a color bar, and its ticks.
pub(super) struct Bar {
    pub(super) frame: Frame,
    pub(super) ticks: Vec<Tick>,
}

impl Layout {
    pub(super) fn new(picture: &Picture<'_>) -> Self {
        let shown: Vec<bool> = picture.maps.iter().map(|map| map.rows() > 0).collect();
        let last_shown = shown.iter().rposition(|&shown| shown);
        let shared_x = shared_x(picture);
        let plot_width = picture.maps.iter().map(plot_width).reduce(f64::max).unwrap_or(PLOT_WIDTH as f64);
        let mut top = MARGIN;
        let mut panels = Vec::new();
        for (index, map) in picture.maps.iter().enumerate() {
            top += if map.title.is_empty() { 0.0 } else { TITLE_HEIGHT };
            let plot = Frame { x: 0.0, y: top, width: plot_width, height: plot_height(map) };
            let mut panel = Panel::empty(plot);
            if shown[index] {
                panel.fill(map, colors(picture, index), shared_x);
                panel.x_labeled = shared_x.is_none() || last_shown == Some(index);
            }
            let axis_height = if panel.x_labeled { X_AXIS_HEIGHT } else { 0.0 };
            top = plot.bottom() + axis_height + MAP_GAP;
            panels.push(panel);
        }
        let height = if panels.is_empty() { EMPTY_HEIGHT } else { top - MAP_GAP + MARGIN };
        let y_ticks = panels.iter().flat_map(|panel| &panel.y_ticks);
        let has_y_label = picture.maps.iter().any(|map| !map.y.label.is_empty());
        let y_label_width = if has_y_label { Y_LABEL_WIDTH } else { 0.0 };
        let left = MARGIN + y_label_width + widest(y_ticks) + TICK * 2.0;
        panels.iter_mut().for_each(|panel| panel.move_right(left));
        let bars = bars(&panels, picture.shared);
        let right = BAR_GAP + BAR_WIDTH + TICK * 2.0 + widest(bars.iter().flat_map(|bar| &bar.ticks)) + MARGIN;
        Self { width: (left + plot_width + right).ceil(), height, panels, bars }
    }
}

impl Panel {
    fn empty(plot: Frame) -> Self {
        Self { plot, image: plot, colors: None, y_ticks: vec![], y_label_at: plot.x, x_ticks: vec![], x_labeled: false }
    }

    fn fill(&mut self, map: &Heatmap<'_>, colors: Colors, shared_x: Option<(f64, f64)>) {
        let Frame { width, height, .. } = self.plot;
        self.colors = Some(colors);
        self.y_ticks = map.y.ticks.place(height, Direction::Up);
        self.y_label_at = self.plot.x - TICK * 2.0 - widest(self.y_ticks.iter()) - Y_LABEL_GAP;
        self.x_ticks = map.x.ticks.place(width, Direction::Across);
        if let (Some((first, last)), Ticks::Scale { from, to }) = (shared_x, &map.x.ticks) {
            self.x_ticks = Ticks::Scale { from: first, to: last }.place(width, Direction::Across);
            let pixels = width / (last - first);
            self.image = Frame { x: (from - first) * pixels, width: (to - from) * pixels, ..self.plot };
        }
    }

    fn move_right(&mut self, by: f64) {
        self.plot.x += by;
        self.image.x += by;
        self.y_label_at += by;
    }
}

/// Returns the start and the end of the x axis that all heat maps share, or `None` if every heat map has its own x
/// axis. The shared axis covers the ranges of all heat maps.
fn shared_x(picture: &Picture<'_>) -> Option<(f64, f64)> {
    let scale = |map: &Heatmap<'_>| match map.x.ticks {
        Ticks::Scale { from, to } if from < to => Some((from, to)),
        _ => None,
    };
    let shown = picture.maps.iter().filter(|map| !map.values.is_empty());
    let scales: Vec<_> = shown.map(scale).collect::<Option<_>>()?;
    let whole =
        scales.into_iter().reduce(|(from, to), (other_from, other_to)| (from.min(other_from), to.max(other_to)));
    whole.filter(|_| picture.shared)
}

fn colors(picture: &Picture<'_>, index: usize) -> Colors {
    let maps = if picture.shared { &picture.maps[..] } else { &picture.maps[index..=index] };
    Colors::from_values(maps.iter().flat_map(|map| map.values))
}

/// Places one color bar beside each plot, or a single color bar beside all plots if `shared`.
fn bars(panels: &[Panel], shared: bool) -> Vec<Bar> {
    let shown: Vec<&Panel> = panels.iter().filter(|panel| panel.colors.is_some()).collect();
    let groups: Vec<&[&Panel]> = if shared { vec![&shown[..]] } else { shown.chunks(1).collect() };
    let bar = |group: &[&Panel]| {
        let (first, last) = (group.first()?, group.last()?);
        let Colors { low, high } = first.colors?;
        let (x, y) = (first.plot.x + first.plot.width + BAR_GAP, first.plot.y);
        let frame = Frame { x, y, width: BAR_WIDTH, height: last.plot.bottom() - y };
        Some(Bar { frame, ticks: Ticks::Scale { from: low, to: high }.place(frame.height, Direction::Up) })
    };
    groups.into_iter().filter_map(bar).collect()
}

fn widest<'a>(ticks: impl Iterator<Item = &'a Tick>) -> f64 {
    ticks.map(|tick| text_width(&tick.label, TEXT_SIZE)).fold(0.0, f64::max).ceil()
}

fn plot_width(map: &Heatmap<'_>) -> f64 {
    let columns = map.columns.max(1);
    side(columns, PLOT_WIDTH.div_ceil(columns), PLOT_WIDTH_MAX)
}

fn plot_height(map: &Heatmap<'_>) -> f64 {
    let rows = map.rows();
    if rows == 0 {
        return EMPTY_HEIGHT;
    }
    let cell = PLOT_HEIGHT.div_ceil(rows);
    side(rows, if map.y.ticks.name_each() { cell.max(LABEL_HEIGHT) } else { cell }, PLOT_HEIGHT_MAX)
}

/// Computes the width or height of a plot with `n_cells` cells in that direction, in pixels. Each cell has `cell`
/// pixels, or fewer if the plot would be longer than `length_max`.
fn side(n_cells: usize, cell: usize, length_max: usize) -> f64 {
    let cell = cell.min(length_max / n_cells).max(1);
    (cell * n_cells).min(length_max) as f64
}
