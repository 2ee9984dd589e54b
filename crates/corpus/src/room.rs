//! Room acoustics: early reflections from a few walls, and a short late reverberation.

use crate::filter::LowPass;
use crate::random::uniform;
use crate::synthesizer::SAMPLE_RATE;
use plimsoll_core::Key;

/// Simulates how `samples` sound in the room that `key` determines; length and start of the sound do not change.
pub(super) fn reverberate(samples: &[f32], key: Key) -> Vec<f32> {
    let samples = &damp_treble(samples, key.with("muffled"));
    let mut sound = samples.clone();
    for (delay, loudness) in early_reflections(key.with("walls")) {
        sound.iter_mut().skip(delay).zip(samples).for_each(|(sound, early)| *sound += loudness * early);
    }
    let tail_loudness = uniform(key.with("tail"), 0.03, 0.15);
    let tail = late_reverb(samples, key);
    sound.iter_mut().zip(tail).for_each(|(sound, late)| *sound += tail_loudness * late);
    sound
}

/// Simulates the loss of treble on the way to the microphone: up to half of it.
fn damp_treble(samples: &[f32], key: Key) -> Vec<f32> {
    let mut low = LowPass::new(uniform(key.with("hertz"), 1000.0, 3000.0), SAMPLE_RATE as f32);
    let lost = uniform(key.with("lost"), 0.0, 0.5);
    samples.iter().map(|sample| (1.0 - lost) * sample + lost * low.pass(*sample)).collect()
}

/// Draws early reflections: their delays in samples, and their amplitudes.
fn early_reflections(key: Key) -> impl Iterator<Item = (usize, f32)> {
    let nearness = uniform(key.with("nearness"), 0.2, 0.6);
    (0..2 + key.with("count").below(4)).map(move |wall| {
        let secs = uniform(key.at(wall).with("secs"), 0.002, 0.040);
        let sign = if key.at(wall).with("sign").unit() < 0.5 { -1.0 } else { 1.0 };
        ((secs * SAMPLE_RATE as f32) as usize, sign * nearness * (-secs / 0.03).exp())
    })
}

/// Computes late reverberation by four comb filters of different lengths with one decay time (Schroeder, 1962).
fn late_reverb(samples: &[f32], key: Key) -> Vec<f32> {
    let fade_secs = uniform(key.with("fade"), 0.10, 0.35);
    let mut tail = vec![0.0; samples.len()];
    for comb in 0..4 {
        let delay_secs = uniform(key.with("lap").at(comb), 0.023, 0.047);
        // After `fade_secs` a thousandth remains, which is 60 dB less.
        let keep = 0.001_f32.powf(delay_secs / fade_secs);
        let delay = (delay_secs * SAMPLE_RATE as f32) as usize;
        let mut echo = vec![0.0; samples.len()];
        for at in delay..samples.len() {
            echo[at] = samples[at - delay] + keep * echo[at - delay];
        }
        tail.iter_mut().zip(echo).for_each(|(tail, echo)| *tail += echo);
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_sound_is_loudest_and_the_reverb_decays() {
        let mut clap = vec![0.0; 16_000];
        clap[0] = 1.0;
        for index in 0..20 {
            let sound = reverberate(&clap, Key::new(index));
            assert!(sound.len() == clap.len() && sound[0] > 0.4, "{}", sound[0]);
            assert!(sound[1..].iter().all(|s| s.abs() < sound[0]), "room {index} is louder than the speaker");
            assert!(sound[100..].iter().any(|&s| s != 0.0));
            assert!(sound[10_000..].iter().all(|s| s.abs() < 1e-3));
        }
    }
}
