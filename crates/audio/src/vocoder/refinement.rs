//! Sound of a trained vocoder, brought nearer to its log-mels, in chunks.

use super::Vocoder;
use crate::features::{LogMelConfig, Padding};

/// Brings the sound of a trained vocoder nearer to the log-mels that it was made of, while it arrives.
///
/// A trained vocoder knows the single bins of the spectrum and the phases well, and the levels of the mel channels not
/// exactly. So its spectrum is scaled to the levels of the features, which keeps harmonics and the gaps between them; then
/// some iterations of Griffin-Lim, which begin with the phases of the sound, make neighboring frames agree.
///
/// The sound is computed in chunks, together with the frames around a chunk that its samples depend on. So the chunks do not
/// change it, and the memory of a computation does not grow with the length. Samples may exceed the range between -1 and 1
/// a little. Without iterations the sound stays as it is.
///
/// ```
/// use plimsoll_audio::{LogMel, LogMelConfig, Refinement, Vocoder};
///
/// let config = LogMelConfig::preset("myxtts").expect("a known preset");
/// let tone: Vec<f32> = (0..22_050).map(|n| 0.5 * (0.1 * n as f32).sin()).collect();
/// let features = LogMel::new(&config)?.extract(&tone);
/// let vocoder = Vocoder::new(&config)?.with_iterations(4);
/// let mut refinement = Refinement::new(&vocoder, 32);
/// let mut samples = refinement.push(&features, &tone);
/// samples.extend(refinement.finish());
/// assert!(samples.len().abs_diff(tone.len()) < config.hop_length);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Refinement<'a> {
    vocoder: &'a Vocoder,
    /// Frames of a chunk.
    chunk: usize,
    /// Log-mels from frame `first` on.
    features: Vec<f32>,
    /// Samples from that frame on.
    sound: Vec<f32>,
    /// Number of the first frame that is kept.
    first: usize,
    /// Number of frames whose sound is complete.
    done: usize,
}

impl<'a> Refinement<'a> {
    /// Starts a sound that is refined in chunks of `chunk` frames, by the iterations of `vocoder`.
    ///
    /// # Panics
    /// If `chunk` is 0.
    pub fn new(vocoder: &'a Vocoder, chunk: usize) -> Self {
        assert!(chunk > 0, "a chunk has at least one frame");
        Self { vocoder, chunk, features: Vec::new(), sound: Vec::new(), first: 0, done: 0 }
    }

    /// Returns the number of frames, before and after a frame, that its samples depend on.
    pub fn context_frames(&self) -> usize {
        let LogMelConfig { n_fft, win_length, hop_length, padding, .. } = *self.vocoder.config();
        // In each iteration a frame depends on the frames that its window meets. The first and the last frames of a part do
        // not know what lies beyond them, and without padding they begin before their window.
        let beyond = if padding == Padding::None { (n_fft - win_length) / 2 } else { 0 };
        (self.vocoder.iterations + 2) * win_length.div_ceil(hop_length) + beyond.div_ceil(hop_length)
    }

    /// Returns the most frames that are waiting after [`push`](Self::push): the delay.
    pub fn delay_frames(&self) -> usize {
        self.chunk + self.context_frames() - 1
    }

    /// Takes the next log-mels, whole frames one after the other, and the samples of a vocoder for as many frames. Returns the
    /// samples that are complete. Only the sound of the last call may be shorter or longer than its frames.
    ///
    /// # Panics
    /// If `features` end inside a frame.
    pub fn push(&mut self, features: &[f32], sound: &[f32]) -> Vec<f32> {
        let (width, hop) = (self.vocoder.config().n_mels, self.vocoder.config().hop_length);
        assert!(features.len().is_multiple_of(width), "{} values are not whole frames of {width}", features.len());
        self.features.extend_from_slice(features);
        self.sound.extend_from_slice(sound);
        let mut samples = Vec::new();
        while self.done + self.chunk + self.context_frames() <= self.frames() {
            samples.extend(self.compute(self.chunk));
        }
        // What no later sample depends on.
        let dropped = self.done.saturating_sub(self.context_frames()).saturating_sub(self.first);
        self.first += dropped;
        self.features.drain(..dropped * width);
        self.sound.drain(..(dropped * hop).min(self.sound.len()));
        samples
    }

    /// Ends the sound and returns its last samples.
    pub fn finish(mut self) -> Vec<f32> {
        let mut samples = Vec::new();
        while self.done < self.frames() {
            samples.extend(self.compute(self.chunk.min(self.frames() - self.done)));
        }
        samples
    }

    /// Returns the number of frames that have arrived.
    fn frames(&self) -> usize {
        self.first + self.features.len() / self.vocoder.config().n_mels
    }

