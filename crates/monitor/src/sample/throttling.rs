//! Time that a GPU ran below its highest clock, by reason.

use std::collections::BTreeMap;

use super::ThrottleReason;
use super::reading::{Missing, Reading};

/// Time that a GPU ran below its highest clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttling {
    /// Seconds with any reason. Each sample stands for the time since the sample before.
    pub(crate) seconds: f64,
    /// Seconds of each reason. Several reasons can hold at a time.
    pub(crate) by_reason: BTreeMap<ThrottleReason, f64>,
    /// Number of samples with any reason.
    pub(crate) samples: u64,
    /// Seconds in which the reasons are known.
    pub(crate) known_seconds: f64,
    /// Number of samples whose reasons are known.
    pub(crate) known_samples: u64,
    /// Number of samples whose reasons are missing, by why.
    pub(crate) missing: BTreeMap<Missing, u64>,
    /// Parts of the time with the same reasons.
    pub(crate) stretches: Vec<Stretch>,
}

/// Part of the time in which a GPU ran below its highest clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// Start, in seconds of the run.
    pub(crate) from: f64,
    /// End, in seconds of the run.
    pub(crate) to: f64,
    /// Reasons, each once, in their order.
    pub(crate) reasons: Vec<ThrottleReason>,
}

impl Throttling {
    /// Adds the reasons of a sample that stands for the time from `from` to `to`.
    pub(super) fn add(&mut self, from: f64, to: f64, reasons: &Reading<Vec<ThrottleReason>>) {
        let Some(reasons) = reasons.value() else {
            *self.missing.entry(reasons.why_missing().unwrap_or(Missing::NotRead)).or_default() += 1;
            return;
        };
        self.known_seconds += to - from;
        self.known_samples += 1;
        if reasons.is_empty() {
            return;
        }
        let mut reasons = reasons.clone();
        reasons.sort_unstable();
        reasons.dedup();
        self.samples += 1;
        self.seconds += to - from;
        for reason in &reasons {
            *self.by_reason.entry(*reason).or_default() += to - from;
        }
        match self.stretches.last_mut() {
            Some(last) if last.to == from && last.reasons == reasons => last.to = to,
            _ => self.stretches.push(Stretch { from, to, reasons }),
        }
    }

    /// Returns the stretches, joined where less than `distance` is between them.
    pub(crate) fn joined(&self, distance: f64) -> Vec<Stretch> {
        let mut joined: Vec<Stretch> = Vec::new();
        for stretch in &self.stretches {
            match joined.last_mut() {
                Some(last) if stretch.from - last.to < distance => {
                    last.to = stretch.to;
                    last.reasons.extend(&stretch.reasons);
                    last.reasons.sort_unstable();
                    last.reasons.dedup();
                }
                _ => joined.push(stretch.clone()),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::ThrottleReason::{Heat, PowerLimit};
    use super::*;

    #[test]
    fn each_reason_has_its_time_and_a_short_one_stays() {
        let mut throttling = Throttling::default();
        let reasons: [Option<&[ThrottleReason]>; 8] = [
            Some(&[]),
            Some(&[Heat]),
            Some(&[Heat]),
            Some(&[PowerLimit, Heat]),
            Some(&[]),
            None,
            Some(&[Heat]),
            Some(&[]),
        ];
        for (second, reasons) in reasons.into_iter().enumerate() {
            let reading = match reasons {
                Some(reasons) => Reading::new(reasons.to_vec(), Origin::Nvml),
                None => Reading::missing(Missing::Lost, Origin::Nvml),
            };
            throttling.add(second as f64, second as f64 + 1.0, &reading);
        }
        assert_eq!((throttling.seconds, throttling.known_seconds, throttling.samples), (4.0, 7.0, 4));
        assert_eq!(throttling.by_reason, BTreeMap::from([(Heat, 4.0), (PowerLimit, 1.0)]));
        assert_eq!(throttling.missing, BTreeMap::from([(Missing::Lost, 1)]));
        let places = |stretches: &[Stretch]| stretches.iter().map(|part| (part.from, part.to)).collect::<Vec<_>>();
        assert_eq!(places(&throttling.stretches), [(1.0, 3.0), (3.0, 4.0), (6.0, 7.0)]);
        assert_eq!(throttling.stretches[1].reasons, [PowerLimit, Heat]);
        assert_eq!(places(&throttling.joined(0.5)), [(1.0, 4.0), (6.0, 7.0)]);
        assert_eq!(places(&throttling.joined(10.0)), [(1.0, 7.0)]);
        assert_eq!(places(&throttling.joined(0.0)), places(&throttling.stretches));
    }
}
