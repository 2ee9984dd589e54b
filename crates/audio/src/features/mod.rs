//! Log-mel features, the input of the models.
//!
//! Two systems with "80 log mels" as input rarely mean the same numbers: windows, paddings, scales, norms and floors
//! differ. [`LogMelConfig`] has a setting for each of these choices, and presets for known systems.

// Shapes: t frames, m mel channels; features are frame after frame, `[t, m]`.

mod config;
mod mel;
mod pitch;

use std::f64::consts::TAU;
use std::sync::Arc;

use plimsoll_core::{Frames, Seconds};
use realfft::num_complex::Complex32;
use realfft::{RealFftPlanner, RealToComplex};

use crate::buffers;

pub use config::{Floor, Log, LogMelConfig, MelScale, Normalize, Padding, Spectrum, Window};
use mel::LANES;
pub(crate) use mel::MelFilters;
pub use pitch::{MelAxis, PitchTables};

/// Reason why a configuration does not describe valid features.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// A length or count is zero. Holds the name of the setting.
    #[error("`{0}` of the features is zero")]
    Zero(&'static str),
    /// The window is longer than the transform.
    #[error("the features' `win_length` of {win_length} is more than their `n_fft` of {n_fft}")]
    Window {
        /// Length of the window in samples.
        win_length: usize,
        /// Length of the Fourier transform in samples.
        n_fft: usize,
    },
    /// The frequency band is empty, below zero or above half the sample rate.
    #[error("the features' band from {f_min} to {f_max} hertz is not inside 0 to {limit} hertz")]
    Band {
        /// Lower edge of the frequency band in hertz.
        f_min: f64,
        /// Upper edge of the frequency band in hertz.
        f_max: f64,
        /// Half the sample rate in hertz: the highest valid upper edge.
        limit: f64,
    },
    /// The floor does not keep zeros away from the logarithm. Holds the number of the floor.
    #[error("the features' `floor` of {0} is not above zero")]
    Floor(f32),
    /// The number of a setting is negative or not finite.
    #[error("`{name}` of the features is {value}")]
    Number {
        /// Name of the invalid setting.
        name: &'static str,
        /// Value of the invalid setting.
        value: f32,
    },
}

/// Extractor of log-mel features. It is immutable, so threads can share one.
#[derive(Clone)]
pub struct LogMel {
    pub(crate) config: LogMelConfig,
    pub(crate) window: Vec<f32>,
    pub(crate) filters: MelFilters,
    pub(crate) transform: Arc<dyn RealToComplex<f32>>,
}

impl LogMel {
    /// Prepares the window, the mel filters and the Fourier transform of an extractor.
    ///
    /// # Errors
    /// When a length, the frequency band, the floor or another number is invalid.
    pub fn new(config: &LogMelConfig) -> Result<Self, FeatureError> {
        check(config)?;
        Ok(Self {
            config: config.clone(),
            window: window(config),
            filters: MelFilters::new(config),
            transform: RealFftPlanner::new().plan_fft_forward(config.n_fft),
        })
    }

    /// Returns the configuration of these features.
    pub fn config(&self) -> &LogMelConfig {
        &self.config
    }

    /// Returns the number of mel channels: the width of a frame.
    pub fn n_mels(&self) -> usize {
        self.config.n_mels
    }

    /// Returns the window, centered in the `n_fft` samples of a frame and divided by its norm if the configuration says so.
    pub fn window(&self) -> &[f32] {
        &self.window
    }

    /// Returns the mel filters as a matrix `[bins, n_mels]`, row after row. The mel values of a frame are its spectrum times
    /// this matrix.
    pub fn filter_matrix(&self) -> Vec<f32> {
        self.filters.matrix(self.config.n_fft / 2 + 1)
    }

    /// Computes the number of frames in `samples` samples; at least one, however short the audio.
    pub fn frames(&self, samples: usize) -> usize {
        let LogMelConfig { n_fft, hop_length, padding, drop_last_frame, .. } = self.config;
        let padded = samples
            + match padding {
                Padding::None => 0,
                Padding::Reflect | Padding::Constant => n_fft / 2 * 2,
                Padding::Silence => n_fft / 2 * 2 + n_fft,
            };
        let frames = padded.saturating_sub(n_fft) / hop_length + 1;
        (frames - usize::from(drop_last_frame)).max(1)
    }

    /// Computes the number of frames in audio of length `duration`; at least one, however short the audio.
    pub fn frames_in(&self, duration: Seconds) -> Frames {
        let samples = (duration.0 * f64::from(self.config.sample_rate)).round();
        Frames(self.frames(samples.max(0.0) as usize).try_into().unwrap_or(u32::MAX))
    }

