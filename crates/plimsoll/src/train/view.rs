//! The display of a running training: a progress bar on a terminal, plain lines elsewhere.

use std::collections::HashSet;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, EndKind, Seconds, Skipped, Stage, counted, error_chain};
use plimsoll_monitor::RecordError;
use plimsoll_recipes::memory_plan::MemoryPlan;
use plimsoll_recipes::plan::RunPlan;
use plimsoll_recipes::training::{RunDisplay, Totals};
use plimsoll_train::{Event, StepEvent};

/// Shows the events of a run on standard error.
pub(crate) struct View {
    bar: Option<ProgressBar>,
    /// Whether a terminal gets a progress bar.
    has_bar: bool,
    /// Number of steps between two lines of output if there is no bar.
    log_interval: u64,
    /// Planned peak of memory; `None` if there is no plan.
    planned: Option<Bytes>,
    total_steps: Option<u64>,
    /// Whether a step that used more memory than planned was already shown.
    drift_shown: bool,
    /// Utterances whose omission was already shown. A faster reading of a short one can be too short for its text in each epoch.
    left_out_shown: HashSet<String>,
    pace_shown: bool,
    /// Whether the run has failed, so that it does not go on after a further problem.
    has_failed: bool,
}

impl View {
    /// Makes the display of a run with `plan`. `has_bar`: with a progress bar, if standard error is a terminal.
    pub(crate) fn new(plan: &RunPlan, has_bar: bool) -> Self {
        Self {
            bar: None,
            has_bar,
            log_interval: plan.config.training.log_interval,
            planned: plan.memory.as_ref().map(MemoryPlan::peak),
            total_steps: plan.training.total_steps,
            drift_shown: false,
            left_out_shown: HashSet::new(),
            pace_shown: false,
            has_failed: false,
        }
    }

    /// Estimates the time of the steps after `step`; `None` if the number of all steps is not known.
    fn time_left(&self, step: u64, totals: &Totals) -> Option<Seconds> {
        Some(Seconds(self.total_steps?.saturating_sub(step) as f64 * totals.seconds_per_step()))
    }

    /// Prints that an utterance was left out, once for each; the record of the run has every time.
    fn print_left_out(&mut self, sample: &Skipped) {
        if self.left_out_shown.insert(sample.name.clone()) {
            self.print_line(&format!("warning: `{}` left out: {}", sample.name, sample.reason));
        }
    }

    fn print_line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }
}

impl RunDisplay for View {
    fn start(&mut self, done: u64) {
        self.bar = (self.has_bar && std::io::stderr().is_terminal()).then(|| bar(self.total_steps, done));
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, event: &Event, totals: &Totals) {
        match event {
            Event::Step(StepEvent { step, loss, rate, position, .. }) => {
                let speed = AudioSpeed(totals.audio_seconds_per_second());
                let of_plan = self.planned.map_or_else(String::new, |planned| format!(" of {planned} planned"));
                let text = format!("loss {loss:.3}, {speed}, {}{of_plan}", totals.peak);
                match &self.bar {
                    Some(bar) => {
                        bar.set_position(*step);
                        bar.set_message(text);
                    }
                    None if step.is_multiple_of(self.log_interval) => {
                        let left =
                            self.time_left(*step, totals).map_or_else(String::new, |left| format!(", {left} left"));
                        eprintln!("step {step}, epoch {}: {text}, rate {rate:.1e}{left}", position.epoch);
                    }
                    None => {}
                }
            }
            Event::Validated { step, epoch, scores, seconds, best, .. } => {
                let scores: Vec<String> = scores.iter().map(ToString::to_string).collect();
                let mark = if *best { ", the best so far" } else { "" };
                let (scores, seconds) = (scores.join(", "), Seconds(*seconds));
                self.print_line(&format!("validated after step {step} (epoch {epoch}) in {seconds}: {scores}{mark}"));
            }
            Event::Skipped { reason, .. } => self.print_line(&format!("warning: step skipped: {reason}")),
            Event::LeftOut { samples } => samples.iter().for_each(|sample| self.print_left_out(sample)),
            Event::OutOfMemory { step, failure, limit } => match failure.stage {
                Stage::Checkpoint => {
                    self.print_line(&format!("note: {failure}, after step {step}: written without a copy in memory"));
                }
                _ => self.print_line(&format!(
                    "note: step {step}: {failure}; at most {} at once from now on", counted(limit, "utterance")
                )),
            },
            Event::Unfit { step, names } => {
                let names = names.join("`, `");
                self.print_line(&format!("warning: step {step}: left out, too large for memory even alone: `{names}`"));
            }
            Event::Drift { step, phase, planned_bytes, peak_bytes }
                // Printed once; the record of the run has all of them.
                if !std::mem::replace(&mut self.drift_shown, true) => {
                    self.print_line(&format!(
                        "warning: step {step} used {peak_bytes} in the {phase}; the plan was {planned_bytes}"
                    ));
                }
            Event::RateLowered { step, factor } => {
                self.print_line(&format!(
                    "after step {step}: validations no longer improve; the learning rate is now {factor:.3} of the scheduled one"
                ));
            }
            Event::Paced { step, steps, .. } if !std::mem::replace(&mut self.pace_shown, true) => {
                self.print_line(&format!(
                    "after step {step}: the time is enough for about {}, and the learning rate ends with them",
                    counted(steps, "step")
                ));
            }
            Event::NotSaved { step, reason } => {
                let then = if self.has_failed { "" } else { "; the run goes on" };
                self.print_line(&format!("warning: the checkpoint of step {step} is not written: {reason}{then}"));
            }
            Event::Ended { step, end: EndKind::Failed, reason, .. } => {
                self.has_failed = true;
                self.print_line(&format!("the run failed after step {step}: {reason}"));
            }
            _ => {}
        }
    }

    fn record_lost(&mut self, lines: usize) {
        self.print_line(&format!("warning: {} of the record could not be written", counted(lines, "line")));
    }

    fn record_failed(&mut self, error: &RecordError) {
        self.print_line(&format!(
            "warning: {}: the record waits in memory for room, and the curves for TensorBoard get gaps",
            error_chain(error)
        ));
    }
}

/// Makes a bar that starts at step `done`, so that the time of earlier steps does not count in its estimate. Without
/// `total_steps` it shows no end.
fn bar(total_steps: Option<u64>, done: u64) -> ProgressBar {
    let (bar, template) = match total_steps {
        Some(steps) => (ProgressBar::new(steps), "{bar:30} step {pos}/{len}, {eta} left: {msg}"),
        None => (ProgressBar::no_length(), "{spinner} step {pos}, {elapsed}: {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let bar = bar.with_style(style).with_position(done);
    bar.reset_eta();
    bar
}
