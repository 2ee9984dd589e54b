//! The numbers of a page, for programs: each page holds them as JSON.

use std::collections::BTreeMap;

use plimsoll_core::{Measure, TimeShares};
use serde::Serialize;

use super::notice::NoticeKind;
use super::run_data::{RunData, TimeSource, TimeSpan};
use crate::RunStatus;
use crate::sample::{GpuTrace, NumberSummary, SampleTrace, ThrottleReason};

/// Version of the numbers of a page. A number that gets another meaning raises it.
pub(super) const NUMBERS_VERSION: u32 = 1;

/// Numbers of a page.
#[derive(Serialize)]
pub(super) struct PageNumbers {
    pub(super) schema_version: u32,
    pub(super) runs: Vec<RunNumbers>,
    /// Number of runs that were given and do not fit on the page.
    pub(super) runs_left_out: usize,
}

/// Numbers of a run. A number that is not known is `null`.
#[derive(Serialize)]
pub(super) struct RunNumbers {
    pub(super) name: String,
    pub(super) status: RunStatus,
    /// Number of the last step.
    pub(super) steps: u64,
    pub(super) epochs: u64,
    /// Number of steps of the record, without those that were repeated after a resume.
    pub(super) step_events: usize,
    pub(super) steps_repeated: u64,
    pub(super) steps_without_loss: usize,
    pub(super) damaged_lines: u64,
    pub(super) times_from: TimeSource,
    /// Seconds of the whole record by owner.
    pub(super) times: TimeShares,
    pub(super) total_seconds: f64,
    pub(super) bars: Vec<Bar>,
    pub(super) step_seconds: f64,
    pub(super) wait_seconds: f64,
    pub(super) frames: u64,
    pub(super) audio_seconds: Option<f64>,
    pub(super) audio_seconds_per_second: Option<f64>,
    /// Share of the batches that is padding, weighted by their frames with padding.
    pub(super) padding: Option<f64>,
    pub(super) last_loss: Option<f64>,
    pub(super) loss_sum: f64,
    pub(super) peak_bytes: u64,
    pub(super) planned_peak_bytes: Option<u64>,
    pub(super) best_step: Option<u64>,
    pub(super) scores: Vec<Measure>,
    /// Number of notable events by kind.
    pub(super) events: BTreeMap<&'static str, u64>,
    /// Numbers of the machine; `None` without samples of it.
    pub(super) machine: Option<MachineNumbers>,
}

/// Numbers of the samples of a run's machine.
#[derive(Serialize)]
pub(super) struct MachineNumbers {
    samples: u64,
    /// Seconds from the first to the last sample, without pauses of the run.
    seconds: f64,
    damaged_lines: u64,
    ends_early: bool,
    host: Vec<NumberSummary>,
    gpus: Vec<GpuNumbers>,
}

/// Numbers of the samples of a GPU.
#[derive(Serialize)]
pub(super) struct GpuNumbers {
    index: u32,
    name: String,
    numbers: Vec<NumberSummary>,
    /// Seconds in which the GPU ran below its highest clock; `None` if that was never read.
    throttled_seconds: Option<f64>,
    /// Samples in which the GPU ran below its highest clock.
    throttled_samples: u64,
    /// Seconds of each reason. Several reasons can hold at a time.
    throttled_by: BTreeMap<ThrottleReason, f64>,
}

/// Bar of the time ledger: neighboring steps, and their time by owner.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bar {
    pub(super) first_step: u64,
    pub(super) last_step: u64,
    /// Seconds of the record before the bar.
    pub(super) start_seconds: f64,
    pub(super) times: TimeShares,
}

impl RunNumbers {
    /// Computes the numbers of a run, with at most about `bars_max` bars.
    pub(super) fn new(run: &RunData, bars_max: usize) -> Self {
        let (history, steps) = (&run.report.history, &run.steps);
        let times = run.times();
        let frames = steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.frames));
        let losses = || steps.iter().map(|step| step.loss).filter(|loss| loss.is_finite());
        Self {
            name: run.report.name.clone(),
            status: run.report.status,
            steps: history.steps,
            epochs: history.epochs,
            step_events: steps.len(),
            steps_repeated: run.repeated,
            steps_without_loss: steps.len() - losses().count(),
            damaged_lines: run.damaged,
            times_from: run.times_from,
            times,
            total_seconds: times.total(),
            bars: bars(&run.spans, bars_max),
            step_seconds: steps.iter().map(|step| step.step_seconds).sum(),
            wait_seconds: steps.iter().map(|step| step.wait_seconds).sum(),
            frames,
            audio_seconds: run.report.setup.hop_seconds.map(|hop| frames as f64 * hop),
            audio_seconds_per_second: history.audio_seconds_per_second,
            padding: padding(run),
            last_loss: history.losses.last(),
            loss_sum: losses().sum(),
            peak_bytes: history.peak_bytes.0,
            planned_peak_bytes: run.planned_peak.map(|peak| peak.0),
            best_step: history.best().map(|best| best.step),
            scores: run.report.scores().to_vec(),
            machine: run.machine.trace().map(MachineNumbers::new),
            events: NoticeKind::ALL.into_iter().map(|kind| (kind.name(), run.notices.count(kind))).collect(),
        }
    }
}

