//! `plimsoll stress`: trains at the limit of the plan for a time, and judges speed, memory and errors.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use plimsoll_config::RunConfig;
use plimsoll_config::invocation::command;
use plimsoll_core::{CountingAllocator, Event, Seconds, StepEvent, TimeOwner, TimeShares, counted};
use plimsoll_monitor::Machine;
use plimsoll_monitor::doctor::{CheckReport, DoctorReport, MachineSummary, Outcome};
use plimsoll_monitor::sample::{MachineSource, Monitor, MonitorSummary, Sample, Sampler};
use plimsoll_recipes::data::prepare;
use plimsoll_recipes::reporter::Silent;
use plimsoll_recipes::training::{Trial, TrialOptions, own_seconds, warm_steps};
use plimsoll_recipes::{Failure, FailureExt, FailureKind};

use crate::print::uses_color;
use crate::signals::Signals;
use crate::terminal::{Terminal, spinner};
use crate::trial::{TrialBar, TrialConfigArgs};

/// Time between two samples of the machine.
const SAMPLES: Duration = Duration::from_secs(1);
/// Fewest utterances that are trained on: the longest of the corpus.
const UTTERANCES_MIN: usize = 64;
/// Number of batches that the longest utterances fill.
const BATCHES: usize = 8;
/// Largest number of steps between two checkpoints.
const CHECKPOINT_INTERVAL: u64 = 20;
/// Share of the wall time that is work for the model; with less the device waits too much.
const BUSY_MIN: f64 = 0.9;
/// Mean utilization of a GPU that is well used.
const UTILIZATION_MIN: f64 = 0.8;
/// Share by which steps may become slower.
const SLOWER_MAX: f64 = 0.1;
/// Factor on the planned memory that counts as kept.
const MEMORY_MAX: f64 = 1.01;
/// Share of the time that checkpoints may take.
const CHECKPOINTS_MAX: f64 = 0.1;
/// Share of samples with a reason for a lower clock that is worth a warning.
const THROTTLED_MAX: f64 = 0.05;

/// Arguments of `stress`.
#[derive(Debug, Args)]
pub(crate) struct StressArgs {
    /// How long to train, in seconds; --steps ends it earlier. The exit code is 0 if all is well, 1 after a warning and 2
    /// after a failed check.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The configuration.
    #[command(flatten)]
    trial: TrialConfigArgs,
}

/// Trains on the longest utterances, and prints a verdict. The exit code is 0 if all is well, 1 after a warning and 2 after
/// a failure. Nothing of the training is kept.
pub(crate) fn stress(args: &StressArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let mut loaded = args.trial.load()?;
    let signals = Signals::listen().failed()?;
    signals.end_if_busy().failed()?;
    longest_only(&mut loaded.config)?;
    loaded.config.training.checkpoint_interval = loaded.config.training.checkpoint_interval.min(CHECKPOINT_INTERVAL);
    let throttled = Arc::new(AtomicU64::new(0));
    let counter = throttled.clone();
    let count = move |sample: &Sample| {
        let is_slowed = |reasons: Option<&Vec<_>>| reasons.is_some_and(|reasons| !reasons.is_empty());
        let slowed = sample.gpus.iter().any(|gpu| is_slowed(gpu.throttle.value()));
        counter.fetch_add(u64::from(slowed), Ordering::Relaxed);
    };
    let time = Duration::from_secs(args.seconds);
    let options = TrialOptions { steps: args.trial.steps()?, time: Some(time), ..TrialOptions::default() };
    let monitor = Monitor::start_with(SAMPLES, || Sampler::new(MachineSource::open()), count);
    let mut bar = TrialBar::new("training at the limit", None);
    let trial = Trial::run(loaded, options, (memory, &Terminal), &signals.stop, &mut bar);
    let samples = monitor.stop();
    let checks = match trial {
        Ok(trial) if trial.was_stopped => return Ok(ExitCode::from(signals.exit_code())),
        Ok(trial) => {
            StressRun { trial: &trial, samples: &samples, throttled: throttled.load(Ordering::Relaxed) }.checks(time)
        }
        // What the training met is a verdict; a mistake in the configuration is none.
        Err(failure) if failure.kind() == FailureKind::Failed => {
            let outcome = Outcome::fail(failure.to_string());
            vec![StressCheck::Errors.report(outcome, time)]
        }
        Err(failure) => return Err(failure),
    };
    let machine = MachineSummary::from(&Machine::probe());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let report = DoctorReport::new(now, Some(machine), checks);
    match args.json {
        true => println!("{:#}", serde_json::json!(report)),
        false => print!("{}", report.page(uses_color())),
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Leaves only the longest utterances in the data, so that every batch has the length that needs most memory.
fn longest_only(config: &mut RunConfig) -> Result<(), Failure> {
    let working = spinner("looking for the longest utterances");
    let prepared = prepare(config, &Silent);
    working.finish_and_clear();
    let training = prepared?.training;
    let mut durations: Vec<f64> = (0..training.len()).map(|index| training.utterance(index).duration.0).collect();
    durations.sort_by(|a, b| b.total_cmp(a));
    let batch = config.effective_utterances().map_or(16, |utterances| utterances as usize);
    let kept = UTTERANCES_MIN.max(BATCHES * batch);
    if let Some(shortest) = durations.get(kept) {
        config.data.min_seconds = Seconds(shortest.max(config.data.min_seconds.0));
    }
    Ok(())
}

/// A check of `stress`, by which `prove` finds it in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StressCheck {
    Errors,
    Memory,
    OutOfMemory,
    Busy,
    Utilization,
    Throttling,
    Checkpoints,
    Steady,
}

impl StressCheck {
    /// Returns the stable name in the report.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::Memory => "memory",
            Self::OutOfMemory => "out-of-memory",
            Self::Busy => "busy",
            Self::Utilization => "utilization",
            Self::Throttling => "throttling",
            Self::Checkpoints => "checkpoints",
            Self::Steady => "steady",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Errors => "every step is taken and saved",
            Self::Memory => "memory stays within the plan",
            Self::OutOfMemory => "no computation is repeated",
            Self::Busy => "the time goes into the model",
            Self::Utilization => "the GPUs are in use",
            Self::Throttling => "the GPUs run at their clock",
            Self::Checkpoints => "checkpoints take little time",
            Self::Steady => "steps do not become slower",
        }
    }

    fn report(self, outcome: Outcome, time: Duration) -> CheckReport {
        CheckReport::new(self.id(), self.title(), outcome, time)
    }
}

