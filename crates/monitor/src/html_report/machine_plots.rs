//! The plots of a run's machine: one number of GPU or host, or several on one scale.

use super::curves::{label, unit_of};
use super::machine_text;
use super::plot::{Band, BandKind, Curve, Line, Plot, ink};
use super::run_data::RunData;
use crate::sample::{GpuTrace, Numbers, SampleTrace, Stretch};

/// Most columns of a curve, each with a lowest and a highest value. The page shows a plot on about as many pixels.
const COLUMNS_MAX: usize = 300;
/// Most columns of all curves of a plot together.
const COLUMNS_OF_PLOT: usize = 1500;
/// Most columns of a curve of means, so that the curves of several runs do not hide each other.
const MEANS_MAX: usize = 120;
/// Room above the curves for the throttled stretches of several runs, as a factor on the highest value.
const ROOM: f64 = 1.35;
/// Fewest columns of a curve.
const COLUMNS_MIN: usize = 5;
/// Part of the width of a plot below which two throttled stretches are drawn as one.
const JOINED: f64 = 1.0 / 300.0;

/// Curve of a plot: its label, the name of its number, its color and its line.
type Wanted = (&'static str, &'static str, usize, Line);

/// Plot of a single run: title, unit, factor on the values, highest value of the scale, and curves.
struct Layout {
    title: &'static str,
    unit: &'static str,
    factor: f64,
    holds: Option<f64>,
    from_zero: bool,
    curves: &'static [Wanted],
}

const PERCENT: Layout =
    Layout { title: "", unit: "%", factor: 100.0, holds: Some(100.0), from_zero: true, curves: &[] };

/// Plots of each GPU. Each kind of utilization has a plot of its own, so that one color is enough.
const GPU: [Layout; 8] = [
    Layout { title: "A kernel ran", curves: &[("", "utilization", ink::RUN, Line::Bold)], ..PERCENT },
    Layout { title: "SM active", curves: &[("", "sm_active", ink::RUN, Line::Bold)], ..PERCENT },
    Layout { title: "Tensor cores active", curves: &[("", "tensor_active", ink::RUN, Line::Bold)], ..PERCENT },
    Layout { title: "DRAM active", curves: &[("", "dram_active", ink::RUN, Line::Bold)], ..PERCENT },
    Layout {
        title: "GPU memory",
        unit: "",
        factor: 1.0,
        holds: None,
        curves: &[
            ("in use", "memory_used", ink::WHOLE, Line::Bold),
            ("the run's process", "memory_own", ink::RUN, Line::Bold),
            ("other processes", "memory_others", ink::OTHERS, Line::Bold),
        ],
        ..PERCENT
    },
    Layout {
        title: "Power",
        unit: "W",
        factor: 1.0,
        holds: None,
        curves: &[("drawn", "power", ink::RUN, Line::Bold), ("limit", "power_limit", ink::LIMIT, Line::Limit)],
        ..PERCENT
    },
    Layout {
        title: "Temperature",
        unit: "°C",
        factor: 1.0,
        holds: None,
        from_zero: false,
        curves: &[("", "temperature", ink::RUN, Line::Bold)],
    },
    Layout {
        title: "Clock",
        unit: "MHz",
        factor: 1.0,
        holds: None,
        curves: &[
            ("of the multiprocessors", "sm_clock", ink::RUN, Line::Bold),
            ("highest", "sm_clock_max", ink::LIMIT, Line::Limit),
        ],
        ..PERCENT
    },
];

/// Plots of the host.
const HOST: [Layout; 2] = [
    Layout {
        title: "Processors of the host",
        unit: "in use",
        factor: 1.0,
        holds: None,
        curves: &[
            ("the run's process", "own_cpus", ink::RUN, Line::Bold),
            ("other processes", "other_cpus", ink::OTHERS, Line::Bold),
            ("usable", "cpus", ink::LIMIT, Line::Limit),
        ],
        ..PERCENT
    },
    Layout {
        title: "Memory of the host",
        unit: "",
        factor: 1.0,
        holds: None,
        curves: &[
            ("in use", "memory_used", ink::WHOLE, Line::Bold),
            ("the run's process", "own_memory", ink::RUN, Line::Bold),
            ("usable", "memory_total", ink::LIMIT, Line::Limit),
        ],
        ..PERCENT
    },
];

