//! Phases for given magnitudes: fast Griffin-Lim (Perraudin, Balazs and Søndergaard, 2013).
//!
//! An iteration adds the overlapping frames up to samples, and transforms the samples to spectra again. The new spectra
//! have consistent phases but wrong magnitudes, so the next iteration keeps the phases and restores the magnitudes. The
//! fast form adds momentum: it goes a little further in the direction of the last change.

use plimsoll_core::Key;
use realfft::ComplexToReal;
use realfft::num_complex::Complex32;

use crate::features::{LogMel, Padding, sample_at};

/// Weight of the momentum; 0.99 was best in the paper.
const MOMENTUM: f32 = 0.99;

/// Smallest window sum that samples are divided by, as a share of the largest window sum. Below this limit, at the
/// first and last samples, frames cover so little that division would mostly amplify errors.
const WINDOW_SUM_MIN: f32 = 0.01;

/// Seed of the initial phases. Any value would do, but it must not change.
const PHASE_SEED: u64 = 1984;

/// State of one conversion from magnitudes to audio.
pub(super) struct GriffinLim<'a> {
    log_mel: &'a LogMel,
    inverse: &'a dyn ComplexToReal<f32>,
    magnitudes: &'a [f32],
    /// Samples of padding on each side of the audio.
    padding: usize,
    /// Factors for the overlap-added samples: one over the product of the sum of squared windows and the length of the
    /// transform.
    gains: Vec<f32>,
}

