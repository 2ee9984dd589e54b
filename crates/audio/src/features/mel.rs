//! Mel filters: triangles over the bins of a spectrum, stored without their zeros.

use super::{LogMelConfig, MelScale};

/// Number of frames whose mel values are computed side by side, so that the compiler can use vectors of that size. The bins
/// of one filter are too few for it.
pub(crate) const LANES: usize = 8;

/// Filter of one mel channel: the weights, and the first bin of the spectrum that they apply to.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    first: usize,
    weights: Vec<f32>,
}

/// Filters of all mel channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MelFilters(Vec<Filter>);

impl MelFilters {
    /// Computes triangular filters whose corners are evenly spaced in mels, as torchaudio and librosa do.
    pub(crate) fn new(config: &LogMelConfig) -> Self {
        let (scale, bins) = (config.mel_scale, config.n_fft / 2 + 1);
        let (low, high) = (scale.mels(config.f_min), scale.mels(config.f_max()));
        let corner = |n: usize| scale.hertz(low + (high - low) * n as f64 / (config.n_mels + 1) as f64);
        let hertz = |bin: usize| bin as f64 * f64::from(config.sample_rate) / config.n_fft as f64;
        let filter = |channel: usize| {
            let (left, middle, right) = (corner(channel), corner(channel + 1), corner(channel + 2));
            let scale = if config.area_norm { 2.0 / (right - left) } else { 1.0 };
            let weight = |f: f64| ((f - left) / (middle - left)).min((right - f) / (right - middle)) * scale;
            let first = (0..bins).find(|&bin| hertz(bin) > left).unwrap_or(bins);
            let weights = (first..bins).map(|bin| weight(hertz(bin)) as f32).take_while(|&w| w > 0.0).collect();
            Filter { first, weights }
        };
        Self((0..config.n_mels).map(filter).collect())
    }

    /// Computes the mel values of a spectrum: writes the weighted sum of the bins of each channel to `mels`.
    pub(crate) fn apply(&self, spectrum: &[f32], mels: &mut [f32]) {
        for (mel, filter) in mels.iter_mut().zip(&self.0) {
            let bins = &spectrum[filter.first..filter.first + filter.weights.len()];
            *mel = bins.iter().zip(&filter.weights).map(|(bin, weight)| bin * weight).sum();
        }
    }

    /// Computes the mel values of up to [`LANES`] frames side by side, with the rounding of [`apply`](Self::apply). The
    /// values of a frame follow those of the frame before it.
    pub(crate) fn apply_to_frames(&self, spectra: &[[f32; LANES]], mels: &mut [f32]) {
        let channels = self.0.len();
        for (channel, filter) in self.0.iter().enumerate() {
            let mut sums = [0.0; LANES];
            for (bins, weight) in spectra[filter.first..].iter().zip(&filter.weights) {
                sums.iter_mut().zip(bins).for_each(|(sum, bin)| *sum += bin * weight);
            }
            mels.iter_mut().skip(channel).step_by(channels).zip(sums).for_each(|(mel, sum)| *mel = sum);
        }
    }

    /// Returns the filters as a matrix `[bins, channels]`, row after row.
    pub(crate) fn matrix(&self, bins: usize) -> Vec<f32> {
        let channels = self.0.len();
        let mut matrix = vec![0.0; bins * channels];
        for (channel, filter) in self.0.iter().enumerate() {
            for (bin, weight) in (filter.first..).zip(&filter.weights) {
                matrix[bin * channels + channel] = *weight;
            }
        }
        matrix
    }

    /// Applies the transposed filters: writes to each bin of `spectrum` the weighted sum of the channels that contain
    /// it.
    pub(crate) fn spread(&self, mels: &[f32], spectrum: &mut [f32]) {
        spectrum.fill(0.0);
        for (mel, filter) in mels.iter().zip(&self.0) {
            let bins = &mut spectrum[filter.first..filter.first + filter.weights.len()];
            bins.iter_mut().zip(&filter.weights).for_each(|(bin, weight)| *bin += mel * weight);
        }
    }
}

/// Width of one mel in hertz below 1 kHz on Slaney's scale: 3 mels for 200 Hz. Above 1 kHz, 27 mels are a factor of
/// 6.4.
const SLANEY_LINEAR: f64 = 200.0 / 3.0;
const SLANEY_CORNER: f64 = 1_000.0;

fn slaney_step() -> f64 {
    6.4f64.ln() / 27.0
}

impl MelScale {
    pub(super) fn mels(self, hertz: f64) -> f64 {
        match self {
            Self::Htk => 2_595.0 * (1.0 + hertz / 700.0).log10(),
            Self::Slaney if hertz < SLANEY_CORNER => hertz / SLANEY_LINEAR,
            Self::Slaney => SLANEY_CORNER / SLANEY_LINEAR + (hertz / SLANEY_CORNER).ln() / slaney_step(),
        }
    }

