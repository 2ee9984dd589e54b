//! Finds the pitch of tokens in the log-mels of their frames.

use std::sync::Arc;

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use plimsoll_audio::{MelAxis, PitchTables};
use plimsoll_layers::Lengths;
use plimsoll_tape::transfer::from_host;

// Shapes: b texts, k tokens, f features, c pitches.

/// Scale of octaves above 160 Hz in a prosody, so that the pitch of a voice spreads about as much as its energy does.
pub(super) const OCTAVE_SCALE: f64 = 2.0;
/// Fit of a pitch from which a token begins to count as voiced, and that of a voice beyond doubt.
const VOICED: [f64; 2] = [0.5, 0.65];
/// Weight of what is usual in an utterance beside the fit.
const USUAL: f64 = 0.15;
/// Sharpness of the choice between pitches: the best counts nearly alone.
const SHARPNESS: f64 = 80.0;
/// Sharpness of the choice of the usual pitch.
const USUAL_SHARPNESS: f64 = 40.0;
/// Sharpness of the choice of pitches beside a given one: a pitch of the table half a step away, a quarter of a semitone, counts as 0.6.
const NEAR_SHARPNESS: f64 = 1152.0;
/// Length of details below which nothing is heard.
const NOTHING: f32 = 1e-3;

/// Finds the pitch of tokens in their mean frames.
#[derive(Clone, Debug)]
pub(super) struct PitchFinder {
    tables: Arc<PitchTables>,
}

impl PitchFinder {
    /// Prepares the tables of an axis that was checked.
    pub(super) fn new(axis: &MelAxis) -> Self {
        let tables = axis.pitch_tables().expect("the axis was checked");
        Self { tables: Arc::new(tables) }
    }

    /// Returns the tables.
    pub(super) fn tables(&self) -> &PitchTables {
        &self.tables
    }

    /// Finds the pitch `[b, k, 1]`, in scaled octaves, of tokens with these mean frames `[b, k, f]`, and so many frames `[b, k, 1]`.
    ///
    /// A pitch fits if its harmonics are where those of the frame are. Half and double the pitch fit nearly as well, so what is
    /// usual in the utterance decides between them. A token without voice has the usual pitch.
    pub(super) fn find(&self, means: Tensor<3>, frames: &Tensor<3>) -> Tensor<3> {
        let [_, _, f] = means.dims();
        let (device, c) = (means.device(), self.tables.octaves.len());
        let table = |values: &[f32], rows: usize| table(values, rows, &device);
        let details = means.matmul(table(&self.tables.details, f));
        let length = details.clone().square().sum_dim(2).sqrt().clamp_min(NOTHING);
        let fits = (details / length).matmul(table(&self.tables.templates, f));
        let heard = (fits.clone().clamp_min(0.0).square() * frames.clone()).sum_dim(1);
        let common = heard.matmul(table(&self.tables.near, c));
        let highest = common.clone().max_dim(2).clamp_min(f32::MIN_POSITIVE);
        let usual = softmax(common / highest * USUAL_SHARPNESS, 2);
        let prior = usual.clone().matmul(table(&self.tables.unlikely, c)) * USUAL;
        let chosen = softmax((fits.clone() + prior) * SHARPNESS, 2);
        let octaves = table(&self.tables.octaves, c);
        let fit = (chosen.clone() * fits).sum_dim(2);
        let voiced = ((fit - VOICED[0]) / (VOICED[1] - VOICED[0])).clamp(0.0, 1.0);
        let usual = usual.matmul(octaves.clone());
        let own = chosen.matmul(octaves) - usual.clone();
        (own * voiced + usual) * OCTAVE_SCALE
    }