/// Work buffers for one frame.
struct FrameBuffers {
    frame: Vec<f32>,
    bins: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl<'a> GriffinLim<'a> {
    /// Prepares the conversion of `magnitudes` `[t, k]` (frames, frequency bins) to `length` samples of audio.
    pub(super) fn new(
        log_mel: &'a LogMel,
        inverse: &'a dyn ComplexToReal<f32>,
        magnitudes: &'a [f32],
        length: usize,
    ) -> Self {
        let n_fft = log_mel.config.n_fft;
        let padding = if log_mel.config.padding == Padding::None { 0 } else { n_fft / 2 };
        let mut sums = vec![0.0; length + 2 * padding];
        let squares: Vec<f32> = log_mel.window.iter().map(|weight| weight * weight).collect();
        for start in (0..magnitudes.len() / (n_fft / 2 + 1)).map(|t| t * log_mel.config.hop_length) {
            sums[start..start + n_fft].iter_mut().zip(&squares).for_each(|(sum, square)| *sum += square);
        }
        let least = WINDOW_SUM_MIN * sums.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        // The inverse transform does not divide by its length.
        let gains = sums.iter().map(|sum| 1.0 / (n_fft as f32 * sum.max(least))).collect();
        Self { log_mel, inverse, magnitudes, padding, gains }
    }

    /// Computes the samples of the audio by the given number of iterations, which begin with random phases.
    pub(super) fn run(&self, iterations: usize) -> Vec<f32> {
        let mut buffers = self.buffers();
        let mut sound = vec![0.0; self.gains.len()];
        self.random_start(&mut buffers, &mut sound);
        self.iterations(&mut buffers, sound, iterations)
    }

    /// Computes the samples of the audio by the given number of iterations, which begin with the phases of `start`.
    pub(super) fn run_from(&self, start: &[f32], iterations: usize) -> Vec<f32> {
        let sound = self.padded(start);
        self.iterations(&mut self.buffers(), sound, iterations)
    }

    fn buffers(&self) -> FrameBuffers {
        FrameBuffers {
            frame: self.inverse.make_output_vec(),
            bins: self.inverse.make_input_vec(),
            scratch: vec![
                Complex32::default();
                self.inverse.get_scratch_len().max(self.log_mel.transform.get_scratch_len())
            ],
        }
    }

    /// Computes the given number of iterations from `sound`, and removes the padding.
    fn iterations(&self, buffers: &mut FrameBuffers, mut sound: Vec<f32>, iterations: usize) -> Vec<f32> {
        let mut previous = vec![Complex32::default(); self.magnitudes.len()];
        let mut next = sound.clone();
        for _ in 0..iterations {
            self.iterate(buffers, &mut previous, &sound, &mut next);
            std::mem::swap(&mut sound, &mut next);
        }
        sound.truncate(sound.len() - self.padding);
        sound.split_off(self.padding)
    }

    /// Fills `sound` with the initial audio, which has random phases.
    fn random_start(&self, buffers: &mut FrameBuffers, sound: &mut [f32]) {
        let key = Key::new(PHASE_SEED).with("phases");
        let bins = buffers.bins.len();
        for (t, magnitudes) in self.magnitudes.chunks_exact(bins).enumerate() {
            for (k, (bin, magnitude)) in buffers.bins.iter_mut().zip(magnitudes).enumerate() {
                let turn = key.at((t * bins + k) as u64).unit() as f32;
                *bin = Complex32::from_polar(*magnitude, std::f32::consts::TAU * turn);
            }
            self.overlap_add(buffers, t, sound);
        }
        self.finish(sound);
    }

    /// Computes one iteration from `sound` to `next`. `previous` holds the spectra of the last iteration, and
    /// afterwards the spectra of this iteration.
    fn iterate(&self, buffers: &mut FrameBuffers, previous: &mut [Complex32], sound: &[f32], next: &mut [f32]) {
        next.fill(0.0);
        let bins = buffers.bins.len();
        let spectra = previous.chunks_exact_mut(bins).zip(self.magnitudes.chunks_exact(bins));
        for (t, (previous, magnitudes)) in spectra.enumerate() {
            let seen = &sound[t * self.log_mel.config.hop_length..];
            for ((to, from), weight) in buffers.frame.iter_mut().zip(seen).zip(&self.log_mel.window) {
                *to = from * weight;
            }
            self.log_mel
                .transform
                .process_with_scratch(&mut buffers.frame, &mut buffers.bins, &mut buffers.scratch)
                .expect("the buffers fit both transforms");
            for ((bin, previous), magnitude) in buffers.bins.iter_mut().zip(previous).zip(magnitudes) {
                *bin = accelerate(*bin, previous, *magnitude);
            }
            self.overlap_add(buffers, t, next);
        }
        self.finish(next);
    }

    /// Adds frame `t`, given by the bins in `buffers`, to `sound`.
    fn overlap_add(&self, buffers: &mut FrameBuffers, t: usize, sound: &mut [f32]) {
        // The first bin, and the last of an even transform, must be real in the spectrum of a real signal.
        buffers.bins[0].im = 0.0;
        if let (0, Some(last)) = (buffers.frame.len() % 2, buffers.bins.last_mut()) {
            last.im = 0.0;
        }
        self.inverse
            .process_with_scratch(&mut buffers.bins, &mut buffers.frame, &mut buffers.scratch)
            .expect("the buffers fit both transforms");
        let seen = &mut sound[t * self.log_mel.config.hop_length..];
        for ((to, from), weight) in seen.iter_mut().zip(&buffers.frame).zip(&self.log_mel.window) {
            *to += from * weight;
        }
    }

    /// Returns `sound` with its padding on both sides.
    fn padded(&self, sound: &[f32]) -> Vec<f32> {
        let mut padded = vec![0.0; self.gains.len()];
        padded[self.padding..self.padding + sound.len()].copy_from_slice(sound);
        self.pad(&mut padded);
        padded
    }

    /// Multiplies the overlap-added samples by `gains`, and fills the padding.
    fn finish(&self, sound: &mut [f32]) {
        sound.iter_mut().zip(&self.gains).for_each(|(sample, gain)| *sample *= gain);
        self.pad(sound);
    }

    /// Fills the padding on both sides from the audio between, in the same way as feature extraction.
    fn pad(&self, sound: &mut [f32]) {
        let mirrored = self.log_mel.config.padding == Padding::Reflect;
        let (left, rest) = sound.split_at_mut(self.padding);
        let (inside, right) = rest.split_at_mut(rest.len() - self.padding);
        let (first, end) = (-(left.len() as isize), inside.len() as isize);
        left.iter_mut().zip(first..).for_each(|(sample, index)| *sample = sample_at(inside, index, mirrored));
        right.iter_mut().zip(end..).for_each(|(sample, index)| *sample = sample_at(inside, index, mirrored));
    }
}

/// Computes the magnitudes `[t, k]` (frames, frequency bins) of the first `frames` frames of `sound`.
pub(super) fn magnitudes(log_mel: &LogMel, sound: &[f32], frames: usize) -> Vec<f32> {
    let before = if log_mel.config.padding == Padding::None { 0 } else { log_mel.config.n_fft / 2 };
    let (mut frame, mut bins) = (log_mel.transform.make_input_vec(), log_mel.transform.make_output_vec());
    let mut scratch = log_mel.transform.make_scratch_vec();
    let mut magnitudes = Vec::with_capacity(frames * bins.len());
    for t in 0..frames {
        log_mel.windowed_frame(sound, (t * log_mel.config.hop_length) as isize - before as isize, &mut frame);
        log_mel
            .transform
            .process_with_scratch(&mut frame, &mut bins, &mut scratch)
            .expect("the buffers were made by the transform");
        magnitudes.extend(bins.iter().map(|bin| bin.norm_sqr().sqrt()));
    }
    magnitudes
}

/// Computes a frequency bin for the next iteration: it has the given `magnitude` and a phase that goes beyond that of
/// `found`, the current bin, away from `previous`, the bin of the last iteration. `found` replaces `previous`.
fn accelerate(found: Complex32, previous: &mut Complex32, magnitude: f32) -> Complex32 {
    let target = found * (1.0 + MOMENTUM) - *previous * MOMENTUM;
    *previous = found;
    // The smallest positive number avoids a division by zero.
    target * (magnitude / (target.norm_sqr() + f32::MIN_POSITIVE).sqrt())
}
