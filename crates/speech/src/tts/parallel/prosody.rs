//! Prosody: a few numbers for each token that say how it is spoken.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_audio::PitchTables;
use plimsoll_layers::{ConvNext, ConvNextConfig, Lengths};
use plimsoll_tape::Pass;
use plimsoll_tape::transfer::from_host;

use super::ParallelConfig;
use super::durations::SharedFrames;
use super::pitch::{OCTAVE_SCALE, PitchFinder};
use super::tokens::{EncodedTokens, stack};

// Shapes: b texts, k tokens, t frames, f features, p prosody.

/// Normalized log-mel below which nothing counts for the pitch: the mean of all.
const AUDIBLE: f32 = 0.0;
/// Standard deviation of the noise on pitch and energy, as a share of that on learned values: half a semitone, and a twelfth of the spread
/// of log-mels, beside a noise of 0.6. With more, the decoder hardly follows what a person asks for.
const STEERED_NOISE: f64 = 0.13;
/// Number of coins that are tossed for the noise of a value; their sum is nearly normal.
const COINS: usize = 3;

/// How each token is spoken, as numbers of which most lie between -1 and 1.
///
/// In a model that knows pitch the first two are pitch and energy, found by a formula. The others are whatever describes best how the
/// frames of a token differ from those that the text alone lets expect; they are learned, from frames without their pitch and energy if those
/// have numbers of their own. In training all come from the mean of the true frames of a token. A predictor learns them from the text, and
/// generation takes what it predicts. So the decoder need not average over all ways in which a text can be spoken, which would blur its frames.
/// Noise on the true values teaches the decoder to trust them no more than predicted ones, which are less exact.
#[derive(Module, Debug)]
pub(super) struct Prosody {
    from_frames: Option<Linear>,
    found: Option<Linear>,
    to_text: Linear,
    harmonics_to_text: Option<Linear>,
    block: ConvNext,
    predicted: Linear,
    #[module(skip)]
    pitch: Option<PitchFinder>,
    #[module(skip)]
    noise: f64,
}

impl Prosody {
    /// Makes the part of `config`; `None` if it has no prosody.
    pub(super) fn init(config: &ParallelConfig, device: &Device) -> Option<Self> {
        let &ParallelConfig { features, text_dim: text, prosody_dim: learned, dropout, .. } = config;
        let inner = text * config.feed_forward_multiplier;
        let linear = |from: usize, to: usize| LinearConfig::new(from, to).init(device);
        let width = config.prosody_width();
        (width > 0).then(|| Self {
            from_frames: (learned > 0).then(|| linear(features, text)),
            found: (learned > 0).then(|| linear(text, learned)),
            to_text: linear(width, text),
            harmonics_to_text: config.pitch_harmonics.then(|| linear(features, text)),
            block: ConvNextConfig { d_model: text, inner, kernel: config.text_kernel, dropout }.init(device),
            predicted: linear(text, width),
            pitch: config.pitch.as_ref().map(PitchFinder::new),
            noise: config.prosody_noise,
        })
    }

    /// Finds the prosody `[b, k, p]` of true frames `target` `[b, t, f]` that are shared among tokens.
    pub(super) fn find(&self, target: Tensor<3>, frames: &SharedFrames, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with("prosody");
        let (expansion, shares) = (&frames.expansion, frames.shares());
        let mean = |frames: Tensor<3>| expansion.clone().swap_dims(1, 2).matmul(frames) * shares.clone();
        let mut means = mean(target.clone());
        let mut parts = Vec::new();
        if let Some(pitch) = &self.pitch {
            let counts = expansion.clone().sum_dim(1).swap_dims(1, 2);
            parts.push(pitch.find(mean(target.clamp_min(AUDIBLE)), &counts));
            let energy = means.clone().mean_dim(2);
            parts.push(energy.clone());
            means = pitch.without_harmonics(means) - energy;
        }
        if let (Some(from_frames), Some(found)) = (&self.from_frames, &self.found) {
            let x = pass.at_least_fp32(pass.dense(from_frames, means)).tanh();
            parts.push(pass.at_least_fp32(pass.dense(found, x)).tanh());
        }
        Tensor::cat(parts, 2)
    }

