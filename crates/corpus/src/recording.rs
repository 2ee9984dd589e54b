//! A recording: dry speech put into a room, with noise behind it, at some distance from the microphone; or a studio's.

use super::draw::between;
use super::noise::{background, power};
use super::room::echoed;
use super::synthesiser::SAMPLE_RATE;
use plimsoll_core::Key;

/// Where and how an utterance is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recording {
    key: Key,
    /// How much louder the speech is than the noise, in decibels.
    pub(super) snr_db: f32,
    /// The loudest sample, where one is the limit of the format.
    pub(super) peak: f32,
}

impl Recording {
    /// The recording that this key draws.
    pub(super) fn new(key: Key) -> Self {
        // The root makes good recordings more common than bad ones; all lie between 5 and 20 dB.
        let snr_db = 5.0 + 15.0 * between(key.with("snr"), 0.0, 1.0).sqrt();
        let peak_db = between(key.with("peak"), -16.0, -1.0);
        Self { key, snr_db, peak: 10.0_f32.powf(peak_db / 20.0) }
    }

    /// Dry speech as it arrives in the file.
    pub(super) fn record(&self, dry: &[f32]) -> Vec<f32> {
        let mut sound = self.speech(dry);
        let noise = self.noise(&sound);
        sound.iter_mut().zip(noise).for_each(|(sound, noise)| *sound += noise);
        let loudest = sound.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
        let gain = self.peak / loudest.max(1e-9);
        sound.iter_mut().for_each(|sample| *sample *= gain);
        sound
    }

    /// The speech alone, in its room.
    pub(super) fn speech(&self, dry: &[f32]) -> Vec<f32> {
        echoed(dry, self.key.with("room"))
    }

    /// The noise that belongs behind this speech.
    pub(super) fn noise(&self, speech: &[f32]) -> Vec<f32> {
        let mut noise = background(speech.len(), self.key.with("noise"));
        let level = (speech_power(speech) / 10.0_f32.powf(self.snr_db / 10.0)).sqrt();
        noise.iter_mut().for_each(|sample| *sample *= level);
        noise
    }
}

/// What is quieter than this share of the loudest sample, 50 dB below it, is silence before or after the speech.
const SILENCE: f32 = 0.003;

/// Dry speech as a studio delivers it: nothing added, at one loudness or nearly, and 50 to 100 ms of silence around it.
pub(super) fn in_studio(dry: &[f32], key: Key) -> Vec<f32> {
    let loudest = dry.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
    let heard = |sample: &f32| sample.abs() > SILENCE * loudest;
    let (Some(first), Some(last)) = (dry.iter().position(heard), dry.iter().rposition(heard)) else {
        return dry.to_vec();
    };
    let gain = between(key.with("studio peak"), 0.7, 0.9) / loudest;
    let silence = |name: &str| vec![0.0; (between(key.with(name), 0.05, 0.10) * SAMPLE_RATE as f32) as usize];
    let speech = dry[first..=last].iter().map(|sample| gain * sample).collect();
    [silence("studio lead"), speech, silence("studio trail")].concat()
}

/// Mean power where somebody speaks: 20 ms blocks no more than 35 dB below the loudest.
pub(super) fn speech_power(samples: &[f32]) -> f32 {
    let blocks: Vec<f32> = samples.chunks(SAMPLE_RATE as usize / 50).map(power).collect();
    let floor = blocks.iter().copied().fold(0.0, f32::max) * 10.0_f32.powf(-3.5);
    let (sum, count) =
        blocks.iter().filter(|&&block| block > floor).fold((0.0, 0), |(sum, count), block| (sum + block, count + 1));
    sum / count.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::super::synthesiser::synthesise;
    use super::super::voice::Voice;
    use super::*;

    #[test]
    fn noise_stays_in_range_and_nothing_clips() {
        let mut ratios = Vec::new();
        for index in 0..24 {
            let dry = synthesise(&[3, 30, 60], &Voice::of(4, index), Key::new(index as u64)).samples;
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
