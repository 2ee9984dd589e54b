//! The parts of a proof.

use std::time::Duration;

use plimsoll_config::DeviceConfig;
use plimsoll_config::choices::BackendChoice;
use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, Event, Seconds, StepEvent, error_chain};
use plimsoll_monitor::doctor::{CheckStatus, DoctorReport, Outcome};
use plimsoll_monitor::{RecordError, read_records};
use plimsoll_recipes::Failure;
use plimsoll_recipes::device::is_host;
use plimsoll_recipes::target::Target;
use serde_json::json;

use super::ballast::Ballast;
use super::child::{Commands, Ended, RECORD};
use super::weights::{Distance, compare};
use crate::profile::{KernelProfile, Profile};
use crate::stress::StressCheck;

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
/// Distance of loss and norm of the gradient from those of the CPU, as a share of them, that rounding explains: in fp32, and in 16
/// bits.
const VALUES_MAX: [f64; 2] = [1e-3, 5e-2];
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
    Start,
    Speed,
    Values,
    Training,
    Repeat,
    Resume,
    Budgets,
    Ballast,
    Replicas,
}

impl Part {
    pub(super) const ALL: [Self; 10] = [
        Self::Doctor,
        Self::Start,
        Self::Speed,
        Self::Values,
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
            Self::Start => "start",
            Self::Speed => "speed",
            Self::Values => "values",
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
            Self::Start => "the first step comes soon, and a signal ends a run",
            Self::Speed => "time, memory and calls of a step",
            Self::Values => "the device computes what the CPU computes",
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
        matches!(self, Self::Start | Self::Budgets | Self::Replicas)
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
    /// Whether the CPU computes.
    is_host: bool,
    replicas: u32,
    /// Number of steps that was asked for; otherwise it follows from the time.
    steps: Option<u64>,
    /// What `profile` printed, or how it failed.
    profile: Option<Result<Profile, Outcome>>,
    /// How the first training ended.
    trained: Option<Result<(), Outcome>>,
}

impl<'a> Proof<'a> {
    pub(super) fn new(commands: Commands<'a>, time: Duration, device: &DeviceConfig, steps: Option<u64>) -> Self {
        let DeviceConfig { index, backend, replicas, .. } = *device;
        let (is_host, device) = (is_host(device), index as usize);
        Self { commands, time, device, backend, is_host, replicas, steps, profile: None, trained: None }
    }

