//! Display of a run in progress: a progress bar on a terminal, plain lines elsewhere, and the record on disk.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{Bytes, Seconds, Stage};
use plimsoll_monitor::{RecordError, Recorder, TensorBoardFile};
use plimsoll_train::{Event, Observer, RunState, StepEvent};

use super::folder::RunFolder;
use super::memory::MemoryPlan;
use super::plan::RunPlan;
use crate::failure::{Failure, Told};

/// Observes a run: shows it, records it, and adds up its totals.
pub(crate) struct View {
    bar: Option<ProgressBar>,
    recorder: Recorder,
    /// Curves for TensorBoard.
    curves: TensorBoardFile,
    log_interval: u64,
    hop_seconds: f64,
    /// Planned memory.
    planned: Option<Bytes>,
    total_steps: Option<u64>,
    /// Whether the record could not be written. The warning is printed once.
    mute: bool,
    /// The totals.
    pub(crate) totals: Totals,
}

/// Sums over all steps, for the summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Peak memory.
    pub(crate) peak: Bytes,
    /// Seconds of audio trained on.
    pub(crate) audio_seconds: f64,
    /// Seconds in steps.
    pub(crate) step_seconds: f64,
    /// Seconds waited for data.
    pub(crate) wait_seconds: f64,
    /// Share of each step that was spent waiting for its batch.
    waits: Vec<f32>,
    /// Samples that were left out while training.
    pub(crate) left_out: usize,
    /// Utterances that were left out because they do not fit into memory even alone.
    pub(crate) unfit: usize,
    /// Whether the warning about steps above the planned memory was printed.
    drifted: bool,
    /// Times that the length policy truncated an utterance.
    pub(crate) truncated: usize,
}

impl Totals {
    /// Share that a step waited at the quantile `rank` of all steps. The first step is not counted: it waits for the start of
    /// the loader in any case.
    pub(crate) fn wait_share_at(&self, rank: f64) -> f64 {
        let mut waits = self.waits.get(1..).unwrap_or_default().to_vec();
        waits.sort_by(f32::total_cmp);
        let index = (waits.len().saturating_sub(1) as f64 * rank).round() as usize;
        waits.get(index).map_or(0.0, |wait| f64::from(*wait))
    }
}

impl View {
    /// The display of a run that has reached `state`.
    pub(crate) fn new(plan: &RunPlan, folder: &RunFolder, state: &RunState) -> Result<Self, Failure> {
        let recorder = Recorder::append(&folder.path().join("metrics.jsonl")).failed()?;
        let curves = TensorBoardFile::create(&folder.path().join("tensorboard"), state.step).failed()?;
        let bar = std::io::stderr().is_terminal().then(|| bar(plan, state.step));
        let log_interval = plan.config.training.log_interval;
        let hop_seconds = plan.features.hop_length as f64 / f64::from(plan.features.sample_rate);
        let (planned, total_steps) = (plan.memory.as_ref().map(MemoryPlan::peak), plan.training.total_steps);
        let totals = Totals::default();
        Ok(Self { bar, recorder, curves, log_interval, hop_seconds, planned, total_steps, mute: false, totals })
    }

