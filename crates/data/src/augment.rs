//! Making the same utterance sound different each epoch: masked stretches and bands, another speed, noise, another level.

use plimsoll_core::Key;
use serde::{Deserialize, Serialize};

/// SpecAugment (Park et al. 2019), without time warping: masks over stretches of time and bands of frequency.
///
/// The default is the paper's `LD` policy with its share of 0.2 against long masks on short utterances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpecAugment {
    /// Masks over time.
    pub time_masks: u32,
    /// The longest one, in frames.
    pub time_mask_frames: u32,
    /// The longest one, as a share of the utterance.
    pub time_mask_share: f64,
    /// Masks over frequency.
    pub frequency_masks: u32,
    /// The widest one, in mel channels.
    pub frequency_mask_bins: u32,
}

impl Default for SpecAugment {
    fn default() -> Self {
        Self { time_masks: 2, time_mask_frames: 100, time_mask_share: 0.2, frequency_masks: 2, frequency_mask_bins: 27 }
    }
}

impl SpecAugment {
    /// Masks features `[t, n_mels]` in place; masked cells become the mean of the utterance.
    pub fn apply(&self, features: &mut [f32], n_mels: usize, key: Key) {
        let frames = features.len() / n_mels.max(1);
        if frames == 0 {
            return;
        }
        let mean = (features.iter().map(|&v| f64::from(v)).sum::<f64>() / features.len() as f64) as f32;
        let longest = (self.time_mask_share.clamp(0.0, 1.0) * frames as f64) as u64;
        for n in 0..self.time_masks {
            let mask = mask(frames, longest.min(self.time_mask_frames.into()), key.with("time").at(n.into()));
            features[mask.start * n_mels..mask.end * n_mels].fill(mean);
        }
        for n in 0..self.frequency_masks {
            let mask = mask(n_mels, self.frequency_mask_bins.into(), key.with("frequency").at(n.into()));
            features.chunks_exact_mut(n_mels).for_each(|frame| frame[mask.clone()].fill(mean));
        }
    }
}

/// A stretch of at most `longest` inside `length`: its width is even over `0..=longest`, then its place.
fn mask(length: usize, longest: u64, key: Key) -> std::ops::Range<usize> {
    let length = length as u64;
    let width = key.with("width").below(longest.min(length) + 1);
    let start = key.with("start").below(length - width + 1);
    start as usize..(start + width) as usize
}

/// Noise laid under the sound: a hiss or a rumble, of another colour each time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Noise {
    /// The share of utterances that get any.
    pub share: f64,
    /// How far the speech is above it at least, in decibels.
    pub least: f64,
    /// And at most; what is between is drawn evenly.
    pub most: f64,
}

impl Default for Noise {
    /// None; from a noisy street to a quiet room, once there is a share.
    fn default() -> Self {
        Self { share: 0.0, least: 10.0, most: 30.0 }
    }
}

impl Noise {
    fn is_at(&self, key: Key) -> bool {
        key.with("noise").with("whether").unit() < self.share
    }

    /// Adds the noise of `key`.
    fn apply(&self, samples: &mut [f32], key: Key) {
        let power = |samples: &[f32]| samples.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
        let key = key.with("noise");
        let decibels = self.least + (self.most - self.least) * key.with("level").unit();
        // From white to something like traffic far away.
        let colour = 0.98 * key.with("colour").unit() as f32;
        let (mut state, mut last) = (key.with("samples").bits() | 1, 0.0);
        let noise: Vec<f32> = samples
            .iter()
            .map(|_| {
                last = colour * last + even(&mut state);
                last
            })
            .collect();
        let scale = power(samples) / power(&noise).max(f64::MIN_POSITIVE) / 10f64.powf(decibels / 10.0);
        let scale = scale.sqrt() as f32;
        samples.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += scale * noise);
    }
}