/// A trial with what was seen beside it.
struct StressRun<'a> {
    trial: &'a Trial,
    samples: &'a MonitorSummary,
    /// Number of samples in which a GPU had a reason for a lower clock.
    throttled: u64,
}

impl StressRun<'_> {
    fn checks(&self, time: Duration) -> Vec<CheckReport> {
        [
            (StressCheck::Errors, self.errors()),
            (StressCheck::Memory, self.memory()),
            (StressCheck::OutOfMemory, self.retries()),
            (StressCheck::Busy, self.busy()),
            (StressCheck::Utilization, self.utilization()),
            (StressCheck::Throttling, self.throttling()),
            (StressCheck::Checkpoints, self.checkpoints()),
            (StressCheck::Steady, self.steady()),
        ]
        .map(|(check, outcome)| check.report(outcome, time))
        .into()
    }

    fn count(&self, is_so: impl Fn(&Event) -> bool) -> usize {
        self.trial.records.iter().filter(|record| is_so(&record.event)).count()
    }

    fn times(&self) -> TimeShares {
        let mut times = TimeShares::default();
        warm_steps(self.trial.steps()).iter().for_each(|step| times.add_all(&step.times));
        times
    }

    fn errors(&self) -> Outcome {
        let steps = self.trial.steps().count();
        let reasons: Vec<&str> = self
            .trial
            .records
            .iter()
            .filter_map(|record| match &record.event {
                Event::Skipped { reason, .. } | Event::NotSaved { reason, .. } => Some(reason.as_str()),
                _ => None,
            })
            .collect();
        let left_out = self.count(|event| matches!(event, Event::Unfit { .. }));
        match (reasons.first(), left_out, steps) {
            (Some(first), ..) => Outcome::fail(format!("{}, the first: {first}", counted(reasons.len(), "error"))),
            (None, _, 0) => Outcome::fail("no step was finished in this time").with_fix("give more --seconds"),
            (None, 1.., _) => Outcome::warn(format!("{} with utterances that do not fit", counted(left_out, "step")))
                .with_fix("lower data.max_seconds, or let training.micro_batch be auto"),
            (None, 0, _) => Outcome::pass(format!("{} without an error", counted(steps, "step"))),
        }
        .with_detail("steps", steps)
    }

    fn memory(&self) -> Outcome {
        let Some(plan) = &self.trial.plan.memory else { return Outcome::skip("the memory of this run is not planned") };
        let is_host = !self.trial.plan.training.async_errors;
        let planned = plan.expected_peaks(is_host);
        let share = |step: &StepEvent| {
            let planned = planned.of(step.shape?)?;
            let is_kept = step.peak_bytes.0 as f64 <= planned.0 as f64 * MEMORY_MAX;
            let share = step.peak_bytes.0 as f64 / planned.0.max(1) as f64;
            (step.peak_bytes.0 > 0).then_some((share, step.peak_bytes, is_kept))
        };
        let all_kept = self.trial.steps().filter_map(share).all(|(.., is_kept)| is_kept);
        let Some((highest, peak, _)) = self.trial.steps().filter_map(share).max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Outcome::skip("the device does not measure its memory");
        };
        let text = format!("at most {peak}, {:.0} % of what was planned for that step", highest * 100.0);
        match all_kept {
            true => Outcome::pass(text),
            false => Outcome::fail(text).with_fix("please report it with the plan of the run: plans must hold"),
        }
        .with_detail("peak_bytes", peak.0)
        .with_detail("share_of_plan", highest)
    }

    fn retries(&self) -> Outcome {
        let count = self.count(|event| matches!(event, Event::OutOfMemory { .. }));
        match count {
            0 => Outcome::pass("memory never ran out"),
            _ => Outcome::warn(format!("memory ran out {}, and the work was repeated", counted(count, "time")))
                .with_fix("lower training.max_memory: another program may use the memory of the device"),
        }
        .with_detail("count", count)
    }

    fn busy(&self) -> Outcome {
        let times = self.times();
        let working =
            [TimeOwner::Compute, TimeOwner::Submit, TimeOwner::Optimizer, TimeOwner::Read, TimeOwner::Transfer];
        let share: f64 = working.iter().map(|owner| times.share(*owner)).sum();
        let others = times.iter().filter(|(owner, _)| !working.contains(owner));
        let largest = others.max_by(|a, b| a.1.total_cmp(&b.1));
        let text = format!("{:.0} % of the time", share * 100.0);
        match largest {
            _ if times.is_empty() => Outcome::skip("the steps were too few"),
            Some((owner, _)) if share < BUSY_MIN => {
                let part = times.share(owner) * 100.0;
                let fix = match owner {
                    TimeOwner::OtherProcess => "stop the other programs on this machine".to_string(),
                    _ => format!("`{}` names the change that helps", command("advise")),
                };
                Outcome::warn(format!("{text}; most of the rest is {owner} ({part:.0} %)")).with_fix(fix)
            }
            _ => Outcome::pass(text),
        }
        .with_detail("share", share)
    }

    fn utilization(&self) -> Outcome {
        if self.trial.plan.training.async_errors {
            let mean = |gpu: &plimsoll_monitor::sample::GpuSummary| {
                let number = gpu.numbers.iter().find(|number| number.name == "utilization")?;
                Some(number.values?.mean)
            };
            return match self.samples.gpus.iter().filter_map(mean).max_by(f64::total_cmp) {
                None => Outcome::skip("no GPU reports its utilization"),
                Some(mean) => {
                    let text = format!("{:.0} % on average", mean * 100.0);
                    let outcome = if mean >= UTILIZATION_MIN { Outcome::pass(text) } else { Outcome::warn(text) };
                    outcome.with_detail("mean", mean)
                }
            };
        }
        Outcome::skip("the CPU computes")
    }

    fn throttling(&self) -> Outcome {
        if self.samples.gpus.is_empty() {
            return Outcome::skip("there is no GPU to read");
        }
        let share = self.throttled as f64 / self.samples.samples.max(1) as f64;
        let text = format!("a lower clock in {:.0} % of the samples", share * 100.0);
        match share {
            share if share <= THROTTLED_MAX => Outcome::pass(text),
            _ => Outcome::warn(text)
                .with_fix(format!("look at power limit, cooling and temperature: `{}` shows them", command("monitor"))),
        }
        .with_detail("share", share)
    }

    fn checkpoints(&self) -> Outcome {
        let count = self.count(|event| matches!(event, Event::Saved { .. }));
        let share = self.times().share(TimeOwner::Checkpoint);
        let text = format!("{}, {:.1} % of the time", counted(count, "checkpoint"), share * 100.0);
        match share {
            share if share <= CHECKPOINTS_MAX => Outcome::pass(text),
            _ => Outcome::warn(text).with_fix("a larger training.checkpoint_interval, or a faster disk for runs_dir"),
        }
        .with_detail("count", count)
        .with_detail("share", share)
    }

    fn steady(&self) -> Outcome {
        let steps = warm_steps(self.trial.steps());
        let third = steps.len() / 3;
        if third < 3 {
            return Outcome::skip("the steps were too few");
        }
        let median = |steps: &[&StepEvent]| {
            let per_frame = |step: &&StepEvent| own_seconds(step) / step.frames.max(1) as f64;
            let mut each: Vec<f64> = steps.iter().map(per_frame).collect();
            each.sort_by(f64::total_cmp);
            each[each.len() / 2]
        };
        let slower = median(&steps[steps.len() - third..]) / median(&steps[..third]).max(f64::MIN_POSITIVE) - 1.0;
        let word = if slower > 0.0 { "slower" } else { "faster" };
        let text = format!("the last third is {:.0} % {word} than the first", slower.abs() * 100.0);
        match slower {
            slower if slower <= SLOWER_MAX => Outcome::pass(text),
            _ => Outcome::warn(text)
                .with_fix(format!("look for other programs, and for heat: `{}` shows both", command("monitor"))),
        }
        .with_detail("slower", slower)
    }
}
