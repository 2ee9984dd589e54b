//! Plays a recording back at its own pace, or faster.

use std::time::Duration;

use super::Sample;

/// Gives the samples of a recording with the pauses between them, divided by a speed.
///
/// ```no_run
/// use plimsoll_monitor::sample::{Replay, SampleReader};
///
/// let samples = SampleReader::open("run/samples.jsonl.zst".as_ref())?.filter_map(Result::ok);
/// for sample in Replay::new(samples, 10.0, std::thread::sleep) {
///     println!("{}", sample.time);
/// }
/// # Ok::<(), plimsoll_monitor::RecordError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replay<I, S> {
    samples: I,
    speed: f64,
    sleep: S,
    last: Option<f64>,
}

impl<I, S> Replay<I, S> {
    /// Creates a replay of `samples` that is `speed` times as fast as the recording, and calls `sleep` for each pause.
    /// An infinite speed has no pauses.
    ///
    /// # Panics
    /// If `speed` is not above zero.
    pub fn new(samples: I, speed: f64, sleep: S) -> Self {
        assert!(speed > 0.0, "the speed of a replay is above zero");
        Self { samples, speed, sleep, last: None }
    }
}

impl<I: Iterator<Item = Sample>, S: FnMut(Duration)> Iterator for Replay<I, S> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let sample = self.samples.next()?;
        let pause = self.last.map_or(0.0, |last| (sample.time - last) / self.speed);
        // The pause is below zero where the clock of the recording went back.
        if let Some(pause) = Duration::try_from_secs_f64(pause).ok().filter(|pause| !pause.is_zero()) {
            (self.sleep)(pause);
        }
        self.last = Some(sample.time);
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_those_of_the_recording() {
        let check = |times: &[f64], speed, expected: &[f64]| {
            let mut pauses = Vec::new();
            let samples = times.iter().map(|&time| Sample { time, ..Sample::default() });
            let replay = Replay::new(samples, speed, |pause: Duration| pauses.push(pause.as_secs_f64()));
            assert_eq!(replay.count(), times.len());
            assert_eq!(pauses, expected, "{times:?} at {speed}");
        };
        check(&[], 1.0, &[]);
        check(&[100.0], 1.0, &[]);
        check(&[100.0, 101.0, 103.0], 1.0, &[1.0, 2.0]);
        check(&[100.0, 101.0, 103.0], 4.0, &[0.25, 0.5]);
        check(&[100.0, 101.0, 103.0], f64::INFINITY, &[]);
        check(&[100.0, 101.0, 50.0, 50.5], 1.0, &[1.0, 0.5]);
        check(&[0.0, f64::NAN, 1.0, 2.0], 1.0, &[1.0]);
    }
}
