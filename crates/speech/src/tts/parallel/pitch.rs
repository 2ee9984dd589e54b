//! Finds the pitch of tokens in the log-mels of their frames.

use std::sync::Arc;

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use plimsoll_audio::{MelAxis, PitchTables};
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

    /// Returns the pitch in octaves above 160 Hz of sounds that are the tokens of one utterance.
    fn found(sounds: &[Vec<f32>]) -> Vec<f32> {
        let features = LogMelConfig {
            sample_rate: 16_000,
            hop_length: 200,
            win_length: 800,
            ..LogMelConfig::preset("myxtts").unwrap()
        };
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
    fn silence_has_a_finite_pitch() {
        assert!(found(&[vec![0.0; 4000], vec![0.0; 4000]]).iter().all(|octaves| octaves.is_finite()));
    }
}