    /// Finds the mean pitch `[b, 1, 1]`, in scaled octaves, of recordings with these frames `[b, t, f]`. Frames without voice have the usual
    /// pitch, and padding does not count.
    pub(super) fn mean(&self, frames: Tensor<3>, lengths: &Lengths) -> Tensor<3> {
        let [b, t, _] = frames.dims();
        let shares = from_host([b, t, 1], &frames.device(), || {
            let row = |&valid: &u32| {
                let share = 1.0 / valid.max(1) as f32;
                (0..t).map(move |frame| if frame < valid as usize { share } else { 0.0 })
            };
            lengths.each().iter().flat_map(row).collect()
        });
        (self.find(frames, &shares) * shares).sum_dim(1)
    }

    /// Returns the harmonics `[b, k, f]` of pitches `[b, k, 1]` in scaled octaves: details of a frame, of which most lie between -2 and 2.
    pub(super) fn harmonics(&self, pitch: Tensor<3>) -> Tensor<3> {
        let device = pitch.device();
        let f = self.tables.templates.len() / self.tables.octaves.len();
        let away = pitch / OCTAVE_SCALE - table(&self.tables.octaves, 1, &device);
        let near = softmax(away.square() * -NEAR_SHARPNESS, 2);
        // A template has the length 1.
        near.matmul(table(&self.tables.templates, f, &device).swap_dims(1, 2)) * (f as f64).sqrt()
    }

    /// Returns frames `[b, k, f]` without what harmonics make of them.
    pub(super) fn without_harmonics(&self, frames: Tensor<3>) -> Tensor<3> {
        let [_, _, f] = frames.dims();
        let details = table(&self.tables.details, f, &frames.device());
        frames.clone() - frames.matmul(details)
    }
}

/// Sends a table with this number of rows to `device`, as `[1, rows, columns]`.
fn table(values: &[f32], rows: usize, device: &Device) -> Tensor<3> {
    from_host([1, rows, values.len() / rows], device, || values.to_vec())
}

#[cfg(test)]
mod tests {
    use plimsoll_audio::{LogMel, LogMelConfig};

    use super::*;

    /// Returns half a second of a vowel, in samples at 16 kHz.
    fn vowel(hertz: f64) -> Vec<f32> {
        let harmonics = (8000.0 / hertz) as usize;
        let at = |n: usize, k: usize| (std::f64::consts::TAU * k as f64 * hertz * n as f64 / 16_000.0 + k as f64).sin();
        (0..8000).map(|n| ((1..=harmonics).map(|k| at(n, k) / k as f64).sum::<f64>() * 0.1) as f32).collect()
    }

    /// Returns half a second of noise.
    fn noise() -> Vec<f32> {
        let key = plimsoll_core::Key::new(1);
        (0..8000).map(|n| (key.at(n).unit() as f32 - 0.5) * 0.1).collect()
    }

    fn features() -> LogMelConfig {
        LogMelConfig {
            sample_rate: 16_000,
            hop_length: 200,
            win_length: 800,
            ..LogMelConfig::preset("myxtts").unwrap()
        }
    }

    /// Returns the audible frames of a recording of sounds, and what features they are.
    fn frames_of(sounds: &[Vec<f32>]) -> (Vec<f32>, LogMelConfig) {
        let features = features();
        let frames = LogMel::new(&features).unwrap().extract(&sounds.concat());
        let mean = frames.iter().sum::<f32>() / frames.len() as f32;
        (frames.iter().map(|x| (x - mean).max(0.0)).collect(), features)
    }

    /// Returns the mean pitch in octaves above 160 Hz of recordings of `width` frames, of which these are valid.
    fn mean_of(frames: &[f32], valid: &[usize], width: usize, features: &LogMelConfig) -> Vec<f32> {
        let shape = [valid.len(), width, features.n_mels];
        let frames = from_host(shape, &Device::flex(), || frames.to_vec());
        let lengths = Lengths::new(valid.iter().map(|&count| count as u32).collect(), width);
        let pitch = PitchFinder::new(&MelAxis::of(features)).mean(frames, &lengths) / OCTAVE_SCALE;
        pitch.into_data().try_into_vec().unwrap()
    }

