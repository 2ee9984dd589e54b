//! The parts of a proof.

use std::time::Duration;

use plimsoll_core::{Bytes, Event, Seconds, StepEvent};
use plimsoll_monitor::doctor::{CheckStatus, Outcome};
use plimsoll_monitor::read_records;
use plimsoll_recipes::Failure;
use plimsoll_recipes::config::{BackendChoice, DeviceConfig};
use plimsoll_recipes::target::Target;
use serde_json::Value;

use super::ballast::Ballast;
use super::child::{Commands, Ended};
use super::weights::{Distance, compare};

/// Shares of the planned memory that a run gets as its budget.
const BUDGETS: [f64; 5] = [1.0, 0.8, 0.6, 0.45, 0.3];
/// What a command says of a run that does not fit.
const REFUSAL: &str = "the run does not fit";
/// Kernels and uploads of a step on one GPU above which a GPU waits for the host.
const LAUNCHES_MAX: f64 = 1_500.0;
const UPLOADS_MAX: f64 = 10.0;
/// Steps that are measured.
const PROFILE_STEPS: &str = "12";
/// Fewest and most steps of a training.
const STEPS_MIN: u64 = 10;
const STEPS_MAX: u64 = 1_000;
/// Distance of weights, as a share of their norm, that the order of sums on a GPU explains.
const DISTANCE_MAX: f64 = 1e-3;
/// Shares of the whole time: of one training, and of a run within a budget.
const TRAINING_SHARE: f64 = 0.08;
const BUDGET_SHARE: f64 = 0.04;
/// Time that a part may take beyond its share: a GPU compiles its kernels in each process.
const EXTRA: Duration = Duration::from_secs(300);
/// What the ballast leaves of a GPU, as a part of the planned memory of the run.
const LEFT_BY_BALLAST: f64 = 0.7;

/// A part of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Doctor,
    Speed,
    Training,
    Repeat,
    Resume,
    Budgets,
    Ballast,
    Replicas,
}

impl Part {
    pub(super) const ALL: [Self; 8] = [
        Self::Doctor,
        Self::Speed,
        Self::Training,
        Self::Repeat,
        Self::Resume,
        Self::Budgets,
        Self::Ballast,
        Self::Replicas,
    ];

    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Doctor => "doctor",
            Self::Speed => "speed",
            Self::Training => "training",
            Self::Repeat => "repeat",
            Self::Resume => "resume",
            Self::Budgets => "budgets",
            Self::Ballast => "ballast",
            Self::Replicas => "replicas",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Doctor => "driver, devices and disks are in order",
            Self::Speed => "time, memory and calls of a step",
            Self::Training => "training lowers the loss",
            Self::Repeat => "a second run is the same",
            Self::Resume => "a run that was killed goes on as if it had not been",
            Self::Budgets => "memory stays within budgets",
            Self::Ballast => "a run fits beside another process",
            Self::Replicas => "several GPUs train together",
        }
    }

    /// Returns whether the part has several checks.
    pub(super) fn has_several(self) -> bool {
        matches!(self, Self::Budgets | Self::Replicas)
    }

    /// Finds a part by its name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::id).join(", ");
        Self::ALL.into_iter().find(|part| part.id() == name).ok_or_else(|| format!("the parts are {}", names()))
    }
}

/// What the parts share.
pub(super) struct Proof<'a> {
    commands: Commands<'a>,
    /// Time for all parts.
    time: Duration,
    /// Index of the first GPU, and the number of replicas, that the configuration asks for.
    device: usize,
    backend: BackendChoice,
    replicas: u32,
    /// Number of steps that was asked for; otherwise it follows from the time.
    steps: Option<u64>,
    /// What `profile` printed, or how it failed.
    profile: Option<Result<Value, Outcome>>,
    /// How the first training ended.
    trained: Option<Result<(), Outcome>>,
}

impl<'a> Proof<'a> {
    pub(super) fn new(commands: Commands<'a>, time: Duration, device: &DeviceConfig, steps: Option<u64>) -> Self {
        let DeviceConfig { index, backend, replicas, .. } = *device;
        Self { commands, time, device: index as usize, backend, replicas, steps, profile: None, trained: None }
    }

    /// Runs `part`, and gives each check to `add`, with its title.
    ///
    /// # Errors
    /// If this program cannot be started again.
    pub(super) fn run(&mut self, part: Part, add: &mut dyn FnMut(String, Outcome)) -> Result<(), Failure> {
        let title = part.title().to_string();
        match part {
            Part::Doctor => add(title, self.doctor()?),
            Part::Speed => add(title, self.speed()?),
            Part::Training => add(title, self.training()?),
            Part::Repeat => add(title, self.repeat()?),
            Part::Resume => add(title, self.resume()?),
            Part::Budgets => return self.budgets(add),
            Part::Ballast => add(title, self.ballast()?),
            Part::Replicas => return self.several(add),
        }
        Ok(())
    }

