//! Owners of the time of a run, and the time that each of them took.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Owner of a part of the time of a run: the one thing that the run did or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeOwner {
    /// The run waited for its next batch.
    Data,
    /// A batch was copied to the device.
    Transfer,
    /// The host queued work for the device. The time is that of the host.
    Submit,
    /// The device computed forward and backward passes.
    Compute,
    /// The host waited for a value of the device in the middle of a step.
    Read,
    /// The gradient was summed, measured and clipped, and the weights were updated.
    Optimizer,
    /// The run exchanged values with the other replicas, or waited for them.
    Replicas,
    /// A checkpoint was copied, or the run waited until one was written.
    Checkpoint,
    /// The model was validated.
    Validation,
    /// Kernels were compiled and tuned, which happens when a shape is met for the first time.
    Compile,
    /// Work was lost because memory ran out, and memory was returned before it was repeated.
    Retry,
    /// Other processes used the processors that the run needed.
    OtherProcess,
    /// The device ran below its clock, by a limit of power or temperature.
    Throttled,
    /// The run was recorded and shown.
    Record,
    /// Time without a known owner.
    Unknown,
}

impl TimeOwner {
    /// All owners, in the order in which they are listed.
    pub const ALL: [Self; 15] = [
        Self::Data,
        Self::Transfer,
        Self::Submit,
        Self::Compute,
        Self::Read,
        Self::Optimizer,
        Self::Replicas,
        Self::Checkpoint,
        Self::Validation,
        Self::Compile,
        Self::Retry,
        Self::OtherProcess,
        Self::Throttled,
        Self::Record,
        Self::Unknown,
    ];

    /// Returns the name of the owner in records, such as `other_process`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Transfer => "transfer",
            Self::Submit => "submit",
            Self::Compute => "compute",
            Self::Read => "read",
            Self::Optimizer => "optimizer",
            Self::Replicas => "replicas",
            Self::Checkpoint => "checkpoint",
            Self::Validation => "validation",
            Self::Compile => "compile",
            Self::Retry => "retry",
            Self::OtherProcess => "other_process",
            Self::Throttled => "throttled",
            Self::Record => "record",
            Self::Unknown => "unknown",
        }
    }

    /// Returns what the time was spent on, as a few words for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Data => "waiting for data",
            Self::Transfer => "copying to the device",
            Self::Submit => "queueing work",
            Self::Compute => "computing",
            Self::Read => "waiting for a read",
            Self::Optimizer => "optimizer",
            Self::Replicas => "other replicas",
            Self::Checkpoint => "checkpoint",
            Self::Validation => "validation",
            Self::Compile => "compiling kernels",
            Self::Retry => "out-of-memory retries",
            Self::OtherProcess => "other processes",
            Self::Throttled => "throttled",
            Self::Record => "recording",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for TimeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Seconds of a part of a run by owner. They add up to the wall time of that part.
///
/// In JSON it is an object with a number for each owner that took time: `{"data": 0.5, "compute": 1.25}`. The time of an
/// owner that a newer program named counts as unknown.
///
/// ```
/// use plimsoll_core::{TimeOwner, TimeShares};
///
/// let mut times = TimeShares::default();
/// times.add(TimeOwner::Data, 0.5);
/// times.add(TimeOwner::Compute, 1.5);
/// assert_eq!((times.total(), times.share(TimeOwner::Data)), (2.0, 0.25));
/// assert_eq!(times.largest(), Some((TimeOwner::Compute, 1.5)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeShares {
    seconds: [f64; TimeOwner::ALL.len()],
}

impl TimeShares {
    /// Returns the seconds of `owner`.
    pub fn get(&self, owner: TimeOwner) -> f64 {
        self.seconds[owner as usize]
    }

    /// Adds seconds to `owner`.
    pub fn add(&mut self, owner: TimeOwner, seconds: f64) {
        self.seconds[owner as usize] += seconds;
    }

    /// Adds the seconds of `other`, owner by owner.
    pub fn add_all(&mut self, other: &Self) {
        self.seconds.iter_mut().zip(other.seconds).for_each(|(sum, seconds)| *sum += seconds);
    }

