//! Who speaks: the shape of a throat and the habits of its owner.

use super::draw::{bell, between, factor};
use super::phone::{Formants, Phone};
use plimsoll_core::Key;

/// A speaker of the formant synthesiser.
///
/// The same seed and number give the same voice; another seed gives wholly other voices.
#[derive(Clone, Debug, PartialEq)]
pub struct Voice {
    /// Where this voice's own randomness hangs.
    key: Key,
    /// Formants relative to an average male tract: the first three, and those above.
    scales: [f32; 4],
    /// Usual pitch in hertz.
    pub(super) pitch: f32,
    /// How far accents move the pitch, as a share of it.
    pub(super) liveliness: f32,
    /// Share of a period in which the glottis is open.
    pub(super) open: f32,
    /// Where the voice loses its brightness, in hertz.
    pub(super) tilt: f32,
    /// Breath heard through the open glottis.
    pub(super) breath: f32,
    /// Unevenness of periods.
    pub(super) jitter: f32,
    /// Unevenness of loudness from period to period.
    pub(super) shimmer: f32,
    /// Usual length of phones relative to the table.
    pub(super) pace: f32,
    /// Seconds over which one target slides into the next.
    pub(super) slide: f32,
    /// Bandwidth of formants relative to the usual.
    pub(super) damping: f32,
    /// Loudness of hiss relative to voice.
    pub(super) hiss: f32,
    /// How much unstressed vowels shrink to a schwa, from 0 to 1.
    pub(super) slur: f32,
    /// The chance that a stop at the end of a word is heard to open.
    pub(super) release: f32,
    /// Whether an r after a vowel is heard at all.
    pub(super) rhotic: bool,
    /// How far a moment strays from the voice's usual, 1 being free talk.
    pub(super) freedom: f32,
}

/// How far a practised reader strays, beside free talk: a guess that leaves every sentence another melody.
const READING: f32 = 0.3;

impl Voice {
    /// Voice number `speaker` of the corpus with this seed.
    pub fn of(seed: u64, speaker: usize) -> Self {
        let key = Key::new(seed).with("voice").at(speaker as u64);
        // One number for body size: long tracts go with low pitch, though not strictly.
        let size = key.with("size").unit() as f32;
        let tract = (0.85 + 0.50 * size) * factor(key.with("tract"), 0.03);
        let scale = |index: u64| tract * factor(key.with("scale").at(index), 0.045);
        let draw = |name: &str, low: f32, high: f32| between(key.with(name), low, high);
        Self {
            key,
            scales: [scale(0), scale(1), scale(2), scale(3)],
            pitch: 85.0 * 2.0_f32.powf(1.5 * size) * factor(key.with("pitch"), 0.12),
            liveliness: draw("liveliness", 0.05, 0.25),
            open: draw("open", 0.45, 0.75),
            tilt: draw("tilt", 2500.0, 8000.0),
            breath: draw("breath", 0.01, 0.15),
            jitter: draw("jitter", 0.003, 0.015),
            shimmer: draw("shimmer", 0.02, 0.10),
            pace: draw("pace", 0.85, 1.30),
            slide: draw("slide", 0.06, 0.10),
            damping: draw("damping", 0.80, 1.40),
            hiss: draw("hiss", 0.5, 1.6),
            slur: draw("slur", 0.0, 0.5),
            release: draw("release", 0.4, 1.0),
            rhotic: key.with("rhotic").unit() < 0.65,
            freedom: 1.0,
        }
    }

    /// The same voice reading aloud, as in a studio: evenly, without breaths, doubts and questions.
    #[must_use]
    pub fn reading(self) -> Self {
        Self { freedom: READING, ..self }
    }

    /// Whether it reads aloud, and does not talk.
    pub(super) fn reads(&self) -> bool {
        self.freedom < 1.0
    }

    /// What was drawn, as near to the usual as this voice stays.
    pub(super) fn held(&self, drawn: f32, usual: f32) -> f32 {
        if self.reads() { usual + (drawn - usual) * self.freedom } else { drawn }
    }

    /// `formants` of `phone` in this throat and this accent.
    pub(super) fn formants(&self, phone: &Phone, formants: Formants) -> Formants {
        // Accents shift vowels more than consonants; 7 % keeps neighbours such as `ih` and `eh` apart.
        let accent = self.key.with("accent").with(phone.name);
        [0, 1, 2].map(|i| formants[i] * self.scales[i] * (0.07 * bell(accent.at(i as u64))).exp())
    }

    /// A noise frequency, or a formant above the third, in this throat.
    pub(super) fn high(&self, hertz: f32) -> f32 {
        hertz * self.scales[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_numbers_name_voices() {
        assert_eq!(Voice::of(1, 2), Voice::of(1, 2));
        assert_ne!(Voice::of(1, 2), Voice::of(1, 3));
        assert_ne!(Voice::of(1, 2), Voice::of(2, 2));
    }

    #[test]
    fn voices_cover_the_range_of_people() {
        let pitches: Vec<f32> = (0..200).map(|i| Voice::of(9, i).pitch).collect();
        let lowest = pitches.iter().copied().fold(f32::MAX, f32::min);
        let highest = pitches.iter().copied().fold(0.0, f32::max);
        assert!((60.0..110.0).contains(&lowest) && (210.0..360.0).contains(&highest), "{lowest} {highest}");
    }
}
