//! Check of the clocks of the system and of a shared disk.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::findings::Findings;
use super::temp_file::TempFile;
use crate::doctor::check::Outcome;
use crate::doctor::facts::nearest_existing;

/// Earliest plausible time, in seconds since 1970: 2025-01-01. A machine without battery starts in 1970 or 2000.
const EARLIEST: f64 = 1_735_689_600.0;
/// Latest plausible time: 2100-01-01.
const LATEST: f64 = 4_102_444_800.0;
/// Time over which the two clocks are compared.
const COMPARED: Duration = Duration::from_millis(200);
/// Difference of the clocks that counts as a jump. `ntpd` changes the speed of a clock by 0.05 % at most, which is 0.1 ms
/// in 200 ms.
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
    let (before, wall, after) = read_both();
    std::thread::sleep(COMPARED);
    let (later_before, later_wall, later_after) = read_both();
    let passed = seconds_between(wall, later_wall);
    let least = later_before.saturating_duration_since(after).as_secs_f64();
    let most = later_after.duration_since(before).as_secs_f64();
    let system = seconds_between(SystemTime::UNIX_EPOCH, later_wall);
    ClockReadings { system, skew: outside(passed, least, most), disk: folder.and_then(disk_skew) }
}

/// Reads the system clock between two readings of the monotonic clock: a busy machine may pause between any two reads.
fn read_both() -> (Instant, SystemTime, Instant) {
    (Instant::now(), SystemTime::now(), Instant::now())
}

fn seconds_between(from: SystemTime, to: SystemTime) -> f64 {
    to.duration_since(from).map_or_else(|back| -back.duration().as_secs_f64(), |ahead| ahead.as_secs_f64())
}

/// Returns how far `value` is above `most`, or, as a negative number, below `least`; 0 between them.
fn outside(value: f64, least: f64, most: f64) -> f64 {
    (value - most).max(0.0) + (value - least).min(0.0)
}

/// Returns the time of a new file in `folder` minus the system time; `None` if the folder cannot be written. The server
/// of a shared disk gives files the time of its own clock.
fn disk_skew(folder: &Path) -> Option<f64> {
    let before = SystemTime::now();
    let mut temp = TempFile::create(&nearest_existing(folder)).ok()?;
    temp.file.write_all(b"check").ok()?;
    let file = temp.file.metadata().and_then(|metadata| metadata.modified()).ok()?;
    // A time between the two readings is no difference, however long the disk took.
    Some(outside(seconds_between(before, file), 0.0, seconds_between(before, SystemTime::now())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_between_the_bounds_is_no_difference() {
        let check = |value, expected| assert_eq!(outside(value, 1.0, 2.0), expected, "{value}");
        check(1.5, 0.0);
        check(1.0, 0.0);
        check(2.0, 0.0);
        check(2.5, 0.5);
        check(0.5, -0.5);
    }
}
