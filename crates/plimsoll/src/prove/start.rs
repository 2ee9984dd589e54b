//! The part of a proof about starts: how long a person waits for the first step, for a validation, and for the end after a signal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_core::{Event, Record, Seconds};
use plimsoll_monitor::doctor::Outcome;
use plimsoll_monitor::read_records;
use plimsoll_recipes::Failure;

use super::child::{Commands, Ended, RECORD};

/// Steps of a run that is measured. The steady ones are the last two thirds.
const STEPS: u64 = 24;
/// Share of the time of a proof that one start may take.
const SHARE: f64 = 0.2;
/// Most time of a start: three of them take four minutes. What a run has recorded until then counts.
const LIMIT: Duration = Duration::from_secs(80);
/// Time after which the signal comes: a first start compiles kernels then.
const SIGNAL_AFTER: Duration = Duration::from_secs(4);
/// Time to the first step that is well, of a first and of a second start; and of the end after a signal.
const FIRST_MAX: f64 = 60.0;
const SECOND_MAX: f64 = 6.0;
const STOP_MAX: f64 = 2.5;

/// What was measured of a start.
struct Start {
    /// Seconds from the start of the process to the end of the first step.
    first_step: f64,
    /// Median seconds of a steady step.
    step: f64,
    /// Kernels of a steady step; `None` on the CPU.
    launches: Option<u32>,
    /// Seconds of the first validation; `None` if there was none.
    validation: Option<f64>,
}

/// Measures a first and a second start, a validation, a steady step and a signal, and gives each check to `add`. The kernels are
/// compiled into a folder of their own, so that the first start is one. `time` is that of the whole proof.
///
/// # Errors
/// If this program cannot be started again.
pub(super) fn measure(
    commands: &Commands<'_>,
    time: Duration,
    add: &mut dyn FnMut(String, Outcome),
) -> Result<(), Failure> {
    let limit = time.mul_f64(SHARE).min(LIMIT);
    let mut second = None;
    for (number, title, most) in [(1, "first start", FIRST_MAX), (2, "second start", SECOND_MAX)] {
        let outcome = match start(commands, &format!("start-{number}"), limit)? {
            Err(failure) => failure,
            Ok(found) => {
                let text = format!("the first step ended after {}", Seconds(found.first_step));
                let outcome = match found.first_step <= most {
                    true => Outcome::pass(text),
                    false => {
                        Outcome::warn(text).with_fix(format!("at most {most} s are wanted, without reading of data"))
                    }
                };
                let outcome = outcome.with_detail("seconds", found.first_step);
                second = Some(found);
                outcome
            }
        };
        add(title.into(), outcome);
    }
    let Some(found) = second else { return Ok(()) };
    let launches = found.launches.map_or_else(String::new, |launches| format!(", {launches} kernels"));
    let step = Outcome::pass(format!("{} a step{launches}", Seconds(found.step)));
    add("steady step".into(), step.with_detail("seconds", found.step).with_detail("launches", found.launches));
    let validation = match found.validation {
        Some(seconds) => Outcome::pass(format!("{}", Seconds(seconds))).with_detail("seconds", seconds),
        None => Outcome::skip("no utterance is held out"),
    };
    add("validation".into(), validation);
    add("stop signal".into(), stopped(commands, limit)?);
    Ok(())
}

/// Returns the settings of the environment with which a run compiles into the folder `name`.
fn compiles_into(commands: &Commands<'_>, name: &str) -> Vec<(&'static str, PathBuf)> {
    let folder = commands.folder.join(name);
    // The second is that of the driver.
    ["XDG_CACHE_HOME", "CUDA_CACHE_PATH", "LOCALAPPDATA"].map(|key| (key, folder.clone())).to_vec()
}

fn arguments(commands: &Commands<'_>, name: &str) -> Vec<String> {
    let steps = STEPS.to_string();
    commands.arguments("train", &["--name", name, "--steps", &steps, "--ui", "lines"])
}

