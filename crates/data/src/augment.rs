//! Augmentation: masks in time and frequency, speed, noise and gain, drawn anew in each epoch.

use plimsoll_core::Key;
use serde::{Deserialize, Serialize};

/// SpecAugment (Park et al. 2019) without time warping: masks over spans of time and bands of frequency.
///
/// The default is the policy `LD` of the paper with its limit of 0.2 for the share of an utterance that one mask may
/// cover.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpecAugment {
    /// Number of time masks in each utterance. Default: 2.
    pub time_masks: u32,
    /// Longest time mask, in frames. Default: 100.
    pub time_mask_frames: u32,
    /// Longest time mask as a share of the utterance, from 0 to 1. Default: 0.2.
    pub time_mask_share: f64,
    /// Number of frequency masks in each utterance. Default: 2.
    pub frequency_masks: u32,
    /// Widest frequency mask, in mel channels. Default: 27.
    pub frequency_mask_bins: u32,
}

impl Default for SpecAugment {
    fn default() -> Self {
        Self { time_masks: 2, time_mask_frames: 100, time_mask_share: 0.2, frequency_masks: 2, frequency_mask_bins: 27 }
    }
}

impl SpecAugment {
    /// Masks features `[t, n_mels]` in place. Masked cells are set to the mean of the utterance.
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

/// Draws a random range inside `length`: first the width, uniform over `0..=longest`, then the start.
fn mask(length: usize, longest: u64, key: Key) -> std::ops::Range<usize> {
    let length = length as u64;
    let width = key.with("width").below(longest.min(length) + 1);
    let start = key.with("start").below(length - width + 1);
    start as usize..(start + width) as usize
}

/// Noise added to the audio, with a random spectrum between white and low-pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Noise {
    /// Share of utterances that get noise, from 0 to 1. Default: 0.
    pub share: f64,
    /// Lowest signal-to-noise ratio, in decibels. Serialized as `least`. Default: 10, as in a noisy street.
    #[serde(rename = "least")]
    pub snr_min_db: f64,
    /// Highest signal-to-noise ratio, in decibels. The ratio is drawn uniformly between the lowest and the highest.
    /// Serialized as `most`. Default: 30, as in a quiet room.
    #[serde(rename = "most")]
    pub snr_max_db: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Self { share: 0.0, snr_min_db: 10.0, snr_max_db: 30.0 }
    }
}

impl Noise {
    /// Returns whether the utterance with the key `key` gets noise.
    fn applies(&self, key: Key) -> bool {
        key.with("noise").with("whether").unit() < self.share
    }

    /// Adds noise to the utterance; `key` decides its level, spectrum and samples.
    fn apply(&self, samples: &mut [f32], key: Key) {
        let power = |samples: &[f32]| samples.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
        let key = key.with("noise");
        let snr_db = self.snr_min_db + (self.snr_max_db - self.snr_min_db) * key.with("level").unit();
        // Coefficient of a first-order low-pass: 0 is white noise, 0.98 sounds like distant traffic. The key keeps its
        // spelling, because it seeds the noise: another one would change every run.
        let low_pass = 0.98 * key.with("colour").unit() as f32;
        let (mut state, mut last) = (key.with("samples").bits() | 1, 0.0);
        let noise: Vec<f32> = samples
            .iter()
            .map(|_| {
                last = low_pass * last + uniform(&mut state);
                last
            })
            .collect();
        let scale = power(samples) / power(&noise).max(f64::MIN_POSITIVE) / 10f64.powf(snr_db / 10.0);
        let scale = scale.sqrt() as f32;
        samples.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += scale * noise);
    }
}

/// Draws a number uniform over `-1..1` (xorshift64, Marsaglia 2003). A [`Key`] for each of a million samples would take
/// longer than computing the features.
fn uniform(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Reason why an augmentation is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AugmentError {
    /// A speed is outside 0.5 to 2, the range in which speech stays intelligible.
    #[error("the speed is {0}; it must be between 0.5 and 2")]
    Speed(f32),
    /// `time_mask_share` is outside 0 to 1.
    #[error("`time_mask_share` is {0}; it must be between 0 and 1")]
    Share(f64),
    /// A number of the noise or the gain is out of range.
    #[error(
        "noise at {snr_min_db} to {snr_max_db} dB for a share of {share}, with a gain of {gain_db} dB; the share must be \
         between 0 and 1, both ratios between -20 and 100 with the lower one first, and the gain between 0 and 100"
    )]
    Decibels {
        /// Share of utterances that get noise.
        share: f64,
        /// Lowest signal-to-noise ratio, in decibels.
        snr_min_db: f64,
        /// Highest signal-to-noise ratio, in decibels.
        snr_max_db: f64,
        /// Largest change of the level in either direction, in decibels.
        gain_db: f64,
    },
}

/// Augmentation of training utterances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Masks over spans of time and bands of frequency of the features.
    pub spec: SpecAugment,
    /// Speeds to draw from with equal probability, such as `[0.9, 1.0, 1.1]` (Ko et al. 2015). Each speed is from 0.5
    /// to 2. Default: empty, which keeps the speed.
    pub speeds: Vec<f32>,
    /// Noise added to the audio.
    pub noise: Noise,
    /// Largest change of the level in either direction, in decibels, from 0 to 100. Serialized as `gain`. Default: 0.
    #[serde(rename = "gain")]
    pub gain_db: f64,
}