/// Number whose plot has the throttled stretches of several runs above its curves.
const BANDS_OVER: &str = "sm_clock";

/// Plots of several runs: title and name of the number. Each run has its color.
const COMPARED: [(&str, &str); 9] = [
    ("A kernel ran", "utilization"),
    ("SM active", "sm_active"),
    ("Tensor cores active", "tensor_active"),
    ("DRAM active", "dram_active"),
    ("GPU memory in use", "memory_used"),
    ("GPU memory of the run's process", "memory_own"),
    ("Power", "power"),
    ("Temperature", "temperature"),
    ("Clock", "sm_clock"),
];

/// Makes the plots of one GPU of a run.
pub(super) fn gpu_plots(run: &RunData, trace: &SampleTrace, gpu: &GpuTrace) -> Vec<Plot> {
    let bands = bands(gpu, trace.seconds, BandKind::Throttled);
    let plot = |layout: &Layout| {
        let mut plot = single(trace, &gpu.numbers, layout);
        if layout.title == "GPU memory" && !plot.curves.is_empty() {
            let size = size_of(&plot);
            plot.curves.extend(run.planned_peak.map(|peak| limit("planned", ink::LIMIT, peak.0 as f64, trace.seconds)));
            plot = in_unit(plot, size.max(run.planned_peak.map_or(0.0, |peak| peak.0 as f64)));
        }
        Plot { bands: bands.clone(), ..plot }
    };
    GPU.iter().map(plot).collect()
}

/// Makes the plots of the host of a run.
pub(super) fn host_plots(trace: &SampleTrace) -> Vec<Plot> {
    let plot = |layout: &Layout| {
        let plot = single(trace, &trace.host, layout);
        let size = size_of(&plot);
        if layout.unit.is_empty() { in_unit(plot, size) } else { plot }
    };
    HOST.iter().map(plot).collect()
}

/// Makes the plots that compare the GPUs and hosts of several runs.
pub(super) fn compared_plots(runs: &[RunData]) -> Vec<Plot> {
    let traces: Vec<(usize, &RunData, &SampleTrace)> =
        runs.iter().enumerate().filter_map(|(color, run)| Some((color, run, run.machine.trace()?))).collect();
    let n_gpus: usize = traces.iter().map(|(_, _, trace)| trace.gpus.len()).sum();
    let (rows, columns) = (traces.len(), columns_of(n_gpus.max(1)).min(MEANS_MAX));
    let mut all_bands = Vec::new();
    for (row, (color, _, trace)) in traces.iter().enumerate() {
        let kind = BandKind::ThrottledRow { row, rows, color: *color };
        all_bands.extend(trace.gpus.iter().flat_map(|gpu| bands(gpu, trace.seconds, kind)));
    }
    let gpu_plot = |(title, name): &(&str, &str)| {
        let layout = GPU.iter().find(|layout| layout.curves.iter().any(|curve| curve.1 == *name)).unwrap_or(&PERCENT);
        let mut curves = Vec::new();
        for (color, run, trace) in &traces {
            let mut label = label(runs, run);
            for gpu in &trace.gpus {
                let Some(series) = gpu.numbers.get(name) else { continue };
                curves.extend(lines(trace.means(series, columns), &label, *color, layout.factor));
                label.clear();
            }
        }
        let is_memory = *name == "memory_used" && !curves.is_empty();
        let planned = |(color, run, trace): &(usize, &RunData, &SampleTrace)| {
            Some(limit("", *color, run.planned_peak?.0 as f64, trace.seconds))
        };
        curves.extend(traces.iter().filter_map(planned).filter(|_| is_memory));
        let has_plan = curves.iter().any(|curve| curve.line == Line::Limit);
        let note = if has_plan { "Dashed: the planned peak." } else { "" }.into();
        let plot = Plot { title: (*title).into(), note, ..compared(layout, curves) };
        match *name == BANDS_OVER && !all_bands.is_empty() && !plot.curves.is_empty() {
            true => Plot { holds: Some(size_of(&plot) * ROOM), bands: all_bands.clone(), ..plot },
            false => plot,
        }
    };
    let host_plot = |(title, name, layout): (&str, &str, &Layout)| {
        let curve = |(color, run, trace): &(usize, &RunData, &SampleTrace)| {
            let series = trace.host.get(name)?;
            Some(lines(trace.means(series, columns), &label(runs, run), *color, 1.0))
        };
        let curves = traces.iter().filter_map(curve).flatten().collect();
        Plot { title: title.into(), ..compared(layout, curves) }
    };
    let host = [
        ("Processors of the host in use by the run's process", "own_cpus", &HOST[0]),
        ("Memory of the host held by the run's process", "own_memory", &HOST[1]),
    ];
    COMPARED.iter().map(gpu_plot).chain(host.into_iter().map(host_plot)).collect()
}

