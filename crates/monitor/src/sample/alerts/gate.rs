//! A switch with hysteresis: it turns on and off only after its condition has held for a while.

/// What a reading says about the condition of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The condition holds.
    Over,
    /// The condition does not hold, and is too close to say that it has ended.
    Between,
    /// The condition has ended.
    Under,
    /// The reading is missing.
    Unknown,
}

/// Switch that turns on when its condition has held for some time without a break, and off likewise. A missing reading
/// changes nothing, and is a break.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    pub(super) is_on: bool,
    /// Time since when the opposite state holds.
    since: Option<f64>,
}

impl Gate {
    /// Takes the level at `time`, and returns the new state if it changes. All times are in seconds.
    pub(super) fn step(&mut self, level: Level, time: f64, on_after: f64, off_after: f64) -> Option<bool> {
        let wait = match (self.is_on, level) {
            (false, Level::Over) => on_after,
            (true, Level::Under) => off_after,
            _ => {
                self.since = None;
                return None;
            }
        };
        // A clock that goes back begins the wait anew.
        let since = self.since.filter(|since| *since <= time).unwrap_or(time);
        self.since = Some(since);
        if time - since < wait {
            return None;
        }
        *self = Self { is_on: !self.is_on, since: None };
        Some(self.is_on)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn levels() -> impl Strategy<Value = Vec<(f64, Level)>> {
        let level = prop_oneof![Just(Level::Over), Just(Level::Between), Just(Level::Under), Just(Level::Unknown)];
        // Runs of one level, so that some of them are long enough.
        let run = (level, 1_usize..12, 0.0..8.0_f64).prop_map(|(level, n, seconds)| vec![(seconds, level); n]);
        prop::collection::vec(run, 0..40).prop_map(|runs| runs.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn a_gate_never_changes_faster_than_its_times(
            steps in levels(), on_after in 0.0..20.0_f64, off_after in 0.0..20.0_f64
        ) {
            let (mut gate, mut time) = (Gate::default(), 0.0);
            // Times since which the level was only Over, and only Under.
            let mut held: [Option<f64>; 2] = [None, None];
            let mut last_change = f64::NEG_INFINITY;
            for (seconds, level) in steps {
                time += seconds;
                for (held, wanted) in held.iter_mut().zip([Level::Over, Level::Under]) {
                    *held = (level == wanted).then(|| held.unwrap_or(time));
                }
                let before = gate.is_on;
                let Some(is_on) = gate.step(level, time, on_after, off_after) else {
                    prop_assert_eq!(before, gate.is_on);
                    continue;
                };
                prop_assert_ne!(before, is_on);
                let (held, wait) = if is_on { (held[0], on_after) } else { (held[1], off_after) };
                prop_assert!(held.is_some_and(|held| time - held >= wait), "{held:?} {time} {wait}");
                prop_assert!(time - last_change >= wait);
                last_change = time;
            }
        }

        #[test]
        fn a_condition_that_lasts_is_seen_once(n in 2_usize..50, seconds in 0.1..5.0_f64, wait in 0.0..30.0_f64) {
            let mut gate = Gate::default();
            let changes = (0..n).filter(|step| gate.step(Level::Over, *step as f64 * seconds, wait, wait).is_some());
            let expected = usize::from((n - 1) as f64 * seconds >= wait);
            prop_assert_eq!(changes.count(), expected);
        }
    }

    #[test]
    fn a_clock_that_goes_back_begins_anew() {
        let mut gate = Gate::default();
        let times = [100.0, 109.0, 50.0, 59.0, 60.0];
        let changes = times.map(|time| gate.step(Level::Over, time, 10.0, 10.0));
        assert_eq!(changes, [None, None, None, None, Some(true)]);
    }
}
