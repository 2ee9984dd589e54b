//! Levels of bins as the log-mels tell them, from which a vocoder's magnitudes start.

use std::fmt::{Debug, Formatter};

use burn::tensor::Tensor;
use plimsoll_audio::{FeatureError, Log, LogMel, LogMelConfig, Spectrum};
use plimsoll_tape::transfer::from_host;

// Shapes: b waveforms, t frames, m mel channels, k bins.

/// Estimates the logarithm of each bin's magnitude: the mean level of the mel channels that contain the bin.
#[derive(Clone)]
pub(super) struct BinLevels {
    /// Share of each channel in the level of a bin, `[m, k]`, with the factor that turns log-mels into natural logarithms of
    /// magnitudes.
    shares: Vec<f32>,
    /// What each bin adds: minus the logarithm of the width of its channels, `[k]`.
    offsets: Vec<f32>,
}

impl Debug for BinLevels {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "BinLevels {{ bins: {} }}", self.offsets.len())
    }
}

impl BinLevels {
    /// Prepares the levels of a transform as long as the window of `config`.
    pub(super) fn new(config: &LogMelConfig) -> Result<Self, FeatureError> {
        let m = config.n_mels;
        let widths = column_sums(&LogMel::new(config)?.filter_matrix(), m);
        let bins = LogMelConfig { n_fft: config.win_length, ..config.clone() };
        let filters = LogMel::new(&bins)?.filter_matrix();
        let mut rows: Vec<Vec<f32>> = filters.chunks(m).map(|row| shares_of(row, &widths)).collect();
        fill_gaps(&mut rows);
        let nats = if config.log == Log::Log10 { std::f32::consts::LN_10 } else { 1.0 };
        let power = if config.spectrum == Spectrum::Power { 0.5 } else { 1.0 };
        let offset = |row: &Vec<f32>| {
            -power * row.iter().zip(&widths).map(|(s, w)| s * w.max(f32::MIN_POSITIVE).ln()).sum::<f32>()
        };
        let offsets = rows.iter().map(offset).collect();
        let shares = (0..m).flat_map(|channel| rows.iter().map(move |row| row[channel] * nats * power)).collect();
        Ok(Self { shares, offsets })
    }

    /// Estimates the logarithms of magnitudes `[b, t, k]` from log-mels `[b, t, m]`.
    pub(super) fn forward(&self, mels: Tensor<3>) -> Tensor<3> {
        let ([b, t, m], k, device) = (mels.dims(), self.offsets.len(), mels.device());
        let shares: Tensor<2> = from_host([m, k], &device, || self.shares.clone());
        let offsets: Tensor<2> = from_host([1, k], &device, || self.offsets.clone());
        (mels.reshape([b * t, m]).matmul(shares) + offsets).reshape([b, t, k])
    }
}

fn column_sums(matrix: &[f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0; columns];
    matrix.chunks(columns).for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value));
    sums
}

/// Returns the share of each channel in a bin with the filter weights `row`: zeros for a bin in no channel.
fn shares_of(row: &[f32], widths: &[f32]) -> Vec<f32> {
    // A channel without a bin of its own has no level.
    let relative = row.iter().zip(widths).map(|(weight, width)| if *width > 0.0 { weight / width } else { 0.0 });
    let relative: Vec<f32> = relative.collect();
    let sum: f32 = relative.iter().sum();
    relative.into_iter().map(|share| if sum > 0.0 { share / sum } else { 0.0 }).collect()
}

/// Gives bins in no channel, such as the first, the shares of the bin before, or else of the first bin in a channel.
fn fill_gaps(rows: &mut [Vec<f32>]) {
    let is_empty = |row: &[f32]| row.iter().all(|&share| share == 0.0);
    let Some(first) = rows.iter().find(|row| !is_empty(row)).cloned() else { return };
    let mut last = first;
    for row in rows {
        match is_empty(row) {
            true => row.clone_from(&last),
            false => last.clone_from(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use plimsoll_audio::{Normalize, Padding};

    use super::*;

    #[test]
    fn levels_are_near_the_magnitudes_of_smooth_spectra() {
        // The spectrum of one impulse in a frame is flat: its magnitude is the window at the impulse.
        for spectrum in [Spectrum::Magnitude, Spectrum::Power] {
            for log in [Log::Ln, Log::Log10] {
                let config = LogMelConfig {
                    n_mels: 20,
                    spectrum,
                    log,
                    padding: Padding::Constant,
                    normalize: Normalize::None,
                    ..LogMelConfig::default()
                };
                let mut samples = vec![0.0; 1_000];
                samples[480] = 0.5;
                let mels = LogMel::new(&config).unwrap().extract(&samples);
                let mels = Tensor::from_data(TensorData::new(mels, [1, 7, 20]), &Device::flex()).narrow(1, 3, 1);
                let levels = BinLevels::new(&config).unwrap().forward(mels);
                let levels: Vec<f32> = levels.into_data().try_into_vec().unwrap();
                assert_eq!(levels.len(), 201);
                assert!(levels.iter().all(|level| (level - 0.5f32.ln()).abs() < 1e-3), "{levels:?}");
            }
        }
    }
}