    /// Removes the progress bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Estimated time of the steps after `step`, if their number is known.
    fn left(&self, step: u64) -> Option<Seconds> {
        let seconds = self.totals.step_seconds + self.totals.wait_seconds;
        let each = seconds / self.totals.waits.len().max(1) as f64;
        Some(Seconds(self.total_steps?.saturating_sub(step) as f64 * each))
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    fn add(&mut self, event: &Event) {
        let totals = &mut self.totals;
        match event {
            Event::Step(StepEvent { frames, step_seconds, wait_seconds, peak_bytes, truncated, .. }) => {
                totals.truncated += truncated;
                totals.peak = totals.peak.max(*peak_bytes);
                totals.audio_seconds += *frames as f64 * self.hop_seconds;
                totals.step_seconds += step_seconds;
                totals.wait_seconds += wait_seconds;
                totals.waits.push((wait_seconds / (step_seconds + wait_seconds).max(f64::MIN_POSITIVE)) as f32);
            }
            Event::Validated { peak_bytes, .. } => totals.peak = totals.peak.max(*peak_bytes),
            Event::LeftOut { samples } => totals.left_out += samples.len(),
            Event::Unfit { names, .. } => totals.unfit += names.len(),
            _ => {}
        }
    }

    /// Adds points to the curves.
    fn draw(&mut self, event: &Event) -> Result<(), RecordError> {
        let curves = &mut self.curves;
        match event {
            Event::Step(event) => {
                let StepEvent { step, loss, frames, step_seconds, wait_seconds, peak_bytes, .. } = event;
                let seconds = (step_seconds + wait_seconds).max(f64::MIN_POSITIVE);
                curves.scalar("train/loss", *step, *loss)?;
                for (name, part) in &event.parts {
                    curves.scalar(&format!("train/loss of {name}"), *step, *part)?;
                }
                curves.scalar("train/gradient norm", *step, event.norm)?;
                curves.scalar("train/learning rate", *step, event.rate)?;
                curves.scalar("speed/audio seconds a second", *step, *frames as f64 * self.hop_seconds / seconds)?;
                curves.scalar("speed/share waited for data", *step, wait_seconds / seconds)?;
                curves.scalar("memory/MiB", *step, peak_bytes.0 as f64 / f64::from(1 << 20))
            }
            Event::Validated { step, scores, .. } => scores
                .iter()
                .try_for_each(|score| curves.scalar(&format!("validation/{}", score.name), *step, score.value)),
            _ => Ok(()),
        }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Step(StepEvent { step, loss, rate, position, .. }) => {
                let speed = self.totals.audio_seconds / (self.totals.step_seconds + self.totals.wait_seconds);
                let of_plan = self.planned.map_or_else(String::new, |planned| format!(" of {planned} planned"));
                let text = format!("loss {loss:.3}, {speed:.0} s of audio a second, {}{of_plan}", self.totals.peak);
                match &self.bar {
                    Some(bar) => {
                        bar.set_position(*step);
                        bar.set_message(text);
                    }
                    None if step.is_multiple_of(self.log_interval) => {
                        let left = self.left(*step).map_or_else(String::new, |left| format!(", {left} left"));
                        eprintln!("step {step}, epoch {}: {text}, rate {rate:.1e}{left}", position.epoch);
                    }
                    None => {}
                }
            }
            Event::Validated { step, epoch, scores, seconds, best, .. } => {
                let scores: Vec<String> = scores.iter().map(ToString::to_string).collect();
                let mark = if *best { ", the best so far" } else { "" };
                let (scores, seconds) = (scores.join(", "), Seconds(*seconds));
                self.say(&format!("validated after step {step} (epoch {epoch}) in {seconds}: {scores}{mark}"));
            }
            Event::Skipped { reason, .. } => self.say(&format!("warning: step not taken: {reason}")),
            Event::LeftOut { samples } => {
                for sample in samples {
                    self.say(&format!("warning: `{}` left out: {}", sample.name, sample.reason));
                }
            }
            Event::OutOfMemory { step, failure, limit } => match failure.stage {
                Stage::Checkpoint => self.say(&format!("note: {failure}, after step {step}: written without a copy")),
                _ => self.say(&format!("note: step {step}: {failure}; at most {limit} utterances at once from now on")),
            },
            Event::Unfit { step, names } => {
                let names = names.join("`, `");
                self.say(&format!("warning: step {step}: left out, as it does not fit into memory alone: `{names}`"));
            }
            Event::Drift { step, phase, planned_bytes, peak_bytes } => {
                // Only once: the record has all of them.
                if !std::mem::replace(&mut self.totals.drifted, true) {
                    self.say(&format!(
                        "warning: step {step} took {peak_bytes} in the {phase}, and {planned_bytes} was planned"
                    ));
                }
            }
            Event::RateLowered { step, factor } => {
                self.say(&format!(
                    "after step {step}: validations no longer improve, the learning rate is {factor:.3} of the scheduled one"
                ));
            }
            Event::NotSaved { step, reason } => {
                self.say(&format!("warning: the checkpoint of step {step} is not written: {reason}; the run goes on"));
            }
            _ => {}
        }
    }
}

impl Observer for View {
    fn observe(&mut self, event: &Event) {
        self.add(event);
        self.show(event);
        if let Err(error) = self.recorder.record(event).and_then(|()| self.draw(event))
            && !self.mute
        {
            self.mute = true;
            self.say(&format!("warning: {error}: the record of this run will have gaps"));
        }
    }
}

fn bar(plan: &RunPlan, step: u64) -> ProgressBar {
    let (bar, template) = match plan.training.total_steps {
        Some(steps) => (ProgressBar::new(steps), "{bar:30} step {pos}/{len}, {eta} left: {msg}"),
        None => (ProgressBar::no_length(), "{spinner} step {pos}, {elapsed}: {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = bar.with_style(style).with_position(step);
    bar.reset_eta();
    bar
}
