//! A limit of time as a number of steps, so that the learning rate ends with the time.

use std::time::Duration;

use crate::RunState;

/// Shares of the time after which the number of steps is measured, and measured again.
const MEASURED_AT: [f64; 7] = [0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9];
/// Steps at the begin of a run, or of a part of it, that tell nothing: a device compiles kernels and caches fill.
const WARM_UP: u64 = 2;

/// Measures how many steps a limit of time allows.
#[derive(Debug)]
pub(super) struct Pace {
    seconds: f64,
    /// Step and time from which this part of the run is measured; `None` before.
    from: Option<(u64, f64)>,
    /// First step of this part of the run.
    first: u64,
    /// Number of shares of [`MEASURED_AT`] that are past.
    past: usize,
}

impl Pace {
    /// Makes the measure of a run that is at `state` and may take `limit`.
    pub(super) fn new(limit: Duration, state: &RunState) -> Self {
        let seconds = limit.as_secs_f64();
        let past = match state.timed_steps {
            Some(_) => MEASURED_AT.iter().filter(|share| state.train_seconds >= **share * seconds).count(),
            // Not measured before, however late it is.
            None => 0,
        };
        Self { seconds, from: None, first: state.step, past }
    }

    /// Returns whether the steps should be counted now, after the step of `state`.
    pub(super) fn is_due(&mut self, state: &RunState) -> bool {
        if self.from.is_none() && state.step >= self.first + WARM_UP {
            self.from = Some((state.step, state.train_seconds));
        }
        let is_measured = self.from.is_some_and(|(step, _)| state.step > step);
        is_measured && MEASURED_AT.get(self.past).is_some_and(|share| state.train_seconds >= share * self.seconds)
    }

    /// Returns the number of steps of the whole run that the time allows, as measured so far.
    pub(super) fn steps(&mut self, state: &RunState) -> u64 {
        self.past = MEASURED_AT.iter().filter(|share| state.train_seconds >= **share * self.seconds).count();
        let Some((step, seconds)) = self.from.filter(|(step, _)| state.step > *step) else { return state.step };
        let each = (state.train_seconds - seconds) / (state.step - step) as f64;
        let left = (self.seconds - state.train_seconds).max(0.0) / each.max(1e-9);
        state.step.saturating_add(left as u64)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;

    use super::*;
    use crate::{Schedule, Shape};

    /// Whatever the steps take, the rate comes down, and its last steps come with the end of the time.
    #[test]
    fn rate_ends_with_the_time() {
        for seed in 0..300 {
            let key = Key::new(seed);
            let between = |name: &str, least: f64, most: f64| least + (most - least) * key.with(name).unit();
            let (each, first) = (between("each", 0.01, 5.0), between("first", 0.0, 60.0));
            let (steps, drift) = (between("steps", 60.0, 3000.0) as u64, between("drift", 0.7, 1.4));
            let resumed = between("resumed", 0.0, 200.0) as u64;
            let limit = Duration::from_secs_f64(first + each * steps as f64);
            let mut schedule = Schedule { shape: Shape::Cosine, peak: 1.0, last: 0.0, warmup: 300, total: u64::MAX };
            let mut state = RunState::default();
            let mut pace = Pace::new(limit, &state);
            let (mut rate, mut warm) = (1.0, None);
            while state.train_seconds < limit.as_secs_f64() && state.timed_steps.is_none_or(|total| state.step < total)
            {
                if state.step == resumed {
                    pace = Pace::new(limit, &state);
                }
                rate = schedule.rate(state.step + 1);
                if rate > 0.99 {
                    warm.get_or_insert(state.step);
                }
                // The second half of the run is slower or faster.
                let slow = if state.step > steps / 2 { drift } else { 1.0 };
                state.train_seconds += if state.step == 0 { first } else { each * slow };
                state.step += 1;
                if pace.is_due(&state) {
                    state.timed_steps = Some(pace.steps(&state));
                    schedule.total = pace.steps(&state);
                    schedule.warmup = Schedule::warmup_within(300, 0.1, schedule.total);
                }
            }
            assert!(rate < 0.05, "seed {seed}: {rate}");
            // A short run is warm after a tenth of its time, or when it first knows its length.
            assert!(warm.is_some_and(|step| step <= steps / 5 + 5), "seed {seed}: warm at {warm:?} of {steps}");
            let used = state.train_seconds / limit.as_secs_f64();
            assert!((0.93..1.1).contains(&used), "seed {seed}: {used} of the time");
        }
    }
}
