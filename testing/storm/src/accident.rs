//! What happens to a run, drawn by a seed.

use std::fmt;
use std::time::Duration;

/// Something that happens to one process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accident {
    /// The process is killed.
    Kill,
    /// The process stands still for this long, and goes on.
    Stop(Duration),
    /// The process stands still for longer than the others wait for it.
    Hang,
    /// The process gets a fifth of its time for this long.
    Slow(Duration),
    /// The disk of process 0 is full for this long.
    FullDisk(Duration),
    /// The process is refused more memory than it has.
    NoMemory,
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => write!(f, "is killed"),
            Self::Stop(time) => write!(f, "stands still for {:.1} s", time.as_secs_f64()),
            Self::Hang => write!(f, "hangs"),
            Self::Slow(time) => write!(f, "is five times slower for {:.1} s", time.as_secs_f64()),
            Self::FullDisk(time) => write!(f, "finds its disk full for {:.1} s", time.as_secs_f64()),
            Self::NoMemory => write!(f, "gets no more memory"),
        }
    }
}

impl Accident {
    /// Returns whether the run goes on after it without help.
    pub fn is_survived(self) -> bool {
        matches!(self, Self::Stop(_) | Self::Slow(_) | Self::FullDisk(_))
    }
}

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// Draws a time between two.
    pub fn time(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.below(to_ms - from_ms))
    }

    /// Draws an accident and the process that it happens to. Each kind comes once in a row of them; one that hangs makes the
    /// others wait for a minute, so it comes in `with_hang` only.
    pub fn accidents(&mut self, ranks: usize, with_hang: bool) -> Vec<(Accident, usize)> {
        let mut row = vec![
            Accident::Kill,
            Accident::Stop(self.time(500, 4000)),
            Accident::Slow(self.time(1000, 5000)),
            Accident::FullDisk(self.time(500, 5000)),
            Accident::NoMemory,
            Accident::Kill,
        ];
        if with_hang {
            row.push(Accident::Hang);
        }
        let mut drawn = Vec::new();
        while !row.is_empty() {
            let accident = row.swap_remove(self.below(row.len() as u64) as usize);
            let rank = if matches!(accident, Accident::FullDisk(_)) { 0 } else { self.below(ranks as u64) as usize };
            drawn.push((accident, rank));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_each_kind_and_follows_the_seed() {
        let row = |seed| Dice::new(seed).accidents(4, true);
        assert_eq!(row(7), row(7));
        assert_ne!(row(7), row(8));
        for seed in 0..50 {
            let row = row(seed);
            assert!(row.len() == 7 && row.iter().all(|&(_, rank)| rank < 4));
            assert!(row.iter().any(|(accident, rank)| matches!(accident, Accident::FullDisk(_)) && *rank == 0));
            assert_eq!(row.iter().filter(|(accident, _)| accident.is_survived()).count(), 3);
        }
    }
}
