//! The section about the machine of a run: its GPUs over time, throttling, and the host.

use super::detail::Detail;
use super::html::{clipped, escaped, note, number, table};
use super::machine_plots::{compared_plots, gpu_plots, host_plots};
use super::machine_text::{GPU_ROWS, HOST_ROWS, missing, rows, throttling};
use super::plot::{Axis, Plot};
use super::run_data::{MachineData, RunData};
use super::scale::Scale;
use crate::sample::{GpuTrace, SampleTrace};

/// Most GPUs of a run that the page shows one by one.
const GPUS_MAX: usize = 8;

/// Makes the body of the section.
pub(super) fn machine(runs: &[RunData], detail: &Detail) -> String {
    let problems: String = runs.iter().map(|run| problem(run, runs.len() > 1, detail)).collect();
    let longest = runs.iter().filter_map(|run| run.machine.trace()).map(|trace| trace.seconds).fold(0.0, f64::max);
    if runs.iter().all(|run| run.machine.trace().is_none()) {
        return problems;
    }
    let mut html = sentences(runs, detail);
    html += &match runs {
        [run] => run.machine.trace().map_or_else(String::new, |trace| alone(run, trace, detail)),
        _ => drawn(&compared_plots(runs), longest, detail) + &all_missing(runs, detail),
    };
    let has_bands = runs.iter().filter_map(|run| run.machine.trace()).flat_map(|trace| &trace.gpus);
    if has_bands.into_iter().any(|gpu| gpu.throttling.samples > 0) {
        html += &note(match runs.len() {
            1 => "Shaded: a GPU ran below its highest clock for a reason. Point at a stretch for its reasons.",
            _ => "Bars above the clocks: a GPU of the run ran below its highest clock. Point at one for its reasons.",
        });
    }
    html += &note(&format!(
        "The curves are over the {} since the first sample; pauses of a run take no time. {}",
        Unit::of(longest).name,
        match runs.len() {
            1 => "Each column of a curve has its lowest and its highest value, so no short change is lost.",
            _ => "Each point is the mean of some samples; the page of a single run has the lowest and highest values.",
        }
    ));
    html + &numbers_table(runs, detail) + &problems
}

/// Unit of the time below the plots.
struct Unit {
    name: &'static str,
    seconds: f64,
    label: fn(f64) -> String,
}

impl Unit {
    fn of(longest: f64) -> Self {
        let (name, seconds, label): (_, _, fn(f64) -> String) = match longest {
            _ if longest >= 7200.0 => ("hours", 3600.0, number),
            _ if longest >= 180.0 => ("minutes", 60.0, number),
            _ => ("seconds", 1.0, number),
        };
        Self { name, seconds, label }
    }
}

fn drawn(plots: &[Plot], longest: f64, detail: &Detail) -> String {
    let Unit { name, seconds, label } = Unit::of(longest);
    let axis = Axis { scale: Scale::linear(0.0, (longest / seconds).max(1e-3)), name, label };
    let in_unit = |plot: &Plot| {
        let mut plot = plot.clone();
        plot.curves.iter_mut().flat_map(|curve| &mut curve.points).for_each(|point| point.0 /= seconds);
        plot.bands.iter_mut().for_each(|band| (band.from, band.to) = (band.from / seconds, band.to / seconds));
        plot
    };
    let html: String = plots.iter().map(|plot| in_unit(plot).over(&axis, detail.points)).collect();
    if html.is_empty() { html } else { format!("<div class=\"plots\">{html}</div>\n") }
}

/// Draws the GPUs and the host of a single run.
fn alone(run: &RunData, trace: &SampleTrace, detail: &Detail) -> String {
    let mut html = String::new();
    for gpu in trace.gpus.iter().take(GPUS_MAX) {
        if trace.gpus.len() > 1 {
            html += &format!("<h3>{}</h3>\n", title(gpu));
        }
        html += &drawn(&gpu_plots(run, trace, gpu), trace.seconds, detail);
        html += &note(&missing(&gpu.numbers, &GPU_ROWS));
    }
    if trace.gpus.len() > GPUS_MAX {
        html += &note(&format!("GPUs that are not on this page: {}.", trace.gpus.len() - GPUS_MAX));
    }
    html += "<h3>The host</h3>\n";
    html += &drawn(&host_plots(trace), trace.seconds, detail);
    html + &note(&missing(&trace.host, &HOST_ROWS))
}