    /// Computes the log-mel features `[t, m]` (frames, mel channels) of samples at the configured sample rate.
    pub fn extract(&self, samples: &[f32]) -> Vec<f32> {
        let emphasized = self.config.preemphasis.map(|factor| emphasize(samples, factor));
        let samples = emphasized.as_deref().unwrap_or(samples);
        let mut features = buffers::zeroed(self.frames(samples.len()) * self.n_mels());
        self.mels(samples, &mut features);
        features.iter_mut().for_each(|value| *value = self.logarithm(*value));
        if let Some(range) = self.config.dynamic_range {
            compress_range(&mut features, range);
        }
        normalize(&mut features, &self.config);
        features
    }

    /// Fills `features` with the mel values of `samples`, before the logarithm.
    fn mels(&self, samples: &[f32], features: &mut [f32]) {
        let LogMelConfig { n_fft, hop_length, padding, spectrum: kind, .. } = self.config;
        let before = if padding == Padding::None { 0 } else { n_fft / 2 } as isize;
        let mut frame = vec![0.0; n_fft];
        let mut bins = self.transform.make_output_vec();
        let mut scratch = self.transform.make_scratch_vec();
        let mut spectra = vec![[0.0; LANES]; bins.len()];
        for (block, mels) in features.chunks_mut(self.n_mels() * LANES).enumerate() {
            for lane in 0..mels.len() / self.n_mels() {
                let start = ((block * LANES + lane) * hop_length) as isize - before;
                self.windowed_frame(samples, start, &mut frame);
                self.transform
                    .process_with_scratch(&mut frame, &mut bins, &mut scratch)
                    .expect("the buffers were made by the transform");
                for (values, bin) in spectra.iter_mut().zip(&bins) {
                    values[lane] = if kind == Spectrum::Power { bin.norm_sqr() } else { magnitude(*bin) };
                }
            }
            self.filters.apply_to_frames(&spectra, mels);
        }
    }

    /// Fills `frame` with the windowed samples that begin at sample `start`, which may lie outside of the audio.
    pub(crate) fn windowed_frame(&self, samples: &[f32], start: isize, frame: &mut [f32]) {
        let whole = usize::try_from(start).ok().and_then(|start| samples.get(start..start + frame.len()));
        if let Some(inside) = whole {
            frame.iter_mut().zip(inside).zip(&self.window).for_each(|((to, from), weight)| *to = from * weight);
            return;
        }
        for (n, (to, weight)) in frame.iter_mut().zip(&self.window).enumerate() {
            let place = start + n as isize;
            let mirrored = match self.config.padding {
                Padding::Reflect => true,
                Padding::Silence => place < 0,
                Padding::Constant | Padding::None => false,
            };
            *to = sample_at(samples, place, mirrored) * weight;
        }
    }

    fn logarithm(&self, value: f32) -> f32 {
        let value = match self.config.floor {
            Floor::Add(floor) => value + floor,
            Floor::Max(floor) => value.max(floor),
        };
        match self.config.log {
            Log::Ln => value.ln(),
            Log::Log10 => value.log10(),
        }
    }
}

fn check(config: &LogMelConfig) -> Result<(), FeatureError> {
    let LogMelConfig { n_fft, win_length, hop_length, n_mels, f_min, .. } = *config;
    let lengths = [
        ("sample_rate", config.sample_rate as usize),
        ("n_fft", n_fft),
        ("win_length", win_length),
        ("hop_length", hop_length),
        ("n_mels", n_mels),
    ];
    if let Some((name, _)) = lengths.into_iter().find(|(_, length)| *length == 0) {
        return Err(FeatureError::Zero(name));
    }
    if win_length > n_fft {
        return Err(FeatureError::Window { win_length, n_fft });
    }
    let (f_max, limit) = (config.f_max(), f64::from(config.sample_rate) / 2.0);
    if !(0.0 <= f_min && f_min < f_max && f_max <= limit) {
        return Err(FeatureError::Band { f_min, f_max, limit });
    }
    let (Floor::Add(floor) | Floor::Max(floor)) = config.floor;
    if !(floor > 0.0 && floor.is_finite()) {
        return Err(FeatureError::Floor(floor));
    }
    let numbers = [("preemphasis", config.preemphasis), ("dynamic_range", config.dynamic_range)];
    let mut given = numbers.into_iter().filter_map(|(name, value)| Some((name, value?)));
    match given.find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
        Some((name, value)) => Err(FeatureError::Number { name, value }),
        None => Ok(()),
    }
}

