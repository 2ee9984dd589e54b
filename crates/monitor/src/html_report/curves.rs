//! The curves of one or several runs over their steps.

use std::collections::BTreeSet;

use plimsoll_core::{Measure, MeasureUnit};

use super::plot::{Band, BandKind, Curve, Line, Plot, ink};
use super::run_data::{RunData, StepFacts};
use super::thin::{Point, highest, smoothed, window};

/// Most terms of a loss, and most scores, that have a curve.
const NAMES_MAX: usize = 12;
/// Name of the validation score that has the scale of the training loss.
const LOSS: &str = "loss";

/// Returns the plots of losses and scores: those that every reader looks for, and then those for a closer look.
pub(super) fn learning(runs: &[RunData]) -> [Vec<Plot>; 2] {
    let mut plots = vec![losses(runs)];
    plots.extend(scores_of(runs));
    let mut closer = loss_terms(runs);
    closer.push(over_steps(runs, "Learning rate", "", Line::Bold, |_, step| Some(step.rate)));
    let norm = over_steps(runs, "Gradient norm", "before clipping", Line::Bold, |_, step| Some(step.norm));
    closer.push(Plot { may_be_logarithmic: true, ..with_raw(norm) });
    [plots, closer]
}

/// Returns the plot of the speed.
pub(super) fn speed(runs: &[RunData]) -> Plot {
    let unit = "seconds of audio a second, waiting included";
    let speed = over_steps(runs, "Throughput", unit, Line::Bold, |run, step| {
        let seconds = step.step_seconds + step.wait_seconds;
        let audio = step.frames as f64 * run.report.setup.hop_seconds?;
        (seconds > 0.0 && audio > 0.0).then(|| audio / seconds)
    });
    Plot { from_zero: true, ..with_raw(speed) }
}

/// Returns the plots of what the batches hold.
pub(super) fn batches(runs: &[RunData]) -> Vec<Plot> {
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
    let plots = [padding, audio, utterances, micro_batches].map(with_raw);
    plots.map(|plot| Plot { from_zero: true, is_small: true, ..plot }).into()
}

