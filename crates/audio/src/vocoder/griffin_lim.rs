//! Phases for magnitudes: fast Griffin-Lim (Perraudin, Balazs and Søndergaard, 2013).
//!
//! A round makes sound of the spectra, by adding up their overlapping frames, and spectra of the sound again. These have
//! phases that fit together, and the wrong magnitudes; so the phases are kept, the magnitudes put back, and the next
//! round begins. The fast form goes on a little further in the direction of the last change.

use plimsoll_core::Key;
use realfft::ComplexToReal;
use realfft::num_complex::Complex32;

use crate::features::{LogMel, Padding, at};

/// How much further to go; 0.99 is what the paper found best.
const MOMENTUM: f32 = 0.99;

/// Where the squared windows add up to less than this share of the most they do anywhere, they are not divided by: so
/// little is seen there of the first and last samples that the sound would be mostly error.
const LEAST_SEEN: f32 = 0.01;

/// Any number would do, as long as it stays.
const FIRST_PHASES: u64 = 1984;

/// Magnitudes on their way to sound.
pub(super) struct GriffinLim<'a> {
    log_mel: &'a LogMel,
    inverse: &'a dyn ComplexToReal<f32>,
    magnitudes: &'a [f32],
    /// Padding before the sound, and after it.
    padding: usize,
    /// What to multiply each sample of added-up frames by.
    scales: Vec<f32>,
}

/// Space for one frame on its way.
struct Desk {
    frame: Vec<f32>,
    bins: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl<'a> GriffinLim<'a> {
    /// For a sound of `length` samples with these `magnitudes` `[t, k]`.
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
        let least = LEAST_SEEN * sums.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        // The inverse transform is not divided by its length.
        let scales = sums.iter().map(|sum| 1.0 / (n_fft as f32 * sum.max(least))).collect();
        Self { log_mel, inverse, magnitudes, padding, scales }
    }

    /// The sound after so many rounds.
    pub(super) fn run(&self, iterations: usize) -> Vec<f32> {
        let mut desk = Desk {
            frame: self.inverse.make_output_vec(),
            bins: self.inverse.make_input_vec(),
            scratch: vec![
                Complex32::default();
                self.inverse.get_scratch_len().max(self.log_mel.transform.get_scratch_len())
            ],
        };
        let mut before = vec![Complex32::default(); self.magnitudes.len()];
        let mut sound = vec![0.0; self.scales.len()];
        let mut next = sound.clone();
        self.begin(&mut desk, &mut sound);
        for _ in 0..iterations {
            self.round(&mut desk, &mut before, &sound, &mut next);
            std::mem::swap(&mut sound, &mut next);
        }
        sound.truncate(sound.len() - self.padding);
        sound.split_off(self.padding)
    }

    /// A first sound, with random phases.
    fn begin(&self, desk: &mut Desk, sound: &mut [f32]) {
        let key = Key::new(FIRST_PHASES).with("phases");
        let bins = desk.bins.len();
        for (t, magnitudes) in self.magnitudes.chunks_exact(bins).enumerate() {
            for (k, (bin, magnitude)) in desk.bins.iter_mut().zip(magnitudes).enumerate() {
                let turn = key.at((t * bins + k) as u64).unit() as f32;
                *bin = Complex32::from_polar(*magnitude, std::f32::consts::TAU * turn);
            }
            self.add(desk, t, sound);
        }
        self.finish(sound);
    }

    /// One round, from `sound` to the `next`; `before` holds the spectra of the last round, then those of this one.
    fn round(&self, desk: &mut Desk, before: &mut [Complex32], sound: &[f32], next: &mut [f32]) {
        next.fill(0.0);
        let bins = desk.bins.len();
        let spectra = before.chunks_exact_mut(bins).zip(self.magnitudes.chunks_exact(bins));
        for (t, (before, magnitudes)) in spectra.enumerate() {
            let seen = &sound[t * self.log_mel.config.hop_length..];
            for ((to, from), weight) in desk.frame.iter_mut().zip(seen).zip(&self.log_mel.window) {
                *to = from * weight;
            }
            self.log_mel
                .transform
                .process_with_scratch(&mut desk.frame, &mut desk.bins, &mut desk.scratch)
                .expect("the desk fits both transforms");
            for ((bin, before), magnitude) in desk.bins.iter_mut().zip(before).zip(magnitudes) {
                *bin = further(*bin, before, *magnitude);
            }
            self.add(desk, t, next);
        }
        self.finish(next);
    }

    /// Adds the desk's bins to the sound as frame `t`.
    fn add(&self, desk: &mut Desk, t: usize, sound: &mut [f32]) {
        // These are their own mirror images, so only their real parts can be part of a sound.
        desk.bins[0].im = 0.0;
        if let (0, Some(last)) = (desk.frame.len() % 2, desk.bins.last_mut()) {
            last.im = 0.0;
        }
        self.inverse
            .process_with_scratch(&mut desk.bins, &mut desk.frame, &mut desk.scratch)
            .expect("the desk fits both transforms");
        let seen = &mut sound[t * self.log_mel.config.hop_length..];
        for ((to, from), weight) in seen.iter_mut().zip(&desk.frame).zip(&self.log_mel.window) {
            *to += from * weight;
        }
    }

    /// Evens out how often each sample was seen, and puts the padding where it belongs.
    fn finish(&self, sound: &mut [f32]) {
        sound.iter_mut().zip(&self.scales).for_each(|(sample, scale)| *sample *= scale);
        let mirrored = self.log_mel.config.padding == Padding::Reflect;
        let (left, rest) = sound.split_at_mut(self.padding);
        let (inside, right) = rest.split_at_mut(rest.len() - self.padding);
        let (first, end) = (-(left.len() as isize), inside.len() as isize);
        left.iter_mut().zip(first..).for_each(|(sample, index)| *sample = at(inside, index, mirrored));
        right.iter_mut().zip(end..).for_each(|(sample, index)| *sample = at(inside, index, mirrored));
    }
}

/// A bin of the right `magnitude` in the direction of `found`, and a little away from the one `before`.
fn further(found: Complex32, before: &mut Complex32, magnitude: f32) -> Complex32 {
    let ahead = found * (1.0 + MOMENTUM) - *before * MOMENTUM;
    *before = found;
    // The smallest of numbers keeps a bin of zero from being divided by zero.
    ahead * (magnitude / (ahead.norm_sqr() + f32::MIN_POSITIVE).sqrt())
}