    /// Returns the pitch in octaves above 160 Hz of sounds that are the tokens of one utterance.
    fn found(sounds: &[Vec<f32>]) -> Vec<f32> {
        let features = features();
        let log_mel = LogMel::new(&features).unwrap();
        let frames: Vec<Vec<f32>> = sounds.iter().map(|sound| log_mel.extract(sound)).collect();
        let values: Vec<f32> = frames.concat();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let mean_of = |frames: &Vec<f32>| -> Vec<f32> {
            let count = (frames.len() / 80) as f32;
            (0..80)
                .map(|m| frames.iter().skip(m).step_by(80).map(|x| (x - mean).max(0.0)).sum::<f32>() / count)
                .collect()
        };
        let device = Device::flex();
        let send = |values: Vec<f32>, width: usize| from_host([1, sounds.len(), width], &device, || values.clone());
        let counts = frames.iter().map(|frames| (frames.len() / 80) as f32).collect();
        let means = send(frames.iter().flat_map(mean_of).collect(), 80);
        let pitch = PitchFinder::new(&MelAxis::of(&features)).find(means, &send(counts, 1)) / OCTAVE_SCALE;
        pitch.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn tokens_have_the_pitch_of_their_frames_and_noise_has_the_usual_one() {
        for usual in [90.0, 130.0, 210.0] {
            let hertz = [usual, usual * 1.2, usual / 1.15];
            let sounds = [vowel(hertz[0]), vowel(hertz[1]), noise(), vowel(hertz[2])];
            let octaves = found(&sounds);
            for (found, hertz) in [(octaves[0], hertz[0]), (octaves[1], hertz[1]), (octaves[3], hertz[2])] {
                let off = 12.0 * (f64::from(found) - (hertz / 160.0).log2());
                assert!(off.abs() < 1.0, "{hertz} Hz, usual {usual}: {off} semitones off");
            }
            let off = 12.0 * (f64::from(octaves[2]) - (usual / 160.0).log2());
            assert!(off.abs() < 4.0, "noise beside {usual} Hz: {off} semitones");
        }
    }

    #[test]
    fn harmonics_of_a_pitch_have_that_pitch() {
        let finder = PitchFinder::new(&MelAxis::of(&features()));
        // From 90 to 380 Hz.
        let octaves: Vec<f32> = (0..40).map(|n| -0.83 + n as f32 * 0.052).collect();
        let device = Device::flex();
        let pitch = from_host([40, 1, 1], &device, || octaves.clone()) * OCTAVE_SCALE;
        let harmonics = finder.harmonics(pitch);
        let ones = from_host([40, 1, 1], &device, || vec![1.0; 40]);
        let found: Vec<f32> = (finder.find(harmonics, &ones) / OCTAVE_SCALE).into_data().try_into_vec().unwrap();
        for (found, pitch) in found.iter().zip(&octaves) {
            assert!((found - pitch).abs() < 0.5 / 12.0, "{pitch}: {found}");
        }
    }

    #[test]
    fn a_recording_has_the_mean_pitch_of_its_sounds_and_padding_does_not_count() {
        for usual in [90.0, 130.0, 210.0] {
            let sounds = [vowel(usual * 1.1), vowel(usual), noise(), vowel(usual / 1.1)];
            let (frames, features) = frames_of(&sounds);
            let count = frames.len() / features.n_mels;
            // The same with a loud end that is padding.
            let padded = [frames.clone(), vec![3.0; count / 2 * features.n_mels]].concat();
            let alone = mean_of(&frames, &[count], count, &features);
            let both = mean_of(&[padded.clone(), padded].concat(), &[count, count], count + count / 2, &features);
            let off = 12.0 * (f64::from(alone[0]) - (usual / 160.0).log2());
            assert!(off.abs() < 1.0, "{usual} Hz: {off} semitones off");
            assert!(both.iter().all(|octaves| (octaves - alone[0]).abs() < 1e-4), "{both:?} {alone:?}");
        }
    }

    #[test]
    fn silence_has_a_finite_pitch() {
        assert!(found(&[vec![0.0; 4000], vec![0.0; 4000]]).iter().all(|octaves| octaves.is_finite()));
    }
}
