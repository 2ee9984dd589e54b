//! Short-time Fourier transforms of waveforms, forward and inverse, as matrix products with a gradient.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Tensor};
use plimsoll_core::Bytes;
use plimsoll_tape::transfer::from_host;
use plimsoll_tape::windows;

use crate::Lengths;

// Shapes: b waveforms, n samples, t frames, w samples of a window, k bins of a spectrum.

/// Lowest value of the sum of squared windows by which samples are divided. Only samples at the edges, far from the center
/// of each frame, have less: they are faded and not amplified.
const LEAST_ENVELOPE: f32 = 0.1;

/// Returns the periodic Hann window of `length` samples.
pub fn hann_window(length: usize) -> Vec<f32> {
    (0..length).map(|n| (0.5 - 0.5 * (TAU * n as f64 / length as f64).cos()) as f32).collect()
}

/// Adds `count` samples of mirrored sound at both ends of the waveforms `x` `[b, n]`, like PyTorch's `reflect`.
///
/// # Panics
/// If the waveforms have no more than `count` samples.
pub fn reflect(x: Tensor<2>, count: usize) -> Tensor<2> {
    let n = x.dims()[1];
    assert!(n > count, "{n} samples cannot be mirrored by {count}");
    if count == 0 {
        return x;
    }
    let mirrored = |from: usize| x.clone().narrow(1, from, count).flip([1]);
    Tensor::cat(vec![mirrored(1), x.clone(), mirrored(n - 1 - count)], 1)
}

/// What decides the matrices of a transform: their shape, the period of the waves, and the bits of the window.
type WavesKey = ([usize; 2], usize, Vec<u32>);

/// Matrices of every transform of the process. They are few and stay until it ends; [`Stft::tables`] counts them for a
/// plan of memory.
static WAVES: Mutex<BTreeMap<WavesKey, Waves>> = Mutex::new(BTreeMap::new());

/// Cosines and sines of a Fourier transform as two matrices `[rows, columns]`. Equal transforms share them.
#[derive(Clone)]
struct Waves {
    shape: [usize; 2],
    matrices: Arc<[Vec<f32>; 2]>,
}

impl Waves {
    /// Returns the matrices of this shape. `angle` is the place of a row and a column in the period, which has `period` places,
    /// and the factor of its wave; it depends on shape, period and `window` alone.
    fn new(shape: [usize; 2], period: usize, window: &[f32], angle: impl Fn(usize, usize) -> (usize, f32)) -> Self {
        let key = (shape, period, window.iter().map(|weight| weight.to_bits()).collect());
        let mut known = WAVES.lock().unwrap_or_else(PoisonError::into_inner);
        let matrix = |wave: fn(f64) -> f64| {
            let period: Vec<f32> = (0..period).map(|n| wave(TAU * n as f64 / period as f64) as f32).collect();
            let value = |(row, column)| {
                let (place, factor) = angle(row, column);
                period[place % period.len()] * factor
            };
            (0..shape[0]).flat_map(|row| (0..shape[1]).map(move |column| (row, column))).map(value).collect()
        };
        let new = || Self { shape, matrices: Arc::new([matrix(f64::cos), matrix(f64::sin)]) };
        known.entry(key).or_insert_with(new).clone()
    }

    /// Copies both matrices to `device`.
    fn send(&self, device: &Device) -> [Tensor<2>; 2] {
        self.matrices.each_ref().map(|matrix| from_host(self.shape, device, || matrix.clone()))
    }
}

/// Short-time Fourier transform: the spectra of overlapping frames of a waveform.
///
/// A frame has the samples of the window. The last samples that fill no frame are not used.
#[derive(Clone)]
pub struct Stft {
    n_fft: usize,
    hop: usize,
    window: Vec<f32>,
    waves: Waves,
}

impl Debug for Stft {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stft {{ n_fft: {}, hop: {}, window: {} samples }}", self.n_fft, self.hop, self.window.len())
    }
}

impl Stft {
    /// Makes a transform of length `n_fft`, of frames that begin every `hop` samples and are multiplied by `window`.
    ///
    /// # Panics
    /// If the window is empty or longer than the transform, or `hop` is 0.
    pub fn new(n_fft: usize, hop: usize, window: Vec<f32>) -> Self {
        assert!((1..=n_fft).contains(&window.len()) && hop > 0, "a transform of {n_fft} every {hop}");
        let angle = |sample: usize, bin: usize| (sample * bin % n_fft, window[sample]);
        let waves = Waves::new([window.len(), n_fft / 2 + 1], n_fft, &window, angle);
        Self { n_fft, hop, window, waves }
    }

