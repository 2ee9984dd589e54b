//! Plots as inline SVG. Colors are classes of the style sheet, and the numbers beside the axes are HTML: a plot takes
//! any width, and its text keeps its size.

use std::fmt::Write;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle};
use plotters::series::LineSeries;
use plotters::style::{Color, RGBColor};

use super::html::{escaped, note, number};
use super::scale::Scale;
use super::thin::{Point, thinned};

/// Size of the drawing. The page stretches it, so it only sets the precision of a point.
const SIZE: (u32, u32) = (2000, 600);
/// Red of a color that stands for a class; green is the class and blue its color.
const MARK: u8 = 0xfe;
/// Number of color indexes that a drawing can have: there are fewer meanings and fewer owners of time.
const COLOR_INDEXES: u8 = 16;

/// Meaning of a color of curves. The indexes below 8 are runs that a page compares; a page of one run uses only the
/// others.
pub(super) mod ink {
    /// What the run or its process did.
    pub(in super::super) const RUN: usize = 8;
    /// A score of a validation.
    pub(in super::super) const VALIDATION: usize = 9;
    /// What all processes of the machine did.
    pub(in super::super) const WHOLE: usize = 10;
    /// What other processes did.
    pub(in super::super) const OTHERS: usize = 11;
    /// A plan or a limit.
    pub(in super::super) const LIMIT: usize = 12;
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Bold line.
    Bold,
    /// Thin pale line behind the others.
    Faint,
    /// Line with a dot at each point.
    Dotted,
    /// Dashed line of a limit or plan.
    Limit,
}

/// Curve of a plot.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Text of the legend; empty for a curve without an entry in it.
    pub(super) label: String,
    /// Index of the color.
    pub(super) color: usize,
    pub(super) line: Line,
    pub(super) points: Vec<Point>,
}

/// Marked part of the range of a plot.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) kind: BandKind,
    pub(super) title: String,
}

/// Meaning and place of a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BandKind {
    /// The GPU ran below its highest clock. Marks the whole height.
    Throttled,
    /// A GPU of one of several runs ran below its highest clock. Marks one of `rows` rows at the top, in the run's color.
    ThrottledRow { row: usize, rows: usize, color: usize },
    /// The run overfits. Marks the whole height.
    Overfits,
}

/// Plot of curves over the steps or the time of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    /// Unit of the values, or another few words about them.
    pub(super) unit: String,
    pub(super) curves: Vec<Curve>,
    pub(super) from_zero: bool,
    /// Whether a wide range of values may be drawn on a logarithmic scale.
    pub(super) may_be_logarithmic: bool,
    /// Text below the plot.
    pub(super) note: String,
    /// Whether the plot is one of several of a kind.
    pub(super) is_small: bool,
    /// Value that the scale holds in any case.
    pub(super) holds: Option<f64>,
    pub(super) bands: Vec<Band>,
}

impl Plot {
    /// Draws the plot over the steps up to `last_step`, with at most `points_max` points a curve; nothing if no curve has
    /// two points.
    pub(super) fn to_html(&self, last_step: f64, points_max: usize) -> String {
        self.over(&Axis { scale: Scale::linear(0.0, last_step.max(1.0)), name: "step", label: step_label }, points_max)
    }

    /// Draws the plot over the range `x`; nothing if no curve has two points: one dot shows no change.
    pub(super) fn over(&self, x: &Axis, points_max: usize) -> String {
        let curves: Vec<Curve> = self.curves.iter().map(|curve| prepared(curve, points_max)).collect();
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let y =
            Scale::fitting(points().map(|point| point.1).chain(self.holds), self.from_zero, self.may_be_logarithmic);
        let Some(y) = y.filter(|_| curves.iter().any(shows_change)) else { return String::new() };
        let Axis { scale: x, name: x_name, label: x_label } = x;
        let svg = drawing(&spoken(&self.title, &self.unit, &curves), |chart| {
            grid(chart, &y);
            curves.iter().for_each(|curve| draw(chart, curve, x, &y));
        });
        let svg = with_bands(&svg, &self.bands, x);
        let logarithmic = if y.is_logarithmic() { "logarithmic" } else { "" };
        let units: Vec<&str> = [&*self.unit, logarithmic].into_iter().filter(|text| !text.is_empty()).collect();
        let unit = format!("<span class=\"unit\">{}</span>", escaped(&units.join(", ")));
        let caption = format!("<b>{}</b> {unit}{}", escaped(&self.title), legend(&curves));
        let class = if self.is_small { "plot small" } else { "plot" };
        figure(class, &caption, &svg, &labels(&y, 4, number), (&labels(x, 5, x_label), x_name), &self.note)
    }