    /// Finds the pitch `[b, 1, 1]` of voices in their references `[b, r, f]`.
    ///
    /// # Panics
    /// If the model knows no pitch.
    pub(super) fn pitch_of_voice(&self, references: Tensor<3>, lengths: &Lengths) -> Tensor<3> {
        let pitch = self.pitch.as_ref().expect("a voice has a pitch in models that know it");
        pitch.mean(references.clamp_min(AUDIBLE), lengths)
    }

    /// Predicts the prosody `[b, k, p]` of a text from vectors of its tokens.
    pub(super) fn predict(&self, vectors: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with("prosody").with("predicted");
        let x = stack(std::slice::from_ref(&self.block), vectors, lengths, pass);
        let x = pass.at_least_fp32(pass.dense(&self.predicted, x));
        let steered = self.steered_values();
        match steered {
            0 => x.tanh(),
            _ if steered == x.dims()[2] => x,
            _ => {
                let [_, _, p] = x.dims();
                Tensor::cat(vec![x.clone().narrow(2, 0, steered), x.narrow(2, steered, p - steered).tanh()], 2)
            }
        }
    }

    /// Returns the tables of pitch; `None` for a part without pitch.
    pub(super) fn pitch_tables(&self) -> Option<&PitchTables> {
        self.pitch.as_ref().map(PitchFinder::tables)
    }

    /// Returns the number of values that a formula finds and a person can change: pitch and energy, or none.
    fn steered_values(&self) -> usize {
        if self.pitch.is_some() { 2 } else { 0 }
    }

    /// Adds noise of training to found values.
    pub(super) fn with_noise(&self, found: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let pass = &pass.with("prosody").with("noise");
        if !pass.noise().is_on() || self.noise == 0.0 {
            return found;
        }
        let [_, _, p] = found.dims();
        let device = found.device();
        let steered = self.steered_values();
        let ones = from_host([1, 1, 1], &device, || vec![1.0]).expand(found.dims());
        // Each coin is 0 or 2.
        let coins = (0..COINS).map(|n| pass.at(n).dropout(ones.clone(), 0.5)).reduce(|sum, coin| sum + coin);
        let noise = coins.expect("there are coins") - COINS as f64;
        let deviations = from_host([1, 1, p], &device, || {
            let deviation = |n| if n < steered { self.noise * STEERED_NOISE } else { self.noise };
            (0..p).map(|n| (deviation(n) / (COINS as f64).sqrt()) as f32).collect()
        });
        found + noise * deviations
    }

    /// Changes the pitch of a prosody `[b, k, p]` by `octaves`, and its energy by `levels`, in deviations of normalized log-mels. A model
    /// without pitch stays as it is.
    pub(super) fn steered(&self, prosody: Tensor<3>, octaves: f64, levels: f64) -> Tensor<3> {
        if self.pitch.is_none() || (octaves == 0.0 && levels == 0.0) {
            return prosody;
        }
        let [_, _, p] = prosody.dims();
        let device = prosody.device();
        let change = from_host([1, 1, p], &device, || {
            let own = [(octaves * OCTAVE_SCALE) as f32, levels as f32];
            own.into_iter().chain(std::iter::repeat(0.0)).take(p).collect()
        });
        prosody + change
    }