impl Augment {
    /// Checks the range of every number of the augmentation.
    ///
    /// # Errors
    /// When a number is out of range; the error names the first such number.
    pub fn check(&self) -> Result<(), AugmentError> {
        if let Some(&speed) = self.speeds.iter().find(|speed| !(0.5..=2.0).contains(*speed)) {
            return Err(AugmentError::Speed(speed));
        }
        let Noise { share, snr_min_db, snr_max_db } = self.noise;
        let gain_db = self.gain_db;
        let decibels = -20.0..=100.0;
        let is_noise_valid = (0.0..=1.0).contains(&share)
            && snr_min_db <= snr_max_db
            && decibels.contains(&snr_min_db)
            && decibels.contains(&snr_max_db);
        if !(is_noise_valid && (0.0..=100.0).contains(&gain_db)) {
            return Err(AugmentError::Decibels { share, snr_min_db, snr_max_db, gain_db });
        }
        let share = self.spec.time_mask_share;
        if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(AugmentError::Share(share)) }
    }

    /// Returns whether [`apply_to_samples`](Self::apply_to_samples) changes the audio of the utterance with the key
    /// `key`. If not, cached features can be used.
    pub fn changes_samples(&self, key: Key) -> bool {
        self.gain_db > 0.0 || self.noise.applies(key)
    }

    /// Adds noise and changes the level of the audio; `key` decides both.
    pub fn apply_to_samples(&self, samples: &mut [f32], key: Key) {
        if self.noise.applies(key) {
            self.noise.apply(samples, key);
        }
        if self.gain_db > 0.0 {
            let decibels = self.gain_db * (2.0 * key.with("gain").unit() - 1.0);
            let factor = 10f64.powf(decibels / 20.0) as f32;
            samples.iter_mut().for_each(|sample| *sample *= factor);
        }
    }

    /// Draws the speed factor of the utterance with the key `key`; 1 if no speeds are configured.
    pub fn speed(&self, key: Key) -> f32 {
        let choice = || key.with("speed").below(self.speeds.len() as u64) as usize;
        if self.speeds.is_empty() { 1.0 } else { self.speeds[choice()] }
    }

    /// Computes by which factor an utterance becomes longer at the slowest speed; at least 1. Memory must be planned
    /// for it.
    pub fn max_stretch(&self) -> f64 {
        self.speeds.iter().map(|&speed| 1.0 / f64::from(speed)).fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MELS: usize = 8;

    /// Returns for each cell whether it is masked: features are 1 and -1 with a mean of 0, and masks write the mean.
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
    fn masks_depend_only_on_the_key() {
        let spec = SpecAugment { frequency_mask_bins: 3, ..SpecAugment::default() };
        assert_eq!(masked(&spec, 100, Key::new(1)), masked(&spec, 100, Key::new(1)));
        assert_ne!(masked(&spec, 100, Key::new(1)), masked(&spec, 100, Key::new(2)));
    }

    #[test]
    fn speeds_are_drawn_uniformly_and_checked() {
        let augment = Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() };
        let slow = (0..3_000).filter(|&n| augment.speed(Key::new(n)) == 0.9).count();
        assert!((900..1_100).contains(&slow), "{slow}");
        assert!((augment.max_stretch() - 1.0 / 0.9).abs() < 1e-6);
        assert_eq!(Augment::default().speed(Key::new(0)), 1.0);
        assert_eq!(Augment { speeds: vec![0.0], ..augment.clone() }.check(), Err(AugmentError::Speed(0.0)));
        assert!(Augment { speeds: vec![f32::NAN], ..augment }.check().is_err());
    }

    #[test]
    fn noise_has_the_requested_ratio() {
        let speech: Vec<f32> = (0..16_000).map(|n| (n as f32 * 0.05).sin() * 0.3).collect();
        let power = |samples: &[f32]| samples.iter().map(|v| v * v).sum::<f32>();
        let augment = Augment { noise: Noise { share: 0.5, snr_min_db: 12.0, snr_max_db: 12.0 }, ..Augment::default() };
        let mut with_noise = 0;
        for n in 0..200 {
            let (key, mut heard) = (Key::new(n), speech.clone());
            augment.apply_to_samples(&mut heard, key);
            assert_eq!(heard != speech, augment.changes_samples(key));
            if heard != speech {
                with_noise += 1;
                let noise: Vec<f32> = heard.iter().zip(&speech).map(|(h, s)| h - s).collect();
                let decibels = 10.0 * (power(&speech) / power(&noise)).log10();
                assert!((decibels - 12.0).abs() < 0.01, "{decibels}");
                let mut again = speech.clone();
                augment.apply_to_samples(&mut again, key);
                assert_eq!(heard, again);
            }
        }
        assert!((80..120).contains(&with_noise), "{with_noise}");
    }

    #[test]
    fn gain_stays_inside_its_range() {
        let augment = Augment { gain_db: 6.0, ..Augment::default() };
        for n in 0..100 {
            let mut sample = [0.5f32];
            augment.apply_to_samples(&mut sample, Key::new(n));
            assert!((0.25..1.0).contains(&sample[0]), "{sample:?}");
        }
        assert!(augment.check().is_ok());
        assert!(Augment { gain_db: -1.0, ..Augment::default() }.check().is_err());
        let noise = Noise { share: 0.1, snr_min_db: 20.0, snr_max_db: 10.0 };
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