    /// Returns the value that all points of the plot have; `None` if they differ.
    pub(super) fn constant(&self) -> Option<f64> {
        let mut values = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

/// The horizontal axis of a plot.
pub(super) struct Axis {
    pub(super) scale: Scale,
    /// What the numbers are.
    pub(super) name: &'static str,
    /// Text of a marked number.
    pub(super) label: fn(f64) -> String,
}

/// Returns whether a curve has points at two places. A limit shows no change.
fn shows_change(curve: &Curve) -> bool {
    let ends = curve.points.first().zip(curve.points.last());
    curve.line != Line::Limit && ends.is_some_and(|(first, last)| first.0 < last.0)
}

/// Describes a plot for readers who do not see it: its title, and the ends and bounds of each curve.
fn spoken(title: &str, unit: &str, curves: &[Curve]) -> String {
    let mut text = if unit.is_empty() { title.to_string() } else { format!("{title} ({unit})") };
    for curve in curves.iter().filter(|curve| curve.line != Line::Faint) {
        let [Some(first), Some(last)] = [curve.points.first(), curve.points.last()] else { continue };
        let values = || curve.points.iter().map(|point| point.1);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let name = if curve.label.is_empty() { String::new() } else { format!("{}: ", curve.label) };
        let [first, last, low, high] = [first.1, last.1, low, high].map(number);
        let _ = match first == last && low == high {
            true => write!(text, "; {name}always {first}"),
            false => write!(text, "; {name}from {first} to {last}, lowest {low}, highest {high}"),
        };
    }
    text
}

/// Bar of a strip of stacked bars: its place on the strip, the tops of its parts with their classes, and its tooltip.
pub(super) struct StackedBar {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Shares with the index of their color, from the bottom to the top.
    pub(super) parts: Vec<(usize, f64)>,
    pub(super) title: String,
}

/// What the parts of stacked bars are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Owners of time.
    Time,
    /// Owners of memory.
    Memory,
}

/// Draws a strip of stacked bars, and a dashed line at the height `limit`. All places are from 0 to 1.
pub(super) fn strip(title: &str, parts: Parts, bars: &[StackedBar], limit: Option<f64>) -> String {
    let kind = if parts == Parts::Time { 6 } else { 7 };
    let svg = drawing(title, |chart| {
        for bar in bars {
            let mut bottom = 0.0;
            for &(color, share) in &bar.parts {
                let top = (bottom + share.max(0.0)).min(1.0);
                let rectangle = Rectangle::new([(bar.from, bottom), (bar.to, top)], mark(kind, color).filled());
                let _ = chart.draw_series(std::iter::once(rectangle));
                bottom = top;
            }
        }
        if let Some(height) = limit {
            let _ = chart.draw_series(LineSeries::new([(0.0, height), (1.0, height)], mark(4, ink::LIMIT)));
        }
    });
    let mut over = String::new();
    let wide = f64::from(SIZE.0);
    for bar in bars {
        let _ = write!(
            over,
            "<rect class=\"hover\" x=\"{:.0}\" y=\"0\" width=\"{:.0}\" height=\"{}\"><title>{}</title></rect>",
            bar.from * wide,
            ((bar.to - bar.from) * wide).max(1.0),
            SIZE.1,
            escaped(&bar.title)
        );
    }
    svg.replace("</svg>", &(over + "</svg>"))
}

/// Puts bands behind a drawing. A short one is as wide as a line, so that it is seen.
fn with_bands(svg: &str, bands: &[Band], x: &Scale) -> String {
    let (wide, high) = (f64::from(SIZE.0), SIZE.1 as usize);
    let rectangle = |band: &Band| {
        let (from, to) = (x.place(band.from) * wide, x.place(band.to) * wide);
        let (class, top, height) = match band.kind {
            BandKind::Throttled => ("band throttled".into(), 0, high),
            BandKind::Overfits => ("band overfits".into(), 0, high),
            BandKind::ThrottledRow { row, rows, color } => {
                let height = (high / 4 / rows.max(1)).max(8);
                (format!("band row c{color}"), row * height, height)
            }
        };
        format!(
            "<rect class=\"{class}\" x=\"{from:.0}\" y=\"{top}\" width=\"{:.0}\" height=\"{height}\"><title>{}</title></rect>",
            (to - from).max(4.0),
            escaped(&band.title)
        )
    };
    let drawn: String = bands.iter().map(rectangle).collect();
    let start = svg.find('>').map_or(0, |end| end + 1);
    format!("{}{drawn}{}", &svg[..start], &svg[start..])
}

/// Puts a drawing between its axes. `x` and `y` are labels with their places, `x` with the name of the axis; `below` is a
/// note, as HTML.
pub(super) fn figure(
    class: &str,
    caption: &str,
    svg: &str,
    y: &[(String, f64)],
    (x, x_name): (&[(String, f64)], &str),
    below: &str,
) -> String {
    let spans = |labels: &[(String, f64)], side: &str| -> String {
        let span =
            |(text, place): &(String, f64)| format!("<span style=\"{side}:{:.1}%\">{text}</span>", place * 100.0);
        labels.iter().map(span).collect()
    };
    let note = note(below);
    format!(
        "<figure class=\"{class}\"><figcaption>{caption}</figcaption><div class=\"axes\"><div class=\"y\" \
         aria-hidden=\"true\">{}</div>{svg}<div class=\"x\" aria-hidden=\"true\">{}</div><div class=\"xname\">{}</div></div>{note}</figure>\n",
        spans(y, "bottom"),
        spans(x, "left"),
        escaped(x_name),
    )
}

/// Makes the labels of a scale.
pub(super) fn labels(scale: &Scale, count: usize, text: impl Fn(f64) -> String) -> Vec<(String, f64)> {
    scale.ticks(count).into_iter().map(|(value, place)| (text(value), place)).collect()
}

fn step_label(step: f64) -> String {
    // A run of a few steps has marks between them.
    match step {
        _ if step.fract() != 0.0 || step < 0.0 => String::new(),
        _ if step >= 1e5 => format!("{}k", step / 1e3),
        _ => format!("{step}"),
    }
}

/// Keeps the finite points of a curve, and no more than `points_max` of them.
fn prepared(curve: &Curve, points_max: usize) -> Curve {
    let finite: Vec<Point> = curve.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    Curve { points: thinned(&finite, points_max), ..curve.clone() }
}

fn legend(curves: &[Curve]) -> String {
    let entry = |curve: &Curve| {
        let class = if curve.line == Line::Limit { "key dashed" } else { "key" };
        format!("<span><i class=\"{class} c{}\"></i>{}</span>", curve.color, escaped(&curve.label))
    };
    let shown: Vec<_> = curves.iter().filter(|curve| !curve.label.is_empty() && !curve.points.is_empty()).collect();
    if shown.len() < 2 {
        return String::new();
    }
    format!("<span class=\"legend\">{}</span>", shown.into_iter().map(entry).collect::<String>())
}

/// Draws on a canvas whose two axes are from 0 to 1.
fn drawing(title: &str, content: impl Fn(&mut Chart<'_>)) -> String {
    let mut text = String::new();
    {
        let root: Canvas<'_> = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        if let Ok(mut chart) = ChartBuilder::on(&root).build_cartesian_2d(0.0..1.0, 0.0..1.0) {
            content(&mut chart);
        }
        let _ = root.present();
    }
    let body = text.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</svg>")).map_or("", |(body, _)| body);
    format!(
        "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{}</svg>",
        SIZE.0,
        SIZE.1,
        escaped(title),
        styled(body)
    )
}

/// Replaces the colors that stand for classes, and leaves out what the style sheet says anyway.
fn styled(body: &str) -> String {
    let mut body =
        body.replace(" opacity=\"1\"", "").replace(" stroke-width=\"1\"", "").replace(" stroke=\"none\"", "");
    for (kind, name) in [(1, "bold"), (2, "faint"), (3, "dot"), (4, "limit"), (5, "grid"), (6, "owner"), (7, "memory")]
    {
        for color in 0..COLOR_INDEXES {
            let code = format!("#{MARK:02X}{kind:02X}{color:02X}\"");
            if !body.contains(&code) {
                continue;
            }
            let letter = match kind {
                6 => 'o',
                7 => 'm',
                _ => 'c',
            };
            let class = format!("class=\"{name} {letter}{color}\"");
            body = body.replace(&format!("stroke=\"{code}"), &class).replace(&format!("fill=\"{code}"), &class);
        }
    }
    body
}

fn mark(kind: u8, color: usize) -> RGBColor {
    RGBColor(MARK, kind, (color % usize::from(COLOR_INDEXES)) as u8)
}

fn grid(chart: &mut Chart<'_>, y: &Scale) {
    let lines = y.ticks(4).into_iter().map(|(_, place)| PathElement::new([(0.0, place), (1.0, place)], mark(5, 0)));
    let _ = chart.draw_series(lines);
}

fn draw(chart: &mut Chart<'_>, curve: &Curve, x: &Scale, y: &Scale) {
    let color = curve.color;
    let points: Vec<Point> = curve.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
    let (is_single, mut kind) = (points.len() == 1, 1);
    match curve.line {
        Line::Faint => kind = 2,
        Line::Limit => kind = 4,
        Line::Bold | Line::Dotted => {}
    }
    if curve.line == Line::Dotted || is_single {
        let dot = |point: &Point| PathElement::new([*point, *point], mark(3, color));
        let _ = chart.draw_series(points.iter().map(dot));
    }
    let _ = match (curve.line, points.first()) {
        // A limit holds everywhere, also beside the only step of a run.
        (Line::Limit, Some(&(_, height))) => {
            chart.draw_series(LineSeries::new([(0.0, height), (1.0, height)], mark(kind, color)))
        }
        _ => chart.draw_series(LineSeries::new(points, mark(kind, color))),
    };
}
