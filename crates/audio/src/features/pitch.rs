//! Pitch in frames of log-mels: tables by which a product of matrices finds it.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use super::{Log, LogMel, LogMelConfig, MelScale, Normalize, Padding, Spectrum};

/// Pitch at which octaves begin to count, in hertz: between the voices of men and women.
const MIDDLE: f64 = 160.0;
/// Lowest and highest pitch in hertz.
const RANGE: (f64, f64) = (60.0, 480.0);
/// Number of pitches in an octave: half a semitone is one.
const IN_OCTAVE: f64 = 24.0;
/// Highest frequency in hertz at which harmonics are looked for: bands above are wider than a pitch.
const HIGHEST_BAND: f64 = 1000.0;
/// Fewest channels below that.
const FEWEST_BANDS: usize = 4;
/// Width in hertz over which a frame is smoothed, so that its harmonics are gone.
const SMOOTH: f64 = 80.0;
/// Octaves from the usual pitch of an utterance at which a pitch is half as likely.
const SPREAD: f64 = 0.45;
/// Number of shifts of a train of pulses whose frames are averaged, so that their place in the window does not matter.
const SHIFTS: usize = 4;

/// How frequencies lie in the bands of log-mels: what must be known to find pitch in them, and to change their level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MelAxis {
    /// Sample rate in hertz.
    pub sample_rate: u32,
    /// Length of the Fourier transform in samples.
    pub n_fft: usize,
    /// Length of the window in samples.
    pub win_length: usize,
    /// Number of mel channels.
    pub n_mels: usize,
    /// Lower edge of the first mel channel in hertz.
    pub f_min: f64,
    /// Upper edge of the last mel channel in hertz.
    pub f_max: f64,
    /// Formula of the mel scale.
    pub mel_scale: MelScale,
    /// Quantity that the mel filters sum.
    pub spectrum: Spectrum,
    /// Base of the logarithm.
    pub log: Log,
}

/// Tables that find the pitch of frames.
///
/// Shapes: m mel channels, c pitches. A frame times `details`, divided by its length, times `templates` is how well each pitch fits,
/// from -1 to 1; voiced frames have 0.5 and more at their pitch.
#[derive(Clone, Debug, PartialEq)]
pub struct PitchTables {
    /// Pitches `[c]` in octaves above 160 Hz, ascending.
    pub octaves: Vec<f32>,
    /// Matrix `[m, m]` that leaves of a frame what harmonics make of it. A frame less its details has no harmonics.
    pub details: Vec<f32>,
    /// Details of a sound of each pitch, `[m, c]`; each has the length 1.
    pub templates: Vec<f32>,
    /// Weight of fits at near pitches, `[c, c]`: 1 at the same pitch, 0 from a quarter of an octave.
    pub near: Vec<f32>,
    /// How much less likely a pitch is where another one is usual, `[c, c]`: 0 at the same pitch, and less the farther it is.
    pub unlikely: Vec<f32>,
}

/// Most by which details are multiplied.
const SHARPEST: f32 = 2.5;

impl PitchTables {
    /// Computes how strong the harmonics of `frames` are, log-mels one after the other: the mean length of that part of their details
    /// which the best pitch explains, in the frames that are louder than the mean. 0 if there is no such frame.
    pub fn harmonics(&self, frames: &[f32]) -> f32 {
        let m = self.channels();
        let level = |frame: &[f32]| frame.iter().sum::<f32>();
        let frames: Vec<&[f32]> = frames.chunks_exact(m).collect();
        let mean = frames.iter().map(|frame| level(frame)).sum::<f32>() / frames.len().max(1) as f32;
        let loud = || frames.iter().filter(|frame| level(frame) > mean);
        let best = |frame: &[f32]| self.fits(&self.details_of(frame)).into_iter().fold(0.0, f32::max);
        loud().map(|frame| best(frame)).sum::<f32>() / loud().count().max(1) as f32
    }

    /// Makes the harmonics of `frames` as strong as `wanted`, if they are weaker. A model predicts means of what could be said, in which
    /// the valleys between harmonics are shallow, and a low voice would whisper.
    pub fn sharpen(&self, frames: &mut [f32], wanted: f32) {
        let gain = (wanted / self.harmonics(frames)).clamp(1.0, SHARPEST);
        // Not a number where both are nothing.
        if gain > 1.0 {
            for frame in frames.chunks_exact_mut(self.channels()) {
                let details = self.details_of(frame);
                frame.iter_mut().zip(details).for_each(|(value, detail)| *value += (gain - 1.0) * detail);
            }
        }
    }

    fn channels(&self) -> usize {
        self.details.len().isqrt()
    }