    /// Adds a prosody to the vectors of a text: its values, and where the harmonics of its pitch are in a frame. From the pitch as a number the
    /// decoder would have to learn that by itself.
    pub(super) fn add(&self, text: EncodedTokens, prosody: Tensor<3>, pass: &Pass) -> EncodedTokens {
        let mut vectors = text.vectors + pass.at_least_fp32(pass.dense(&self.to_text, prosody.clone()));
        if let (Some(link), Some(pitch)) = (&self.harmonics_to_text, &self.pitch) {
            let harmonics = pitch.harmonics(prosody.narrow(2, 0, 1));
            vectors = vectors + pass.at_least_fp32(pass.dense(link, harmonics));
        }
        EncodedTokens { vectors, ..text }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_audio::{LogMelConfig, MelAxis};
    use plimsoll_core::{Choice, Key, SampleId};
    use plimsoll_tape::Noise;

    use super::super::durations::Durations;
    use super::*;

    fn prosody() -> Prosody {
        let axis = MelAxis::of(&LogMelConfig { n_mels: 10, f_max: Some(1500.0), ..LogMelConfig::default() });
        let config = ParallelConfig {
            prosody_dim: 2,
            prosody_noise: 0.5,
            pitch: Some(axis),
            ..ParallelConfig::recommended(10, 9, 16, 1)
        };
        Prosody::init(&config, &Device::flex()).unwrap()
    }

    fn values(tensor: Tensor<3>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn a_change_adds_octaves_to_the_pitch_and_levels_to_the_energy_alone() {
        let before = Tensor::<3>::from_data([[[0.5, -0.25, 0.1, 0.2], [0.0, 1.0, 0.3, 0.4]]], &Device::flex());
        let after = values(prosody().steered(before.clone(), -0.5, 0.75));
        let octave = OCTAVE_SCALE as f32;
        let expected = [0.5 - 0.5 * octave, 0.5, 0.1, 0.2, -0.5 * octave, 1.75, 0.3, 0.4];
        assert!(after.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{after:?}");
        assert_eq!(values(prosody().steered(before.clone(), 0.0, 0.0)), values(before));
    }

    #[test]
    fn energy_is_the_mean_level_and_the_rest_does_not_hear_it() {
        let (device, part) = (Device::flex(), prosody());
        let frames: Vec<f32> = (0..60).map(|n| Key::new(5).at(n).unit() as f32 - 0.5).collect();
        let target = Tensor::<1>::from_floats(frames.as_slice(), &device).reshape([1, 6, 10]);
        let shared = Durations { frames: vec![vec![2, 4]] }.shared(2, 6, &device);
        let find = |target: Tensor<3>| values(part.find(target, &shared, &Pass::plain()));
        let (plain, louder) = (find(target.clone()), find(target + 0.5));
        let mean = |frames: &[f32]| frames.iter().sum::<f32>() / frames.len() as f32;
        for (token, own) in [&frames[..20], &frames[20..]].into_iter().enumerate() {
            assert!((plain[token * 4 + 1] - mean(own)).abs() < 1e-5);
            assert!((louder[token * 4 + 1] - plain[token * 4 + 1] - 0.5).abs() < 1e-5);
            for learned in 2..4 {
                assert!((louder[token * 4 + learned] - plain[token * 4 + learned]).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn noise_is_that_of_training_and_of_the_utterance() {
        let ids: Vec<SampleId> = (0..40).map(SampleId).collect();
        let pass = |ids: &[SampleId]| Pass::new(Choice::default(), Noise::new(Key::new(1), ids));
        let nothing = |texts: usize| Tensor::<3>::zeros([texts, 50, 4], &Device::flex());
        let noise = values(prosody().with_noise(nothing(40), &pass(&ids)));
        let spread = |value: usize| {
            let all: Vec<f64> = noise.iter().skip(value).step_by(4).map(|&x| f64::from(x)).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            assert!(mean.abs() < 0.05, "{mean}");
            (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt()
        };
        let steered = 0.5 * STEERED_NOISE;
        for (value, expected) in [steered, steered, 0.5, 0.5].into_iter().enumerate() {
            assert!((spread(value) / expected - 1.0).abs() < 0.1, "{value}: {}", spread(value));
        }
        let alone = values(prosody().with_noise(nothing(1), &pass(&ids[7..8])));
        assert_eq!(alone, noise[7 * 200..8 * 200]);
        assert!(values(prosody().with_noise(nothing(1), &Pass::plain())).iter().all(|&x| x == 0.0));
    }
}
