//! Voices of the formant synthesizer: vocal tract and speaking style of a speaker.

use crate::phone::{Formants, Phone};
use crate::random::{log_normal, normal, uniform};
use plimsoll_core::Key;

/// Voice of a speaker of the formant synthesizer.
///
/// Equal seeds and speaker numbers give equal voices; another seed gives entirely different voices.
#[derive(Clone, Debug, PartialEq)]
pub struct Voice {
    /// Key of the random choices of this voice.
    key: Key,
    /// Factors on the formants of an average male vocal tract: one for each of the first three formants, and one for
    /// all higher formants.
    scales: [f32; 4],
    /// Usual pitch of the voice in hertz.
    pub(super) pitch: f32,
    /// Pitch change of an accent, as a share of the pitch.
    pub(super) liveliness: f32,
    /// Share of a pitch period in which the glottis is open.
    pub(super) open: f32,
    /// Frequency in hertz above which the spectrum of the voice falls off.
    pub(super) tilt: f32,
    /// Level of breath noise through the open glottis.
    pub(super) breath: f32,
    /// Standard deviation of the length of pitch periods, as a share of their mean length.
    pub(super) jitter: f32,
    /// Standard deviation of the loudness of pitch periods, as a share of their mean loudness.
    pub(super) shimmer: f32,
    /// Usual length of phones, as a factor on the lengths in the phone table.
    pub(super) pace: f32,
    /// Duration of the transition between two articulation targets, in seconds.
    pub(super) transition_secs: f32,
    /// Factor on the usual bandwidth of formants.
    pub(super) damping: f32,
    /// Level of frication noise, relative to the voice.
    pub(super) hiss: f32,
    /// Reduction of unstressed vowels to a schwa, from 0 to 1.
    pub(super) vowel_reduction: f32,
    /// Probability that a stop at the end of a word is released audibly.
    pub(super) release: f32,
    /// Whether the speaker pronounces an r after a vowel.
    pub(super) rhotic: bool,
    /// Variation around the usual values of the voice; 1 is free speech.
    pub(super) variability: f32,
}

/// Variation of a practiced reader relative to free speech: a guess that still gives every sentence a different melody.
const READING: f32 = 0.3;

impl Voice {
    /// Creates the voice of speaker number `speaker` in the corpus with this seed.
    pub fn new(seed: u64, speaker: usize) -> Self {
        let key = Key::new(seed).with("voice").at(speaker as u64);
        // Body size: large speakers have long vocal tracts and low pitch, though not strictly.
        let size = key.with("size").unit() as f32;
        let tract = (0.85 + 0.50 * size) * log_normal(key.with("tract"), 0.03);
        let scale = |index: u64| tract * log_normal(key.with("scale").at(index), 0.045);
        let draw = |name: &str, low: f32, high: f32| uniform(key.with(name), low, high);
        Self {
            key,
            scales: [scale(0), scale(1), scale(2), scale(3)],
            pitch: 85.0 * 2.0_f32.powf(1.5 * size) * log_normal(key.with("pitch"), 0.12),
            liveliness: draw("liveliness", 0.05, 0.25),
            open: draw("open", 0.45, 0.75),
            tilt: draw("tilt", 2500.0, 8000.0),
            breath: draw("breath", 0.01, 0.15),
            jitter: draw("jitter", 0.003, 0.015),
            shimmer: draw("shimmer", 0.02, 0.10),
            pace: draw("pace", 0.85, 1.30),
            transition_secs: draw("slide", 0.06, 0.10),
            damping: draw("damping", 0.80, 1.40),
            hiss: draw("hiss", 0.5, 1.6),
            vowel_reduction: draw("slur", 0.0, 0.5),
            release: draw("release", 0.4, 1.0),
            rhotic: key.with("rhotic").unit() < 0.65,
            variability: 1.0,
        }
    }

    /// Changes the voice to read aloud, as in a studio: evenly, without breaths, hesitations and questions.
    #[must_use]
    pub fn reading(self) -> Self {
        Self { variability: READING, ..self }
    }

    /// Returns whether the voice reads aloud instead of speaking freely.
    pub(super) fn is_reading(&self) -> bool {
        self.variability < 1.0
    }

    /// Moves the random value `drawn` towards `usual` if the voice reads aloud, so that its sentences vary less;
    /// returns `drawn` unchanged otherwise.
    pub(super) fn restrain(&self, drawn: f32, usual: f32) -> f32 {
        if self.is_reading() { usual + (drawn - usual) * self.variability } else { drawn }
    }

    /// Adapts `formants` of `phone` to the vocal tract and accent of this voice.
    pub(super) fn formants(&self, phone: &Phone, formants: Formants) -> Formants {
        // Accents shift vowels more than consonants; 7 % keeps neighbors such as `ih` and `eh` apart.
        let accent = self.key.with("accent").with(phone.name);
        [0, 1, 2].map(|i| formants[i] * self.scales[i] * (0.07 * normal(accent.at(i as u64))).exp())
    }

    /// Scales a noise frequency, or a formant above the third, to the vocal tract of this voice.
    pub(super) fn high(&self, hertz: f32) -> f32 {
        hertz * self.scales[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_number_identify_a_voice() {
        assert_eq!(Voice::new(1, 2), Voice::new(1, 2));
        assert_ne!(Voice::new(1, 2), Voice::new(1, 3));
        assert_ne!(Voice::new(1, 2), Voice::new(2, 2));
    }

    #[test]
    fn voices_cover_the_human_pitch_range() {
        let pitches: Vec<f32> = (0..200).map(|i| Voice::new(9, i).pitch).collect();
        let lowest = pitches.iter().copied().fold(f32::MAX, f32::min);
        let highest = pitches.iter().copied().fold(0.0, f32::max);
        assert!((60.0..110.0).contains(&lowest) && (210.0..360.0).contains(&highest), "{lowest} {highest}");
    }
}