/// Trains the run `name`, and reads its record; or returns how it failed.
fn start(commands: &Commands<'_>, name: &str, limit: Duration) -> Result<Result<Start, Outcome>, Failure> {
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let environment = compiles_into(commands, "compiled");
    let ended = commands.run_in(&environment, &arguments(commands, name), limit, &mut |_| true)?;
    let records = read_records(&commands.run_folder(name).join(RECORD)).unwrap_or_default();
    // A run whose time was up may have begun all the same.
    let has_failed = ended.status.is_some() && !ended.is_success();
    Ok(found(&records, begun).filter(|_| !has_failed).ok_or_else(|| failure(&ended)))
}

fn failure(ended: &Ended) -> Outcome {
    match ended.is_success() {
        true => Outcome::fail("the run recorded no step"),
        false => ended.failure(),
    }
}

/// Reads what `records` say of a start at `begun`, in seconds since 1970; `None` without a step.
fn found(records: &[Record], begun: f64) -> Option<Start> {
    let steps: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Step(step) => Some((record.time, step)),
            _ => None,
        })
        .collect();
    let steady = &steps[steps.len() / 3..];
    let mut seconds: Vec<f64> = steady.iter().map(|(_, step)| step.step_seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let validation = records.iter().find_map(|record| match record.event {
        Event::Validated { seconds, .. } => Some(seconds),
        _ => None,
    });
    Some(Start {
        first_step: steps.first()?.0 - begun,
        step: seconds[seconds.len() / 2],
        launches: steady.last().and_then(|(_, step)| step.launches),
        validation,
    })
}

/// Stops a first start some seconds after its folder was made, while it compiles, and measures how long it takes to end.
fn stopped(commands: &Commands<'_>, limit: Duration) -> Result<Outcome, Failure> {
    if !Path::new("/bin/kill").exists() && !Path::new("/usr/bin/kill").exists() {
        return Ok(Outcome::skip("this system has no command `kill`"));
    }
    let folder = commands.run_folder("stopped");
    let (mut begun, mut sent) = (None, None);
    let mut watch = |process: u32| {
        if begun.is_none() && folder.exists() {
            begun = Some(Instant::now());
        }
        if sent.is_none() && begun.is_some_and(|begun: Instant| begun.elapsed() > SIGNAL_AFTER) {
            let signal = Command::new("kill").args(["-TERM", &process.to_string()]).status();
            sent = Some((Instant::now(), signal.is_ok_and(|status| status.success())));
        }
        true
    };
    let environment = compiles_into(commands, "compiled-anew");
    let ended = commands.run_in(&environment, &arguments(commands, "stopped"), limit, &mut watch)?;
    Ok(match sent {
        None if !ended.is_success() => ended.failure(),
        None | Some((_, false)) => Outcome::skip(format!("the run ended within {:.0} s by itself", ended.seconds)),
        Some((sent, true)) => {
            let seconds = sent.elapsed().as_secs_f64();
            let text = format!(
                "the run ended {} after the signal, which came {:.0} s after its folder was made",
                Seconds(seconds),
                SIGNAL_AFTER.as_secs_f64()
            );
            let has_stopped = ended.status.is_some() && ended.stderr.contains("topped");
            let outcome = match seconds <= STOP_MAX && has_stopped {
                true => Outcome::pass(text),
                false => Outcome::fail(text),
            };
            outcome.with_detail("seconds", seconds)
        }
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_core::StepEvent;

    use super::*;

    #[test]
    fn a_start_is_read_from_its_record() {
        let step = |time: f64, step_seconds| {
            let step = StepEvent { step: time as u64, step_seconds, launches: Some(7), ..StepEvent::default() };
            Record::new(100.0 + time, Event::Step(step))
        };
        let records: Vec<Record> =
            [(5.0, 4.0), (6.0, 1.0), (7.0, 0.5), (8.0, 0.6)].map(|(time, took)| step(time, took)).into();
        let start = found(&records, 98.0).unwrap();
        assert_eq!((start.first_step, start.step, start.launches, start.validation), (7.0, 0.6, Some(7), None));
        assert!(found(&[], 98.0).is_none());
    }
}
