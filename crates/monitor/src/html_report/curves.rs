//! The curves of one or several runs over their steps.

use std::collections::BTreeSet;

use plimsoll_core::MeasureUnit;

use super::plot::{Curve, Line, Plot};
use super::run_data::{RunData, StepFacts};
use super::thin::{Point, highest, smoothed, window};

/// Most terms of a loss, and most scores, that have a curve.
const NAMES_MAX: usize = 12;
/// Name of the validation score that has the scale of the training loss.
const LOSS: &str = "loss";

/// Returns the plots of losses and scores.
pub(super) fn learning(runs: &[RunData]) -> Vec<Plot> {
    let mut plots = vec![losses(runs)];
    plots.extend(error_rates(runs));
    plots.extend(loss_terms(runs));
    plots.push(over_steps(runs, "Learning rate", "", Line::Bold, |_, step| Some(step.rate)));
    let norm = over_steps(runs, "Gradient norm", "before clipping", Line::Bold, |_, step| Some(step.norm));
    plots.push(Plot { may_be_logarithmic: true, ..with_raw(norm) });
    plots
}

/// Returns the plots of speed and memory.
pub(super) fn machine(runs: &[RunData]) -> Vec<Plot> {
    let speed =
        over_steps(runs, "Throughput", "seconds of audio a second, waiting included", Line::Bold, |run, step| {
            let seconds = step.step_seconds + step.wait_seconds;
            let audio = step.frames as f64 * run.report.setup.hop_seconds?;
            (seconds > 0.0 && audio > 0.0).then(|| audio / seconds)
        });
    let padding = over_steps(runs, "Padding", "% of the batch", Line::Bold, |_, step| {
        (step.frames > 0).then_some(step.padding * 100.0)
    });
    let audio = over_steps(runs, "Audio of a batch", "seconds, without padding", Line::Bold, |run, step| {
        Some(step.frames as f64 * run.report.setup.hop_seconds?).filter(|seconds| *seconds > 0.0)
    });
    let utterances = over_steps(runs, "Utterances of a batch", "", Line::Bold, |_, step| {
        (step.utterances > 0).then_some(step.utterances as f64)
    });
    let micro_batches = over_steps(runs, "Micro-batches of a step", "", Line::Bold, |_, step| {
        (step.micro_batches > 0).then_some(step.micro_batches as f64)
    });
    let others = [padding, audio, utterances, micro_batches].map(with_raw);
    let plots = [with_raw(speed), memory(runs)].into_iter().chain(others);
    plots.map(|plot| Plot { from_zero: true, ..plot }).collect()
}

/// Makes a curve of each run from a value of its steps. One run needs no legend.
fn over_steps(
    runs: &[RunData],
    title: &str,
    unit: &str,
    line: Line,
    value: impl Fn(&RunData, &StepFacts) -> Option<f64>,
) -> Plot {
    let curve = |(color, run): (usize, &RunData)| Curve {
        label: label(runs, run),
        color,
        line,
        points: finite(run.steps.iter().filter_map(|step| Some((step.step as f64, value(run, step)?)))),
    };
    let curves = runs.iter().enumerate().map(curve).collect();
    Plot { title: title.into(), unit: unit.into(), curves, ..Plot::default() }
}

/// Makes the curves of `plot` smooth. The curve of a single run stays, pale, below the smooth one; the curves of several
/// runs would hide each other.
fn with_raw(plot: Plot) -> Plot {
    over_raw(plot, "mean", smoothed)
}

/// Puts another curve over each curve of `plot`: that of `reduced` over a window of its points, which is its `kind`.
fn over_raw(plot: Plot, kind: &str, reduced: fn(&[Point], usize) -> Vec<Point>) -> Plot {
    let width = plot.curves.iter().map(|curve| window(curve.points.len())).max().unwrap_or(1);
    if width == 1 {
        return plot;
    }
    let over = |curve: &Curve| {
        let points = reduced(&curve.points, window(curve.points.len()));
        Curve { points, ..curve.clone() }
    };
    let mut curves: Vec<Curve> = plot.curves.iter().map(over).collect();
    let mut note = format!("Curve: {kind} of {width} steps.");
    if let [raw] = &plot.curves[..] {
        curves.insert(0, Curve { label: String::new(), line: Line::Faint, ..raw.clone() });
        note = format!("Bold: {kind} of {width} steps. Pale: each step.");
    }
    Plot { curves, note, ..plot }
}

/// Returns the name of the run as a label; the only run needs none.
pub(super) fn label(runs: &[RunData], run: &RunData) -> String {
    if runs.len() == 1 { String::new() } else { run.report.name.chars().take(40).collect() }
}

fn finite(points: impl Iterator<Item = Point>) -> Vec<Point> {
    points.filter(|(_, y)| y.is_finite()).collect()
}

fn losses(runs: &[RunData]) -> Plot {
    let training = over_steps(runs, "Loss", "", Line::Bold, |_, step| Some(step.loss));
    let mut plot = with_raw(training);
    if let [_] = runs
        && let Some(curve) = plot.curves.iter_mut().rfind(|curve| curve.line == Line::Bold)
    {
        curve.label = "training".into();
    }
    for (color, run) in runs.iter().enumerate() {
        let points = scores(run, LOSS, 1.0);
        // The only run has the next color for its validations; several runs have one color each.
        let (label, color) = if runs.len() == 1 { ("validation".into(), 1) } else { (String::new(), color) };
        plot.curves.push(Curve { label, color, line: Line::Dotted, points });
    }
    if plot.curves.iter().any(|curve| curve.line == Line::Dotted && !curve.points.is_empty()) {
        plot.note += " Dots: validation.";
    }
    let without = runs.iter().flat_map(|run| &run.steps).filter(|step| !step.loss.is_finite()).count();
    if without > 0 {
        plot.note += &format!(" Steps without a finite loss, which have no point: {without}.");
    }
    Plot { may_be_logarithmic: true, ..plot }
}