/// Makes a curve of each run from a value of its steps. One run needs no legend.
fn over_steps(
    runs: &[RunData],
    title: &str,
    unit: &str,
    line: Line,
    value: impl Fn(&RunData, &StepFacts) -> Option<f64>,
) -> Plot {
    let curve = |(index, run): (usize, &RunData)| Curve {
        label: label(runs, run),
        color: color(runs, index, ink::RUN),
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

/// Returns the color of a curve of the run with this index: that of its meaning, `alone`, on a page of one run.
pub(super) fn color(runs: &[RunData], index: usize, alone: usize) -> usize {
    if runs.len() == 1 { alone } else { index }
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
    for (index, run) in runs.iter().enumerate() {
        let label = if runs.len() == 1 { "validation".into() } else { String::new() };
        let (color, points) = (color(runs, index, ink::VALIDATION), scores(run, LOSS, 1.0));
        plot.curves.push(Curve { label, color, line: Line::Dotted, points });
    }
    if let [run] = runs
        && let Some((step, overfitting)) = run.report.history.overfitting().map(|found| (found.step(), found))
    {
        let (from, to) = (step as f64, run.report.history.steps as f64);
        plot.bands.push(Band { from, to, kind: BandKind::Overfits, title: overfitting.to_string() });
        plot.note += &format!(" Shaded: it overfits from step {step} on.");
    }
    if plot.curves.iter().any(|curve| curve.line == Line::Dotted && !curve.points.is_empty()) {
        plot.note += " Dots: validation.";
    }
    Plot { may_be_logarithmic: true, ..plot }
}

/// Says how many steps have no point in the plot of the losses; empty if all have one.
pub(super) fn without_loss(runs: &[RunData]) -> String {
    let without = runs.iter().flat_map(|run| &run.steps).filter(|step| !step.loss.is_finite()).count();
    if without > 0 { format!("Steps without a finite loss, which have no point: {without}.") } else { String::new() }
}

/// Returns the points of a score of the validations of a run.
fn scores(run: &RunData, name: &str, factor: f64) -> Vec<Point> {
    let validations = run.report.history.validations.iter();
    finite(validations.filter_map(|validation| {
        let score = validation.scores.iter().find(|score| score.name == name)?;
        Some((validation.step as f64, score.value * factor))
    }))
}

/// Makes a plot of each score of the validations.
fn scores_of(runs: &[RunData]) -> Vec<Plot> {
    let mut names: Vec<&Measure> = Vec::new();
    let validations = runs.iter().flat_map(|run| &run.report.history.validations);
    for score in validations.flat_map(|validation| &validation.scores).filter(|score| score.name != LOSS) {
        if names.len() < NAMES_MAX && names.iter().all(|known| known.name != score.name) {
            names.push(score);
        }
    }
    let plot = |score: &&Measure| {
        let (factor, unit) = if score.unit == MeasureUnit::Share { (100.0, "%") } else { (1.0, "") };
        let curve = |(index, run): (usize, &RunData)| Curve {
            label: label(runs, run),
            color: color(runs, index, ink::VALIDATION),
            line: Line::Dotted,
            points: scores(run, &score.name, factor),
        };
        let curves = runs.iter().enumerate().map(curve).collect();
        let title = first_upper(if score.label.is_empty() { &score.name } else { &score.label });
        Plot { title, unit: unit.into(), curves, from_zero: factor > 1.0, ..Plot::default() }
    };
    names.iter().map(plot).collect()
}

/// Makes a plot of each term of the loss of a single run.
fn loss_terms(runs: &[RunData]) -> Vec<Plot> {
    let [run] = runs else { return Vec::new() };
    let names: BTreeSet<&String> = run.steps.iter().flat_map(|step| step.parts.keys()).collect();
    if names.len() < 2 {
        return Vec::new();
    }
    let plot = |name: &&String| {
        let term = over_steps(runs, name, "term of the loss", Line::Bold, |_, step| step.parts.get(*name).copied());
        Plot { may_be_logarithmic: true, is_small: true, ..with_raw(term) }
    };
    names.iter().take(NAMES_MAX).map(plot).collect()
}

/// Returns the plot of the peak memory of several runs.
pub(super) fn memory(runs: &[RunData]) -> Plot {
    let peaks = runs.iter().map(|run| run.report.history.peak_bytes.0.max(run.planned_peak.map_or(0, |peak| peak.0)));
    let most = peaks.max().unwrap_or(0) as f64;
    let (unit, size) = unit_of(most);
    let plot = over_steps(runs, "Peak memory of each step", unit, Line::Bold, |_, step| {
        (step.peak.0 > 0).then_some(step.peak.0 as f64 / size)
    });
    let mut plot = over_raw(plot, "highest", highest);
    for (color, run) in runs.iter().enumerate() {
        let (Some(first), Some(last), Some(planned)) = (run.steps.first(), run.steps.last(), run.planned_peak) else {
            continue;
        };
        if run.steps.iter().any(|step| step.peak.0 > 0) {
            let value = planned.0 as f64 / size;
            let points = vec![(first.step as f64, value), (last.step as f64, value)];
            plot.curves.push(Curve { label: String::new(), color, line: Line::Limit, points });
        }
    }
    if plot.curves.iter().any(|curve| curve.line == Line::Limit) {
        plot.note += " Dashed: the planned peak.";
    }
    Plot { from_zero: true, ..plot }
}

/// Returns a unit that suits `most` bytes: its name and its size.
pub(super) fn unit_of(most: f64) -> (&'static str, f64) {
    match most {
        _ if most >= f64::from(1 << 30) => ("GiB", f64::from(1 << 30)),
        _ => ("MiB", f64::from(1 << 20)),
    }
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).take(200).collect())
}