fn compared(layout: &Layout, curves: Vec<Curve>) -> Plot {
    let holds = if curves.is_empty() { None } else { layout.holds };
    let plot = Plot { unit: layout.unit.into(), from_zero: layout.from_zero, holds, curves, ..Plot::default() };
    let size = size_of(&plot);
    if layout.unit.is_empty() { in_unit(plot, size) } else { plot }
}

fn single(trace: &SampleTrace, numbers: &Numbers, layout: &Layout) -> Plot {
    let mut curves = Vec::new();
    for &(label, name, color, line) in layout.curves {
        let Some(series) = numbers.get(name).filter(|series| !series.is_empty()) else { continue };
        match series.range() {
            Some((low, high)) if line == Line::Limit && low == high => {
                curves.push(limit(label, color, high * layout.factor, trace.seconds));
            }
            _ => {
                let columns = columns_of(layout.curves.len());
                curves.extend(lines(trace.curves(series, columns), label, color, layout.factor));
            }
        }
    }
    // A limit alone says nothing about the run.
    if curves.iter().all(|curve| curve.line == Line::Limit) {
        curves.clear();
    }
    let holds = if curves.is_empty() { None } else { layout.holds };
    let (title, unit, from_zero) = (layout.title.into(), layout.unit.into(), layout.from_zero);
    Plot { title, unit, curves, from_zero, holds, is_small: true, ..Plot::default() }
}

/// Returns the number of columns of each of `count` curves of a plot.
fn columns_of(count: usize) -> usize {
    (COLUMNS_OF_PLOT / count.max(1)).clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// Makes the curves of a number from its parts between gaps. Only the first is in the legend.
fn lines(parts: Vec<Vec<(f64, f64)>>, label: &str, color: usize, factor: f64) -> Vec<Curve> {
    let curve = |(index, points): (usize, Vec<(f64, f64)>)| Curve {
        label: if index == 0 { label.into() } else { String::new() },
        color,
        line: Line::Bold,
        points: points.into_iter().map(|(x, y)| (x, y * factor)).collect(),
    };
    parts.into_iter().enumerate().map(curve).collect()
}

fn limit(label: &str, color: usize, value: f64, seconds: f64) -> Curve {
    Curve { label: label.into(), color, line: Line::Limit, points: vec![(0.0, value), (seconds, value)] }
}

fn size_of(plot: &Plot) -> f64 {
    plot.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max)
}

/// Converts a plot of bytes to a unit that suits `size`.
fn in_unit(mut plot: Plot, size: f64) -> Plot {
    let (unit, divisor) = unit_of(size);
    plot.curves.iter_mut().flat_map(|curve| &mut curve.points).for_each(|point| point.1 /= divisor);
    Plot { unit: unit.into(), ..plot }
}

/// Makes the bands of the throttled stretches of a GPU.
fn bands(gpu: &GpuTrace, seconds: f64, kind: BandKind) -> Vec<Band> {
    let band = |stretch: Stretch| Band {
        from: stretch.from,
        to: stretch.to,
        kind,
        title: machine_text::stretch(gpu, &stretch),
    };
    gpu.throttling.joined(seconds * JOINED).into_iter().map(band).collect()
}