    /// Computes the details of a frame.
    fn details_of(&self, frame: &[f32]) -> Vec<f32> {
        product(frame, &self.details)
    }

    /// Computes how much of the details of a frame each pitch explains.
    fn fits(&self, details: &[f32]) -> Vec<f32> {
        product(details, &self.templates)
    }
}

/// Computes a row times a matrix.
fn product(row: &[f32], matrix: &[f32]) -> Vec<f32> {
    let width = matrix.len() / row.len().max(1);
    let mut sums = vec![0.0; width];
    for (value, factors) in row.iter().zip(matrix.chunks_exact(width.max(1))) {
        sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += value * factor);
    }
    sums
}

impl MelAxis {
    /// Returns the axis of `features`.
    pub fn of(features: &LogMelConfig) -> Self {
        let &LogMelConfig { sample_rate, n_fft, win_length, n_mels, f_min, mel_scale, spectrum, log, .. } = features;
        Self { sample_rate, n_fft, win_length, n_mels, f_min, f_max: features.f_max(), mel_scale, spectrum, log }
    }

    /// Returns the change of a log-mel by a change of the sound of one decibel.
    pub fn decibel(&self) -> f64 {
        let powers = match self.spectrum {
            Spectrum::Magnitude => 1.0,
            Spectrum::Power => 2.0,
        };
        let base = match self.log {
            Log::Ln => std::f64::consts::LN_10,
            Log::Log10 => 1.0,
        };
        powers * base / 20.0
    }

    /// Returns whether pitch can be found: features can have this axis, and enough of its channels lie where pitch is heard.
    pub fn has_pitch(&self) -> bool {
        LogMel::new(&self.features()).is_ok() && self.heard(&self.centers()) >= FEWEST_BANDS
    }

    /// Returns the number of channels where pitch is heard.
    fn heard(&self, centers: &[f64]) -> usize {
        centers.iter().filter(|&&center| center < HIGHEST_BAND).count()
    }

    /// Computes the tables; `None` unless [`has_pitch`](Self::has_pitch).
    pub fn pitch_tables(&self) -> Option<PitchTables> {
        if !self.has_pitch() {
            return None;
        }
        let log_mel = LogMel::new(&self.features()).ok()?;
        let centers = self.centers();
        let heard = self.heard(&centers);
        let details = self.details(&centers[..heard]);
        let count = ((RANGE.1 / RANGE.0).log2() * IN_OCTAVE).round() as usize + 1;
        let hertz: Vec<f64> = (0..count).map(|n| RANGE.0 * (n as f64 / IN_OCTAVE).exp2()).collect();
        let columns: Vec<Vec<f32>> = hertz.iter().map(|&hertz| self.template(&log_mel, &details, hertz)).collect();
        let templates = (0..self.n_mels).flat_map(|m| columns.iter().map(move |column| column[m])).collect();
        let octaves = |a: usize, b: usize| (a as f64 - b as f64).abs() / IN_OCTAVE;
        let table = |value: &dyn Fn(f64) -> f64| -> Vec<f32> {
            (0..count * count).map(|n| value(octaves(n / count, n % count)) as f32).collect()
        };
        Some(PitchTables {
            octaves: hertz.iter().map(|hertz| (hertz / MIDDLE).log2() as f32).collect(),
            details,
            templates,
            near: table(&|octaves| (TAU * octaves.min(0.25)).cos().powi(2)),
            unlikely: table(&|octaves| -0.5 * (octaves / SPREAD).powi(2)),
        })
    }

    /// Returns features with this axis, as they are, without a norm.
    fn features(&self) -> LogMelConfig {
        let &Self { sample_rate, n_fft, win_length, n_mels, f_min, f_max, mel_scale, spectrum, log } = self;
        LogMelConfig {
            sample_rate,
            n_fft,
            win_length,
            hop_length: n_fft.max(1),
            n_mels,
            f_min,
            f_max: Some(f_max),
            mel_scale,
            spectrum,
            log,
            padding: Padding::None,
            normalize: Normalize::None,
            ..LogMelConfig::default()
        }
    }

    /// Returns the middle of each channel in hertz.
    fn centers(&self) -> Vec<f64> {
        let (low, high) = (self.mel_scale.mels(self.f_min), self.mel_scale.mels(self.f_max));
        let center = |n: usize| low + (high - low) * (n + 1) as f64 / (self.n_mels + 1) as f64;
        (0..self.n_mels).map(|n| self.mel_scale.hertz(center(n))).collect()
    }