    fn share(&self, share: f64) -> Duration {
        self.time.mul_f64(share)
    }

    fn doctor(&self) -> Result<Outcome, Failure> {
        let ended = self.commands.run("doctor", &["--json"], EXTRA)?;
        let Some(report) = ended.json() else { return Ok(ended.failure()) };
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        let of = |status: CheckStatus| {
            let is_it = move |check: &&Value| check["status"] == serde_json::json!(status);
            let named = |check: &Value| format!("{}: {}", text(&check["id"]), text(&check["finding"]));
            checks.iter().filter(is_it).map(named).collect::<Vec<String>>()
        };
        let (failed, warned) = (of(CheckStatus::Fail), of(CheckStatus::Warn));
        let outcome = match (failed.is_empty(), warned.is_empty()) {
            (false, _) => Outcome::fail(failed.join("\n")),
            (true, false) => Outcome::warn(warned.join("\n")),
            (true, true) => Outcome::pass(format!("{} checks passed", of(CheckStatus::Pass).len())),
        };
        Ok(outcome.with_detail("failed", failed).with_detail("warnings", warned))
    }

    /// Returns what `profile` printed. It runs once.
    fn profile(&mut self) -> Result<Result<Value, Outcome>, Failure> {
        if let Some(profile) = &self.profile {
            return Ok(profile.clone());
        }
        let ended = self.commands.run("profile", &["--json", "--steps", PROFILE_STEPS], self.time / 2 + EXTRA)?;
        let profile = ended.json().filter(|_| ended.is_success()).ok_or_else(|| ended.failure());
        self.profile = Some(profile.clone());
        Ok(profile)
    }

    fn speed(&mut self) -> Result<Outcome, Failure> {
        let profile = match self.profile()? {
            Ok(profile) => profile,
            Err(failure) => return Ok(failure),
        };
        let number = |name: &str| profile[name].as_f64();
        // All GPUs of the process are counted together.
        let replicas = f64::from(self.replicas.max(1));
        let mut found = vec![format!(
            "{} a step, {:.0} s of audio per second",
            Seconds(number("seconds_per_step").unwrap_or(f64::NAN)),
            number("audio_seconds_per_second").unwrap_or(f64::NAN)
        )];
        let mut outcome = match (number("launches"), number("uploads"), number("reads")) {
            (Some(launches), Some(uploads), Some(reads)) => {
                found.push(format!("{launches:.0} kernels, {uploads:.1} uploads and {reads:.1} reads a step"));
                match launches > LAUNCHES_MAX * replicas || uploads > UPLOADS_MAX * replicas {
                    true => Outcome::warn(found.join("\n")).with_fix(format!(
                        "with more than {LAUNCHES_MAX} kernels or {UPLOADS_MAX} uploads each, a fast GPU waits for the host"
                    )),
                    false => Outcome::pass(found.join("\n")),
                }
            }
            _ => Outcome::pass(found.join("\n")),
        };
        let names =
            ["seconds_per_step", "audio_seconds_per_second", "launches", "uploads", "reads", "times", "kernels"];
        for name in names.into_iter().filter(|name| !profile[*name].is_null()) {
            outcome = outcome.with_detail(name, profile[name].clone());
        }
        Ok(outcome.with_detail("memory", profile["memory"].clone()))
    }

    /// Returns the number of steps that a training of this proof has.
    fn steps(&mut self) -> Result<u64, Failure> {
        if let Some(steps) = self.steps {
            return Ok(steps.max(STEPS_MIN));
        }
        let seconds = match self.profile()? {
            Ok(profile) => profile["seconds_per_step"].as_f64().unwrap_or(1.0),
            Err(_) => 1.0,
        };
        let steps = self.share(TRAINING_SHARE).as_secs_f64() / seconds.max(1e-3);
        Ok((steps as u64).clamp(STEPS_MIN, STEPS_MAX))
    }

    /// Trains the run `name`.
    fn train(&mut self, name: &str, more: &[&str]) -> Result<Ended, Failure> {
        let steps = self.steps()?.to_string();
        let all = [&["--name", name, "--steps", &steps, "--ui", "lines"], more].concat();
        self.commands.run("train", &all, self.time / 3 + EXTRA)
    }

    /// Trains the run that others are compared with. It runs once.
    fn first_training(&mut self) -> Result<Result<(), Outcome>, Failure> {
        if self.trained.is_none() {
            let ended = self.train("first", &[])?;
            self.trained = Some(if ended.is_success() { Ok(()) } else { Err(ended.failure()) });
        }
        Ok(self.trained.clone().unwrap_or(Ok(())))
    }