/// Says which numbers of which run are missing, and why.
fn all_missing(runs: &[RunData], detail: &Detail) -> String {
    let mut html = String::new();
    for run in runs {
        let Some(trace) = run.machine.trace() else { continue };
        for gpu in trace.gpus.iter().take(GPUS_MAX) {
            let text = missing(&gpu.numbers, &GPU_ROWS);
            if !text.is_empty() {
                html += &note(&format!("{}GPU {}. {text}", named(run, true, detail), gpu.index));
            }
        }
    }
    html
}

/// Says of each GPU how long it was throttled, and of a run without GPUs why.
fn sentences(runs: &[RunData], detail: &Detail) -> String {
    let mut html = String::new();
    for run in runs {
        let Some(trace) = run.machine.trace() else { continue };
        let name = named(run, runs.len() > 1, detail);
        for gpu in trace.gpus.iter().take(GPUS_MAX) {
            html += &format!("<p>{name}{}</p>\n", throttling(gpu));
        }
        if let Some(why) = trace.no_gpu.as_ref().filter(|_| trace.gpus.is_empty()) {
            html += &format!("<p>{name}No GPU could be read: {}.</p>\n", clipped(why, detail.text));
        }
    }
    html
}

/// Makes the table of the numbers of all GPUs.
fn numbers_table(runs: &[RunData], detail: &Detail) -> String {
    let mut titles = vec![String::new()];
    let mut columns = Vec::new();
    for run in runs {
        let Some(trace) = run.machine.trace() else { continue };
        for gpu in trace.gpus.iter().take(GPUS_MAX) {
            titles.push(format!("{}{}", named(run, runs.len() > 1, detail), title(gpu)));
            columns.push(trace.gpu_summary(gpu));
        }
    }
    if columns.is_empty() {
        return String::new();
    }
    table("Numbers of the GPUs", "numbers", &titles, &rows(&columns))
        + &note("Mean over the time, and the lowest and the highest value.")
}

/// Says in one sentence what is wrong with the samples of a run; empty if nothing is.
fn problem(run: &RunData, is_named: bool, detail: &Detail) -> String {
    let text = match &run.machine {
        // Only a run on a GPU writes samples: nothing is missing of another run.
        MachineData::Absent if !is_on_gpu(run) => return String::new(),
        MachineData::Absent => "There are no samples of the machine.".into(),
        MachineData::Unreadable(why) => {
            format!("The samples of the machine cannot be read: {}.", clipped(why, detail.text))
        }
        MachineData::Read(trace) if trace.samples == 0 => "The recording of the machine holds no sample.".into(),
        MachineData::Read(trace) => match (trace.ends_early, trace.damaged) {
            (false, 0) => return String::new(),
            (true, 0) => "The end of the recording of the machine cannot be read.".into(),
            (false, count) => format!("Lines of the recording of the machine that are no samples: {count}."),
            (true, count) => {
                format!(
                    "The end of the recording of the machine cannot be read, and lines before it are no samples: {count}."
                )
            }
        },
    };
    note(&format!("{}{text}", named(run, is_named, detail)))
}

/// Returns whether the plan of the run names a GPU.
fn is_on_gpu(run: &RunData) -> bool {
    run.report.setup.device.as_ref().is_some_and(|device| !device.contains("CPU"))
}

fn named(run: &RunData, is_named: bool, detail: &Detail) -> String {
    if is_named { format!("{}: ", clipped(&run.report.name, detail.text.min(80))) } else { String::new() }
}

fn title(gpu: &GpuTrace) -> String {
    if gpu.name.is_empty() {
        format!("GPU {}", gpu.index)
    } else {
        format!("GPU {}: {}", gpu.index, escaped(&gpu.name))
    }
}