    /// Computes the matrix `[m, m]` that leaves of the first channels, whose middles are given, the difference from their
    /// neighborhood, and nothing of the others.
    fn details(&self, centers: &[f64]) -> Vec<f32> {
        let (heard, m) = (centers.len(), self.n_mels);
        // Row `to` of the rest after smoothing, by channel of the frame.
        let row = |to: usize| -> Vec<f64> {
            let weight = |from: usize| (-0.5 * ((centers[to] - centers[from]) / SMOOTH).powi(2)).exp();
            let sum: f64 = (0..heard).map(weight).sum();
            (0..heard).map(|from| f64::from(u8::from(from == to)) - weight(from) / sum).collect()
        };
        let rows: Vec<Vec<f64>> = (0..heard).map(row).collect();
        // Their mean is taken away.
        let mean = |from: usize| rows.iter().map(|row| row[from]).sum::<f64>() / heard as f64;
        let mut matrix = vec![0.0; m * m];
        for from in 0..heard {
            let mean = mean(from);
            for (to, row) in rows.iter().enumerate() {
                matrix[from * m + to] = (row[from] - mean) as f32;
            }
        }
        matrix
    }

    /// Computes the details of a train of pulses with this pitch, with length 1.
    fn template(&self, log_mel: &LogMel, details: &[f32], hertz: f64) -> Vec<f32> {
        let (m, step) = (self.n_mels, TAU * hertz / f64::from(self.sample_rate));
        let harmonics = (f64::from(self.sample_rate) / 2.0 / hertz) as usize;
        let mut frame = vec![0.0; m];
        for shift in 0..SHIFTS {
            let begin = shift as f64 / SHIFTS as f64 * TAU;
            let samples: Vec<f32> =
                (0..self.n_fft).map(|n| pulses(n as f64 * step + begin, harmonics) as f32).collect();
            frame.iter_mut().zip(log_mel.extract(&samples)).for_each(|(sum, value)| *sum += value);
        }
        let mut found = vec![0.0; m];
        for (from, value) in frame.iter().enumerate() {
            found.iter_mut().zip(&details[from * m..]).for_each(|(sum, weight)| *sum += value * weight);
        }
        let length = found.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        found.iter().map(|value| value / length).collect()
    }
}

