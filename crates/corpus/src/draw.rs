//! Random numbers in the shapes that speech needs, every one a function of a key.

use plimsoll_core::Key;

/// A number even over `low..high`.
pub(super) fn between(key: Key, low: f32, high: f32) -> f32 {
    low + (high - low) * key.unit() as f32
}

/// A number around zero with a standard deviation of one, never beyond 3.5 (Irwin and Hall, four terms).
pub(super) fn bell(key: Key) -> f32 {
    let sum: f64 = (0..4).map(|term| key.at(term).unit()).sum();
    ((sum - 2.0) * 3.0_f64.sqrt()) as f32
}

/// A factor around one: its logarithm is a bell of width `spread`.
pub(super) fn factor(key: Key, spread: f32) -> f32 {
    (spread * bell(key)).exp()
}

/// An endless row of numbers even over `-1..1`: white noise.
pub(super) struct White {
    key: Key,
    next: u64,
}

impl White {
    /// The noise of this place.
    pub(super) fn new(key: Key) -> Self {
        Self { key, next: 0 }
    }

    /// The next number.
    pub(super) fn draw(&mut self) -> f32 {
        self.next += 1;
        // The upper 24 bits, because that is what an f32 can hold.
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
    fn shapes_have_their_mean_and_width() {
        let (mean, width) = moments((0..20_000).map(|i| bell(Key::new(1).at(i))));
        assert!(mean.abs() < 0.03 && (width - 1.0).abs() < 0.03, "{mean} {width}");
        let mut white = White::new(Key::new(2));
        let (mean, width) = moments((0..20_000).map(|_| white.draw()));
        assert!(mean.abs() < 0.02 && (width - (1.0 / 3.0_f32).sqrt()).abs() < 0.02, "{mean} {width}");
    }
}