    fn losses(&self, name: &str) -> Vec<f64> {
        let records = read_records(&self.commands.run_folder(name).join("metrics.jsonl")).unwrap_or_default();
        let loss = |event| match event {
            Event::Step(StepEvent { loss, .. }) => Some(loss),
            _ => None,
        };
        records.into_iter().filter_map(|record| loss(record.event)).collect()
    }

    fn training(&mut self) -> Result<Outcome, Failure> {
        if let Err(failure) = self.first_training()? {
            return Ok(failure);
        }
        let losses = self.losses("first");
        let part = (losses.len() / 5).max(1);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        let (first, last) =
            (mean(&losses[..part.min(losses.len())]), mean(&losses[losses.len().saturating_sub(part)..]));
        let text = format!("{} steps, loss {first:.3} -> {last:.3}", losses.len());
        let outcome = match last < first {
            _ if losses.is_empty() || losses.iter().any(|loss| !loss.is_finite()) => Outcome::fail(text),
            true => Outcome::pass(text),
            false => Outcome::warn(text).with_fix("give more --minutes: so few steps may be too few to learn"),
        };
        Ok(outcome.with_detail("losses", losses))
    }

    /// Compares the weights of the run `name` with those of the first run.
    fn compared(&mut self, name: &str, what: &str) -> Result<Outcome, Failure> {
        let is_gpu = matches!(self.profile()?, Ok(profile) if !profile["launches"].is_null());
        let folders = [self.commands.run_folder("first"), self.commands.run_folder(name)];
        let distance = match compare(&folders[0], &folders[1]) {
            Ok(distance) => distance,
            Err(failure) => return Ok(Outcome::fail(failure.to_string())),
        };
        let text = format!("{what} has {distance}");
        Ok(match distance {
            Distance::None => Outcome::pass(text).with_detail("distance", 0.0),
            Distance::Relative(distance) => {
                // A GPU may add in another order each time.
                let is_small = is_gpu && distance < DISTANCE_MAX;
                let outcome = if is_small { Outcome::pass(text) } else { Outcome::fail(text) };
                outcome.with_detail("distance", distance)
            }
        })
    }

    fn repeat(&mut self) -> Result<Outcome, Failure> {
        if let Err(failure) = self.first_training()? {
            return Ok(failure);
        }
        let ended = self.train("second", &[])?;
        if !ended.is_success() {
            return Ok(ended.failure());
        }
        self.compared("second", "a second run")
    }

    fn resume(&mut self) -> Result<Outcome, Failure> {
        if let Err(failure) = self.first_training()? {
            return Ok(failure);
        }
        let steps = self.steps()?;
        let (half, text) = (steps / 2, steps.to_string());
        let metrics = self.commands.run_folder("killed").join("metrics.jsonl");
        let mut goes_on = || {
            let lines = std::fs::read_to_string(&metrics).unwrap_or_default();
            let taken = lines.lines().filter(|line| line.contains("\"event\":\"step\"")).count() as u64;
            taken < half
        };
        let every = format!("training.checkpoint_interval={}", (steps / 4).max(1));
        let arguments = ["--name", "killed", "--steps", &text, "--ui", "lines", "--set", &every];
        let arguments = self.commands.arguments("train", &arguments);
        let ended = self.commands.run_while(&arguments, self.time / 3 + EXTRA, &mut goes_on)?;
        if let Some(status) = ended.status {
            let early =
                Outcome::warn("the run ended before it could be killed").with_fix("give more --steps or --minutes");
            return Ok(if status.success() { early } else { ended.failure() });
        }
        let folder = self.commands.run_folder("killed");
        let taken = self.losses("killed").len();
        let resumed = ["train", "--resume", &folder.to_string_lossy(), "--ui", "lines"].map(String::from);
        let ended = self.commands.run_while(&resumed, self.time / 3 + EXTRA, &mut || true)?;
        if !ended.is_success() {
            return Ok(ended.failure());
        }
        self.compared("killed", &format!("a run that was killed after {taken} of {steps} steps, and resumed,"))
    }

    fn budgets(&mut self, add: &mut dyn FnMut(String, Outcome)) -> Result<(), Failure> {
        let title = Part::Budgets.title();
        let planned = match self.profile()? {
            Ok(profile) => profile["memory"]["planned_bytes"].as_u64(),
            Err(failure) => {
                add(title.into(), failure);
                return Ok(());
            }
        };
        let Some(planned) = planned else {
            add(title.into(), Outcome::skip("the memory of this run is not planned"));
            return Ok(());
        };
        for share in BUDGETS {
            let budget = Bytes((planned as f64 * share) as u64);
            let setting = format!("training.max_memory={}", budget.0);
            let outcome = self.stress(&["--set", &setting], Some(budget))?;
            add(format!("a budget of {budget}"), within(&format!("within {budget}"), outcome));
        }
        Ok(())
    }