    /// Computes the samples of the next `count` frames.
    fn compute(&mut self, count: usize) -> Vec<f32> {
        let (width, hop) = (self.vocoder.config().n_mels, self.vocoder.config().hop_length);
        let start = self.done.saturating_sub(self.context_frames()).max(self.first);
        let until = (self.done + count + self.context_frames()).min(self.frames());
        let features = &self.features[(start - self.first) * width..(until - self.first) * width];
        let sound = &self.sound[((start - self.first) * hop).min(self.sound.len())..];
        let is_last = until == self.frames();
        let sound = if is_last { sound } else { &sound[..((until - start) * hop).min(sound.len())] };
        let mut samples = self.vocoder.refined(features, sound);
        let from = (self.done - start) * hop;
        self.done += count;
        if self.done < self.frames() {
            samples.truncate(from + count * hop);
        }
        samples.drain(..from.min(samples.len()));
        samples
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LogMel;
    use crate::testing::tone;

    fn config() -> LogMelConfig {
        LogMelConfig { n_mels: 40, ..LogMelConfig::preset("myxtts").unwrap() }
    }

    /// Makes a sound of two tones and noise.
    fn sound(seconds: f64) -> Vec<f32> {
        let key = plimsoll_core::Key::new(4);
        let noise = |n: usize| 0.02 * (key.at(n as u64).unit() as f32 - 0.5);
        let pairs = tone(220.0, seconds, 22_050).into_iter().zip(tone(1_330.0, seconds, 22_050));
        pairs.enumerate().map(|(n, (low, high))| 0.3 * low + 0.1 * high + noise(n)).collect()
    }

    fn refined(vocoder: &Vocoder, chunk: usize, features: &[f32], sound: &[f32], pushed: usize) -> Vec<f32> {
        let (width, hop) = (vocoder.config().n_mels, vocoder.config().hop_length);
        let mut refinement = Refinement::new(vocoder, chunk);
        let frames = features.len() / width;
        let mut samples = Vec::new();
        for from in (0..frames).step_by(pushed) {
            let to = (from + pushed).min(frames);
            let end = if to == frames { sound.len() } else { to * hop };
            samples.extend(refinement.push(&features[from * width..to * width], &sound[from * hop..end]));
        }
        samples.extend(refinement.finish());
        samples
    }

    fn distance(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32
    }

    #[test]
    fn wrong_levels_become_right_and_right_ones_stay() {
        let log_mel = LogMel::new(&config()).unwrap();
        let truth = sound(0.6);
        let features = log_mel.extract(&truth);
        let vocoder = Vocoder::new(&config()).unwrap().with_iterations(8);
        // Another vocoder has the phases, and levels that are wrong by up to 6 dB.
        let wrong: Vec<f32> =
            truth.iter().enumerate().map(|(n, x)| x * (1.0 + 0.9 * (n as f32 / 2_000.0).sin())).collect();
        let found =
            |start: &[f32]| distance(&log_mel.extract(&refined(&vocoder, 500, &features, start, 500)), &features);
        let before = distance(&log_mel.extract(&wrong), &features);
        let (from_wrong, from_truth) = (found(&wrong), found(&truth));
        println!("{before} nats before, {from_wrong} after; {from_truth} from the truth");
        assert!(from_wrong < 0.3 * before, "{before} nats before, {from_wrong} after");
        assert!(from_truth < 0.02, "{from_truth} nats from the truth");
    }

    #[test]
    fn a_broken_model_gives_finite_samples() {
        let vocoder = Vocoder::new(&config()).unwrap().with_iterations(2);
        for (value, sample) in [(f32::NAN, f32::NAN), (f32::INFINITY, 1.0), (-3.0, f32::INFINITY)] {
            let samples = refined(&vocoder, 8, &[value; 40 * 20], &vec![sample; 20 * vocoder.config().hop_length], 20);
            assert!(samples.iter().all(|sample| sample.is_finite()), "{value} {sample}");
        }
        assert!(Refinement::new(&vocoder, 1).finish().is_empty());
    }

    proptest! {
        #[test]
        fn chunks_change_nothing(
            chunk in 1usize..60, pushed in 1usize..60, iterations in 0usize..4, seconds in 0.1..0.6f64,
            padding in prop::sample::select(vec![Padding::Reflect, Padding::Constant, Padding::None]),
            win_length in prop::sample::select(vec![300usize, 1024]),
        ) {
            let config = LogMelConfig { padding, win_length, hop_length: 150, ..config() };
            let truth = sound(seconds);
            let features = LogMel::new(&config).unwrap().extract(&truth);
            let vocoder = Vocoder::new(&config).unwrap().with_iterations(iterations);
            let whole = refined(&vocoder, 10_000, &features, &truth, 10_000);
            let parts = refined(&vocoder, chunk, &features, &truth, pushed);
            prop_assert_eq!(parts.len(), whole.len());
            let worst = parts.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(worst < 1e-5, "{} apart", worst);
        }
    }
}