    pub(super) fn hertz(self, mels: f64) -> f64 {
        let corner = SLANEY_CORNER / SLANEY_LINEAR;
        match self {
            Self::Htk => 700.0 * (10f64.powf(mels / 2_595.0) - 1.0),
            Self::Slaney if mels < corner => mels * SLANEY_LINEAR,
            Self::Slaney => SLANEY_CORNER * ((mels - corner) * slaney_step()).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    #[test]
    fn scales_match_their_definitions_both_ways() {
        // HTK book: 1000 Hz is 1000 mels to four digits. Slaney: 1000 Hz is 15 mels, 6400 Hz is 15 + 27.
        close(MelScale::Htk.mels(700.0), 2_595.0 * 2f64.log10());
        close(MelScale::Htk.mels(1_000.0), 999.985_537);
        close(MelScale::Slaney.mels(500.0), 7.5);
        close(MelScale::Slaney.mels(1_000.0), 15.0);
        close(MelScale::Slaney.mels(6_400.0), 42.0);
        for scale in [MelScale::Htk, MelScale::Slaney] {
            for hertz in [0.0, 60.0, 999.0, 1_000.0, 4_321.0, 11_025.0] {
                close(scale.hertz(scale.mels(hertz)), hertz);
            }
        }
    }

    /// Returns a filter for bins every 250 Hz with corners at 0, 500 and 1000 Hz, so that every weight can be computed
    /// by hand.
    fn small_filter(area_norm: bool) -> MelFilters {
        MelFilters::new(&LogMelConfig {
            sample_rate: 4_000,
            n_fft: 16,
            n_mels: 1,
            f_min: 0.0,
            f_max: Some(1_000.0),
            mel_scale: MelScale::Slaney,
            area_norm,
            ..LogMelConfig::default()
        })
    }

    #[test]
    fn frames_side_by_side_have_the_bits_of_single_frames() {
        let config = LogMelConfig::default();
        let (filters, bins) = (MelFilters::new(&config), config.n_fft / 2 + 1);
        let spectra: Vec<[f32; LANES]> =
            (0..bins).map(|bin| std::array::from_fn(|lane| ((bin * 7 + lane * 3) % 11) as f32 * 0.37)).collect();
        for frames in 1..=LANES {
            let mut found = vec![0.0; frames * config.n_mels];
            filters.apply_to_frames(&spectra, &mut found);
            for (lane, found) in found.chunks_exact(config.n_mels).enumerate() {
                let spectrum: Vec<f32> = spectra.iter().map(|values| values[lane]).collect();
                let mut expected = vec![0.0; config.n_mels];
                filters.apply(&spectrum, &mut expected);
                assert_eq!(found, expected, "frame {lane} of {frames}");
            }
        }
    }

    #[test]
    fn a_filter_is_a_triangle() {
        // Bins every 250 Hz; the triangle 0, 500, 1000 Hz has 0.5, 1, 0.5 at bins 1, 2, 3.
        assert_eq!(small_filter(false).0, [Filter { first: 1, weights: vec![0.5, 1.0, 0.5] }]);
        // Divided by half its width of 1000 Hz.
        assert_eq!(small_filter(true).0, [Filter { first: 1, weights: vec![0.001, 0.002, 0.001] }]);
    }

    #[test]
    fn matrix_of_a_filter_has_its_weights_at_its_bins() {
        assert_eq!(small_filter(false).matrix(9), [0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn overlapping_filters_sum_to_one() {
        let config = LogMelConfig { f_min: 100.0, ..LogMelConfig::default() };
        let filters = MelFilters::new(&config);
        let mut sums = vec![0f32; config.n_fft / 2 + 1];
        for filter in &filters.0 {
            filter.weights.iter().enumerate().for_each(|(n, weight)| sums[filter.first + n] += weight);
        }
        // Between the centers of the first and the last channel, where two triangles always overlap.
        assert!(sums[5..245].iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums:?}");
    }

    #[test]
    fn apply_sums_weighted_bins() {
        let mut mels = [0.0];
        small_filter(false).apply(&[9.0, 1.0, 2.0, 4.0, 9.0, 9.0, 9.0, 9.0, 9.0], &mut mels);
        assert_eq!(mels, [0.5 + 2.0 + 2.0]);
    }

    #[test]
    fn spread_distributes_a_channel_over_its_bins() {
        let mut spectrum = [7.0; 9];
        small_filter(false).spread(&[3.0], &mut spectrum);
        assert_eq!(spectrum, [0.0, 1.5, 3.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
