//! Formant synthesizer: glottal pulses and noise, filtered by resonances (after Klatt, 1980).

use crate::contour::Contour;
use crate::filter::{Notch, Resonator};
use crate::glottis::Glottis;
use crate::lexicon::{Lexicon, Word};
use crate::random::WhiteNoise;
use crate::targets::{FRAME_RATE, TargetSequence};
use crate::voice::Voice;
use plimsoll_core::Key;
use std::ops::Range;

/// Sample rate of all audio in a corpus, in hertz.
pub const SAMPLE_RATE: u32 = 16_000;

const RATE: f32 = SAMPLE_RATE as f32;
const FRAME_SAMPLES: usize = (RATE / FRAME_RATE) as usize;

/// Synthesized speech, and the position of each word in its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthesizedSpeech {
    /// Samples of the speech at [`SAMPLE_RATE`], without noise or room, with a peak of about one.
    pub samples: Vec<f32>,
    /// Index in the lexicon and sample range of each word.
    pub words: Vec<(usize, Range<usize>)>,
}

/// Speaks `words`, indices into [`Lexicon::english`], in the voice `voice`.
///
/// `key` determines everything that varies between sentences: pace, pitch, pauses and the length of every phone.
///
/// # Panics
/// When an index is not in the lexicon.
pub fn synthesize(words: &[usize], voice: &Voice, key: Key) -> SynthesizedSpeech {
    let lexicon = Lexicon::english().words();
    let spoken: Vec<&Word> = words.iter().map(|&word| &lexicon[word]).collect();
    let targets = TargetSequence::new(&spoken, voice, key.with("score"));
    let contour = Contour::new(&targets, voice, key.with("contour"));
    let samples = Tract::new(voice, key.with("noise")).speak(&contour);
    SynthesizedSpeech { samples, words: words.iter().copied().zip(targets.words.iter().map(samples_of)).collect() }
}

/// Returns the samples of a range of frames.
fn samples_of(frames: &Range<usize>) -> Range<usize> {
    frames.start * FRAME_SAMPLES..frames.end * FRAME_SAMPLES
}

/// Computes the samples of each word in the speech that [`synthesize`] makes of the same arguments, without making it.
pub(super) fn word_samples(words: &[usize], voice: &Voice, key: Key) -> Vec<Range<usize>> {
    let lexicon = Lexicon::english().words();
    let spoken: Vec<&Word> = words.iter().map(|&word| &lexicon[word]).collect();
    TargetSequence::new(&spoken, voice, key.with("score")).words.iter().map(samples_of).collect()
}

/// Computes the number of samples of the speech that [`synthesize`] makes of the same arguments, without making it.
pub(super) fn n_samples(words: &[usize], voice: &Voice, key: Key) -> usize {
    let lexicon = Lexicon::english().words();
    let spoken: Vec<&Word> = words.iter().map(|&word| &lexicon[word]).collect();
    TargetSequence::new(&spoken, voice, key.with("score")).n_frames() * FRAME_SAMPLES
}

/// Vocal tract: resonances in series for the glottal pulses, and one in parallel for the noise of the mouth.
struct Tract<'a> {
    voice: &'a Voice,
    glottis: Glottis,
    noise: WhiteNoise,
    nose: (Notch, Resonator),
    chain: [Resonator; 5],
    mouth: Resonator,
    last_hiss: f32,
}

/// Levels of voice, breath and frication noise at one moment.
#[derive(Clone, Copy)]
struct Levels {
    voicing: f32,
    aspiration: f32,
    frication: f32,
}

impl<'a> Tract<'a> {
    fn new(voice: &'a Voice, key: Key) -> Self {
        Self {
            voice,
            glottis: Glottis::new(voice, RATE),
            noise: WhiteNoise::new(key),
            nose: Default::default(),
            chain: Default::default(),
            mouth: Resonator::default(),
            last_hiss: 0.0,
        }
    }

    fn speak(mut self, contour: &Contour) -> Vec<f32> {
        let mut samples = Vec::with_capacity(contour.n_frames() * FRAME_SAMPLES);
        let mut before = levels(contour, 0);
        for frame in 0..contour.n_frames() {
            self.tune(contour, frame);
            let after = levels(contour, frame);
            for step in 0..FRAME_SAMPLES {
                let between = before.interpolate(after, step as f32 / FRAME_SAMPLES as f32);
                samples.push(self.sample(contour.pitch[frame], between));
            }
            before = after;
        }
        samples
    }