    /// Computes the memory of the tables of all transforms that this process has made so far, forward and inverse. Equal
    /// transforms share their tables, and the process keeps them until it ends.
    pub fn tables() -> Bytes {
        let known = WAVES.lock().unwrap_or_else(PoisonError::into_inner);
        let values = known.values().flat_map(|waves| waves.matrices.iter()).map(Vec::len).sum::<usize>();
        Bytes::for_values::<f32>(values as u64)
    }

    /// Returns the number of bins of a spectrum.
    pub fn bins(&self) -> usize {
        self.n_fft / 2 + 1
    }

    /// Returns the number of samples between two frames.
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// Returns the number of samples of a frame.
    pub fn frame_length(&self) -> usize {
        self.window.len()
    }

    /// Computes the squared magnitudes `[b, t, k]` of the spectra of the waveforms `x` `[b, n]`.
    ///
    /// # Panics
    /// If the waveforms are shorter than a frame.
    pub fn power(&self, x: Tensor<2>) -> Tensor<3> {
        let ([b, n], w, k) = (x.dims(), self.frame_length(), self.bins());
        let waves = self.waves.send(&x.device());
        let frames = windows::cut(x.reshape([b, 1, n, 1]), [1, w], [1, self.hop], [0, 0]);
        let t = frames.dims()[2];
        let frames: Tensor<2> = frames.reshape([b * t, w]);
        let [real, imaginary] = waves.map(|waves| frames.clone().matmul(waves));
        (real.square() + imaginary.square()).reshape([b, t, k])
    }
}

/// Inverse short-time Fourier transform: a waveform from the spectra of its frames.
///
/// Each spectrum becomes a frame of samples, which is multiplied by the window. The frames are added up, and the sum is
/// divided by the sum of the squared windows, as `torch.istft` does. The transform is as long as the window.
#[derive(Clone)]
pub struct InverseStft {
    hop: usize,
    /// Samples of the first frame that lie before the waveform.
    before: usize,
    window: Vec<f32>,
    waves: Waves,
}

impl Debug for InverseStft {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "InverseStft {{ hop: {}, window: {} samples }}", self.hop, self.window.len())
    }
}

impl InverseStft {
    /// Makes a transform to frames that begin every `hop` samples. The first sample of the waveform is sample `before` of the
    /// first frame.
    ///
    /// # Panics
    /// If the window has an odd number of samples, or a frame does not reach the samples of its own hop.
    pub fn new(hop: usize, before: usize, window: Vec<f32>) -> Self {
        let w = window.len();
        assert!(w > 0 && w.is_multiple_of(2) && hop > 0 && before + hop <= w, "{w} samples every {hop} after {before}");
        let angle = |bin: usize, sample: usize| {
            let both_sides = if bin == 0 || bin == w / 2 { 1.0 } else { 2.0 };
            (sample * bin % w, both_sides * window[sample] / w as f32)
        };
        let waves = Waves::new([w / 2 + 1, w], w, &window, angle);
        Self { hop, before, window, waves }
    }

    /// Returns the number of bins of a spectrum.
    pub fn bins(&self) -> usize {
        self.window.len() / 2 + 1
    }

    /// Returns the number of frames, before and after a frame, that change the samples of its hop.
    pub fn context(&self) -> usize {
        self.before.max(self.window.len() - self.before).div_ceil(self.hop)
    }

    /// Computes waveforms `[b, t * hop]` from spectra `[b, t, k]`, `real` and `imaginary`. Padding changes no valid sample, and
    /// the samples of the padding are 0. Spectra have at least fp32: fewer bits would be heard as noise.
    pub fn forward(&self, real: Tensor<3>, imaginary: Tensor<3>, lengths: &Lengths) -> Tensor<2> {
        let ([b, t, k], w) = (real.dims(), self.window.len());
        let [cosines, sines] = self.waves.send(&real.device());
        let rows = |x: Tensor<3>| lengths.clear_padding(x).reshape([b * t, k]);
        let frames = rows(real).matmul(cosines) - rows(imaginary).matmul(sines);
        let sum = windows::overlap_add(frames.reshape([b, t, w]), self.hop);
        let samples = sum.narrow(1, self.before, t * self.hop);
        let device = samples.device();
        samples * from_host([b, t * self.hop], &device, || self.inverse_envelope(lengths))
    }

    /// Computes one over the sum of the squared windows for each sample; 0 in the padding.
    fn inverse_envelope(&self, lengths: &Lengths) -> Vec<f32> {
        let length = lengths.width() * self.hop;
        let one = |&frames: &u32| {
            let mut sums = vec![0f32; length];
            for frame in 0..frames as usize {
                for (sample, weight) in self.window.iter().enumerate() {
                    let place = (frame * self.hop + sample).checked_sub(self.before);
                    if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
                        *sum += weight * weight;
                    }
                }
            }
            let valid = frames as usize * self.hop;
            sums.iter_mut().enumerate().for_each(|(place, sum)| {
                *sum = if place < valid { 1.0 / sum.max(LEAST_ENVELOPE) } else { 0.0 };
            });
            sums
        };
        lengths.each().iter().flat_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;

