//! Check of the clocks of the system and of a shared disk.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::findings::Findings;
use crate::doctor::check::Outcome;
use crate::doctor::facts::nearest_existing;

/// Earliest plausible time, in seconds since 1970: 2025-01-01. A machine without battery starts in 1970 or 2000.
const EARLIEST: f64 = 1_735_689_600.0;
/// Latest plausible time: 2100-01-01.
const LATEST: f64 = 4_102_444_800.0;
/// Time over which the two clocks are compared.
const COMPARED: Duration = Duration::from_millis(200);
/// Difference of the clocks that counts as a jump. `ntpd` changes the speed of a clock by 0.05 % at most, which is 0.1 ms
/// in 200 ms; a busy machine adds the time between two reads.
const SKEW_MAX: f64 = 0.02;
/// Difference between the clocks of disk and system above which programs that compare file times go wrong.
const DISK_SKEW_WARN: f64 = 2.0;

/// Readings of the clocks, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReadings {
    /// System time since 1970; negative before.
    pub(super) system: f64,
    /// Time that passed by the system clock minus the time that passed by the monotonic clock.
    pub(super) skew: f64,
    /// Time of a new file minus the system time; `None` without folder.
    pub(super) disk: Option<f64>,
}

/// Checks that the clocks are plausible and agree.
pub(super) fn clock(folder: Option<&Path>) -> Outcome {
    judge(&read(folder))
}

fn read(folder: Option<&Path>) -> ClockReadings {
    let (wall, begin) = (SystemTime::now(), Instant::now());
    std::thread::sleep(COMPARED);
    let skew = seconds_between(wall, SystemTime::now()) - begin.elapsed().as_secs_f64();
    let system = seconds_between(SystemTime::UNIX_EPOCH, SystemTime::now());
    ClockReadings { system, skew, disk: folder.and_then(disk_skew) }
}

fn seconds_between(from: SystemTime, to: SystemTime) -> f64 {
    to.duration_since(from).map_or_else(|back| -back.duration().as_secs_f64(), |ahead| ahead.as_secs_f64())
}

/// Returns the time of a new file in `folder` minus the system time; `None` if the folder cannot be written. The server
/// of a shared disk gives files the time of its own clock.
fn disk_skew(folder: &Path) -> Option<f64> {
    let path = nearest_existing(folder).join(format!(".plimsoll-clock-check-{}", std::process::id()));
    let before = SystemTime::now();
    let written = std::fs::write(&path, b"check").and_then(|()| std::fs::metadata(&path)?.modified());
    let after = SystemTime::now();
    let _ = std::fs::remove_file(&path);
    let file = written.ok()?;
    // A time between the two readings is no difference, however long the disk took.
    let (early, late) = (seconds_between(before, file), seconds_between(after, file));
    Some(if early < 0.0 { early } else { late.max(0.0) })
}

pub(super) fn judge(readings: &ClockReadings) -> Outcome {
    let mut findings = Findings::default();
    findings.detail("skew_seconds", readings.skew);
    findings.detail("disk_skew_seconds", readings.disk);
    let fix = "let the machine set its clock, such as with `timedatectl set-ntp true`";
    if !(EARLIEST..LATEST).contains(&readings.system) {
        findings.fail("the date of the system is wrong: connections and times of runs go wrong too", fix);
    }
    if readings.skew.abs() > SKEW_MAX {
        let millis = 1000.0 * readings.skew;
        findings.warn(format!("the system clock jumped by {millis:.0} ms in {} ms", COMPARED.as_millis()), fix);
    }
    if let Some(skew) = readings.disk.filter(|skew| skew.abs() > DISK_SKEW_WARN) {
        let (seconds, side) = (skew.abs(), if skew > 0.0 { "ahead of" } else { "behind" });
        let text = format!("the clock of the disk is {seconds:.0} s {side} the system clock");
        findings.warn(text, "set the clocks of this machine and of the file server");
    }
    let disk = if readings.disk.is_some() { " and the disk" } else { "" };
    findings.or(Outcome::pass(format!("the date is plausible, and the clocks{disk} agree")))
}