    /// Runs `part`, and gives each check to `add`, with its title.
    ///
    /// # Errors
    /// If this program cannot be started again.
    pub(super) fn run(&mut self, part: Part, add: &mut dyn FnMut(String, Outcome)) -> Result<(), Failure> {
        let title = part.title().to_string();
        match part {
            Part::Doctor => add(title, self.doctor()?),
            Part::Start if self.is_host => add(title, Outcome::skip("the CPU compiles no kernels")),
            Part::Start => return super::start::measure(&self.commands, self.time, add),
            Part::Speed => add(title, self.speed()?),
            Part::Values => add(title, self.values()?),
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
        let report: DoctorReport = match ended.report() {
            Ok(report) => report,
            Err(failure) => return Ok(failure),
        };
        let of = |status: CheckStatus| {
            let found = report.checks.iter().filter(|check| check.outcome.status == status);
            found.map(|check| format!("{}: {}", check.id, check.outcome.finding)).collect::<Vec<String>>()
        };
        let (failed, warned) = (of(CheckStatus::Fail), of(CheckStatus::Warn));
        let outcome = match (failed.is_empty(), warned.is_empty()) {
            (false, _) => Outcome::fail(failed.join("\n")),
            (true, false) => Outcome::warn(warned.join("\n")),
            (true, true) => Outcome::pass(format!("{} checks passed", report.count(CheckStatus::Pass))),
        };
        Ok(outcome.with_detail("failed", failed).with_detail("warnings", warned))
    }

    /// Returns what `profile` printed. It runs once.
    fn profile(&mut self) -> Result<Result<Profile, Outcome>, Failure> {
        if let Some(profile) = &self.profile {
            return Ok(profile.clone());
        }
        let ended = self.commands.run("profile", &["--json", "--steps", PROFILE_STEPS], self.time / 2 + EXTRA)?;
        let profile = if ended.is_success() { ended.report() } else { Err(ended.failure()) };
        self.profile = Some(profile.clone());
        Ok(profile)
    }

    /// Returns the kernels that `profile` timed, if it ran on a GPU.
    pub(super) fn kernels(&self) -> Option<KernelProfile> {
        self.profile.as_ref()?.as_ref().ok()?.kernels.clone()
    }

    fn speed(&mut self) -> Result<Outcome, Failure> {
        let profile = match self.profile()? {
            Ok(profile) => profile,
            Err(failure) => return Ok(failure),
        };
        // All GPUs of the process are counted together.
        let replicas = f64::from(self.replicas.max(1));
        let mut found = vec![format!(
            "{} a step, {}",
            Seconds(profile.seconds_per_step),
            AudioSpeed(profile.audio_seconds_per_second)
        )];
        let outcome = match (profile.launches, profile.uploads) {
            (Some(launches), Some(uploads)) => {
                let reads = profile.reads;
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
        let known = [("launches", json!(profile.launches)), ("uploads", json!(profile.uploads))]
            .into_iter()
            .chain([("kernels", json!(profile.kernels))])
            .filter(|(_, value)| !value.is_null());
        let outcome = known.fold(outcome, |outcome, (name, value)| outcome.with_detail(name, value));
        Ok(outcome
            .with_detail("seconds_per_step", profile.seconds_per_step)
            .with_detail("audio_seconds_per_second", profile.audio_seconds_per_second)
            .with_detail("reads", profile.reads)
            .with_detail("times", json!(profile.times))
            .with_detail("memory", json!(profile.memory)))
    }

    /// Takes the first step of a run, and returns its loss and the norm of its gradient, or how it failed.
    fn first_step(&self, name: &str, more: &[&str]) -> Result<Result<[f64; 2], Outcome>, Failure> {
        let all = [&["--name", name, "--steps", "1", "--ui", "lines"], more].concat();
        let ended = self.commands.run("train", &all, self.time / 3 + EXTRA)?;
        if !ended.is_success() {
            return Ok(Err(ended.failure()));
        }
        let records = match read_records(&self.commands.run_folder(name).join(RECORD)) {
            Ok(records) => records,
            Err(error) => return Ok(Err(unreadable(&error))),
        };
        let found = records.into_iter().find_map(|record| match record.event {
            Event::Step(StepEvent { loss, norm, .. }) => Some([loss, norm]),
            _ => None,
        });
        Ok(found.ok_or_else(|| Outcome::fail("the run recorded no step")))
    }

    /// Compares loss and gradient of the first step with those that the CPU computes from the same weights and the same batch.
    fn values(&mut self) -> Result<Outcome, Failure> {
        match self.profile()? {
            Err(failure) => return Ok(failure),
            Ok(profile) if profile.launches.is_none() => return Ok(Outcome::skip("the CPU computes")),
            Ok(_) => {}
        }
        let exact = ["--set", "training.precision=fp32"];
        let on_cpu = [&["--backend", "cpu", "--set", "device.replicas=1"], &exact[..]].concat();
        let expected = match self.first_step("values-cpu", &on_cpu)? {
            Ok(expected) => expected,
            Err(failure) => {
                let why = format!("the CPU took no step to compare with: {}", failure.finding);
                return Ok(Outcome::skip(why));
            }
        };
        let (mut lines, mut is_near, mut details) = (Vec::new(), true, Vec::new());
        for (kind, more, most) in [("fp32", &exact[..], VALUES_MAX[0]), ("as configured", &[], VALUES_MAX[1])] {
            let found = match self.first_step(&format!("values-{}", kind.replace(' ', "-")), more)? {
                Ok(found) => found,
                Err(failure) => return Ok(within(&format!("in a step {kind}"), failure)),
            };
            let far = distances(found, expected);
            // What is not a number is not near.
            is_near &= far.iter().all(|far| *far <= most);
            lines.push(format!(
                "{kind}: loss {:.1e} and norm of the gradient {:.1e} from those of the CPU",
                far[0], far[1]
            ));
            details.push(json!({"precision": kind, "loss": found[0], "norm": found[1], "most": most}));
        }
        let outcome = if is_near { Outcome::pass(lines.join("\n")) } else { Outcome::fail(lines.join("\n")) };
        Ok(outcome
            .with_detail("cpu", json!({"loss": expected[0], "norm": expected[1]}))
            .with_detail("device", json!(details)))
    }

    /// Returns the number of steps that a training of this proof has.
    fn steps(&mut self) -> Result<u64, Failure> {
        if let Some(steps) = self.steps {
            return Ok(steps.max(STEPS_MIN));
        }
        // Without a profile the length of a step is not known: the fewest steps take the least time.
        let Ok(profile) = self.profile()? else { return Ok(STEPS_MIN) };
        let steps = self.share(TRAINING_SHARE).as_secs_f64() / profile.seconds_per_step;
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

    /// Reads the losses that the run `name` recorded.
    fn losses(&self, name: &str) -> Result<Vec<f64>, RecordError> {
        let loss = |event| match event {
            Event::Step(StepEvent { loss, .. }) => Some(loss),
            _ => None,
        };
        let records = read_records(&self.commands.run_folder(name).join(RECORD))?;
        Ok(records.into_iter().filter_map(|record| loss(record.event)).collect())
    }

    fn training(&mut self) -> Result<Outcome, Failure> {
        if let Err(failure) = self.first_training()? {
            return Ok(failure);
        }
        let losses = match self.losses("first") {
            Ok(losses) => losses,
            Err(error) => return Ok(unreadable(&error)),
        };
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
        let profile = self.profile()?;
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
                let is_small = distance < DISTANCE_MAX;
                let outcome = match profile {
                    Ok(profile) if profile.launches.is_some() && is_small => Outcome::pass(text),
                    Err(_) if is_small => {
                        Outcome::warn(format!("{text}; without a profile it is not known whether a GPU explains it"))
                    }
                    _ => Outcome::fail(text),
                };
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
        // There is no record until the run begins. One that cannot be read is reported after the run.
        let mut goes_on = || self.losses("killed").map_or(0, |losses| losses.len() as u64) < half;
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
        let taken = match self.losses("killed") {
            Ok(losses) => losses.len(),
            Err(error) => return Ok(unreadable(&error)),
        };
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
            Ok(profile) => profile.memory.planned_bytes,
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
            let budget = Bytes((planned.0 as f64 * share) as u64);
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
        Ok(match ended.report() {
            Ok(report) => of_stress(&report),
            // Also other mistakes have this code.
            Err(_) if budget.is_some() && ended.code() == Some(2) && ended.stderr.contains(REFUSAL) => {
                Outcome::pass("it does not fit, and was refused before it began")
            }
            Err(failure) => failure,
        })
    }

    fn ballast(&mut self) -> Result<Outcome, Failure> {
        let profile = match self.profile()? {
            Ok(profile) => profile,
            Err(failure) => return Ok(failure),
        };
        if profile.launches.is_none() {
            return Ok(Outcome::skip("the CPU computes: its memory is shared with other programs at any time"));
        }
        let Some(Target::Gpu { usable, .. }) = Target::local_gpu(self.device) else {
            return Ok(Outcome::skip("the free memory of this GPU is not known"));
        };
        let Some(planned) = profile.memory.planned_bytes else {
            return Ok(Outcome::skip("the memory of this run is not planned"));
        };
        let left = (planned.0 as f64 * LEFT_BY_BALLAST) as u64;
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

/// Returns the distances of `found` from `expected`, as shares of it.
fn distances(found: [f64; 2], expected: [f64; 2]) -> [f64; 2] {
    std::array::from_fn(|index| (found[index] / expected[index] - 1.0).abs())
}

/// Puts into the finding of `outcome` what it was found in.
fn within(place: &str, outcome: Outcome) -> Outcome {
    Outcome { finding: format!("{place}: {}", outcome.finding), ..outcome }
}

/// Judges a report of `stress`: errors and memory count, speed is noted.
fn of_stress(report: &DoctorReport) -> Outcome {
    let named = |id: StressCheck| report.checks.iter().find(|check| check.id == id.id());
    // A training that failed has no other check.
    let has_failed = named(StressCheck::Errors).is_some_and(|check| check.outcome.status == CheckStatus::Fail);
    let judged = [StressCheck::Errors, StressCheck::Memory, StressCheck::OutOfMemory];
    if let Some(missing) = judged.into_iter().find(|id| named(*id).is_none() && !has_failed) {
        return Outcome::fail(format!("the report of `stress` has no check `{}`", missing.id()));
    }
    let is = |id: StressCheck, status| named(id).is_some_and(|check| check.outcome.status == status);
    let found = judged.into_iter().filter_map(named);
    let text =
        found.map(|check| format!("{}: {}", check.id, check.outcome.finding)).collect::<Vec<String>>().join("\n");
    let outcome = if has_failed || is(StressCheck::Memory, CheckStatus::Fail) {
        Outcome::fail(text)
    } else if is(StressCheck::Errors, CheckStatus::Warn) || is(StressCheck::OutOfMemory, CheckStatus::Warn) {
        Outcome::warn(text)
    } else {
        Outcome::pass(text)
    };
    let noted = judged.into_iter().chain([StressCheck::Busy]).filter_map(named);
    noted.fold(outcome, |outcome, check| outcome.with_detail(&check.id, check.outcome.details.clone()))
}

/// Makes the failure of a part whose run has a record that cannot be read.
fn unreadable(error: &RecordError) -> Outcome {
    Outcome::fail(error_chain(error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_monitor::doctor::CheckReport;

    use super::*;

    #[test]
    fn what_is_not_a_number_is_far() {
        assert_eq!(distances([2.0, 3.0], [2.0, 2.0]), [0.0, 0.5]);
        for far in [f64::NAN, 0.0, f64::INFINITY] {
            assert!(!distances([far, 1.0], [2.0, 1.0]).iter().all(|far| *far <= VALUES_MAX[1]));
        }
    }

    #[test]
    fn a_report_of_stress_without_a_judged_check_fails() {
        let all = ["errors", "memory", "out-of-memory", "busy"];
        let report = |ids: &[&str], outcome: &Outcome| {
            let check = |id: &&str| CheckReport::new(id, "title", outcome.clone(), Duration::ZERO);
            DoctorReport::new(0.0, None, ids.iter().map(check).collect())
        };
        let (passed, failed) = (Outcome::pass("well"), Outcome::fail("no"));
        assert_eq!(of_stress(&report(&all, &passed)).status, CheckStatus::Pass);
        for missing in &all[..3] {
            let left: Vec<&str> = all.into_iter().filter(|id| id != missing).collect();
            let outcome = of_stress(&report(&left, &passed));
            assert_eq!(outcome.status, CheckStatus::Fail, "without {missing}");
            assert!(outcome.finding.contains(missing), "{}", outcome.finding);
        }
        assert_eq!(of_stress(&report(&all[..1], &failed)).finding, "errors: no");
    }
}