    /// Trains at the limit of the plan, with `more` arguments. Within a budget, a run that does not fit is refused before it
    /// begins, which is well too.
    fn stress(&self, more: &[&str], budget: Option<Bytes>) -> Result<Outcome, Failure> {
        let time = self.share(BUDGET_SHARE).max(Duration::from_secs(5));
        let seconds = time.as_secs().to_string();
        let steps = self.steps.map(|steps| steps.to_string());
        let steps: Vec<&str> = steps.iter().flat_map(|steps| ["--steps", steps]).collect();
        let all = [&["--json", "--seconds", &seconds], &steps[..], more].concat();
        let ended = self.commands.run("stress", &all, time * 3 + EXTRA)?;
        let Some(report) = ended.json() else {
            // Also other mistakes have this code.
            let is_refusal = ended.code() == Some(2) && ended.stderr.contains(REFUSAL);
            return Ok(match (budget, is_refusal) {
                (Some(_), true) => Outcome::pass("it does not fit, and was refused before it began"),
                _ => ended.failure(),
            });
        };
        Ok(of_stress(&report))
    }

    fn ballast(&mut self) -> Result<Outcome, Failure> {
        let profile = match self.profile()? {
            Ok(profile) => profile,
            Err(failure) => return Ok(failure),
        };
        if profile["launches"].is_null() {
            return Ok(Outcome::skip("the CPU computes: its memory is shared with other programs at any time"));
        }
        let Some(Target::Gpu { usable, .. }) = Target::local_gpu(self.device) else {
            return Ok(Outcome::skip("the free memory of this GPU is not known"));
        };
        let Some(planned) = profile["memory"]["planned_bytes"].as_u64() else {
            return Ok(Outcome::skip("the memory of this run is not planned"));
        };
        let left = (planned as f64 * LEFT_BY_BALLAST) as u64;
        let held = Bytes(usable.0.saturating_sub(left));
        if held.0 == 0 {
            return Ok(Outcome::skip(format!("only {usable} of the GPU are free already")));
        }
        let Some(ballast) = Ballast::start(&self.commands, held)? else {
            return Ok(Outcome::skip(format!("no process could hold {held} of the GPU")));
        };
        let outcome = self.stress(&[], Some(Bytes(left)))?;
        drop(ballast);
        let place = format!("while another process held {held} of {usable}");
        Ok(within(&place, outcome).with_detail("held_bytes", held.0))
    }

    fn several(&self, add: &mut dyn FnMut(String, Outcome)) -> Result<(), Failure> {
        let title = Part::Replicas.title();
        let has_cuda = cfg!(feature = "cuda") && matches!(self.backend, BackendChoice::Auto | BackendChoice::Cuda);
        if !has_cuda {
            add(title.into(), Outcome::skip("only CUDA GPUs train together"));
            return Ok(());
        }
        let gpus = plimsoll_monitor::Machine::probe().gpus.len() as u32;
        if gpus < 2 {
            add(title.into(), Outcome::skip(format!("this machine has {gpus} GPUs")));
            return Ok(());
        }
        let mut counts: Vec<u32> = (1..=gpus).filter(|count| count.is_power_of_two()).collect();
        counts.extend((!gpus.is_power_of_two()).then_some(gpus));
        for count in counts {
            let outcome = self.stress(&["--set", &format!("device.replicas={count}")], None)?;
            add(format!("{count} GPUs"), within(&format!("on {count} GPUs"), outcome));
        }
        Ok(())
    }
}

/// Puts into the finding of `outcome` what it was found in.
fn within(place: &str, outcome: Outcome) -> Outcome {
    Outcome { finding: format!("{place}: {}", outcome.finding), ..outcome }
}

/// Judges a report of `stress`: errors and memory count, speed is noted.
fn of_stress(report: &Value) -> Outcome {
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    let named = |id: &str| checks.iter().find(|check| check["id"] == id).cloned().unwrap_or_default();
    let of = |id: &str| format!("{}: {}", id, text(&named(id)["finding"]));
    let is = |id: &str, status: CheckStatus| named(id)["status"] == serde_json::json!(status);
    let known = ["errors", "memory", "out-of-memory"].into_iter().filter(|id| !named(id).is_null());
    let text = known.map(of).collect::<Vec<String>>().join("\n");
    let outcome = if is("errors", CheckStatus::Fail) || is("memory", CheckStatus::Fail) {
        Outcome::fail(text)
    } else if is("errors", CheckStatus::Warn) || is("out-of-memory", CheckStatus::Warn) {
        Outcome::warn(text)
    } else {
        Outcome::pass(text)
    };
    let details = ["memory", "errors", "out-of-memory", "busy"];
    details.into_iter().fold(outcome, |outcome, id| outcome.with_detail(id, named(id)["details"].clone()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