    /// Returns the times that were added since `before`, an earlier state of the same times.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut times = *self;
        times.seconds.iter_mut().zip(before.seconds).for_each(|(now, before)| *now -= before);
        times
    }

    /// Moves up to `seconds` from one owner to another. Returns how many were moved: an owner has no less than zero.
    pub fn shift(&mut self, from: TimeOwner, to: TimeOwner, seconds: f64) -> f64 {
        let moved = seconds.clamp(0.0, self.get(from).max(0.0));
        self.add(from, -moved);
        self.add(to, moved);
        moved
    }

    /// Returns the sum over all owners.
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Returns the share of `owner` in the total, from 0 to 1; 0 if there is no time.
    pub fn share(&self, owner: TimeOwner) -> f64 {
        let total = self.total();
        if total > 0.0 { self.get(owner) / total } else { 0.0 }
    }

    /// Returns whether no time was measured.
    pub fn is_empty(&self) -> bool {
        self.seconds.iter().all(|&seconds| seconds == 0.0)
    }

    /// Returns the owners that took time, with their seconds, in the order of [`TimeOwner::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (TimeOwner, f64)> + '_ {
        TimeOwner::ALL.into_iter().map(|owner| (owner, self.get(owner))).filter(|(_, seconds)| *seconds != 0.0)
    }

    /// Returns the owner with the most time; `None` if no time was measured.
    pub fn largest(&self) -> Option<(TimeOwner, f64)> {
        self.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the owners that took time, the largest first.
    pub fn ranked(&self) -> Vec<(TimeOwner, f64)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

impl Serialize for TimeShares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A microsecond is enough, and keeps lines short.
        let rounded = self.iter().map(|(owner, seconds)| (owner, (seconds * 1e6).round() / 1e6));
        serializer.collect_map(rounded.filter(|(_, seconds)| *seconds != 0.0))
    }
}

impl<'de> Deserialize<'de> for TimeShares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut times = Self::default();
        for (name, seconds) in BTreeMap::<String, Option<f64>>::deserialize(deserializer)? {
            let owner = TimeOwner::ALL.into_iter().find(|owner| owner.name() == name);
            times.add(owner.unwrap_or(TimeOwner::Unknown), seconds.unwrap_or(0.0));
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_record() {
        for owner in TimeOwner::ALL {
            assert_eq!(serde_json::to_value(owner).unwrap(), owner.name());
        }
        assert!(TimeOwner::ALL.iter().enumerate().all(|(index, owner)| *owner as usize == index));
    }

    #[test]
    fn times_are_read_as_written_and_newer_owners_are_unknown() {
        let mut times = TimeShares::default();
        times.add(TimeOwner::Data, 0.25);
        times.add(TimeOwner::Validation, 3.5);
        let json = serde_json::to_string(&times).unwrap();
        assert_eq!(json, r#"{"data":0.25,"validation":3.5}"#);
        assert_eq!(serde_json::from_str::<TimeShares>(&json).unwrap(), times);
        let newer: TimeShares = serde_json::from_str(r#"{"compute":1.0,"dreaming":2.0,"data":null}"#).unwrap();
        assert_eq!((newer.get(TimeOwner::Unknown), newer.total()), (2.0, 3.0));
    }

    #[test]
    fn a_shift_keeps_the_total_and_takes_no_more_than_there_is() {
        let mut times = TimeShares::default();
        times.add(TimeOwner::Compute, 1.0);
        assert_eq!(times.shift(TimeOwner::Compute, TimeOwner::Throttled, 0.25), 0.25);
        assert_eq!(times.shift(TimeOwner::Compute, TimeOwner::OtherProcess, 2.0), 0.75);
        assert_eq!(times.shift(TimeOwner::Data, TimeOwner::OtherProcess, -1.0), 0.0);
        assert_eq!((times.total(), times.get(TimeOwner::Compute)), (1.0, 0.0));
        assert_eq!(times.ranked()[0], (TimeOwner::OtherProcess, 0.75));
    }
}
