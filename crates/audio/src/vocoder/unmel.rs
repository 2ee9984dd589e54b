//! From log mels to the magnitudes of a spectrum that would have made them.

use crate::features::{Floor, Log, LogMel, Spectrum};

/// Steps towards a spectrum that has the given mels: after so many the mean mel is off by less than 0.01 nats (measured).
const STEPS: usize = 30;

/// A logarithm and back is not exact, and takes the floor a little above itself.
const ON_THE_FLOOR: f32 = 1.001;

/// Takes logarithm and mel filters off features.
pub(super) struct Unmel<'a> {
    log_mel: &'a LogMel,
    /// What each bin gives to all channels together.
    given: Vec<f32>,
    /// What each channel takes from all bins together.
    taken: Vec<f32>,
    /// The most that a channel can hold of a sound between -1 and 1.
    most: Vec<f32>,
}

impl<'a> Unmel<'a> {
    /// For features of `log_mel`.
    pub(super) fn new(log_mel: &'a LogMel) -> Self {
        let (filters, bins) = (&log_mel.filters, log_mel.config.n_fft / 2 + 1);
        let mut given = vec![0.0; bins];
        filters.spread(&vec![1.0; log_mel.n_mels()], &mut given);
        let mut taken = vec![0.0; log_mel.n_mels()];
        filters.apply(&vec![1.0; bins], &mut taken);
        let loudest: f32 = log_mel.window.iter().sum();
        let loudest = if log_mel.config.spectrum == Spectrum::Power { loudest * loudest } else { loudest };
        let most = taken.iter().map(|taken| taken * loudest).collect();
        Self { log_mel, given, taken, most }
    }

    /// The magnitudes `[t, k]` of features `[t, m]`.
    pub(super) fn magnitudes(&self, features: &[f32]) -> Vec<f32> {
        let (n_mels, bins) = (self.taken.len(), self.given.len());
        let mut magnitudes = vec![0.0; features.len() / n_mels * bins];
        let (mut mels, mut found, mut factors) = (vec![0.0; n_mels], vec![0.0; n_mels], vec![0.0; bins]);
        for (frame, spectrum) in features.chunks_exact(n_mels).zip(magnitudes.chunks_exact_mut(bins)) {
            for ((mel, value), most) in mels.iter_mut().zip(frame).zip(&self.most) {
                *mel = self.linear(*value).min(*most);
            }
            self.solve(&mels, spectrum, &mut found, &mut factors);
            if self.log_mel.config.spectrum == Spectrum::Power {
                spectrum.iter_mut().for_each(|bin| *bin = bin.sqrt());
            }
        }
        magnitudes
    }

    /// The mel whose logarithm is `value`; as quiet as can be where a model gave no number.
    fn linear(&self, value: f32) -> f32 {
        let mel = match self.log_mel.config.log {
            Log::Ln => value.exp(),
            Log::Log10 => 10f32.powf(value),
        };
        let mel = match self.log_mel.config.floor {
            Floor::Add(floor) => mel - floor,
            // What lies on the floor was that quiet or quieter.
            Floor::Max(floor) if mel <= floor * ON_THE_FLOOR => 0.0,
            Floor::Max(_) => mel,
        };
        // Of a number and NaN this takes the number.
        mel.max(0.0)
    }

    /// Fills `spectrum` with bins, none below zero, that have these `mels`; `found` and `factors` are for scribbling.
    ///
    /// There are more bins than channels, so many spectra would do. We begin with a smooth one and multiply it by what
    /// its mels lack (Richardson, 1972; Lucy, 1974): so it stays smooth and above zero, and a quiet channel counts as
    /// much as a loud one, which least squares would give it away for.
    fn solve(&self, mels: &[f32], spectrum: &mut [f32], found: &mut [f32], factors: &mut [f32]) {
        found.copy_from_slice(&self.taken);
        self.lacking(mels, found, spectrum);
        for _ in 0..STEPS {
            self.log_mel.filters.apply(spectrum, found);
            self.lacking(mels, found, factors);
            spectrum.iter_mut().zip(&*factors).for_each(|(bin, factor)| *bin *= factor);
        }
    }

    /// How many times too small each bin is where its channels have `found` instead of `mels`: the mean of its channels.
    fn lacking(&self, mels: &[f32], found: &mut [f32], factors: &mut [f32]) {
        let ratio = |wanted: f32, found: f32| if found > 0.0 { wanted / found } else { 0.0 };
        found.iter_mut().zip(mels).for_each(|(found, wanted)| *found = ratio(*wanted, *found));
        self.log_mel.filters.spread(found, factors);
        factors.iter_mut().zip(&self.given).for_each(|(factor, given)| *factor = ratio(*factor, *given));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{LogMelConfig, Normalise, Padding};
    use crate::testing::tone;

    /// The mean distance, in nats, between the mels of a sound and those of the spectrum that was found for them.
    fn distance(config: &LogMelConfig, sound: &[f32]) -> f32 {
        let log_mel = LogMel::new(config).unwrap();
        let unmel = Unmel::new(&log_mel);
        let features = log_mel.extract(sound);
        let mut mels = vec![0.0; config.n_mels];
        let (mut sum, mut count) = (0.0, 0);
        let bins = config.n_fft / 2 + 1;
        for (frame, magnitudes) in features.chunks(config.n_mels).zip(unmel.magnitudes(&features).chunks(bins)) {
            let power = config.spectrum == Spectrum::Power;
            let spectrum: Vec<f32> = magnitudes.iter().map(|m| if power { m * m } else { *m }).collect();
            log_mel.filters.apply(&spectrum, &mut mels);
            for ((value, mel), taken) in frame.iter().zip(&mels).zip(&unmel.taken) {
                // Narrow channels may lie between two bins and hold nothing.
                if *taken > 0.0 {
                    sum += (unmel.linear(*value).ln() - mel.ln()).abs();
                    count += 1;
                }
            }
        }
        sum / count as f32
    }

    #[test]
    fn the_spectrum_has_the_mels() {
        for name in LogMelConfig::PRESETS {
            let preset = LogMelConfig::preset(name).unwrap();
            let config =
                LogMelConfig { normalise: Normalise::None, dynamic_range: None, padding: Padding::None, ..preset };
            let key = plimsoll_core::Key::new(3);
            let noise = (0..16_000).map(|n| key.at(n).unit() as f32 - 0.5);
            let sound: Vec<f32> = tone(1_000.0, 1.0, 16_000).iter().zip(noise).map(|(t, n)| t + 0.1 * n).collect();
            let distance = distance(&config, &sound);
            println!("{name}: {distance} nats");
            assert!(distance < 0.02, "{name}: {distance} nats");
        }
    }

    #[test]
    fn no_number_is_silence_and_no_loudness_is_endless() {
        let log_mel = LogMel::new(&LogMelConfig::preset("myxtts").unwrap()).unwrap();
        let unmel = Unmel::new(&log_mel);
        let loudest = |value: f32| unmel.magnitudes(&[value; 80]).into_iter().fold(0.0, f32::max);
        assert_eq!(loudest(f32::NAN), loudest(f32::NEG_INFINITY));
        assert!(loudest(f32::NAN) < 1e-2, "{}", loudest(f32::NAN));
        assert_eq!(loudest(f32::INFINITY), loudest(1e9));
        assert!(loudest(f32::INFINITY) < 1e4, "{}", loudest(f32::INFINITY));
    }
}