    /// Sets every resonance to its values in frame `frame` of `contour`.
    fn tune(&mut self, contour: &Contour, frame: usize) {
        let (voice, nasal) = (self.voice, contour.nasal[frame]);
        // Bandwidths after Klatt (1980); an open nose damps the mouth.
        let widths = [60.0 + 60.0 * nasal, 90.0 + 60.0 * nasal, 150.0, 250.0, 300.0].map(|w| w * voice.damping);
        let [first, second, third] = [0, 1, 2].map(|i| contour.formants[i][frame]);
        // Frequencies stay below half the sample rate for every voice.
        let places = [first, second, third, voice.high(3500.0), voice.high(4500.0).min(7200.0)];
        for (resonance, (hertz, width)) in self.chain.iter_mut().zip(places.into_iter().zip(widths)) {
            resonance.tune(hertz, width, RATE);
        }
        // With the nose closed, its notch and its resonance coincide and cancel.
        self.nose.0.tune(270.0 + 230.0 * nasal, 100.0, RATE);
        self.nose.1.tune(270.0, 100.0, RATE);
        self.mouth.tune(contour.peak[frame], contour.width[frame], RATE);
    }

    fn sample(&mut self, pitch: f32, levels: Levels) -> f32 {
        let source = self.glottis.next(pitch, &mut self.noise);
        let white = self.noise.draw();
        // These two levels were adjusted on spectrograms, next to those of espeak-ng with the same words.
        let breath = white * (0.2 * levels.aspiration + self.voice.breath * levels.voicing * source.gap);
        let mut sound = self.nose.1.pass(self.nose.0.pass(levels.voicing * source.flow + breath));
        for resonance in &mut self.chain {
            sound = resonance.pass(sound);
        }
        // Radiation from the lips raises noise of the mouth by 6 dB per octave, hence the difference.
        let hiss = self.mouth.peak(white - self.last_hiss);
        self.last_hiss = white;
        0.2 * sound + 0.12 * levels.frication * hiss
    }
}

impl Levels {
    fn interpolate(self, after: Self, share: f32) -> Self {
        let mix = |from: f32, to: f32| from + share * (to - from);
        Self {
            voicing: mix(self.voicing, after.voicing),
            aspiration: mix(self.aspiration, after.aspiration),
            frication: mix(self.frication, after.frication),
        }
    }
}

fn levels(contour: &Contour, frame: usize) -> Levels {
    Levels {
        voicing: contour.voicing[frame],
        aspiration: contour.aspiration[frame],
        frication: contour.frication[frame],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(spelling: &str) -> usize {
        Lexicon::english().words().iter().position(|word| word.spelling == spelling).unwrap()
    }

    /// Computes the share of the power of `samples` between `low` and `high` hertz, by a plain Fourier transform.
    fn share(samples: &[f32], low: usize, high: usize) -> f32 {
        let bin = |hertz: usize| {
            let angle = |n: usize| std::f32::consts::TAU * hertz as f32 * n as f32 / RATE;
            let (re, im) = samples
                .iter()
                .enumerate()
                .fold((0.0, 0.0), |(re, im), (n, s)| (re + s * angle(n).cos(), im + s * angle(n).sin()));
            re * re + im * im
        };
        let band = |low: usize, high: usize| (low..high).step_by(25).map(bin).sum::<f32>();
        band(low, high) / band(100, 8000)
    }

    #[test]
    fn vowels_and_fricatives_have_their_frequencies() {
        for speaker in 0..6 {
            let voice = Voice::new(8, speaker);
            let spoken = synthesize(&[word("six"), word("teach"), word("watch")], &voice, Key::new(1));
            let middle = |place: usize, along: f32| {
                let (_, range) = &spoken.words[place];
                let center = range.start + (along * range.len() as f32) as usize;
                &spoken.samples[center - 400..center + 400]
            };
            let (hiss, narrow, open) = (middle(0, 0.12), middle(1, 0.4), middle(2, 0.4));
            assert!(share(hiss, 4000, 8000) > 0.6, "the s of voice {speaker}: {}", share(hiss, 4000, 8000));
            assert!(share(narrow, 100, 600) > 0.6, "the ee of voice {speaker}: {}", share(narrow, 100, 600));
            assert!(share(open, 600, 1800) > 0.4, "the ah of voice {speaker}: {}", share(open, 600, 1800));
        }
    }

    #[test]
    fn words_lie_inside_the_samples_and_levels_stay_bounded() {
        for speaker in 0..40 {
            let spoken = synthesize(&[1, 20, 40, 60], &Voice::new(5, speaker), Key::new(speaker as u64));
            let loudest = spoken.samples.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
            assert!((0.05..3.0).contains(&loudest), "voice {speaker}: {loudest}");
            assert!(spoken.words[3].1.end < spoken.samples.len());
            assert!(spoken.samples[..400].iter().all(|&sample| sample == 0.0), "voice {speaker} starts at once");
        }
    }
}