    use super::*;

    fn noise(b: usize, n: usize) -> Tensor<2> {
        let values: Vec<f32> = (0..(b * n) as u64).map(|i| Key::new(7).at(i).unit() as f32 - 0.5).collect();
        Tensor::<1>::from_floats(&values[..], &Device::flex()).reshape([b, n])
    }

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().try_into_vec().unwrap()
    }

    /// Computes the spectrum of `frame` by its definition.
    fn spectrum(frame: &[f64], n_fft: usize) -> Vec<(f64, f64)> {
        let bin = |k: usize| {
            let wave = |n: usize| TAU * (n * k) as f64 / n_fft as f64;
            let sum = |f: fn(f64) -> f64| frame.iter().enumerate().map(|(n, x)| x * f(wave(n))).sum::<f64>();
            (sum(f64::cos), -sum(f64::sin))
        };
        (0..=n_fft / 2).map(bin).collect()
    }

    #[test]
    fn power_equals_its_definition() {
        let (x, window) = (noise(2, 50), hann_window(12));
        let power = values(Stft::new(16, 5, window.clone()).power(x.clone()));
        let x = values(x);
        assert_eq!(power.len(), 2 * 8 * 9);
        for (index, found) in power.chunks(9).enumerate() {
            let from = index / 8 * 50 + index % 8 * 5;
            let frame: Vec<f64> = (0..12).map(|n| f64::from(x[from + n] * window[n])).collect();
            for (found, (re, im)) in found.iter().zip(spectrum(&frame, 16)) {
                assert!((f64::from(*found) - re * re - im * im).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn equal_transforms_share_tables_that_are_counted() {
        // No other test has transforms of this length.
        let before = Stft::tables();
        let _two = [Stft::new(46, 5, hann_window(46)), Stft::new(46, 7, hann_window(46))];
        // Other tests of this process can make tables of theirs meanwhile.
        assert!(Stft::tables().0 >= before.0 + 2 * 46 * 24 * 4);
    }

    #[test]
    fn reflection_mirrors_without_repeating_the_edge() {
        let x = Tensor::<2>::from_data([[1.0, 2.0, 3.0, 4.0]], &Device::flex());
        assert_eq!(values(reflect(x, 2)), [3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0]);
    }

    /// Returns the spectra of the frames of `signal` that are centered every `hop` samples.
    fn analyzed(signal: &[f32], window: &[f32], hop: usize) -> [Tensor<3>; 2] {
        let (w, t) = (window.len(), signal.len() / hop);
        let sample =
            |place: isize| usize::try_from(place).ok().and_then(|place| signal.get(place)).copied().unwrap_or(0.0);
        let spectra: Vec<(f64, f64)> = (0..t)
            .flat_map(|frame| {
                let start = (frame * hop) as isize - (w / 2) as isize;
                let frame: Vec<f64> = (0..w).map(|n| f64::from(sample(start + n as isize) * window[n])).collect();
                spectrum(&frame, w)
            })
            .collect();
        let part = |f: fn(&(f64, f64)) -> f64| {
            let values: Vec<f32> = spectra.iter().map(|bin| f(bin) as f32).collect();
            Tensor::<1>::from_floats(&values[..], &Device::flex()).reshape([1, t, w / 2 + 1])
        };
        [part(|bin| bin.0), part(|bin| bin.1)]
    }

    #[test]
    fn inverse_transform_returns_the_waveform_with_and_without_padding() {
        let (signal, window) = (values(noise(1, 60)), hann_window(20));
        let [re, im] = analyzed(&signal, &window, 5);
        let inverse = InverseStft::new(5, 10, window);
        let alone = values(inverse.forward(re.clone(), im.clone(), &Lengths::new(vec![12], 12)));
        assert_eq!(alone.len(), 60);
        // The frame after the last is missing, so the last samples have lost some of their windows: still exact where the
        // sum of the squared windows is above its least value.
        assert!(alone.iter().zip(&signal).all(|(a, b)| (a - b).abs() < 1e-5));
        let padded = |x: Tensor<3>| Tensor::cat(vec![x, Tensor::full([1, 3, 11], 9.0, &Device::flex())], 1);
        let found = values(inverse.forward(padded(re), padded(im), &Lengths::new(vec![12], 15)));
        assert_eq!(found[..60], alone);
        assert!(found[60..].iter().all(|&sample| sample == 0.0));
    }
}