impl MachineNumbers {
    fn new(trace: &SampleTrace) -> Self {
        let gpu = |gpu: &GpuTrace| GpuNumbers {
            index: gpu.index,
            name: gpu.name.clone(),
            numbers: trace.gpu_summary(gpu),
            throttled_seconds: (gpu.throttling.known_samples > 0).then_some(gpu.throttling.seconds),
            throttled_samples: gpu.throttling.samples,
            throttled_by: gpu.throttling.by_reason.clone(),
        };
        Self {
            samples: trace.samples,
            seconds: trace.seconds,
            damaged_lines: trace.damaged,
            ends_early: trace.ends_early,
            host: trace.host_summary(),
            gpus: trace.gpus.iter().map(gpu).collect(),
        }
    }
}

impl PageNumbers {
    /// Writes the numbers as JSON that can stand in a page: no text in it ends the element around it.
    pub(super) fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("numbers are plain data");
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    }
}

/// Share of padding in the computed frames: a batch with frames `f` and padding `p` has `f / (1 - p)` frames.
fn padding(run: &RunData) -> Option<f64> {
    let sizes = run.steps.iter().filter(|step| step.frames > 0 && (0.0..1.0).contains(&step.padding));
    let (frames, computed) = sizes.fold((0.0, 0.0), |(frames, computed), step| {
        (frames + step.frames as f64, computed + step.frames as f64 / (1.0 - step.padding))
    });
    (computed > 0.0).then(|| 1.0 - frames / computed)
}

/// Groups neighboring steps to at most about `count` bars of similar duration. A step longer than a bar is a bar alone.
fn bars(spans: &[TimeSpan], count: usize) -> Vec<Bar> {
    let total: f64 = spans.iter().map(|span| span.times.total()).sum();
    let target = total / count.max(1) as f64;
    let (mut bars, mut elapsed, mut open_until) = (Vec::<Bar>::new(), 0.0, f64::NEG_INFINITY);
    for span in spans {
        match bars.last_mut() {
            // A bar takes the steps that begin in its part of the time.
            Some(bar) if elapsed < open_until => {
                bar.last_step = span.step;
                bar.times.add_all(&span.times);
            }
            _ => {
                let (first_step, last_step) = (span.step, span.step);
                bars.push(Bar { first_step, last_step, start_seconds: elapsed, times: span.times });
                open_until = ((elapsed / target).floor() + 1.0) * target;
            }
        }
        elapsed += span.times.total();
    }
    bars
}

#[cfg(test)]
mod tests {
    use plimsoll_core::TimeOwner;

    use super::*;

    #[test]
    fn bars_keep_every_second_and_are_few() {
        let span = |step: u64| {
            let mut times = TimeShares::default();
            times.add(TimeOwner::Compute, if step.is_multiple_of(97) { 300.0 } else { 0.5 });
            times.add(TimeOwner::Data, step as f64 % 7.0 / 8.0);
            TimeSpan { step, times }
        };
        for steps in [0u64, 1, 2, 119, 120, 121, 5000] {
            let spans: Vec<TimeSpan> = (1..=steps).map(span).collect();
            let bars = bars(&spans, 120);
            assert!(bars.len() <= 122 && bars.is_empty() == spans.is_empty(), "{steps}: {}", bars.len());
            let sum: f64 = bars.iter().map(|bar| bar.times.total()).sum();
            let expected: f64 = spans.iter().map(|span| span.times.total()).sum();
            assert!((sum - expected).abs() < 1e-6, "{steps}");
            assert!(bars.windows(2).all(|pair| pair[0].last_step + 1 == pair[1].first_step));
        }
    }
}
