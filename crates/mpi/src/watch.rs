//! The heartbeat: when to send one, and when another rank has been silent for too long.

use std::time::Duration;

/// When heartbeats are due. Each rank sends to the next one and watches the one before, so that the work does not grow
/// with the number of ranks. If some ranks die, one that lives watches one that died, and reports it to all.
///
/// Times are durations since any moment that stays the same.
#[derive(Debug)]
pub(crate) struct Watch {
    beat: Duration,
    silence: Duration,
    next_beat: Duration,
    heard: Duration,
    looked: Duration,
}

impl Watch {
    /// Starts at `now` with a beat due at once.
    pub(crate) fn new(beat: Duration, silence: Duration, now: Duration) -> Self {
        Self { beat, silence, next_beat: now, heard: now, looked: now }
    }

    /// Returns whether a heartbeat is due, and counts it as sent.
    pub(crate) fn takes_beat(&mut self, now: Duration) -> bool {
        let due = now >= self.next_beat;
        if due {
            self.next_beat = now + self.beat;
        }
        due
    }

    /// Records a sign of life of the watched rank.
    pub(crate) fn hear(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Returns whether the watched rank has been silent for too long. Call it after all packets that have arrived were
    /// read.
    pub(crate) fn is_silent(&mut self, now: Duration) -> bool {
        // This process was stopped itself: then what it has not heard says nothing about the other rank.
        if now.saturating_sub(self.looked) > self.silence / 2 {
            self.heard = now;
        }
        self.looked = now;
        now.saturating_sub(self.heard) > self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watch() -> Watch {
        Watch::new(SECOND, 20 * SECOND, 100 * SECOND)
    }

    #[test]
    fn beats_come_at_intervals() {
        let mut watch = watch();
        let beats: Vec<u32> = (200..240).filter(|&half| watch.takes_beat(half * SECOND / 2)).collect();
        assert_eq!(beats, (200..240).step_by(2).collect::<Vec<u32>>());
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life() {
        let mut watch = watch();
        let silent_from = (100..200).find(|&second| {
            if second == 130 || (second < 130 && second % 15 == 0) {
                watch.hear(second * SECOND);
            }
            watch.is_silent(second * SECOND)
        });
        assert_eq!(silent_from, Some(151));
    }

    #[test]
    fn a_process_that_was_stopped_accuses_none() {
        let mut watch = watch();
        assert!(!watch.is_silent(105 * SECOND));
        assert!(!watch.is_silent(400 * SECOND));
        assert!(!watch.is_silent(410 * SECOND));
        assert!(!watch.is_silent(420 * SECOND));
        assert!(watch.is_silent(421 * SECOND));
    }
}