/// Computes the window that each frame is multiplied by, centered in the Fourier transform. It is divided by its L2
/// norm if the configuration says so.
fn window(config: &LogMelConfig) -> Vec<f32> {
    let length = config.win_length;
    let hann = |n: usize, period: usize| 0.5 - 0.5 * (TAU * n as f64 / period.max(1) as f64).cos();
    let weights: Vec<f64> = (0..length)
        .map(|n| match config.window {
            Window::HannPeriodic => hann(n, length),
            Window::HannSymmetric => hann(n, length - 1),
            Window::Povey => hann(n, length - 1).powf(0.85),
        })
        .collect();
    let norm = weights.iter().map(|w| w * w).sum::<f64>().sqrt();
    let scale = if config.window_norm && norm > 0.0 { 1.0 / norm } else { 1.0 };
    let mut window = vec![0.0; config.n_fft];
    let left = (config.n_fft - length) / 2;
    window[left..left + length].iter_mut().zip(&weights).for_each(|(to, from)| *to = (from * scale) as f32);
    window
}

/// Returns sample `index` of audio that continues with zeros, or with its mirror image, on both sides.
pub(crate) fn sample_at(samples: &[f32], index: isize, mirrored: bool) -> f32 {
    if let Some(&sample) = usize::try_from(index).ok().and_then(|index| samples.get(index)) {
        return sample;
    }
    if !mirrored || samples.is_empty() {
        return 0.0;
    }
    let last = samples.len() as isize - 1;
    let place = index.rem_euclid((2 * last).max(1));
    samples[place.min(2 * last - place).max(0) as usize]
}

fn magnitude(bin: Complex32) -> f32 {
    bin.norm_sqr().sqrt()
}

fn emphasize(samples: &[f32], factor: f32) -> Vec<f32> {
    let rest = samples.windows(2).map(|pair| pair[1] - factor * pair[0]);
    samples.first().copied().into_iter().chain(rest).collect()
}

/// Limits the dynamic range of the features and rescales them, as the last step of Whisper does.
fn compress_range(features: &mut [f32], range: f32) {
    let lowest = features.iter().copied().fold(f32::NEG_INFINITY, f32::max) - range;
    features.iter_mut().for_each(|value| *value = (value.max(lowest) + 4.0) / 4.0);
}

/// How far a frame with speech is below the loudest at most, in decibels.
const SPEECH_DECIBELS: f64 = 20.0;
/// Deviations below the mean at which silence ends.
const SILENCE: f32 = -4.0;

/// Normalizes each mel channel over the frames, as NeMo does for `per_feature`.
fn normalize(features: &mut [f32], config: &LogMelConfig) {
    let (n_mels, kind) = (config.n_mels, config.normalize);
    if kind == Normalize::None {
        return;
    }
    let heard = match kind {
        Normalize::SpeechMeanVariance => frames_with_speech(features, config),
        _ => vec![true; features.len() / n_mels],
    };
    let count = heard.iter().filter(|&&is_heard| is_heard).count();
    let heard_frame = |(frame, is_heard): (_, &bool)| is_heard.then_some(frame);
    // Frame after frame, all channels at once: in the order of memory, with the rounding of channel after channel.
    let mut means = vec![0.0f64; n_mels];
    for frame in features.chunks_exact(n_mels).zip(&heard).filter_map(heard_frame) {
        means.iter_mut().zip(frame).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    means.iter_mut().for_each(|sum| *sum /= count as f64);
    let mut scales = vec![1.0f64; n_mels];
    if kind != Normalize::UtteranceMean {
        scales.fill(0.0);
        for frame in features.chunks_exact(n_mels).zip(&heard).filter_map(heard_frame) {
            let deviations = frame.iter().zip(&means).map(|(value, mean)| f64::from(*value) - mean);
            scales.iter_mut().zip(deviations).for_each(|(sum, deviation)| *sum += deviation * deviation);
        }
        let count = count.saturating_sub(1).max(1) as f64;
        scales.iter_mut().for_each(|sum| *sum = 1.0 / ((*sum / count).sqrt() + 1e-5));
    }
    for frame in features.chunks_exact_mut(n_mels) {
        for (value, (mean, scale)) in frame.iter_mut().zip(means.iter().zip(&scales)) {
            *value = ((f64::from(*value) - mean) * scale) as f32;
        }
    }
    if kind == Normalize::SpeechMeanVariance {
        features.iter_mut().for_each(|value| *value = value.max(SILENCE));
    }
}

/// Returns for each frame whether it is loud enough for speech, by the mean of its channels.
fn frames_with_speech(features: &[f32], config: &LogMelConfig) -> Vec<bool> {
    let power = if config.spectrum == Spectrum::Power { 1.0 } else { 2.0 };
    let decibels = power * if config.log == Log::Ln { 10.0 / std::f64::consts::LN_10 } else { 10.0 };
    let loudness = |frame: &[f32]| frame.iter().map(|value| f64::from(*value)).sum::<f64>() / frame.len() as f64;
    let loudness: Vec<f64> = features.chunks_exact(config.n_mels).map(loudness).collect();
    let loudest = loudness.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    loudness.iter().map(|level| (loudest - level) * decibels <= SPEECH_DECIBELS).collect()
}

#[cfg(test)]
mod tests;