/// A number even over `-1..1` (xorshift64, Marsaglia 2003): a key for each of a million samples would take longer than the
/// features.
fn even(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Why an augmentation cannot be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AugmentError {
    /// A speed at which speech is no longer speech.
    #[error("a speed of {0} was asked for; speeds between 0.5 and 2 can be had")]
    Speed(f32),
    /// A share that is none.
    #[error("a `time_mask_share` of {0} was asked for; shares are between 0 and 1")]
    Share(f64),
    /// Noise or a gain that is none.
    #[error(
        "noise from {least} to {most} dB for a share of {share}, and a gain of {gain} dB, were asked for; a share is between 0 and 1, and decibels between -20 and 100, the least first"
    )]
    Decibels {
        /// The share of utterances with noise.
        share: f64,
        /// How far speech is above it at least.
        least: f64,
        /// And at most.
        most: f64,
        /// The largest change of level.
        gain: f64,
    },
}

/// All that is done to a training utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Masks on the features.
    pub spec: SpecAugment,
    /// Speeds to choose from, evenly: `[0.9, 1.0, 1.1]` (Ko et al. 2015). None leaves the speed alone.
    pub speeds: Vec<f32>,
    /// Noise under the sound.
    pub noise: Noise,
    /// The sound becomes louder or softer by up to so many decibels.
    pub gain: f64,
}

