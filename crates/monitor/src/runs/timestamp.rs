//! Point in time, as a record stores it and as people read it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

const DAY_SECS: i64 = 86_400;

/// Point in time, in seconds since 1970. It is printed in UTC, because the folder of a run may move between time zones.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub f64);

impl Timestamp {
    /// Returns whether a run can have this time: from 2000 to 9999. Damaged records have others, and so have machines whose
    /// clock is not set.
    pub(super) fn is_plausible(&self) -> bool {
        (946_684_800.0..253_402_300_800.0).contains(&self.0)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.floor() as i64;
        let (year, month, day) = civil(secs.div_euclid(DAY_SECS));
        let minutes = secs.rem_euclid(DAY_SECS) / 60;
        f.pad(&format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60, minutes % 60))
    }
}

/// Computes year, month and day from the number of days since 1970-01-01, by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>). Years of this algorithm begin in March, so leap days come
/// last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_printed_in_utc() {
        for (seconds, expected) in [
            (0.0, "1970-01-01 00:00"),
            (951_782_399.9, "2000-02-28 23:59"),
            (951_782_400.0, "2000-02-29 00:00"),
            (951_868_800.0, "2000-03-01 00:00"),
            (1_700_000_000.25, "2023-11-14 22:13"),
            (4_107_542_400.0, "2100-03-01 00:00"),
            (-60.0, "1969-12-31 23:59"),
        ] {
            assert_eq!(Timestamp(seconds).to_string(), expected);
        }
    }

    #[test]
    fn only_times_of_runs_are_plausible() {
        for (seconds, expected) in [
            (0.0, false),
            (-1.0e9, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
            (1.0e300, false),
            (946_684_800.0, true),
            (1_795_269_780.0, true),
        ] {
            assert_eq!(Timestamp(seconds).is_plausible(), expected, "{seconds}");
        }
    }
}