/// Returns the points of a score of the validations of a run.
fn scores(run: &RunData, name: &str, factor: f64) -> Vec<Point> {
    let validations = run.report.history.validations.iter();
    finite(validations.filter_map(|validation| {
        let score = validation.scores.iter().find(|score| score.name == name)?;
        Some((validation.step as f64, score.value * factor))
    }))
}

/// Plots the scores of validations: all shares of a single run in one plot, and otherwise one plot for each score.
fn error_rates(runs: &[RunData]) -> Vec<Plot> {
    let mut names: Vec<(String, String, MeasureUnit)> = Vec::new();
    let validations = runs.iter().flat_map(|run| &run.report.history.validations);
    for score in validations.flat_map(|validation| &validation.scores).filter(|score| score.name != LOSS) {
        if names.len() < NAMES_MAX && names.iter().all(|known| known.0 != *score.name) {
            names.push((score.name.to_string(), score.label.to_string(), score.unit));
        }
    }
    let is_share = |unit: MeasureUnit| unit == MeasureUnit::Share;
    let (shares, numbers): (Vec<_>, Vec<_>) = names.into_iter().partition(|known| is_share(known.2));
    let (mut plots, mut alone) = (Vec::new(), numbers);
    if let ([run], true) = (runs, shares.len() > 1) {
        let curve = |(color, (name, label, _)): (usize, &(String, String, MeasureUnit))| Curve {
            label: label.clone(),
            color,
            line: Line::Dotted,
            points: scores(run, name, 100.0),
        };
        let curves = shares.iter().enumerate().map(curve).collect();
        let (title, unit) = ("Validation".into(), "%".into());
        plots.push(Plot { title, unit, curves, from_zero: true, ..Plot::default() });
    } else {
        alone.splice(0..0, shares);
    }
    for (name, label_of_score, unit) in alone {
        let (factor, unit) = if is_share(unit) { (100.0, "%") } else { (1.0, "") };
        let curve = |(color, run): (usize, &RunData)| Curve {
            label: label(runs, run),
            color,
            line: Line::Dotted,
            points: scores(run, &name, factor),
        };
        let curves = runs.iter().enumerate().map(curve).collect();
        let title = first_upper(&label_of_score);
        plots.push(Plot { title, unit: unit.into(), curves, from_zero: factor > 1.0, ..Plot::default() });
    }
    plots
}

fn loss_terms(runs: &[RunData]) -> Option<Plot> {
    let [run] = runs else { return None };
    let names: BTreeSet<&String> = run.steps.iter().flat_map(|step| step.parts.keys()).collect();
    if names.len() < 2 {
        return None;
    }
    let curve = |(color, name): (usize, &&String)| {
        let points = finite(run.steps.iter().filter_map(|step| Some((step.step as f64, *step.parts.get(*name)?))));
        let points = smoothed(&points, window(points.len()));
        Curve { label: (*name).clone(), color, line: Line::Bold, points }
    };
    let curves = names.iter().take(NAMES_MAX).enumerate().map(curve).collect();
    let note = format!("Mean of {} steps.", window(run.steps.len()));
    Some(Plot { title: "Terms of the loss".into(), curves, may_be_logarithmic: true, note, ..Plot::default() })
}

fn memory(runs: &[RunData]) -> Plot {
    let peaks = runs.iter().map(|run| run.report.history.peak_bytes.0.max(run.planned_peak.map_or(0, |peak| peak.0)));
    let most = peaks.max().unwrap_or(0) as f64;
    let (unit, size) = match most {
        _ if most >= f64::from(1 << 30) => ("GiB", f64::from(1 << 30)),
        _ => ("MiB", f64::from(1 << 20)),
    };
    let mut plot = over_steps(runs, "Peak memory of each step", unit, Line::Bold, |_, step| {
        (step.peak.0 > 0).then_some(step.peak.0 as f64 / size)
    });
    if let [curve] = &mut plot.curves[..] {
        curve.label = "measured".into();
    }
    let mut plot = over_raw(plot, "highest", highest);
    for (color, run) in runs.iter().enumerate() {
        let (Some(first), Some(last)) = (run.steps.first(), run.steps.last()) else { continue };
        let limit = |label: &str, color, bytes: u64| {
            let value = bytes as f64 / size;
            let points = vec![(first.step as f64, value), (last.step as f64, value)];
            Curve { label: label.into(), color, line: Line::Limit, points }
        };
        let is_measured = run.steps.iter().any(|step| step.peak.0 > 0);
        match (runs.len(), run.planned_peak, run.budget) {
            _ if !is_measured => {}
            (1, planned, budget) => {
                plot.curves.extend(planned.map(|peak| limit("planned", 1, peak.0)));
                plot.curves.extend(budget.map(|budget| limit("budget", 3, budget.0)));
            }
            (_, Some(planned), _) => plot.curves.push(limit("", color, planned.0)),
            _ => {}
        }
    }
    if runs.len() > 1 && plot.curves.iter().any(|curve| curve.line == Line::Limit) {
        plot.note += " Dashed: the planned peak.";
    }
    plot
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).take(80).collect())
}
