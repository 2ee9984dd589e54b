//! Places of packets in containers whose timestamps do not count samples.

use symphonia::core::packet::Packet;
use symphonia::core::units::TimeBase;

/// Time between two packets, beyond the length of the first, that is a pause. A recorder leaves out what it did not hear.
/// Shorter times are rounding, or the jitter of the recorder's clock.
const PAUSE_SECS: f64 = 0.1;

/// Longest pause. A longer one is a broken timestamp.
const PAUSE_MAX_SECS: f64 = 60.0;

/// Counts the samples of packets. The timestamps of Matroska are whole milliseconds, and those of a recorder jitter: they
/// only tell where there was a pause.
#[derive(Clone)]
pub(super) struct PacketClock {
    samples_per_tick: f64,
    rate: f64,
    /// Index of the sample behind the packets so far.
    next: i64,
    /// Timestamp of a packet, and the index of its first sample.
    known: Option<(i64, i64)>,
}

impl PacketClock {
    pub(super) fn new(time_base: Option<TimeBase>, rate: u32) -> Self {
        let rate = f64::from(rate);
        let seconds = time_base.map_or(0.0, |base| f64::from(base.numer.get()) / f64::from(base.denom.get()));
        Self { samples_per_tick: seconds * rate, rate, next: 0, known: None }
    }

    /// Returns the index of the first sample of the next packet.
    pub(super) fn start(&mut self, packet: &Packet) -> i64 {
        let stamp = packet.pts.get();
        match self.known {
            // Packets that are packed together have one timestamp.
            Some((before, _)) if before == stamp => return self.next,
            Some((before, index)) => {
                let expected = (stamp.saturating_sub(before)) as f64 * self.samples_per_tick;
                let pause = expected - (self.next - index) as f64;
                if (PAUSE_SECS * self.rate..PAUSE_MAX_SECS * self.rate).contains(&pause) {
                    self.next += pause.round() as i64;
                }
            }
            None => {}
        }
        self.known = Some((stamp, self.next));
        self.next
    }

    /// Goes behind a packet of `length` samples.
    pub(super) fn pass(&mut self, length: u64) {
        self.next += length as i64;
    }

    /// Returns the number of samples so far, with the pauses.
    pub(super) fn passed(&self) -> u64 {
        self.next as u64
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use symphonia::core::units::{Duration, Timestamp};

    use super::*;

    fn clock(rate: u32) -> PacketClock {
        PacketClock::new(Some(TimeBase::from_recip(NonZero::new(1_000).unwrap())), rate)
    }

    fn packet(milliseconds: i64) -> Packet {
        Packet::new(1, Timestamp::from(milliseconds), Duration::ZERO, Vec::new())
    }

    #[test]
    fn rounded_timestamps_and_jitter_move_no_sample() {
        for rate in [8_000u32, 16_000, 22_050, 44_100, 48_000] {
            for jitter in [0, 1, 7, 20] {
                let mut clock = clock(rate);
                for n in 0..5_000i64 {
                    let stamp = n * 1_024 * 1_000 / i64::from(rate) + (n * 7_919) % (jitter + 1);
                    assert_eq!(clock.start(&packet(stamp)), n * 1_024);
                    clock.pass(1_024);
                }
            }
        }
    }

    #[test]
    fn packets_of_one_block_follow_one_another() {
        let mut clock = clock(48_000);
        for n in 0..800i64 {
            assert_eq!(clock.start(&packet(n / 8 * 160)), n * 960);
            clock.pass(960);
        }
        assert_eq!(clock.passed(), 800 * 960);
    }

    #[test]
    fn pauses_are_kept_and_broken_timestamps_are_not() {
        let mut clock = clock(48_000);
        let mut start = |stamp| {
            let at = clock.start(&packet(stamp));
            clock.pass(960);
            at
        };
        assert_eq!([start(0), start(20), start(440), start(460)], [0, 960, 21_120, 22_080]);
        assert_eq!([start(i64::MAX), start(-5), start(i64::MIN), start(480)], [23_040, 24_000, 24_960, 25_920]);
    }
}
