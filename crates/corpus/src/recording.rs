//! Simulated recordings: speech in a room with background noise, or in a studio.

use crate::noise::{background, power};
use crate::random::uniform;
use crate::room::reverberate;
use crate::synthesizer::SAMPLE_RATE;
use plimsoll_core::Key;

/// Recording conditions of one utterance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recording {
    key: Key,
    /// Signal-to-noise ratio of the recording in decibels.
    pub(super) snr_db: f32,
    /// Peak amplitude of the recording, where one is full scale.
    pub(super) peak: f32,
}

impl Recording {
    /// Draws the recording conditions that `key` determines.
    pub(super) fn new(key: Key) -> Self {
        // The root makes good recordings more frequent than bad ones; all lie between 5 and 20 dB.
        let snr_db = 5.0 + 15.0 * uniform(key.with("snr"), 0.0, 1.0).sqrt();
        let peak_db = uniform(key.with("peak"), -16.0, -1.0);
        Self { key, snr_db, peak: 10.0_f32.powf(peak_db / 20.0) }
    }

    /// Records `dry` speech: adds room and noise and sets the final level.
    pub(super) fn record(&self, dry: &[f32]) -> Vec<f32> {
        let mut sound = self.speech(dry);
        let noise = self.noise(&sound);
        sound.iter_mut().zip(noise).for_each(|(sound, noise)| *sound += noise);
        let loudest = sound.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
        let gain = self.peak / loudest.max(1e-9);
        sound.iter_mut().for_each(|sample| *sample *= gain);
        sound
    }

    /// Returns the speech in its room, without noise.
    pub(super) fn speech(&self, dry: &[f32]) -> Vec<f32> {
        reverberate(dry, self.key.with("room"))
    }

    /// Computes the background noise for `speech`, at the level of the signal-to-noise ratio.
    pub(super) fn noise(&self, speech: &[f32]) -> Vec<f32> {
        let mut noise = background(speech.len(), self.key.with("noise"));
        let level = (speech_power(speech) / 10.0_f32.powf(self.snr_db / 10.0)).sqrt();
        noise.iter_mut().for_each(|sample| *sample *= level);
        noise
    }
}

/// Level relative to the peak, 50 dB down, below which sound before or after the speech counts as silence.
const SILENCE: f32 = 0.003;

/// Records `dry` speech in a studio: without noise, with a peak of 0.7 to 0.9, and 50 to 100 ms of silence at both
/// ends.
pub(super) fn studio_recording(dry: &[f32], key: Key) -> Vec<f32> {
    let Some((first, last)) = heard(dry) else { return dry.to_vec() };
    let gain = uniform(key.with("studio peak"), 0.7, 0.9) / loudest(dry);
    let speech = dry[first..=last].iter().map(|sample| gain * sample).collect();
    [studio_silence("studio lead", key), speech, studio_silence("studio trail", key)].concat()
}

/// Returns by how many samples sound comes later in [`studio_recording`] than in `dry`.
pub(super) fn studio_delay(dry: &[f32], key: Key) -> isize {
    let lead = |first| studio_silence("studio lead", key).len() as isize - first as isize;
    heard(dry).map_or(0, |(first, _)| lead(first))
}

fn studio_silence(name: &str, key: Key) -> Vec<f32> {
    vec![0.0; (uniform(key.with(name), 0.05, 0.10) * SAMPLE_RATE as f32) as usize]
}

fn loudest(samples: &[f32]) -> f32 {
    samples.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()))
}

/// Returns the first and the last sample that are heard.
fn heard(dry: &[f32]) -> Option<(usize, usize)> {
    let limit = SILENCE * loudest(dry);
    let heard = |sample: &f32| sample.abs() > limit;
    Some((dry.iter().position(heard)?, dry.iter().rposition(heard)?))
}

/// Computes the mean power of the speech, over blocks of 20 ms that are at most 35 dB below the loudest block.
pub(super) fn speech_power(samples: &[f32]) -> f32 {
    let blocks: Vec<f32> = samples.chunks(SAMPLE_RATE as usize / 50).map(power).collect();
    let floor = blocks.iter().copied().fold(0.0, f32::max) * 10.0_f32.powf(-3.5);
    let (sum, count) =
        blocks.iter().filter(|&&block| block > floor).fold((0.0, 0), |(sum, count), block| (sum + block, count + 1));
    sum / count.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthesizer::synthesize;
    use crate::voice::Voice;

    #[test]
    fn noise_levels_stay_in_range_without_clipping() {
        let mut ratios = Vec::new();
        for index in 0..24 {
            let dry = synthesize(&[3, 30, 60], &Voice::new(4, index), Key::new(index as u64)).samples;
            let recording = Recording::new(Key::new(index as u64));
            let speech = recording.speech(&dry);
            ratios.push(10.0 * (speech_power(&speech) / power(&recording.noise(&speech))).log10());
            let loudest = recording.record(&dry).iter().fold(0.0_f32, |most, s| most.max(s.abs()));
            assert!((0.1..0.9).contains(&loudest), "{loudest}");
        }
        assert!(ratios.iter().all(|db| (4.9..20.1).contains(db)), "{ratios:?}");
        let spread = |db: fn(f32, f32) -> f32| ratios.iter().copied().reduce(db).unwrap();
        assert!(spread(f32::max) - spread(f32::min) > 8.0, "{ratios:?}");
    }
}