/// Computes the sum of the first `count` harmonics of a cosine at the phase `angle`.
fn pulses(angle: f64, count: usize) -> f64 {
    let half = (angle / 2.0).sin();
    match half.abs() < 1e-9 {
        true => count as f64,
        false => ((count as f64 + 0.5) * angle).sin() / (2.0 * half) - 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pitch in octaves that fits a sound best, and how well it fits.
    fn fit(features: &LogMelConfig, samples: &[f32]) -> (f32, f32) {
        let tables = MelAxis::of(features).pitch_tables().unwrap();
        let (m, c) = (features.n_mels, tables.octaves.len());
        let log_mel = LogMel::new(features).unwrap();
        let frames = log_mel.extract(samples);
        let middle = &frames[frames.len() / m / 2 * m..][..m];
        let times = |x: &[f32], table: &[f32], width: usize| -> Vec<f32> {
            (0..width).map(|to| x.iter().enumerate().map(|(from, x)| x * table[from * width + to]).sum()).collect()
        };
        let details = times(middle, &tables.details, m);
        let length = details.iter().map(|x| x * x).sum::<f32>().sqrt();
        let fits = times(&details, &tables.templates, c);
        let best = (0..c).max_by(|&a, &b| fits[a].total_cmp(&fits[b])).unwrap();
        (tables.octaves[best], fits[best] / length)
    }

    #[test]
    fn blurred_harmonics_become_as_strong_as_they_were_and_a_level_stays() {
        let features = at_rate(16_000);
        let tables = MelAxis::of(&features).pitch_tables().unwrap();
        let sound: Vec<f32> =
            (0..16_000).map(|n| ((n % 160) as f32 / 160.0 - 0.5) * if n < 8000 { 0.2 } else { 1e-3 }).collect();
        let frames = LogMel::new(&features).unwrap().extract(&sound);
        let strength = tables.harmonics(&frames);
        let mut blurred = frames.clone();
        for frame in blurred.chunks_exact_mut(features.n_mels) {
            let details = tables.details_of(frame);
            frame.iter_mut().zip(details).for_each(|(value, detail)| *value -= 0.5 * detail);
        }
        let weaker = tables.harmonics(&blurred);
        assert!(weaker < 0.8 * strength, "{weaker} {strength}");
        let mut sharp = blurred.clone();
        tables.sharpen(&mut sharp, strength);
        assert!((tables.harmonics(&sharp) / strength - 1.0).abs() < 0.05, "{} {strength}", tables.harmonics(&sharp));
        let level = |frames: &[f32]| frames.iter().sum::<f32>() / frames.len() as f32;
        assert!((level(&sharp) - level(&blurred)).abs() < 0.01);
        // What is strong enough stays as it is, and so does silence.
        for (before, wanted) in [(frames.clone(), 0.5 * strength), (vec![-11.5; 80 * 9], strength), (Vec::new(), 1.0)] {
            let mut after = before.clone();
            tables.sharpen(&mut after, wanted);
            assert!(after.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-3));
        }
    }

    /// Returns features of a synthesizer at a rate.
    fn at_rate(rate: u32) -> LogMelConfig {
        let hop = (rate / 80) as usize;
        LogMelConfig {
            sample_rate: rate,
            hop_length: hop,
            win_length: 4 * hop,
            n_fft: (4 * hop).next_power_of_two(),
            ..LogMelConfig::preset("myxtts").unwrap()
        }
    }

    #[test]
    fn pitch_of_vowels_is_found_in_their_frames() {
        let presets = ["myxtts", "xtts"].map(|name| LogMelConfig::preset(name).unwrap());
        for features in presets.into_iter().chain([8000, 11_025, 16_000].map(at_rate)) {
            let rate = f64::from(features.sample_rate);
            for hertz in [90.0, 110.0, 140.0, 180.0, 220.0, 300.0, 400.0] {
                // Harmonics that fall as those of a voice do, with a formant at 600 Hz.
                let harmonics = (rate / 2.0 / hertz) as usize;
                let level = |k: usize| {
                    let f = k as f64 * hertz;
                    (1.0 + 3.0 * (-((f - 600.0) / 150.0).powi(2)).exp()) / k as f64
                };
                let sample = |n: usize| {
                    let harmonic = |k: usize| level(k) * (TAU * k as f64 * hertz * n as f64 / rate + k as f64).sin();
                    ((1..=harmonics).map(harmonic).sum::<f64>() * 0.1) as f32
                };
                let samples: Vec<f32> = (0..features.sample_rate as usize / 4).map(sample).collect();
                let (octaves, fit) = fit(&features, &samples);
                let off = 12.0 * (f64::from(octaves) - (hertz / MIDDLE).log2());
                assert!(off.abs() < 1.0 && fit > 0.5, "{hertz} Hz at {rate}: {off} semitones, {fit}");
            }
        }
    }

    #[test]
    fn pulses_are_a_sum_of_harmonics() {
        for (angle, count) in [(0.0, 7), (0.3, 1), (2.0, 40), (TAU, 5), (100.0, 183)] {
            let sum: f64 = (1..=count).map(|k| (k as f64 * angle).cos()).sum();
            assert!((pulses(angle, count) - sum).abs() < 1e-6, "{angle} {count}");
        }
    }

    #[test]
    fn noise_fits_no_pitch_as_well_as_a_voice() {
        let features = at_rate(16_000);
        let fits = (0..20).map(|seed| {
            let key = plimsoll_core::Key::new(seed);
            let noise: Vec<f32> = (0..4000).map(|n| key.at(n).unit() as f32 - 0.5).collect();
            fit(&features, &noise).1
        });
        assert!(fits.sum::<f32>() / 20.0 < 0.5);
    }

    #[test]
    fn a_decibel_is_the_same_in_all_features() {
        let samples: Vec<f32> = (0..4000).map(|n| (n as f32 * 0.3).sin() * 0.1).collect();
        let louder: Vec<f32> = samples.iter().map(|sample| sample * 10f32.powf(6.0 / 20.0)).collect();
        for preset in ["myxtts", "xtts", "whisper", "espnet"] {
            let features = LogMelConfig { dynamic_range: None, ..LogMelConfig::preset(preset).unwrap() };
            let log_mel = LogMel::new(&features).unwrap();
            let highest = |samples: &[f32]| log_mel.extract(samples).into_iter().fold(f32::MIN, f32::max);
            let change = f64::from(highest(&louder) - highest(&samples));
            assert!((change - 6.0 * MelAxis::of(&features).decibel()).abs() < 1e-3, "{preset}: {change}");
        }
    }

    #[test]
    fn features_in_which_no_pitch_can_be_heard_have_no_tables() {
        let few = LogMelConfig { n_mels: 8, ..LogMelConfig::default() };
        assert!(MelAxis::of(&few).pitch_tables().is_none());
        let high = LogMelConfig { f_min: 2000.0, ..LogMelConfig::default() };
        assert!(MelAxis::of(&high).pitch_tables().is_none());
        let invalid = LogMelConfig { n_fft: 0, ..LogMelConfig::default() };
        assert!(MelAxis::of(&invalid).pitch_tables().is_none());
    }
}
