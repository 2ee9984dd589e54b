//! Random distributions, each value a function of a key.

use plimsoll_core::Key;

/// Draws a uniform number in `low..high`.
pub(super) fn uniform(key: Key, low: f32, high: f32) -> f32 {
    low + (high - low) * key.unit() as f32
}

/// Draws an approximately normal number with mean zero and standard deviation one, never beyond 3.5 (Irwin-Hall, four
/// terms).
pub(super) fn normal(key: Key) -> f32 {
    let sum: f64 = (0..4).map(|term| key.at(term).unit()).sum();
    ((sum - 2.0) * 3.0_f64.sqrt()) as f32
}

/// Draws a log-normal factor around one; its logarithm has the standard deviation `spread`.
pub(super) fn log_normal(key: Key, spread: f32) -> f32 {
    (spread * normal(key)).exp()
}

/// White noise: an endless sequence of uniform numbers in `-1..1`.
pub(super) struct WhiteNoise {
    key: Key,
    next: u64,
}

impl WhiteNoise {
    /// Creates the noise that `key` determines.
    pub(super) fn new(key: Key) -> Self {
        Self { key, next: 0 }
    }

    /// Returns the next number of the sequence.
    pub(super) fn draw(&mut self) -> f32 {
        self.next += 1;
        // The upper 24 bits, because an f32 holds no more.
        (self.key.at(self.next).bits() >> 40) as f32 * (2.0 / (1 << 24) as f32) - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: impl Iterator<Item = f32>) -> (f32, f32) {
        let values: Vec<f32> = values.collect();
        let count = values.len() as f32;
        let mean = values.iter().sum::<f32>() / count;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / count).sqrt())
    }

    #[test]
    fn distributions_have_their_mean_and_deviation() {
        let (mean, width) = moments((0..20_000).map(|i| normal(Key::new(1).at(i))));
        assert!(mean.abs() < 0.03 && (width - 1.0).abs() < 0.03, "{mean} {width}");
        let mut white = WhiteNoise::new(Key::new(2));
        let (mean, width) = moments((0..20_000).map(|_| white.draw()));
        assert!(mean.abs() < 0.02 && (width - (1.0 / 3.0_f32).sqrt()).abs() < 0.02, "{mean} {width}");
    }
}
