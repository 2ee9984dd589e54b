//! Making the same utterance sound different each epoch: masked stretches and bands, another speed.

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

/// Why an augmentation cannot be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AugmentError {
    /// A speed at which speech is no longer speech.
    #[error("a speed of {0} was asked for; speeds between 0.5 and 2 can be had")]
    Speed(f32),
    /// A share that is none.
    #[error("a `time_mask_share` of {0} was asked for; shares are between 0 and 1")]
    Share(f64),
}

/// All that is done to a training utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Masks on the features.
    pub spec: SpecAugment,
    /// Speeds to choose from, evenly: `[0.9, 1.0, 1.1]` (Ko et al. 2015). None leaves the speed alone.
    pub speeds: Vec<f32>,
}

impl Augment {
    /// Whether every number in it can be used.
    pub fn check(&self) -> Result<(), AugmentError> {
        if let Some(&speed) = self.speeds.iter().find(|speed| !(0.5..=2.0).contains(*speed)) {
            return Err(AugmentError::Speed(speed));
        }
        let share = self.spec.time_mask_share;
        if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(AugmentError::Share(share)) }
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