impl Augment {
    /// Whether every number in it can be used.
    pub fn check(&self) -> Result<(), AugmentError> {
        if let Some(&speed) = self.speeds.iter().find(|speed| !(0.5..=2.0).contains(*speed)) {
            return Err(AugmentError::Speed(speed));
        }
        let Noise { share, least, most } = self.noise;
        let gain = self.gain;
        let decibels = -20.0..=100.0;
        let sound =
            (0.0..=1.0).contains(&share) && least <= most && decibels.contains(&least) && decibels.contains(&most);
        if !(sound && (0.0..=100.0).contains(&gain)) {
            return Err(AugmentError::Decibels { share, least, most, gain });
        }
        let share = self.spec.time_mask_share;
        if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(AugmentError::Share(share)) }
    }

    /// Whether [`sound`](Self::sound) does anything at `key`; otherwise features that were kept will do.
    pub fn changes_sound(&self, key: Key) -> bool {
        self.gain > 0.0 || self.noise.is_at(key)
    }

    /// Adds the noise of `key` and sets its level.
    pub fn sound(&self, samples: &mut [f32], key: Key) {
        if self.noise.is_at(key) {
            self.noise.apply(samples, key);
        }
        if self.gain > 0.0 {
            let decibels = self.gain * (2.0 * key.with("gain").unit() - 1.0);
            let factor = 10f64.powf(decibels / 20.0) as f32;
            samples.iter_mut().for_each(|sample| *sample *= factor);
        }
    }

    /// The speed of the utterance at `key`.
    pub fn speed(&self, key: Key) -> f32 {
        let choice = || key.with("speed").below(self.speeds.len() as u64) as usize;
        if self.speeds.is_empty() { 1.0 } else { self.speeds[choice()] }
    }

    /// How many times longer the slowest speed makes an utterance; memory must be planned for it.
    pub fn stretch_most(&self) -> f64 {
        self.speeds.iter().map(|&speed| 1.0 / f64::from(speed)).fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MELS: usize = 8;

    /// Which cells of ones and a mean of zero were masked.
    fn masked(spec: &SpecAugment, frames: usize, key: Key) -> Vec<bool> {
        let mut features: Vec<f32> = (0..frames * MELS).map(|n| if n % 2 == 0 { 1.0 } else { -1.0 }).collect();
        spec.apply(&mut features, MELS, key);
        features.iter().map(|&v| v == 0.0).collect()
    }

    #[test]
    fn masked_cells_become_the_mean() {
        let mut features: Vec<f32> = (0..800).map(|n| n as f32).collect();
        let spec = SpecAugment { frequency_mask_bins: 3, ..SpecAugment::default() };
        spec.apply(&mut features, MELS, Key::new(4));
        let changed: Vec<f32> =
            features.iter().enumerate().filter(|(n, v)| **v != *n as f32).map(|(_, v)| *v).collect();
        assert!(!changed.is_empty() && changed.iter().all(|&v| v == 399.5), "{changed:?}");
    }

    #[test]
    fn masks_differ_from_key_to_key_and_not_from_run_to_run() {
        let spec = SpecAugment { frequency_mask_bins: 3, ..SpecAugment::default() };
        assert_eq!(masked(&spec, 100, Key::new(1)), masked(&spec, 100, Key::new(1)));
        assert_ne!(masked(&spec, 100, Key::new(1)), masked(&spec, 100, Key::new(2)));
    }

    #[test]
    fn speeds_are_chosen_evenly_and_checked() {
        let augment = Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() };
        let slow = (0..3_000).filter(|&n| augment.speed(Key::new(n)) == 0.9).count();
        assert!((900..1_100).contains(&slow), "{slow}");
        assert!((augment.stretch_most() - 1.0 / 0.9).abs() < 1e-6);
        assert_eq!(Augment::default().speed(Key::new(0)), 1.0);
        assert_eq!(Augment { speeds: vec![0.0], ..augment.clone() }.check(), Err(AugmentError::Speed(0.0)));
        assert!(Augment { speeds: vec![f32::NAN], ..augment }.check().is_err());
    }

    #[test]
    fn noise_is_as_far_below_the_speech_as_was_asked_for() {
        let speech: Vec<f32> = (0..16_000).map(|n| (n as f32 * 0.05).sin() * 0.3).collect();
        let power = |samples: &[f32]| samples.iter().map(|v| v * v).sum::<f32>();
        let augment = Augment { noise: Noise { share: 0.5, least: 12.0, most: 12.0 }, ..Augment::default() };
        let mut with_noise = 0;
        for n in 0..200 {
            let (key, mut heard) = (Key::new(n), speech.clone());
            augment.sound(&mut heard, key);
            assert_eq!(heard != speech, augment.changes_sound(key));
            if heard != speech {
                with_noise += 1;
                let noise: Vec<f32> = heard.iter().zip(&speech).map(|(h, s)| h - s).collect();
                let decibels = 10.0 * (power(&speech) / power(&noise)).log10();
                assert!((decibels - 12.0).abs() < 0.01, "{decibels}");
                let mut again = speech.clone();
                augment.sound(&mut again, key);
                assert_eq!(heard, again);
            }
        }
        assert!((80..120).contains(&with_noise), "{with_noise}");
    }

    #[test]
    fn gain_stays_inside_its_decibels_and_is_checked() {
        let augment = Augment { gain: 6.0, ..Augment::default() };
        for n in 0..100 {
            let mut sample = [0.5f32];
            augment.sound(&mut sample, Key::new(n));
            assert!((0.25..1.0).contains(&sample[0]), "{sample:?}");
        }
        assert!(augment.check().is_ok());
        assert!(Augment { gain: -1.0, ..Augment::default() }.check().is_err());
        let noise = Noise { share: 0.1, least: 20.0, most: 10.0 };
        assert!(Augment { noise, ..Augment::default() }.check().is_err());
    }

    proptest! {
        #[test]
        fn masks_stay_inside_their_limits(
            seed in any::<u64>(), frames in 1usize..200, most in 0u32..50, share in 0.0..1.0, bins in 0u32..20,
        ) {
            let time = SpecAugment {
                time_masks: 1, time_mask_frames: most, time_mask_share: share, frequency_masks: 0, frequency_mask_bins: 0,
            };
            let whole = masked(&time, frames, Key::new(seed)).chunks(MELS).filter(|f| f.iter().all(|m| *m)).count();
            prop_assert!(whole <= most as usize && whole as f64 <= share * frames as f64);
            let band = SpecAugment { time_masks: 0, frequency_masks: 1, frequency_mask_bins: bins, ..time };
            let cells = masked(&band, frames, Key::new(seed)).iter().filter(|m| **m).count();
            prop_assert!(cells <= bins as usize * frames && cells % frames == 0);
        }
    }
}
